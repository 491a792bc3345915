"""The tables of a snapshot are bounded together, whatever each of them declares."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.limits.hundred_cases import CASES
from tests.unit.core.full_state import FULL
from txnformat.core.snapshot.state import _topic, encode_state
from txnformat.core.topics.schema import TopicSchema
from txnformat.core.wire import document
from txnformat.core.wire.document import plain_chunks, plain_json
from txnformat.errors import CorruptDataError


def test_the_tables_of_a_snapshot_decompress_to_no_more_together_than_one_may(tmp_path: Path) -> None:
    (case,) = (case for case in CASES if case.key == "snapshot-all")
    assert case.make(tmp_path) < 1024 * 1024
    with pytest.raises(CorruptDataError, match="bytes when decompressed, more than"):
        case.use(tmp_path)


def test_what_the_json_of_a_snapshot_takes_counts_beside_its_tables(tmp_path: Path) -> None:
    (case,) = (case for case in CASES if case.key == "snapshot-versions-tables")
    assert case.make(tmp_path) < 1024 * 1024
    with pytest.raises(CorruptDataError, match="bytes when decompressed, more than"):
        case.use(tmp_path)


@pytest.mark.parametrize("chunk", [1, 2, 1_000])
def test_the_json_of_a_state_is_the_same_in_pieces(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(document, "CHUNK", chunk)
    row = encode_state(FULL)
    pieces = list(plain_chunks(row))
    assert b"".join(pieces) == plain_json(row)
    assert (len(pieces) > 1) == (chunk < 1_000)


def test_topics_of_a_snapshot_that_are_alike_share_a_schema() -> None:
    first = encode_state(FULL).topics[0]
    known: dict[bytes, TopicSchema] = {}
    one, other = (_topic(first, known, "x") for _ in range(2))
    assert one.schema is other.schema
    assert list(known.values()) == [one.schema]
