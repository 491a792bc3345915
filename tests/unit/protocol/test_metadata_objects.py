"""A metadata object that cannot be written: the error says why, by the kind of what the store said."""

from __future__ import annotations

import pytest

from txnformat.errors import InvalidInputError, StorageError
from txnformat.protocol.commit import CommitSettings
from txnformat.protocol.effects import CreateObject, GetObject, ReadClock, Times
from txnformat.protocol.snapshots import create_object
from txnformat.store.base import CreateOutcome, CreateResult


def _told(error: StorageError) -> StorageError:
    """Return what the caller is told when the store answers a create with this error, and does not have the
    object."""
    steps = create_object("a key", b"data")
    answers: dict[type, object] = {
        ReadClock: Times(0, 0, 0),
        CreateObject: CreateResult(CreateOutcome.AMBIGUOUS, error),
        GetObject: None,
    }
    try:
        effect = next(steps)
        while True:
            effect = steps.send(answers[type(effect)])
    except StorageError as told:
        return told


@pytest.mark.parametrize("kind", ["disk-full", "store-poisoned", "permission-denied"])
def test_it_has_the_kind_of_its_cause(kind: str) -> None:
    told = _told(StorageError("it is so", kind=kind))
    assert told.kind == kind
    assert "it is so" in str(told)


def test_a_writer_seals_at_one_extent_at_the_earliest() -> None:
    with pytest.raises(InvalidInputError, match="seal_extents is 0") as caught:
        CommitSettings(seal_extents=0)
    assert caught.value.kind == "invalid-settings"
