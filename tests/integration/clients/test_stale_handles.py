"""A process whose view of the log is old calls with what the log is now: another process has altered the
topic."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from txnformat.errors import InvalidInputError, NotFoundError
from txnlog import Consumer, Producer, TxnLog

SCHEMA = pa.schema([("k", pa.string()), ("id", pa.int32())])

Row = dict[str, object]


def _added(log: TxnLog) -> Row:
    log.alter_topic("t", add_columns=[pa.field("note", pa.string())])
    return {"k": "a", "id": 1, "note": "x"}


def _widened(log: TxnLog) -> Row:
    log.alter_topic("t", widen={"id": pa.int64()})
    return {"k": "a", "id": 2**40}


def _renamed(log: TxnLog) -> Row:
    log.alter_topic("t", rename={"id": "ident"})
    return {"k": "a", "ident": 1}


def _dropped(log: TxnLog) -> Row:
    log.alter_topic("t", drop=["id"])
    return {"k": "a"}


def _replaced(log: TxnLog) -> Row:
    log.delete_topic("t", force=True)
    log.create_topic("t", pa.schema([("other", pa.string())]))
    return {"other": "x"}


CHANGES = [_added, _widened, _renamed, _dropped, _replaced]
Change = Callable[[TxnLog], Row]


@pytest.fixture
def handles(tmp_path: Path) -> tuple[TxnLog, TxnLog]:
    """Return a handle that has seen the topic, and one of another process."""
    stale = TxnLog.create(tmp_path / "log")
    stale.create_topic("t", SCHEMA)
    return stale, TxnLog.open(tmp_path / "log")


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", ["dicts", "table"])
@pytest.mark.parametrize("transactional_id", ["w", None])
def test_a_producer_takes_what_the_topic_takes_now(
    handles: tuple[TxnLog, TxnLog], change: Change, kind: str, transactional_id: str | None
) -> None:
    stale, other = handles
    with Producer(stale, transactional_id) as producer:
        if transactional_id is not None:
            producer.begin()
        row = change(other)
        producer.send("t", [row] if kind == "dicts" else pa.Table.from_pylist([row, row]))
        producer.commit() if transactional_id is not None else producer.flush()
    assert row in other.read("t").read_all().to_pylist()


@pytest.mark.parametrize("change", [_added, _widened, _renamed, _dropped])
def test_what_was_sent_before_goes_along(handles: tuple[TxnLog, TxnLog], change: Change) -> None:
    stale, other = handles
    with Producer(stale, "w") as producer, producer.transaction():
        producer.send("t", [{"k": "before", "id": 7}])
        producer.send("t", [change(other)])
    assert other.read("t").read_all()["k"].to_pylist() == ["before", "a"]


@pytest.mark.parametrize("change", [_added, _widened, _renamed, _dropped])
def test_what_still_does_not_fit_is_compared_with_the_columns_of_now(
    handles: tuple[TxnLog, TxnLog], change: Change
) -> None:
    stale, other = handles
    names = set(change(other)) - {"k"}
    with Producer(stale) as producer:
        with pytest.raises(InvalidInputError) as caught:
            producer.send("t", [{"k": 1, "wrong": 1}])
        assert caught.value.kind == "schema-mismatch"
        assert all(name in str(caught.value) for name in names & {"ident"})
    assert other.read("t").read_all().num_rows == 0


def test_a_topic_that_is_gone_is_told_as_that(handles: tuple[TxnLog, TxnLog]) -> None:
    stale, other = handles
    other.delete_topic("t")
    with Producer(stale) as producer, pytest.raises(NotFoundError, match="t"):
        producer.send("t", [{"wrong": 1}])


def _position(log: TxnLog) -> object:
    with Consumer(log, group="g", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["t"])
        batch = consumer.poll(timeout_ms=10_000)
        return batch and batch.column("note").to_pylist()


CALLS: dict[str, Callable[[TxnLog], object]] = {
    "read": lambda log: log.read("t", columns=["note"]).read_all()["note"].to_pylist(),
    "where": lambda log: log.read("t", where="note = 'x'").read_all().num_rows,
    "dataset": lambda log: log.dataset("t").to_table(columns=["note"])["note"].to_pylist(),
    "rename": lambda log: log.alter_topic("t", rename={"note": "remark"}).schema.arrow_schema.names,
    "drop": lambda log: log.alter_topic("t", drop=["note"]).schema.arrow_schema.names,
    "erase": lambda log: log.erase("t", "note = 'x'", requested_by="a test", all_rows=True).rows,
    "poll": _position,
    "removal": lambda log: log.delete_records("t", {0: 1})[0].earliest,
}


@pytest.mark.parametrize("call", CALLS)
def test_every_call_sees_what_another_process_has_just_done(
    handles: tuple[TxnLog, TxnLog], call: str
) -> None:
    """The column and the record are newer than what the first handle knows."""
    stale, other = handles
    with Producer(other) as producer:
        producer.send("t", [_added(other)])
    known = stale.state.entry
    assert CALLS[call](stale) in (["x"], 1, ["k", "id", "remark"], ["k", "id"])
    assert stale.state.entry > known
