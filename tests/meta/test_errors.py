"""The public errors: their tree, their kinds, and that they survive the way between processes."""

from __future__ import annotations

import inspect
import pickle
import re

import pytest

from txnformat import errors
from txnformat.errors import StorageError, TxnLogError

# Name: bases, stable kind. A user's handler and a user's alert depend on every line: only add.
TREE: dict[str, tuple[tuple[str, ...], str]] = {
    "TxnLogError": (("Exception",), "error"),
    "ConflictError": (("TxnLogError",), "conflict"),
    "ProducerFencedError": (("TxnLogError",), "producer-fenced"),
    "TransactionTimedOutError": (("TxnLogError",), "transaction-timed-out"),
    "CommitStateUnknownError": (("TxnLogError",), "commit-state-unknown"),
    "SequenceError": (("TxnLogError",), "sequence"),
    "OutOfOrderSequenceError": (("SequenceError",), "out-of-order-sequence"),
    "UnknownProducerIdError": (("SequenceError",), "unknown-producer-id"),
    "ProducerIdConflictError": (("SequenceError",), "producer-id-conflict"),
    "InvalidTransactionStateError": (("TxnLogError",), "invalid-transaction-state"),
    "AckConflictError": (("TxnLogError",), "ack-conflict"),
    "StaleAppVersionError": (("TxnLogError",), "stale-app-version"),
    "UploadExpiredError": (("TxnLogError",), "upload-expired"),
    "NotFoundError": (("TxnLogError", "LookupError"), "not-found"),
    "OffsetOutOfRangeError": (("TxnLogError",), "offset-out-of-range"),
    "StorageError": (("TxnLogError",), "storage"),
    "UnsupportedStoreError": (("StorageError",), "unsupported-store"),
    "FormatError": (("TxnLogError",), "format"),
    "CorruptDataError": (("FormatError",), "corrupt-data"),
    "UnsupportedFeatureError": (("FormatError",), "unsupported-feature"),
    "InvalidInputError": (("TxnLogError", "ValueError"), "invalid-input"),
    "InternalError": (("TxnLogError",), "internal"),
}

CLASSES: list[type[TxnLogError]] = [
    value
    for _, value in inspect.getmembers(errors, inspect.isclass)
    if issubclass(value, TxnLogError) and value.__module__ == errors.__name__
]


def _drawn_tree(text: str) -> dict[str, str | None]:
    """Return name -> parent as the box drawing of the module docstring shows it."""
    parents: dict[str, str | None] = {}
    path: list[str] = []
    for line in text.splitlines():
        match = re.match(r"^    ((?:│   |    )*(?:[├└]── )?)([A-Z]\w+Error)\b", line)
        if match is None:
            continue
        depth = len(match[1]) // 4
        del path[depth:]
        parents[match[2]] = path[-1] if path else None
        path.append(match[2])
    return parents


def test_the_tree_is_the_pinned_one() -> None:
    found = {
        cls.__name__: (tuple(base.__name__ for base in cls.__bases__), cls.default_kind) for cls in CLASSES
    }
    assert found == TREE


def test_the_docstring_draws_the_tree() -> None:
    pinned = {name: bases[0] if name != "TxnLogError" else None for name, (bases, _) in TREE.items()}
    assert _drawn_tree(errors.__doc__ or "") == pinned


def test_all_errors_are_exported() -> None:
    assert set(errors.__all__) == set(TREE)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
@pytest.mark.parametrize("protocol", [2, pickle.HIGHEST_PROTOCOL])
def test_every_error_survives_pickling(cls: type[TxnLogError], protocol: int) -> None:
    error = cls("it happened", kind="special", hint="do that", topic="orders", offset=7)
    again = pickle.loads(pickle.dumps(error, protocol))
    assert type(again) is cls
    assert str(again) == str(error) == "it happened: topic=`orders` offset=`7`; do that"
    assert vars(again) == vars(error)
    assert (again.what, again.kind, again.hint) == ("it happened", "special", "do that")
    assert again.values == {"topic": "orders", "offset": 7}


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_the_kind_defaults_to_that_of_the_class(cls: type[TxnLogError]) -> None:
    assert cls("it happened").kind == cls.default_kind
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", cls.default_kind)


@pytest.mark.parametrize("cls", [StorageError, errors.UnsupportedStoreError])
def test_whether_a_repeat_may_help_survives_pickling(cls: type[StorageError]) -> None:
    error = cls("no answer", transient=True, key="a/b")
    again = pickle.loads(pickle.dumps(error))
    assert again.transient is True
    assert again.values == {"key": "a/b"}
    assert str(again) == str(error)


def test_the_list_of_problems_survives_pickling() -> None:
    error = errors.InvalidInputError(["column a is missing", "column b has another type"], hint="mend both")
    again = pickle.loads(pickle.dumps(error))
    assert again.problems == error.problems == ["column a is missing", "column b has another type"]
    assert str(again) == str(error)
