"""Removing records beyond the last stable offset: transactions in the way are ended first. The specification,
section 5.13."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.clients.failing import NUMBERS, read, rows
from txnformat.admin import trimming
from txnformat.admin.trimming import DeletedRecords
from txnformat.store.memory import MemoryStore
from txnlog import ConflictError, InvalidInputError, OffsetOutOfRangeError, Producer, TxnLog, TxnLogError


def filled() -> TxnLog:
    """Return a log with ten records in one partition."""
    log = TxnLog.create(MemoryStore())
    log.create_topic("t", NUMBERS)
    append(log, *range(10))
    return log


def append(log: TxnLog, *numbers: int) -> None:
    with Producer(log) as producer:
        producer.send("t", rows(*numbers), partition=0)


def inline(log: TxnLog, name: str, number: int) -> Producer:
    """Return a producer whose open transaction has a record in the partition."""
    producer = Producer(log, name, buffer="inline")
    producer.init()
    producer.begin()
    producer.send("t", rows(number), partition=0)
    producer.flush()
    return producer


def test_force_aborts_what_is_open_below_and_removes_to_the_log_end() -> None:
    log = filled()
    producer = inline(log, "etl", 10)
    append(log, 11)
    before = log.refresh().entry
    planned = log.delete_records("t", {0: 11}, force=True, dry_run=True)
    assert planned == [DeletedRecords("t", 0, 0, 11, aborted=("etl",))]
    assert log.refresh().entry == before
    assert log.delete_records("t", {0: 11}, force=True) == planned
    assert read(log) == [11]
    with pytest.raises(TxnLogError) as caught:
        producer.commit()
    assert caught.value.kind == "aborted-by-operator"
    inline(log, "late", 12)
    assert log.delete_records("t", -1, force=True)[0].aborted == ("late",)
    assert read(log) == []
    assert log.delete_records("t", {0: 0}, force=True)[0].aborted == ()
    assert log.verify(deep=True).ok


def test_force_gives_up_a_prepared_transaction_by_its_name_and_its_end_skips_what_is_gone() -> None:
    log = filled()
    log.create_topic("u", NUMBERS)
    producer = inline(log, "etl", 10)
    producer.send("u", rows(1), partition=0)
    token = producer.prepare()
    append(log, 11)
    before = log.refresh().entry
    for dry_run in (True, False):
        with pytest.raises(TxnLogError) as caught:
            log.delete_records("t", {0: 11}, force=True, dry_run=dry_run)
        assert (caught.value.kind, caught.value.values["transactional_ids"]) == (
            "transaction-prepared",
            ["etl"],
        )
    assert log.refresh().entry == before
    assert log.delete_records("t", {0: 11}, force=["etl"]) == [
        DeletedRecords("t", 0, 0, 11, given_up=("etl",))
    ]
    assert read(log) == [11]
    found = [
        (one.transactional_id, one.topic, one.partition) for entry in log.history() for one in entry.given_up
    ]
    assert found == [("etl", "t", 0)]
    log.commit_prepared(token)
    assert log.read("u").read_all()["n"].to_pylist() == [1]
    assert read(log) == read(TxnLog.open(log.store)) == [11]
    report = log.verify(deep=True)
    assert report.ok, report.problems


@pytest.mark.parametrize("force", ["etl", 1, None, [1], {"etl"}])
def test_what_names_no_transactions_is_refused(force: Any) -> None:
    with pytest.raises(InvalidInputError) as caught:
        filled().delete_records("t", {0: 1}, force=force)
    assert caught.value.kind == "invalid-force"


@pytest.mark.parametrize("outcome", ["commit", "abort"])
def test_a_transaction_that_ends_meanwhile_is_not_ended_again(
    outcome: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = filled()
    producer = inline(log, "etl", 10)
    original = trimming._free

    def free(*arguments: Any) -> Any:
        getattr(producer, outcome)()
        inline(TxnLog.open(log.store), "late", 12)  # begins behind the offset, and stays
        return original(*arguments)

    monkeypatch.setattr(trimming, "_free", free)
    assert log.delete_records("t", {0: 11}, force=True) == [DeletedRecords("t", 0, 0, 11)]
    assert log.refresh().transactional_ids["late"].partitions


def test_a_call_that_fails_after_the_transactions_have_ended_is_completed_by_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = filled()
    inline(log, "etl", 10)

    def trim_to(*_: Any) -> Any:
        raise ConflictError("others move the log start all the time", kind="trim-superseded")

    with monkeypatch.context() as patch:
        patch.setattr(trimming, "trim_to", trim_to)
        with pytest.raises(ConflictError):
            log.delete_records("t", {0: 11}, force=True)
    assert (log.offsets("t")[0].earliest, log.offsets("t")[0].last_stable_offset) == (0, 12)
    assert log.delete_records("t", {0: 11}, force=True) == [DeletedRecords("t", 0, 0, 11)]


@pytest.mark.parametrize("late", [False, True])
def test_an_offset_inside_of_a_spill_in_which_a_transaction_stays_is_refused_before_anything_ends(
    late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("txnformat.protocol.sealing.ROWS_SHARE", 1_000_000)
    log = filled()
    first = inline(log, "first", 10)
    inline(log, "second", 11)
    append(log, 12)
    if late:  # the spill comes between the look and the entry
        original = trimming._free

        def free(*arguments: Any) -> Any:
            TxnLog.open(log.store).maintain("seal")
            return original(*arguments)

        monkeypatch.setattr(trimming, "_free", free)
    else:
        log.maintain("seal")
    for dry_run in (False,) if late else (True, False):
        with pytest.raises(OffsetOutOfRangeError) as caught:
            log.delete_records("t", {0: 11}, force=True, dry_run=dry_run)
        assert (caught.value.values["got"], caught.value.values["latest"]) == (11, 10)
    assert log.delete_records("t", {0: 10}, force=True)[0].aborted == ()
    first.commit()
    with pytest.raises(OffsetOutOfRangeError, match="up to latest, the start of what was spilled"):
        log.delete_records("t", {0: 11})
    assert log.delete_records("t", {0: 12}, force=True)[0].aborted == ("second",)
    assert read(log) == [12]
    assert log.verify(deep=True).ok
