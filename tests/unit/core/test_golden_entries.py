"""Kept bytes of entries and of a snapshot: they stand for the same as when they were written, and are written
alike."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from tests.integration.golden_entries import ENTRIES, FORMS, entry_of
from txnformat.core.entry import decode_entry, encode_entry, sha256_hex
from txnformat.core.operations import Checkpoint
from txnformat.core.snapshot.codec import decode_snapshot, state_digest
from txnformat.core.wire.document import ZSTD_MAGIC, encode_json, plain_text
from txnformat.errors import CorruptDataError
from txnformat.persistent import replace

EVERY = [form for forms in FORMS.values() for form in forms]
SNAPSHOT = ENTRIES.parent / "snapshots" / "full"
LOG_ID = "0a8b4b7e-46a4-4d0f-9c3b-3f3e1f0f5a11"


@pytest.mark.parametrize("name", [*FORMS, "all"])
def test_a_kept_entry_is_decoded_and_encoded_as_ever(name: str) -> None:
    (path,) = ENTRIES.glob(f"*-{name}.*")
    data, number = path.read_bytes(), int(path.name[:2])
    assert data.startswith(ZSTD_MAGIC) == (name == "all")
    entry = decode_entry(data, number)
    assert entry == entry_of(number, FORMS.get(name, entry.operations))
    assert encode_entry(entry) == data
    if name == "all":
        assert len(entry.operations) == 98
        assert all(one in EVERY for one in entry.operations)


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_nulls(one) for name, one in value.items() if one is not None}
    return list(map(without_nulls, value)) if isinstance(value, list) else value


def changed_snapshot(change: Callable[[Any], Any]) -> tuple[bytes, Checkpoint]:
    """Return the kept snapshot with another JSON section, and the checkpoint that names it so."""
    with pa.ipc.open_stream(SNAPSHOT.with_suffix(".snapshot").read_bytes()) as reader:
        table = reader.read_all()
    data = table["data"].to_pylist()
    value = json.loads(plain_text(data[0], name="state", stored=len(data[0])))
    data[0] = encode_json(change(value))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(
            pa.table([table["section"], pa.array(data, pa.large_binary())], schema=table.schema)
        )
    changed: bytes = sink.getvalue().to_pybytes()
    named = Checkpoint(**json.loads(SNAPSHOT.with_suffix(".json").read_bytes()))
    return changed, replace(named, size=len(changed), sha256=sha256_hex(changed))


def test_what_may_be_null_in_a_snapshot_may_be_absent_and_fields_to_come_are_passed_over() -> None:
    def change(value: Any) -> Any:
        assert value["transactional_ids"][0]["last_end"] is None
        assert value["transactional_ids"][1]["transactional_id"] == "etl größe"
        return {**without_nulls(value), "x": [{"y": [1, "é"]}]}

    data, checkpoint = changed_snapshot(change)
    assert state_digest(decode_snapshot(data, checkpoint, LOG_ID)) == checkpoint.digest


def _first(value: Any, *places: str | int) -> Any:
    for place in places:
        value = value[place]
    return value


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda state: state.update(segment_list={"key": "x", "size": 1, "sha256": "0" * 64}), "object key"),
        (lambda state: state["groups"][0]["committed"][0].pop("partition"), "a partition and its offset"),
        (lambda state: _first(state, "subscriptions", 0, "partitions", 0).update(acked=[[5, 6], [2, 3]]), "ascend"),
        (lambda state: state["sealed"].update(end=0), "above those of all rows"),
        (lambda state: state["files"].update(rows=99), "the number of rows"),
        (lambda state: [
            known["appends"][0].update(base_offset=-1) for part in state["partitions"] for known in part["sequences"]
        ], "offset from 0 on"),
        (lambda state: [topic.update(partitions=1) for topic in state["topics"]], "at least 3"),
    ],
)  # fmt: skip
def test_rows_of_a_snapshot_that_contradict_the_format_are_refused(
    change: Callable[[Any], object], told: str
) -> None:
    def changed(value: Any) -> Any:
        change(value)
        return value

    data, checkpoint = changed_snapshot(changed)
    with pytest.raises(CorruptDataError, match=told):
        decode_snapshot(data, checkpoint, LOG_ID)


def test_a_kept_snapshot_holds_the_state_that_it_did() -> None:
    """Its digest is over the state's own encoding: every field of it is compared."""
    named = json.loads(SNAPSHOT.with_suffix(".json").read_bytes())
    checkpoint = Checkpoint(**named)
    state = decode_snapshot(SNAPSHOT.with_suffix(".snapshot").read_bytes(), checkpoint, LOG_ID)
    assert state_digest(state) == checkpoint.digest
    assert (len(state.topics), len(state.groups), len(state.subscriptions)) == (2, 1, 1)
