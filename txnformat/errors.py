"""The errors of txnlog, grouped by what the caller does about them.

Every public error derives from :class:`TxnLogError` and carries a stable ``kind`` (kebab-case), so that
one class, which says what to do, covers several causes, which the kind names::

    TxnLogError
    ├── ConflictError                  lost a race for good: look at the log again, then decide anew
    ├── ProducerFencedError            a newer instance owns this transactional id: stop
    ├── TransactionTimedOutError       a timeout ended the transaction: begin a new one
    ├── CommitStateUnknownError        may or may not have landed: repeat the same call, abort, or close
    ├── SequenceError                  the producer's numbering does not fit the log
    │   ├── OutOfOrderSequenceError
    │   ├── UnknownProducerIdError
    │   └── ProducerIdConflictError
    ├── InvalidTransactionStateError   the call does not fit the transaction's state
    ├── AckConflictError               another transaction holds the message: abort
    ├── StaleAppVersionError           the application version is below the one in the log
    ├── UploadExpiredError             the data waited too long between upload and commit: upload again
    ├── NotFoundError                  the named thing is not there
    ├── OffsetOutOfRangeError          seek to an offset between earliest and latest
    ├── StorageError                   the object store failed; ``transient`` says whether to try again
    │   └── UnsupportedStoreError
    ├── FormatError
    │   ├── CorruptDataError           bytes are not what their hash or schema promises
    │   └── UnsupportedFeatureError    written by a newer version: upgrade
    ├── InvalidInputError              every problem of the input, found at once
    └── InternalError                  a defect of txnlog itself

Message style: what happened, then ``key=`value` `` pairs, then what to do.
"""

from __future__ import annotations

import datetime
import reprlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from enum import Enum
from itertools import islice
from pathlib import PurePath
from typing import Any, ClassVar

__all__ = [
    "AckConflictError",
    "CommitStateUnknownError",
    "ConflictError",
    "CorruptDataError",
    "FormatError",
    "InternalError",
    "InvalidInputError",
    "InvalidTransactionStateError",
    "NotFoundError",
    "OffsetOutOfRangeError",
    "OutOfOrderSequenceError",
    "ProducerFencedError",
    "ProducerIdConflictError",
    "SequenceError",
    "StaleAppVersionError",
    "StorageError",
    "TransactionTimedOutError",
    "TxnLogError",
    "UnknownProducerIdError",
    "UnsupportedFeatureError",
    "UnsupportedStoreError",
    "UploadExpiredError",
]

VALUE_CHARS_MAX = 300
"""Longest value shown in a message; longer ones are cut, so that an error never floods a log."""


@contextmanager
def needing(package: str, what: str, *, extra: str) -> Iterator[None]:
    """Import within this; where the package, or a part of it, is missing, ModuleNotFoundError says which
    extra of txnlog brings it.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != package:
            raise
        raise ModuleNotFoundError(
            f"{what} needs {package}: pip install 'txnlog[{extra}]'", name=package
        ) from None


def printable(text: str) -> str:
    """Return text in which a backslash escape stands for each character that would not show.

    Those are control characters (C0 and C1), bidirectional and other invisible ones, line breaks, and halves
    of surrogate pairs. Names and values in a log may come from any producer: they must not steer a terminal,
    nor begin a line of their own in a log file.
    """
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )


def type_name(value: object) -> str:
    """Return the name of a value's class, at most 60 characters; asks nothing of a class of that class."""
    name: str = _TYPE_NAME(type(value))
    return name[:60]


_TYPE_NAME = type.__dict__["__name__"].__get__


def repr_of(value: object, chars_max: int = VALUE_CHARS_MAX) -> str:
    """Return the beginning of a value's ``repr``; never fails, whatever the caller passed.

    Lists that are nested thousands deep have no ``repr``, and neither have objects whose own one fails.
    Values of other libraries, and containers of other classes than Python's, are shown by type and length:
    Arrow data that is not sound ends the process when it is printed, and they may hold some.
    """
    try:
        return _Repr(chars_max).repr(value)[:chars_max]
    except Exception:  # noqa: BLE001  # whatever the value's own class raises
        return f"a value of the type {type_name(value)}"


class _Repr(reprlib.Repr):
    """``repr`` that goes no further than a message needs."""

    def __init__(self, chars_max: int) -> None:
        super().__init__()
        self.maxlevel = _LEVELS_MAX
        self.maxtuple = self.maxlist = self.maxset = self.maxfrozenset = self.maxdict = chars_max
        self._left = chars_max

    def repr1(self, x: Any, level: int) -> str:
        self._left -= 1
        if self._left < 0:
            return self.fillvalue
        kind = type(x)
        if kind is str or kind is bytes:
            return repr(x[: self.maxlist])
        if any(kind is one for one in _CONTAINERS):
            return super().repr1(x, level)
        return repr(x) if is_printable(x) else _described(x)

    def repr_dict(self, x: dict[Any, Any], level: int) -> str:
        if level <= 0 and x:
            return "{" + self.fillvalue + "}"
        pairs = (
            f"{self.repr1(key, level - 1)}: {self.repr1(value, level - 1)}"
            for key, value in islice(x.items(), self.maxdict)
        )
        return "{" + ", ".join(pairs) + "}"


_LEVELS_MAX = 50
"""Deepest list inside lists that a message shows."""

_CONTAINERS = (list, tuple, dict, set, frozenset)

_PRINTABLE = (
    *(
        int,
        float,
        complex,
        str,
        bytes,
        bytearray,
        memoryview,
        range,
        type(None),
        type(...),
        type,
        Enum,
        PurePath,
    ),
    *(datetime.date, datetime.time, datetime.timedelta, datetime.tzinfo, Decimal),
)
"""Classes of Python whose values hold none of another library."""

_PRINTABLE_LIBRARIES = frozenset(
    {"fractions", "uuid", "txnformat", "writers", "txnlog", "spark_datasource", "pyspark_txnlog"}
)


def is_printable(value: Any) -> bool:
    """Return whether a value's ``repr`` prints no data of Arrow. Raises what the value's class raises."""
    kind = type(value)
    own: Any = kind.__repr__
    if issubclass(kind, _PRINTABLE) or own is object.__repr__:
        return True
    library = kind.__module__.partition(".")[0]
    if library == "numpy":
        return not value.dtype.hasobject
    if library == "pyarrow":
        return any(one.__name__ in ("DataType", "Field", "Schema") for one in kind.__mro__)
    return library in _PRINTABLE_LIBRARIES or (library == "pandas" and kind.__name__ in ("NAType", "Period"))


def _described(value: Any) -> str:
    try:
        return f"a value of the type {type_name(value)} with the length {len(value)}"
    except Exception:  # noqa: BLE001  # it has none
        return f"a value of the type {type_name(value)}"


def text_of(value: object) -> str:
    """Return ``str(value)``; never fails, and prints no data of Arrow."""
    try:
        if issubclass(type(value), _CONTAINERS):
            return repr_of(value)
        return (
            str(value) if issubclass(type(value), BaseException) or is_printable(value) else _described(value)
        )
    except Exception:  # noqa: BLE001  # whatever the value's own class raises
        return f"a value of the type {type_name(value)}"


def _shown(value: object) -> str:
    text = text_of(value)
    return printable(text if len(text) <= VALUE_CHARS_MAX else text[: VALUE_CHARS_MAX - 1] + "…")


class TxnLogError(Exception):
    """Base of all errors of txnlog.

    Parameters
    ----------
    what : str
        What happened: a sentence without a full stop.
    kind : str, optional
        Stable kebab-case code; the class's own by default.
    hint : str, optional
        What the caller can do.
    **values
        Plain values involved, shown as ``key=`value` `` and kept in ``values``.
    """

    default_kind: ClassVar[str] = "error"
    default_hint: ClassVar[str | None] = None

    def __init__(self, what: str, *, kind: str | None = None, hint: str | None = None, **values: Any) -> None:
        self.what = what
        self.kind = kind or self.default_kind
        self.hint = hint or self.default_hint
        self.values = values
        super().__init__(self.message())

    def message(self) -> str:
        """Return the message that the parts make, as they are now."""
        text = self.what
        if self.values:
            text += ": " + " ".join(f"{key}=`{_shown(value)}`" for key, value in self.values.items())
        if self.hint:
            text += f"; {self.hint}"
        return printable(text)  # one line, wherever it is printed or logged

    def __reduce__(self) -> tuple[Any, ...]:
        # Spark ships errors between processes: rebuild from the parts, not from the formatted text.
        return _rebuild, (type(self), self.what, self.kind, self.hint, self.values)


def _rebuild(
    cls: type[Any], what: str | list[str], kind: str, hint: str | None, values: dict[str, Any]
) -> Any:
    return cls(what, kind=kind, hint=hint, **values)


class ConflictError(TxnLogError):
    """Lost a race for good: refresh, and decide anew."""

    default_kind = "conflict"


class ProducerFencedError(TxnLogError):
    """A newer instance of the transactional id exists: this one must stop."""

    default_kind = "producer-fenced"


class TransactionTimedOutError(TxnLogError):
    """The transaction was aborted by its timeout: begin a new one."""

    default_kind = "transaction-timed-out"


class CommitStateUnknownError(TxnLogError):
    """The commit may or may not have landed; nothing was deleted. Repeat the same call, abort, or close."""

    default_kind = "commit-state-unknown"


class SequenceError(TxnLogError):
    """A producer's sequence numbers do not fit what the log holds."""

    default_kind = "sequence"


class OutOfOrderSequenceError(SequenceError):
    """A gap, a partial overlap, or a duplicate older than the window."""

    default_kind = "out-of-order-sequence"


class UnknownProducerIdError(SequenceError):
    """The log knows nothing of this producer id, and the sequence does not start at 0."""

    default_kind = "unknown-producer-id"


class ProducerIdConflictError(SequenceError):
    """The same numbers with other data: two processes share one producer (fork, cloned machine)."""

    default_kind = "producer-id-conflict"


class InvalidTransactionStateError(TxnLogError):
    """The call does not fit the state that the transaction is in."""

    default_kind = "invalid-transaction-state"


class AckConflictError(TxnLogError):
    """Another open transaction acknowledged the message first: abort this one."""

    default_kind = "ack-conflict"


class StaleAppVersionError(TxnLogError):
    """The log holds a later version of this application id, or this one with other rows; a newer instance has
    taken over; versions are missing.
    """

    default_kind = "stale-app-version"


class UploadExpiredError(TxnLogError):
    """Uploaded data waited too long for its commit: upload it again."""

    default_kind = "upload-expired"


class NotFoundError(TxnLogError, LookupError):
    """The log, topic, partition or object that was named does not exist."""

    default_kind = "not-found"


class OffsetOutOfRangeError(TxnLogError):
    """The offset lies outside what the partition holds; ``values`` name earliest and latest."""

    default_kind = "offset-out-of-range"


class StorageError(TxnLogError):
    """The object store failed.

    Attributes
    ----------
    transient : bool
        True when the same call may succeed later.
    patience_over : bool
        True when it was repeated already for as long as a call may take (``request_timeout_s``): not to be
        repeated at once.
    """

    default_kind = "storage"
    patience_over = False

    def __init__(
        self,
        what: str,
        *,
        kind: str | None = None,
        hint: str | None = None,
        transient: bool = False,
        **values: Any,
    ) -> None:
        self.transient = transient
        super().__init__(what, kind=kind, hint=hint, **values)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (
            type(self),
            self.what,
            self.kind,
            self.hint,
            {**self.values, "transient": self.transient},
        )


class UnsupportedStoreError(StorageError):
    """No adapter that holds the protocol's promises exists for this location."""

    default_kind = "unsupported-store"


class FormatError(TxnLogError):
    """Stored bytes cannot be used."""

    default_kind = "format"


class CorruptDataError(FormatError):
    """Bytes differ from what their hash, length or schema promises; ``values`` name object, expected, got."""

    default_kind = "corrupt-data"
    default_hint = "restore the object from a copy; txnlog verify lists all that is damaged"


class UnsupportedFeatureError(FormatError):
    """The log needs a feature that this version does not have: upgrade txnlog."""

    default_kind = "unsupported-feature"


class InvalidInputError(TxnLogError, ValueError):
    """The caller's input is not valid; ``problems`` lists everything that was found."""

    default_kind = "invalid-input"

    def __init__(
        self,
        what: str | Iterable[str],
        *,
        kind: str | None = None,
        hint: str | None = None,
        **values: Any,
    ) -> None:
        problems = [what] if isinstance(what, str) else list(what)
        self.problems: list[str] = problems
        super().__init__("; ".join(problems), kind=kind, hint=hint, **values)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.problems, self.kind, self.hint, self.values)


class InternalError(TxnLogError):
    """A defect of txnlog itself: please report it."""

    default_kind = "internal"
