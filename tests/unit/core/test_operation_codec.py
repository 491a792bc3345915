"""What the decoder of operations refuses: each rule once."""

from __future__ import annotations

from typing import Any

import pytest

from txnformat import keys
from txnformat.core.operation_codec import decode_operation, encode_operation
from txnformat.core.operations import Append, Cause, EndTxn
from txnformat.errors import CorruptDataError, UnsupportedFeatureError
from txnformat.types import FileRecord, ObjectRecord, Outcome

TOPIC = "9a6f2a90-8a35-4a63-9d1b-1b8a1f8a2c33"
UUID = "3e0f7d52-5f0b-4a0a-8f3c-2b0a3c4d5e6f"
DATA = keys.data_key(f"orders-{TOPIC[:8]}", 6, UUID)
TABLE = keys.table_key(6, UUID)
SNAPSHOT = keys.snapshot_key(6, UUID)


def _append(file_key: str, table_key: str) -> dict[str, Any]:
    file = FileRecord(file_key, 100, "0" * 64, 20, "0" * 64, 3)
    return encode_operation(
        Append(
            topic_id=TOPIC,
            producer_id=-1,
            epoch=-1,
            partition_count=1,
            files=(file,),
            partitions=(),
            table=ObjectRecord(table_key, 10, "0" * 64),
        )
    )


def test_keys_of_the_right_kind_are_accepted() -> None:
    decoded = decode_operation(_append(DATA, TABLE), 1, path="entry")
    assert isinstance(decoded, Append)
    assert decoded.files[0].key == DATA


@pytest.mark.parametrize(
    ("file_key", "table_key"),
    [
        (TABLE, TABLE),
        (SNAPSHOT, TABLE),
        (DATA, DATA),
        (DATA, SNAPSHOT),
        ("/etc/passwd", TABLE),
        (f"../{DATA}", TABLE),
        (DATA.replace("data/", "data/../data/"), TABLE),
        (f"s3://elsewhere/{DATA}", TABLE),
        (DATA + "\0", TABLE),
        (DATA, "_txnlog/format.json"),
    ],
)
def test_a_key_of_another_kind_or_from_elsewhere_is_refused(file_key: str, table_key: str) -> None:
    with pytest.raises(CorruptDataError) as caught:
        decode_operation(_append(file_key, table_key), 1, path="entry")
    assert caught.value.kind == "invalid-key"


@pytest.mark.parametrize("cause", ["init", "moonlight"])
def test_an_end_for_a_cause_that_is_not_known_is_a_feature(cause: str) -> None:
    document = encode_operation(EndTxn("etl", 4, 2, Outcome.ABORT, Cause.PRODUCER, ()))
    document["cause"] = cause
    with pytest.raises(UnsupportedFeatureError):
        decode_operation(document, 1, path="entry")


@pytest.mark.parametrize("kind", ["index", "markers", "txnindex"])
def test_a_sidecar_with_the_key_of_another_kind_is_refused(kind: str) -> None:
    named = {
        one: {"key": keys.sidecar_key(f"orders-{TOPIC[:8]}", 6, UUID, one), "size": 10, "sha256": "0" * 64}
        for one in ("index", "markers", "txnindex")
    }
    segment: dict[str, Any] = {"topic_id": TOPIC, "partitions": [], **named}
    seal = {
        "operation": "seal",
        "intent": 0,
        "segments": [segment],
        "segment_list": None,
        "listed_segments": 0,
    }
    decode_operation(seal, 1, path="entry")
    for other in named.keys() - {kind}:
        segment[kind] = named[other]
        with pytest.raises(CorruptDataError) as caught:
            decode_operation(seal, 1, path="entry")
        assert (caught.value.kind, caught.value.values["where"]) == ("invalid-key", "entry.segments[0]")
