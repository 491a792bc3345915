"""A new log has every feature of this version; `upgrade` is for logs of earlier versions."""

from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa
import pytest

from tests.older_logs import older_log
from txnformat.core.state import COLUMNS, EMBEDDING, FEATURES, KNOWN_FEATURES, LIFECYCLE, Features
from txnformat.protocol.commit import CommitSettings
from txnformat.store.memory import MemoryStore
from txnlog import Producer, TxnLog, UnsupportedFeatureError

SCHEMA = pa.schema([("id", pa.int64()), ("note", pa.string())])
WITHOUT_EMBEDDING = Features(*(names - {EMBEDDING} for names in KNOWN_FEATURES))


def with_records(log: TxnLog, **topic: Any) -> TxnLog:
    log.create_topic("t", SCHEMA, key_columns=["id"], **topic)
    for number in range(3):
        with Producer(log) as producer:
            producer.send("t", [{"id": number, "note": "first"}])
    return log


@pytest.mark.parametrize("how", [TxnLog.create, TxnLog.open_or_create])
def test_a_new_log_allows_all_that_this_version_can_do(how: Any) -> None:
    log = with_records(how(MemoryStore()), settings={"retention.ms": 604_800_000})
    assert log.state.features == KNOWN_FEATURES
    log.alter_topic("t", rename={"note": "remark"})
    log.compact("t", min_lag_ms=0)
    log.delete_records("t", 1)
    log.vacuum()
    assert not log.maintain().skipped
    assert [row["remark"] for row in log.read("t").read_all().to_pylist()] == ["first"] * 2
    log.delete_topic("t")
    assert log.topics() == []
    assert not log.upgrade(embedding=True, columns=True)


@pytest.mark.parametrize(
    "made",
    [
        lambda: TxnLog.create(MemoryStore(), embedding=False),
        lambda: TxnLog.create(MemoryStore(), settings=CommitSettings(embedding=False)),
    ],
)
def test_embedding_alone_can_be_left_out(made: Any) -> None:
    log = with_records(made())
    assert log.state.features == WITHOUT_EMBEDDING
    log.compact("t", min_lag_ms=0)
    log.alter_topic("t", drop=["note"])
    assert not log.upgrade(columns=True)
    assert log.upgrade(embedding=True)
    assert log.state.features == KNOWN_FEATURES


def test_a_log_without_an_entry_refuses_nothing_that_a_new_log_allows() -> None:
    """Nothing of it says yet that it lacks a feature, and what writes its first entry gives it all."""
    TxnLog.create(MemoryStore()).vacuum()
    TxnLog.create(MemoryStore()).truncate()
    TxnLog.create(MemoryStore()).alter(truncate_older_than=datetime.timedelta(days=30))
    assert not TxnLog.create(MemoryStore()).maintain().skipped
    assert not TxnLog.create(MemoryStore()).maintain(dry_run=True).skipped
    assert not TxnLog.create(MemoryStore()).upgrade(embedding=True, columns=True)


@pytest.mark.parametrize("features", [(), (EMBEDDING,), (LIFECYCLE,), (EMBEDDING, LIFECYCLE)])
def test_a_log_of_an_earlier_version_is_as_it_was_until_it_is_upgraded(features: tuple[str, ...]) -> None:
    log = with_records(older_log(MemoryStore(), *features))
    assert log.state.features == Features(*(names.union(features) for names in FEATURES))
    if LIFECYCLE not in features:
        assert log.maintain().skipped
        with pytest.raises(UnsupportedFeatureError, match="`txnlog upgrade`"):
            log.compact("t", min_lag_ms=0)
    with pytest.raises(UnsupportedFeatureError, match="`txnlog upgrade --columns`"):
        log.alter_topic("t", rename={"note": "remark"})
    assert log.upgrade(columns=True)
    assert log.state.features == Features(
        *(names.union(features, (LIFECYCLE, COLUMNS)) for names in FEATURES)
    )
    log.alter_topic("t", rename={"note": "remark"})
    log.compact("t", min_lag_ms=0)
    assert [row["remark"] for row in log.read("t").read_all().to_pylist()] == ["first"] * 3
