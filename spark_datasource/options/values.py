"""Values of options: what Spark passed on as text, each parsed once, and all that is wrong with them.

Spark lower-cases the keys and turns every value into text. Every problem is found before anything else
happens, and all of them are in one error; an unknown option is an error that names the nearest known one.
"""

from __future__ import annotations

import datetime
import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple, TypeVar

from spark_datasource.failures import USE_VIEW
from spark_datasource.options.hadoop import HadoopSettings
from spark_datasource.options.names import parse_name, parse_names
from spark_datasource.options.storage import NO_STORAGE, PREFIX, Storage, storage_for
from spark_datasource.worker.logs import absolute
from txnformat.digits import whole
from txnformat.errors import InvalidInputError
from txnformat.moments import as_moment_ms

__all__ = ["Kind", "Option", "OptionValues", "storage_of"]

_EMPTY_IS_MISSING = {"path", "topic"}
"""Options that have to be given, in lower case: an empty one has an error of its own."""


_UNITS = {"k": 2**10, "m": 2**20, "g": 2**30}

E = TypeVar("E", bound=StrEnum)


class Kind(NamedTuple):
    """The kind of value that an option takes."""

    type: str
    """The type, in words for the documentation."""
    parse: Callable[[OptionValues, str], Any] | None = None
    """Returns the value of the option of a name, None when the option is not given. Kinds whose parser looks
    at other options have no such function."""


@dataclass(frozen=True, slots=True)
class Option:
    """One option. Texts are Markdown; links are relative to docs/."""

    name: str
    kind: Kind
    example: str
    """A value that is accepted, and does something."""
    text: str = ""
    """Its purpose. Empty: the string below its field says so."""
    default: str = ""
    """Its default; in backquotes where it can be given as it is. Empty: none."""
    alias: str | None = None
    """A second name of the option."""
    only: str = ""
    """``batch`` or ``stream``: the other has no such option."""

    def parsed(self, found: OptionValues) -> Any:
        """Return its value; None when it is not given."""
        return None if self.kind.parse is None else self.kind.parse(found, self.name)


class OptionValues:
    """The texts that Spark passed on, and what is wrong with them.

    ``known``: by name. ``others``: options for something else, by what that is. ``later``: not supported yet.
    """

    def __init__(
        self,
        options: Mapping[str, str],
        known: Mapping[str, Option],
        others: Mapping[str, Mapping[str, Option]],
        later: Sequence[str] = (),
    ) -> None:
        self._values = {key.lower(): str(value).strip() for key, value in options.items()}
        self.problems: list[str] = []
        names = _names(known)
        not_yet = {name.lower(): name for name in later}
        elsewhere = {
            key: (name, what) for what in reversed(list(others)) for key, name in _names(others[what]).items()
        }
        if "provider" in self._values:  # CREATE TABLE: Spark passes properties of its own, not the options
            raise InvalidInputError(
                "tables of a catalog are not supported by this version",
                kind="unsupported-operation",
                hint=f"use {USE_VIEW}",
            )
        for key in sorted(self._values.keys() & names.keys() - _EMPTY_IS_MISSING):
            # Often a variable that was not set. A default in its place would be a guess: without txnAppId,
            # not once.
            if not self._values[key]:
                self.problems.append(f"option {names[key]} is empty; give it a value, or leave it out")
        for key in sorted(self._values.keys() - names.keys()):
            if key == "paths":
                self.problems.append("load one path: a read covers one log")
            elif key.startswith(PREFIX):
                pass  # looked at with the path
            elif key in not_yet:
                self.problems.append(f"option {not_yet[key]} is not supported by this version")
            elif key in elsewhere:
                self.problems.append("option {} is for {} only".format(*elsewhere[key]))
            else:
                nearest = difflib.get_close_matches(key, names, n=1)
                advice = (
                    f"did you mean {names[nearest[0]]}?"
                    if nearest
                    else f"there are {', '.join(names.values())}"
                )
                self.problems.append(f"there is no option {key!r:.100}; {advice}")
        self.given = frozenset(names[key] for key in self._values.keys() & names.keys())
        """Names of the options that were given, as they are written in the documentation."""
        self._written = {
            option.name: self._one_of(option.name, option.alias) for option in known.values() if option.alias
        }

    def _one_of(self, name: str, alias: str) -> list[str]:
        """Return under which of its two names an option was given; the first when they differ, which is a
        problem.
        """
        value, other = self._values.get(name.lower()), self._values.get(alias.lower())
        if value and other and value != other:
            self.problems.append(
                f"options {name} and {alias} mean the same, but their values differ: {value!r:.100} and "
                f"{other!r:.100}; give one of them"
            )
        if value and value == other:
            return [name, alias]
        return [alias if other and not value else name]

    def finish(self) -> None:
        """Raise when there was any problem."""
        if self.problems and not self._values:
            self.problems.append(
                "Spark passed no options, as it does for tables of a catalog: drop the table, and use "
                f"{USE_VIEW}"
            )
        if self.problems:
            raise InvalidInputError(self.problems, kind="invalid-option")

    def has(self, name: str) -> bool:
        """Whether an option was given, known or not."""
        return name.lower() in self._values

    def text(self, name: str) -> str | None:
        """Return an option's text; None when it is absent or empty."""
        return self._values.get(self._written.get(name, [name])[0].lower()) or None

    def refuse(self, name: str, advice: str) -> None:
        """Note that an option's text is not what it takes."""
        names = self._written.get(name, [name])
        what = f"option {names[0]} is" if len(names) == 1 else f"options {' and '.join(names)} are"
        self.problems.append(f"{what} {self.text(name)!r:.100}; {advice}")

    def storage(self) -> dict[str, str]:
        """Return the options ``storage.<name>``, without the prefix."""
        return {
            key.removeprefix(PREFIX): value for key, value in self._values.items() if key.startswith(PREFIX)
        }

    def names(self, name: str) -> tuple[str, ...] | None:
        """Return a comma-separated list of names, which may stand in backquotes."""
        text = self.text(name)
        try:
            return None if text is None else parse_names(text)
        except ValueError as error:
            self.problems.append(f"option {name} {error}")
            return None

    def integer(self, name: str, minimum: int, maximum: int | None = None, advice: str = "") -> int | None:
        """Return an integer of at least ``minimum``; ``advice``: what to do about one above ``maximum``."""
        text = self.text(name)
        value = None if text is None else whole(text)
        if text is not None and (value is None or value < minimum):
            self.refuse(name, f"use an integer from {minimum} on")
            return None
        if value is not None and maximum is not None and value > maximum:
            self.problems.append(f"option {name} is {value}; {advice}")
        return value

    def boolean(self, name: str) -> bool | None:
        """Return "true" or "false"."""
        text = (self.text(name) or "").lower()
        if text not in ("", "true", "false"):
            self.refuse(name, "use true or false")
        return text == "true" if text else None

    def bytes(self, name: str) -> int | None:
        """Return a number of bytes, given as such or with one of Spark's suffixes (``64m``, ``64mb``)."""
        text = self.text(name)
        if text is None:
            return None
        number = text.lower().removesuffix("b")
        unit = _UNITS.get(number[-1:], 1)
        count = whole(number[:-1] if unit > 1 else number, 18)
        if count is None or count < 1:
            self.refuse(name, "use a number of bytes, such as 64m")
            return None
        return count * unit

    def choice(self, name: str, choices: type[E]) -> E | None:
        """Return one of the names that an enumeration has."""
        text = self.text(name)
        try:
            return None if text is None else choices(text.lower())
        except ValueError:
            *others, last = choices
            self.refuse(name, f"use {', '.join(others)} or {last}")
            return None

    def timestamp(self, name: str) -> int | None:
        """Return milliseconds since the epoch: given as such, or as ISO 8601 with a zone."""
        text = self.text(name)
        if text is None:
            return None
        try:
            digits = text.removeprefix("-")
            if (number := whole(digits)) is not None:
                return number if digits == text else -number
            moment = datetime.datetime.fromisoformat(text)
        except ValueError:
            moment = None
        if moment is None or moment.tzinfo is None:
            self.refuse(
                name,
                "use milliseconds since the epoch, or ISO 8601 with a zone, such as 2026-01-31T12:00:00Z",
            )
            return None
        # In integers: a float of seconds is a millisecond off for some times. Rounded up: "at or after".
        since = moment - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
        return -(-since // datetime.timedelta(milliseconds=1))

    def moment(self, name: str) -> int | None:
        """Return milliseconds since the epoch, as Python's ``timestamp_as_of`` takes them."""
        text = self.text(name)
        try:
            return None if text is None else as_moment_ms(text, f"option {name}")
        except InvalidInputError as error:
            self.problems.append(f"{error.problems[0]}; {error.hint}")
            return None

    def path(self, name: str) -> str:
        """Return the absolute path or URL of the log; that it is missing is a problem."""
        text = self.text(name)
        if text is None:
            if not self.has("paths"):  # load([...]), a problem already
                self.problems.append(
                    "the path of the log is missing; pass it to load(), save(), start() or option path"
                )
            return ""
        return absolute(text)

    def name(self, name: str) -> str | None:
        """Return the one name of a column."""
        text = self.text(name)
        return None if text is None else parse_name(text)


def _names(options: Mapping[str, Option]) -> dict[str, str]:
    """Return all names of options, aliases too, by their lower case."""
    return {
        name.lower(): name for one in options.values() for name in (one.name, one.alias) if name is not None
    }


def storage_of(found: OptionValues, path: str, hadoop: HadoopSettings | None) -> Storage:
    """Return the storage options for a path; what is wrong with them is a problem."""
    try:
        return storage_for(path, found.storage(), hadoop)
    except InvalidInputError as error:
        found.problems.extend(error.problems)
        return NO_STORAGE
