"""Options that commands share, and the log that they lead to."""

from __future__ import annotations

import contextlib
import datetime
import difflib
import functools
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from txnformat.field_types import INT64_MAX
from txnformat.store.options import shown_name

if TYPE_CHECKING:
    from txnformat.core.state import LogState
    from txnformat.log import TxnLog
    from txnformat.store.base import ObjectStore

__all__ = [
    "GROUP",
    "NUMBER",
    "SIZES",
    "TIMES",
    "TOPIC",
    "TRANSACTIONAL_ID",
    "Bytes",
    "Commands",
    "Duration",
    "FilePath",
    "Integer",
    "IntegerRange",
    "Milliseconds",
    "Place",
    "amount_of",
    "binary_option",
    "delimiter_option",
    "named",
    "parse_numbers",
    "parse_offsets",
    "parse_pairs",
    "settings_option",
    "with_optional_place",
    "with_place",
]

FIRST_SENTENCE_MAX = 400
"""Characters of a command's first sentence that a list of commands shows: all of it."""

NUMBER = re.compile("[0-9]{1,19}")
"""A number in an argument: digits of ASCII, as many as an offset can have."""

_AMOUNT = re.compile("([0-9]{1,19})([A-Za-z]{0,7})")
_PLAIN = re.compile(r"[\w.:/@+][\w.:/@+-]*", re.ASCII)
TIMES = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 24 * 3_600_000}
"""Milliseconds of each unit of time."""
SIZES = {
    "b": 1,
    **{f"{letter}ib": 1024**power for power, letter in enumerate("kmgt", 1)},
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmgt", 1)},
}
"""Bytes of each unit of size."""
_INTEGER = re.compile("[+-]?[0-9]{1,19}")

Command = Callable[..., Any]


if TYPE_CHECKING:
    _DurationType = click.ParamType[datetime.timedelta]
    _NumberType = click.ParamType[int]
    _TextType = click.ParamType[str]
else:
    _DurationType = _NumberType = _TextType = click.ParamType  # that of click 8.2 takes no type


class Integer(click.types.IntParamType):
    """A whole number in digits of ASCII; click's own takes what ``int`` takes, such as ``1_0`` and digits of
    other scripts.
    """

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number."""
        if isinstance(value, str) and not _INTEGER.fullmatch(value):
            self.fail(f"{value!r:.80} is not a valid integer.", param, ctx)
        return super().convert(value, param, ctx)


def amount_of(text: str, units: Mapping[str, int], alone: int | None) -> int | None:
    """Return the number that ``30m`` or ``128MiB`` stands for; None when it is none, or 2**63 or more.

    ``units``: what each stands for, by its name in small letters. ``alone``: what a number without a unit
    counts. If None, the unit must be there.
    """
    found = _AMOUNT.fullmatch(text)
    if found is None:
        return None
    one = units.get(found[2].lower()) if found[2] else alone
    amount = None if one is None else int(found[1]) * one
    return amount if amount is not None and amount <= INT64_MAX else None


class Duration(_DurationType):
    """A number and its unit: 7d, 12h, 30m, 45s, 500ms."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the duration as a timedelta."""
        if isinstance(value, datetime.timedelta):
            return value
        found = amount_of(value, TIMES, None)
        try:
            if found is not None:
                return datetime.timedelta(milliseconds=found)
        except OverflowError:
            pass
        return self.fail(f"{value!r:.80} is not a duration such as 7d, 12h or 30m.", param, ctx)


class _Amount(_NumberType):
    """A number that may have a unit."""

    _units: Mapping[str, int]
    _form: str

    def __init__(self, unit: str, least: int = 0, most: int = INT64_MAX) -> None:
        self._unit, self._least, self._most = unit, least, most
        self.name = f"{unit}|{self._form.partition(' ')[0]}"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number, of ms or of bytes."""
        if not isinstance(value, str):
            return value
        found = amount_of(value, self._units, self._alone())
        if found is None:
            self.fail(f"{value!r:.80} is neither a number of {self._unit} nor a {self._form}.", param, ctx)
        if not self._least <= found <= self._most:
            self.fail(f"{value!r:.80} is not from {self._least} to {self._most}.", param, ctx)
        return found

    def _alone(self) -> int:
        return self._units.get(self._unit, 1)


class Milliseconds(_Amount):
    """A time: a number of ``unit``, or a number with a unit. The result counts milliseconds, and so do the
    bounds.
    """

    _form = "duration such as 7d, 12h, 30m, 45s or 500ms"

    def __init__(self, unit: str = "ms", least: int = 0, most: int = INT64_MAX) -> None:
        self._units = {**TIMES, "seconds": 1_000, "minutes": 60_000}
        super().__init__(unit, least, most)


class Bytes(_Amount):
    """A number of bytes, which may have a unit."""

    _form = "size such as 64KiB, 128MiB or 1GB"
    _units: Mapping[str, int]

    def __init__(self, least: int = 0, most: int = INT64_MAX) -> None:
        self._units = SIZES
        super().__init__("bytes", least, most)


class FilePath(click.Path):
    """The path of a file, as a ``Path``. An empty text, as of a variable of a shell that is not set, names
    none.
    """

    def __init__(self) -> None:
        super().__init__(dir_okay=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path."""
        if value in ("", b""):
            self.fail("the path is empty.", param, ctx)
        if "\0" in os.fsdecode(value):
            self.fail(f"{value!r:.80} is not a path.", param, ctx)
        return super().convert(value, param, ctx)


def named(_context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """Return the path, address or name that is given; refuse an empty text, which would stand for the current
    directory, or for nothing.
    """
    if value == "":
        raise click.BadParameter("it is empty", param=parameter)
    return value


class IntegerRange(click.IntRange, Integer):
    """As :class:`Integer`, within bounds."""


class Known(_TextType):
    """A name that a log may know: a shell completes it.

    ``names``: returns the names in a state. A shell puts a completed name into the command line as it is, so
    only names without a character that means something to a shell are offered.
    """

    name = "text"

    def __init__(self, names: Callable[[LogState], Iterable[str]]) -> None:
        self._names = names

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the name."""
        return click.STRING.convert(value, param, ctx)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the names that begin with ``incomplete``; none if the log cannot be read."""
        root = ctx.params.get("root") or os.environ.get("TXNLOG_ROOT")
        if not root:
            return []
        try:
            with Place(_expanded(root), ctx.params.get("storage") or {}).open() as log:
                names = sorted(self._names(log.state))
        except Exception:  # noqa: BLE001 - an error would stand in the command line that is typed
            return []
        return [
            CompletionItem(name) for name in names if name.startswith(incomplete) and _PLAIN.fullmatch(name)
        ]


TOPIC = Known(lambda state: (topic.name for topic in state.topics.values()))
TRANSACTIONAL_ID = Known(lambda state: state.transactional_ids)
GROUP = Known(lambda state: state.groups)


def binary_option(what: str) -> Callable[[Command], Command]:
    """Give a command ``--binary``."""
    ways = click.Choice(["utf8", "base64", "hex"])
    return click.option("--binary", type=ways, default="utf8", show_default=True, help=what)


def _delimiter(_context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """Return one character, or None where the option is not given; a backslash and t, or the word tab, are a
    tab.
    """
    if value is None:
        return None
    found = {"\\t": "\t", "tab": "\t"}.get(value, value)
    if len(found) != 1 or not found.isascii() or found in '"\r\n\0':
        raise click.BadParameter(f"{value!r:.80} is not one character such as ; or | or tab", param=parameter)
    return found


delimiter_option = click.option(
    "--delimiter",
    callback=_delimiter,
    metavar="CHARACTER",
    help="CSV only: what stands between two values, such as ; or tab. Default: a comma.",
)


class Commands(click.Group):
    """A group of commands. A mistyped one is answered with the nearest; lists show whole sentences."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the order in which a newcomer needs them."""
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list. The base class cuts a sentence that needs more than the rest of a line."""
        rows = [
            (name, command.get_short_help_str(FIRST_SENTENCE_MAX)) for name, command in self.commands.items()
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the first argument names, or say which was meant."""
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], self.commands, n=1)
            meant = f" Did you mean {near[0]!r}?" if near else ""
            ctx.fail(f"There is no command {args[0]!r}.{meant}")
        return super().resolve_command(ctx, args)


@dataclass(frozen=True, slots=True)
class Place:
    """Where the log is."""

    root: str
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Storage options: they may hold secrets."""

    def open(self) -> TxnLog:
        """Open the log."""
        from txnformat.log import TxnLog

        return TxnLog.open(self.root, **self.arguments())

    def store(self) -> ObjectStore:
        """Return the store, also of a log that cannot be opened."""
        from txnformat.store.open import open_store

        return open_store(self.root, **self.arguments())

    def arguments(self) -> dict[str, Any]:
        """Return what opens the log takes besides the root."""
        return {"storage_options": dict(self.storage)} if self.storage else {}


def _settings(
    _context: click.Context, _parameter: click.Parameter, given: tuple[str, ...]
) -> dict[str, int | str]:
    """Return settings of a topic from texts NAME=VALUE. Those of time and of bytes take a unit."""
    from txnformat.core.topics.settings import SETTINGS

    found: dict[str, int | str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{text!r:.80} is not NAME=VALUE, as in retention.ms=7d")
        if name in found:
            raise click.BadParameter(f"{name!r:.80} is given twice")
        found[name] = int(value) if _INTEGER.fullmatch(value) else value
        units, form = _SETTING_UNITS.get(name.rpartition(".")[2], ({}, ""))
        if form and name in SETTINGS and isinstance(found[name], str):
            amount = amount_of(value, units, None)
            if amount is None:
                raise click.BadParameter(f"{name} is {value!r:.80}: give a number of {form}")
            found[name] = amount
    return found


_SETTING_UNITS = {
    "ms": (TIMES, "ms, or a duration such as 7d, 12h or 30m"),
    "bytes": (SIZES, "bytes, or a size such as 128MiB"),
}
"""Units, and how a message names them, by the end of a setting's name."""

settings_option = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    callback=_settings,
    help="A setting, as in retention.ms=7d; repeat the option. A log of an older version needs `txnlog "
    "upgrade` once before.",
)


def with_place(function: Command, *, required: bool = True) -> Command:
    """Give a command ``--root`` and ``--storage``, passed on as ``place``, and ``--json``, passed on as
    ``as_json``.
    """

    @click.option(
        "--root",
        "-r",
        envvar="TXNLOG_ROOT",
        show_envvar=True,
        required=required,
        metavar="PATH",
        help="Path or URL of the log.",
    )
    @click.option(
        "--storage",
        multiple=True,
        callback=parse_pairs,
        metavar="KEY=VALUE|@FILE",
        help="An option of the store, such as endpoint=http://127.0.0.1:9000; repeat the option for more "
        "(docs/storage.md). @FILE reads lines KEY=VALUE, or a JSON object: put secrets into a file, "
        "because other "
        "users can see a command line.",
    )
    @click.option("--json", "as_json", is_flag=True, help="Print JSON; errors, too (on stderr).")
    @functools.wraps(function)
    def wrapped(*arguments: Any, root: str | None, storage: dict[str, str], **others: Any) -> Any:
        # A shell leaves ~ as it is in --root=~/log, and in a variable that is quoted.
        place = None if root is None else Place(_expanded(root), storage)
        return function(*arguments, place=place, **others)

    return wrapped


def _expanded(root: str) -> str:
    """Return a root in the home directory as its path."""
    with contextlib.suppress(RuntimeError):  # there is no such user
        return str(Path(root).expanduser()) if root.startswith("~") else root
    return root


with_optional_place = functools.partial(with_place, required=False)
"""For a command that also works without a log: then ``place`` is None."""


def parse_pairs(_context: click.Context, parameter: click.Parameter, values: Sequence[str]) -> dict[str, str]:
    """Return names and values from texts KEY=VALUE and @FILE. A message repeats no value: it may be a
    secret.
    """
    from txnlog.cli.storage_file import read_storage_file

    found: dict[str, str] = {}
    for number, text in enumerate(values, start=1):
        if text == "@":
            raise click.BadParameter(
                f"number {number}: the name of a file is missing after @", param=parameter
            )
        if text.startswith("@"):
            pairs = read_storage_file(text[1:])
        else:
            key, equals, value = text.partition("=")
            if not (key and equals):  # the text is not repeated: it may be a secret
                raise click.BadParameter(f"number {number} is neither KEY=VALUE nor @FILE", param=parameter)
            pairs = {key: value}
        for key, value in pairs.items():
            if key in found:
                raise click.BadParameter(f"{shown_name(key)} is given twice", param=parameter)
            found[key] = value
    return found


def parse_offsets(
    _context: click.Context, parameter: click.Parameter, value: str | None
) -> int | dict[int, int] | None:
    """Return ``7`` as an offset for every partition, ``0:7,2:9`` as an offset per partition."""
    if value is None:
        return None
    if NUMBER.fullmatch(value):
        return int(value)
    found: dict[int, int] = {}
    for pair in value.split(","):
        partition, colon, offset = pair.strip().partition(":")
        if not (colon and NUMBER.fullmatch(partition) and NUMBER.fullmatch(offset)):
            by_time = "; records from a time on: --where \"_timestamp >= '2026-01-31T12:00:00Z'\""
            raise click.BadParameter(
                f"{value!r} is neither an offset nor a list such as 0:7,2:9 (partition:offset)"
                + (by_time if "--from" in parameter.opts else ""),
                param=parameter,
            )
        if int(partition) in found:
            raise click.BadParameter(f"partition {partition} is named twice", param=parameter)
        found[int(partition)] = int(offset)
    return found


def parse_numbers(
    _context: click.Context, parameter: click.Parameter, values: Sequence[str]
) -> list[int] | None:
    """Return partition numbers: the option repeated, or ``0,2``; one that is given twice counts once."""
    numbers: list[int] = []
    for part in ",".join(values).split(",") if values else []:
        if not NUMBER.fullmatch(part.strip()):
            raise click.BadParameter(f"{part!r} is not a partition number", param=parameter)
        numbers.append(int(part))
    return list(dict.fromkeys(numbers)) or None
