"""The rows of a snapshot's JSON section: what their fields take."""

from __future__ import annotations

import uuid

import msgspec
import pytest

from txnformat.core.snapshot_rows import PartitionRow, StagedSequencesRow, StartRow


@pytest.mark.parametrize("row", [PartitionRow, StartRow, StagedSequencesRow])
def test_the_topic_of_a_row_is_a_uuid(row: type[msgspec.Struct]) -> None:
    given = {field.name: field.type for field in msgspec.structs.fields(row)}
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert("orders", given["topic_id"])
    known = str(uuid.UUID(int=1, version=4))
    assert msgspec.convert(known, given["topic_id"]) == known
