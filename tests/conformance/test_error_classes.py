"""Errors by what the caller does about them: Kafka's five groups (KIP-1050), and where each of its errors is
here."""

from __future__ import annotations

import pickle

import pytest

import txnlog
from tests.conformance.cases import case
from txnformat import errors
from txnlog import (
    CommitStateUnknownError,
    ConflictError,
    InvalidInputError,
    InvalidTransactionStateError,
    NotFoundError,
    ProducerFencedError,
    SequenceError,
    StorageError,
    TransactionTimedOutError,
    TxnLogError,
    UnsupportedFeatureError,
    UnsupportedStoreError,
)

REPEAT = (CommitStateUnknownError, StorageError)
"""The same call may be repeated as it is."""
LOOK_AGAIN = (ConflictError, NotFoundError)
"""The caller's view is old: it looks again, and calls anew."""
BEGIN_ANEW = (TransactionTimedOutError, InvalidTransactionStateError)
"""The producer goes on; this transaction does not."""
NEW_PRODUCER = (ProducerFencedError, SequenceError)
"""This instance stops for good."""
CHANGE_SOMETHING = (InvalidInputError, UnsupportedFeatureError, UnsupportedStoreError)
"""No repeat helps: input, version or rights have to change."""
GROUPS = (REPEAT, LOOK_AGAIN, BEGIN_ANEW, NEW_PRODUCER, CHANGE_SOMETHING)


def _groups_of(error: type[TxnLogError]) -> list[tuple[type[TxnLogError], ...]]:
    """Return the groups of the nearest class that is in one."""
    for each in error.__mro__:
        found: list[tuple[type[TxnLogError], ...]] = [group for group in GROUPS if each in group]
        if found:
            return found
    return []


@case("TransactionExceptionHierarchyTest", "testRetriableExceptionHierarchy")
@pytest.mark.parametrize("error", REPEAT)
def test_what_may_be_repeated_as_it_is_has_classes_of_its_own(error: type[TxnLogError]) -> None:
    """TimeoutException, NotEnoughReplicas(AfterAppend), CorruptRecord: the store failed, or nobody knows."""
    assert _groups_of(error) == [REPEAT]
    assert not issubclass(error, LOOK_AGAIN + BEGIN_ANEW + NEW_PRODUCER + (InvalidInputError,))


def test_a_storage_error_says_whether_a_repeat_can_help() -> None:
    again, never = StorageError("away", transient=True), StorageError("refused")
    assert (again.transient, never.transient) == (True, False)
    copy = pickle.loads(pickle.dumps(again))
    assert (type(copy), copy.transient, copy.kind, str(copy)) == (StorageError, True, again.kind, str(again))


@case(
    "TransactionExceptionHierarchyTest",
    "testRefreshRetriableException",
    "testRefreshRetriableExceptionHierarchy",
)
@pytest.mark.parametrize("error", LOOK_AGAIN)
def test_what_needs_a_newer_view_is_told_from_what_may_be_repeated(error: type[TxnLogError]) -> None:
    """UnknownTopicOrPartition and NotLeader: metadata is old. Here the log has been looked at again before
    this is said.

    So, other than Kafka's RefreshRetriable, these are not a kind of the errors that the same call can cure.
    """
    assert _groups_of(error) == [LOOK_AGAIN]
    assert not issubclass(error, REPEAT)


@case("TransactionExceptionHierarchyTest", "testApplicationRecoverableExceptionHierarchy")
@pytest.mark.parametrize("error", [ProducerFencedError, *SequenceError.__subclasses__()])
def test_what_ends_a_producer_is_told_from_what_ends_a_transaction(error: type[TxnLogError]) -> None:
    """ProducerFenced, InvalidProducerEpoch, InvalidPidMapping: a new producer is needed, and nothing less."""
    assert _groups_of(error) == [NEW_PRODUCER]
    for other in BEGIN_ANEW:
        assert not issubclass(error, other)
        assert not issubclass(other, error)


@case("TransactionExceptionHierarchyTest", "testInvalidConfigurationExceptionHierarchy")
@pytest.mark.parametrize("error", CHANGE_SOMETHING)
def test_what_no_repeat_can_cure_says_so_by_its_class(error: type[TxnLogError]) -> None:
    assert _groups_of(error) == [CHANGE_SOMETHING]
    assert not issubclass(error, BEGIN_ANEW + NEW_PRODUCER + LOOK_AGAIN)
    if issubclass(error, StorageError):
        assert not error("x").transient


def test_every_public_error_of_a_producer_is_in_exactly_one_group() -> None:
    """The rest is not a producer's: damage, defects, readers' and subscribers' errors, batch versions."""
    others = {
        TxnLogError,
        errors.InternalError,
        errors.FormatError,
        errors.CorruptDataError,
        errors.OffsetOutOfRangeError,
        errors.AckConflictError,
        errors.StaleAppVersionError,
        errors.UploadExpiredError,
    }
    public = {
        each
        for name in vars(txnlog)["__all__"]
        if isinstance(each := getattr(txnlog, name), type) and issubclass(each, TxnLogError)
    }
    for each in public - others:
        assert len(_groups_of(each)) == 1, each
    for each in others:
        assert not _groups_of(each), each
