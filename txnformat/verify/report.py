"""Findings of a verification: values only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any, NamedTuple

from txnformat.errors import TxnLogError

__all__ = [
    "ProblemKind",
    "Progress",
    "Record",
    "VerifyNote",
    "VerifyProblem",
    "VerifyProgress",
    "VerifyReport",
]

TEXT_MAX = 300
"""Longest expected or got value in a problem, characters."""


class ProblemKind(StrEnum):
    """Kinds of problems of an object. Kinds are only ever added."""

    MISSING = "missing"
    """An object that must be there is not."""
    WRONG_SIZE = "wrong-size"
    """It has another number of bytes than the log says."""
    WRONG_HASH = "wrong-hash"
    """Its bytes are not those that the log names, or that its own checksum is of."""
    UNDECODABLE = "undecodable"
    """It cannot be decoded."""
    UNSUPPORTED = "unsupported"
    """It needs a feature that this version does not have; it may well be sound."""
    UNREADABLE = "unreadable"
    """The store failed to deliver it; says nothing about the object."""
    BROKEN_CHAIN = "broken-chain"
    """An entry is not the one that the next entry follows."""
    INVALID_ENTRY = "invalid-entry"
    """An entry does not fit the state before it."""
    INVARIANT = "invariant"
    """The state after an entry breaks a rule that holds for every log."""
    OFFSETS = "offsets"
    """Offsets of a partition have a gap or an overlap."""
    VISIBILITY = "visibility"
    """Last stable offset, open transactions or abort index are not what the operations give."""
    BATCHES = "batches"
    """Batches, totals and row groups do not agree."""
    SNAPSHOT_DIFFERS = "snapshot-differs"
    """A snapshot is not the state that its entries give."""
    SIDECAR_DIFFERS = "sidecar-differs"
    """A sidecar of a sealed segment is not what the entries before the seal give."""
    READER_ENDED = "reader-ended"
    """A data file ended the process that decodes it, or took more memory or time than it may. Found with
    ``deep``."""
    INVALID_TEXT = "invalid-text"
    """A data file holds text that is not UTF-8: an older version let it in. Found with ``deep``."""
    CONFLICTING_REFERENCE = "conflicting-reference"
    """Two entries name one object with different sizes or hashes."""
    HINT_WRONG = "hint-wrong"
    """``latest`` is damaged, or names what no entry names. Harmless, but only txnlog writes it."""


@dataclass(frozen=True, slots=True)
class VerifyProblem:
    """One thing that is wrong."""

    kind: ProblemKind
    object: str
    """Key of the object, or the partition as ``<topic>/<number>``."""
    what: str
    expected: str | None
    got: str | None
    hint: str
    """The next step for the user."""

    def __str__(self) -> str:
        """Return the problem as one line."""
        text = f"{self.object}: {self.what}"
        if self.expected is not None:
            text += f": expected {self.expected}, got {self.got}"
        return f"{text}; {self.hint}"


@dataclass(frozen=True, slots=True)
class VerifyNote:
    """One thing worth knowing that is not wrong."""

    kind: str
    what: str
    count: int
    bytes: int
    examples: tuple[str, ...]
    """A few keys."""


class VerifyProgress(NamedTuple):
    """How far a verification is."""

    stage: str
    """``entries``, ``bundles``, ``tables``, ``sidecars`` or ``files``."""
    done: int
    total: int


Progress = Callable[[VerifyProgress], None]


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """The checks of a verification, and its findings."""

    url: str
    log_id: str | None
    """Id of the log; None without a readable format.json."""
    first_entry: int
    """The first entry looked at (inclusive): 0, or the boundary below which entries may be deleted."""
    last_entry: int
    """The newest entry when the verification began; -1 for a log without any."""
    deep: bool
    """Whether every data file was read."""
    problems: tuple[VerifyProblem, ...]
    notes: tuple[VerifyNote, ...]
    checked: dict[str, int]
    """How much was looked at: ``entries``, ``entries_with_checksum`` (the others are of older writers),
    ``operations``, ``partitions``, ``snapshots``, ``bundles``, ``tables``, ``sidecars``, ``files``,
    ``file_bytes`` (what the files have), ``row_groups``; with ``deep`` also ``records`` and ``bytes_read``.
    """

    @property
    def ok(self) -> bool:
        """Return whether nothing is wrong."""
        return not self.problems

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {**asdict(self), "ok": self.ok}


@dataclass(slots=True)
class Record:
    """A report while it is being written."""

    problems: list[VerifyProblem] = field(default_factory=list)
    notes: list[VerifyNote] = field(default_factory=list)
    checked: Counter[str] = field(default_factory=Counter)

    def add(
        self,
        kind: ProblemKind,
        key: str,
        what: str,
        expected: object = None,
        got: object = None,
        hint: str = "restore the object from a copy",
    ) -> None:
        """Note a problem."""
        shown = (None, None) if expected is None and got is None else (_text(expected), _text(got))
        self.problems.append(VerifyProblem(kind, key, what, shown[0], shown[1], hint))

    def add_error(self, kind: ProblemKind, key: str, error: Exception, hint: str | None = None) -> None:
        """Note what an error says of an object."""
        values = error.values if isinstance(error, TxnLogError) else {}
        what = error.what if isinstance(error, TxnLogError) else f"{type(error).__name__}: {error}"
        rest = {
            name: value
            for name, value in values.items()
            if name not in ("object", "store", "expected", "got")
        }
        if rest:
            what += " (" + ", ".join(f"{name} {_text(value)}" for name, value in rest.items()) + ")"
        advice = (
            hint
            or (error.hint if isinstance(error, TxnLogError) else None)
            or "restore the object from a copy"
        )
        self.add(kind, key, what, values.get("expected"), values.get("got"), advice)

    def advise(self, objects: set[str], advice: str) -> None:
        """Add to the hints of the problems that these objects have."""
        self.problems = [
            replace(problem, hint=f"{problem.hint}; {advice}") if problem.object in objects else problem
            for problem in self.problems
        ]

    def has(self, key: str) -> bool:
        """Return whether a problem of this object is known."""
        return any(problem.object == key for problem in self.problems)


def _text(value: object) -> str:
    text = str(value)
    return text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}… ({len(text)} characters)"
