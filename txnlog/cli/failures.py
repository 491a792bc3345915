"""Errors and notes of commands on stderr: an exit code, and one clean message without a traceback."""

from __future__ import annotations

import difflib
import logging
import re
import sys
from collections.abc import Mapping
from typing import Any, Self

import click

from txnformat import errors
from txnformat.errors import InvalidInputError, TxnLogError
from txnlog.cli.output import duration, instant, plain_values, printable, show_json, show_lines

__all__ = [
    "BROKEN_PIPE",
    "CORRUPT",
    "EXIT_CODES",
    "IMPORT_INTERRUPTED",
    "INTERNAL",
    "INTERRUPTED",
    "NEGATIVE",
    "USAGE",
    "Interrupted",
    "Notes",
    "exit_code",
    "report",
]

NEGATIVE = 1
"""The check ran and found problems (``verify``, ``doctor``)."""
USAGE = 2
CORRUPT = 6
"""Something that is stored cannot be used (FormatError)."""
INTERNAL = 70
"""A defect (EX_SOFTWARE of sysexits.h)."""
INTERRUPTED = 130
"""A shell's code for a program that SIGINT ended."""
TERMINATED = 143
"""A shell's code for a program that SIGTERM ended."""
BROKEN_PIPE = 141
"""A shell's code for SIGPIPE: the reader of the output has gone."""

EXIT_CODES: Mapping[type[TxnLogError], int] = {
    errors.InvalidInputError: USAGE,
    errors.OffsetOutOfRangeError: USAGE,
    errors.NotFoundError: 3,
    errors.ConflictError: 4,
    errors.ProducerFencedError: 4,
    errors.TransactionTimedOutError: 4,
    errors.SequenceError: 4,
    errors.InvalidTransactionStateError: 4,
    errors.AckConflictError: 4,
    errors.StaleAppVersionError: 4,
    errors.UploadExpiredError: 4,
    errors.StorageError: 5,
    errors.FormatError: CORRUPT,
    errors.CommitStateUnknownError: 7,
    errors.InternalError: INTERNAL,
}
"""Exit code of each class of errors; a class that is not here has its base's."""


_HINTS: Mapping[str, str] = {
    "no-object": "name an object by its key below the root, such as _txnlog/format.json, or a file by its "
    "path; txnlog "
    "dump entries and txnlog dump batches show keys",
    "unknown-entry": "txnlog history shows the existing entries",
    "no-log": "create it with txnlog create, or check the path",
    "log-exists": "use the existing log, or add --exist-ok",
    "unknown-topic": "create it with txnlog create-topic, or check the name: txnlog topics",
    "transaction-prepared": "its coordinator must commit or abort it; txnlog transactions force-terminate "
    "aborts it "
    "for good",
    "unknown-subscription": (
        "create it with txnlog subscriptions create, or check the name: txnlog subscriptions list"
    ),
    "invalid-version": (
        "give either --version-as-of or --timestamp-as-of, and leave --isolation out or set it to snapshot"
    ),
    "partition-count-changed": (
        "another client added partitions to the topic meanwhile: run the command again"
    ),
}
"""Hints for the command line, for kinds whose own hint names a call of Python."""


_EXIT_CODES_OF_KINDS: Mapping[str, int] = {
    "segment-file-missing": 6,
    "upgrade-required": 4,
    "missing-package": 2,
}
"""Exit codes of kinds that say more than their class: data that a log has lost is not a name that the user
got wrong, a log that has to be upgraded is sound, and so is one for which a package is missing."""


_SHARED_OPTIONS = ("--root", "-r", "--storage", "--json")
"""Options of the commands, which many write before the command."""


NOTES_MAX = 100


class Notes(logging.Handler):
    """Takes the warnings of the logger ``txnlog`` while a command runs.

    People see each at once. With ``--json`` stderr has at most one document, so they are kept for its
    ``notes``.
    """

    def __init__(self, *, as_json: bool) -> None:
        super().__init__(logging.WARNING)
        self._as_json = as_json
        self.kept: list[str] = []
        self.error: BaseException | None = None
        """The error that ended the command."""

    def emit(self, record: logging.LogRecord) -> None:
        """Show or keep a warning."""
        if not self._as_json:
            show_lines(f"txnlog: note: {record.getMessage()}", sys.stderr)
        elif len(self.kept) < NOTES_MAX:
            self.kept.append(record.getMessage())

    def __enter__(self) -> Self:
        logging.getLogger("txnlog").addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger("txnlog").removeHandler(self)

    def report(self, error: BaseException) -> int:
        """Print an error with what was kept, and return its exit code."""
        self.error = error
        for note in self.kept:
            error.add_note(note)
        self.kept = []
        return report(error, as_json=self._as_json)

    def show(self) -> None:
        """Print what was kept, when no error has."""
        if self.kept:
            show_json({"notes": self.kept}, sys.stderr)
        self.kept = []


class Interrupted(Exception):
    """Ctrl-C, with its effect on the work under way."""


IMPORT_INTERRUPTED = "interrupted; committed data stays: run the same command again to continue"
"""Message of an import or export that Ctrl-C has ended."""


def exit_code(error: BaseException) -> int:
    """Return the exit code of an error."""
    if isinstance(error, click.ClickException):
        return USAGE
    if isinstance(error, KeyboardInterrupt | click.Abort | Interrupted):
        return INTERRUPTED
    if isinstance(error, TxnLogError) and error.kind in _EXIT_CODES_OF_KINDS:
        return _EXIT_CODES_OF_KINDS[error.kind]
    for cls in type(error).__mro__:
        if cls in EXIT_CODES:
            return EXIT_CODES[cls]
    return INTERNAL


def report(error: BaseException, *, as_json: bool) -> int:
    """Print an error on stderr, and return its exit code."""
    document = _document(error)
    if as_json:
        show_json({"error": document}, sys.stderr)
    else:
        show_lines(_for_people(document), sys.stderr)
    return int(document["exit_code"])


def _document(error: BaseException) -> dict[str, Any]:
    code = exit_code(error)
    if isinstance(error, TxnLogError):
        document: dict[str, Any] = {
            "class": type(error).__name__,
            "kind": error.kind,
            "message": _with_options(error.what),
            "values": plain_values(error.values),
            "hint": _with_options(_nearest(error) or _hint(error)),
            "exit_code": code,
        }
        if isinstance(error, InvalidInputError):
            document["problems"] = [_with_options(problem) for problem in error.problems]
        return _with_notes(document, error)
    if isinstance(error, click.ClickException):
        kind, message = "usage", error.format_message()
        hint = _usage_hint(error)
    else:
        kind, message, hint = "interrupted", str(error) or "interrupted", None
    document = {
        "class": type(error).__name__,
        "kind": kind,
        "message": message,
        "values": {},
        "hint": hint,
        "exit_code": code,
    }
    return _with_notes(document, error)


def _with_notes(document: dict[str, Any], error: BaseException) -> dict[str, Any]:
    notes = getattr(error, "__notes__", [])
    return {**document, "notes": list(notes)} if notes else document


def _for_people(document: Mapping[str, Any]) -> str:
    problems = document.get("problems", [])
    lines = [f"txnlog: {document['message']}"] if len(problems) < 2 else ["txnlog: the input is not valid"]
    if len(problems) > 1:
        lines += [f"  - {problem}" for problem in problems]
    lines += [f"  {name}: {_readable(name, value)}" for name, value in document["values"].items()]
    lines += [f"  note: {note}" for note in document.get("notes", [])]
    if document["hint"]:
        lines.append(f"  hint: {document['hint']}")
    if document["kind"] not in ("usage", "interrupted"):
        lines.append(f"  kind: {document['kind']}")
    return "\n".join(map(printable, lines))


def _readable(name: str, value: object) -> object:
    """Return a value of an error for people: a number of milliseconds as a time, or as a duration, too."""
    if type(value) is not int or not name.endswith("_ms"):
        return value
    if abs(value) >= _TIMES_FROM_MS:
        return f"{value} ({instant(value)})"
    return f"{value} ({duration(value)})"


_TIMES_FROM_MS = 10**11
"""A number of milliseconds from here on is a time, of 1973 or later; a duration of three years is none of
ours."""


_OPTIONS: Mapping[str, str] = {
    "version_as_of": "--version-as-of",
    "timestamp_as_of": "--timestamp-as-of",
    "key_columns": "--key-column",
    "timestamp_column": "--timestamp-column",
    "add_columns": "--add-column",
    "start_offset": "--start-offset",
    "exist_ok=True": "--exist-ok",
    "create=True": "--create",
    "force=True": "--force",
}
"""Names of Python's arguments in messages, to what is typed on a command line."""
_ARGUMENT = re.compile(r"(?<![\w.])(?:" + "|".join(map(re.escape, _OPTIONS)) + r")(?![\w])")


def _with_options(text: Any) -> Any:
    """Return a message with the options of the command line in place of Python's arguments."""
    return text if text is None else _ARGUMENT.sub(lambda found: _OPTIONS[found[0]], text)


def _usage_hint(error: click.ClickException) -> str | None:
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is None:
        return None
    if (
        isinstance(error, click.NoSuchOption)
        and isinstance(context.command, click.Group)
        and error.option_name in _SHARED_OPTIONS
    ):
        return (
            f"{error.option_name} belongs after the command: {context.command_path} COMMAND "
            f"{error.option_name} …"
        )
    return f"see {context.command_path} --help"


_KNOWN = {"unknown-topic": ("topic", "topics"), "unknown-group": ("group", "groups")}
"""Kinds of errors about a name, to the values that have it and those that there are."""


def _hint(error: TxnLogError) -> str | None:
    if (
        error.kind == "unknown-topic" and "version" in error.values
    ):  # it came to be later, and the error says when
        return error.hint
    return _HINTS.get(error.kind, error.hint)


def _nearest(error: TxnLogError) -> str | None:
    """Return a hint that names what the user may have meant."""
    name, names = _KNOWN.get(error.kind, ("", ""))
    known = error.values.get(names)
    if not isinstance(known, list):
        return None
    near = difflib.get_close_matches(str(error.values.get(name)), known, n=1)
    return f"did you mean {near[0]!r}?" if near else None
