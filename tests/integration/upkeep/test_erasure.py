"""Erasure by its parts: what is covered, what stays, what a reader notices, and what the certificate
needs.
"""

from __future__ import annotations

import hashlib
import hmac
import io
import uuid
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from tests.erasure.world import (
    CANARY,
    GRACE,
    PEOPLE,
    canaries,
    complete,
    made,
    names,
    pass_time,
    table,
    write,
)
from tests.model.groups import ManualClock
from tests.older_logs import older_log
from txnformat import keys
from txnformat.admin.erasure.status import ErasureStage, ErasureStatus
from txnformat.store.memory import MemoryStore
from txnformat.store.unfinished import UnfinishedUpload
from txnlog import (
    ConflictError,
    InvalidInputError,
    NotFoundError,
    Producer,
    TxnLog,
    TxnLogError,
    UnsupportedFeatureError,
)

WHERE = f"name LIKE '{CANARY}%'"
KEY = "0123456789abcdef" * 2


@pytest.fixture
def log() -> Iterator[TxnLog]:
    found = made()
    yield found
    report = found.verify(deep=True)
    assert report.ok, report.problems


def erase(log: TxnLog, **values: Any) -> ErasureStatus:
    arguments: dict[str, Any] = {"requested_by": "the desk", "key": KEY} | values
    report = log.erase("t", arguments.pop("where", WHERE), **arguments)
    assert report.status is not None
    return report.status


def the(log: TxnLog) -> ErasureStatus:
    (found,) = log.erasures()
    return found


def test_records_go_offsets_stay_and_the_certificate_comes_with_the_second_vacuum(log: TxnLog) -> None:
    write(log, "a", f"{CANARY}1", "b")
    write(log, f"{CANARY}2", commit=False)
    write(log, "c", partition=1)
    write(log, f"{CANARY}3", f"{CANARY}4", partition=1)
    status = erase(log)
    assert (status.stage, status.records, status.files) == (ErasureStage.DELETING, 3, 3)
    assert names(log) == ["a", "b", "c"]
    assert names(log, isolation="read_uncommitted") == ["a", "b", "c"]
    offsets = log.read("t", columns=["_offset"]).read_all()["_offset"].to_pylist()
    assert offsets == [0, 2, 0]
    assert "a vacuum that deletes what was written before entry" in status.missing[0]
    assert canaries(log.store)
    complete(log)
    assert canaries(log.store) == {}
    assert (the(log).stage, the(log).missing, the(log).kept_versions) == (ErasureStage.COMPLETE, (), "no")
    assert log.offsets("t")[0].log_end == 6


def test_a_dry_run_names_files_and_counts_and_writes_nothing(log: TxnLog) -> None:
    write(log, "a", f"{CANARY}1")
    write(log, f"{CANARY}2", commit=False)
    with Producer(log, "deferred", buffer="deferred") as producer:
        producer.begin()
        producer.send("t", table(f"{CANARY}3", "x"))
        producer.flush()
        before = {info.key: log.store.get(info.key) for info in log.store.list("")}
        report = log.erase("t", WHERE, requested_by="x", dry_run=True)
        assert {info.key: log.store.get(info.key) for info in log.store.list("")} == before
        producer.abort()
    assert (report.rows, len(report.files), report.rows_read, report.files_read) == (3, 3, 5, 3)
    assert (report.status, report.key, report.dry_run) == (None, "", True)
    assert set(report.files) <= canaries(log.store).keys()


def test_the_log_keeps_columns_counts_and_a_hash_and_no_literal(log: TxnLog) -> None:
    write(log, "a", "secret-person")
    where = "name = 'secret-person' AND n >= 0"
    report = log.erase("t", where, requested_by="ticket 7")
    status = report.status
    assert status is not None
    assert (status.columns, status.requested_by, status.records) == (("n", "name"), "ticket 7", 1)
    topic_id = log.state.topic_ids["t"]
    expected = hmac.new(report.key.encode(), f"{topic_id}\n{where}".encode(), hashlib.sha256).hexdigest()
    assert status.condition == expected
    complete(log)
    assert canaries(log.store, "secret-person") == {}
    assert canaries(log.store, report.key) == {}
    certificate = [one for one in log.history() if "complete_erasure" in one.operations]
    assert [one.entry for one in certificate] == [the(log).complete_entry]


def test_undecided_transactions_are_waited_for_and_a_second_call_goes_on(log: TxnLog) -> None:
    write(log, "a", f"{CANARY}1")
    opened = Producer(log, "opened", buffer="inline")
    opened.init()
    opened.begin()
    opened.send("t", table("b", f"{CANARY}2"), partition=0)
    opened.flush()
    staged = Producer(log, "staged", buffer="deferred")
    staged.init()
    staged.begin()
    staged.send("t", table("c", f"{CANARY}3"), partition=1)
    staged.flush()
    first = erase(log)
    assert first.stage is ErasureStage.REWRITING
    assert "opened, staged had begun before the request" in first.missing[0]
    assert erase(log) == first, "nothing has changed"
    assert f"{CANARY}1" not in names(log, isolation="read_uncommitted")
    opened.commit()
    token = staged.prepare()
    second = erase(log)
    assert second.missing[0].startswith("transaction staged had begun")
    log.commit_prepared(token)
    third = erase(log)
    assert (third.stage, third.records) == (ErasureStage.DELETING, 3)
    assert third.erasure_id == first.erasure_id
    assert sorted(names(log)) == ["a", "b", "c"]
    opened.close()
    staged.close()
    complete(log)
    assert (the(log).stage, canaries(log.store)) == (ErasureStage.COMPLETE, {})


def test_another_client_goes_on_with_the_key_and_a_lost_key_does_not(log: TxnLog) -> None:
    write(log, "a", f"{CANARY}1")
    first = erase(log)
    other = TxnLog.open(log.store, clock=log.committer.clock)
    assert erase(other).erasure_id == first.erasure_id
    assert erase(other, key=KEY[::-1]).erasure_id != first.erasure_id
    assert len(log.erasures()) == 2
    complete(log)
    assert [one.stage for one in log.erasures()] == [ErasureStage.COMPLETE] * 2
    assert erase(other).stage is ErasureStage.COMPLETE


def test_versions_below_what_was_erased_are_refused_and_later_ones_stay(log: TxnLog) -> None:
    write(log, "a")
    first = log.refresh().entry
    write(log, f"{CANARY}1")
    second = log.refresh().entry
    write(log, "b")
    erase(log)
    with pytest.raises(NotFoundError, match="were erased") as caught:
        names(log, version_as_of=first)
    assert caught.value.kind == "version-trimmed"
    assert names(log, version_as_of=second) == ["a"]
    assert names(log, version_as_of=log.refresh().entry) == ["a", "b"]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ({"where": "TRUE"}, "erases-all-rows"),
        ({"where": "n >= 0"}, "erases-all-rows"),
        ({"where": "_offset = 1"}, "invalid-where"),
        ({"where": ""}, "invalid-where"),
        ({"where": None}, "invalid-where"),
        ({"where": "name = '\udcff'"}, "invalid-where"),
        ({"requested_by": ""}, "invalid-requested-by"),
        ({"requested_by": "é" * 501}, "invalid-requested-by"),
        ({"requested_by": 5}, "invalid-requested-by"),
        ({"requested_by": "a\0"}, "invalid-requested-by"),
        ({"key": " " + "0" * 40}, "invalid-erasure-key"),
        ({"requested_by": "\udcff"}, "invalid-requested-by"),
        ({"key": "short"}, "invalid-erasure-key"),
        ({"key": 5}, "invalid-erasure-key"),
        ({"key": "\udcff" * 40}, "invalid-erasure-key"),
    ],
)
def test_what_is_asked_wrongly_is_refused_before_anything_is_requested(
    log: TxnLog, values: dict[str, Any], kind: str
) -> None:
    write(log, "a", f"{CANARY}1")
    with pytest.raises(InvalidInputError) as caught:
        erase(log, **values)
    assert caught.value.kind == kind
    assert log.erasures() == []
    assert names(log) == ["a", f"{CANARY}1"]


def test_an_error_about_the_condition_does_not_show_its_literals(log: TxnLog) -> None:
    for where in ("name = 'SECRET", "n = 'SECRET'", "name = SECRET"):
        with pytest.raises(InvalidInputError) as got:
            erase(log, where=where)
        assert got.value.kind == "invalid-where"
        assert "SECRET" not in f"{got.value!r} {got.value.__context__!r}"


def test_an_erasure_whose_key_is_lost_is_abandoned(log: TxnLog) -> None:
    write(log, "a", f"{CANARY}1")
    with Producer(log, "opened", buffer="inline") as producer:
        producer.begin()
        producer.send("t", table("b"))
        producer.flush()
        lost = erase(log, key="f" * 32)
        assert lost.stage is ErasureStage.REWRITING
        for wrong in ("", "x" * 1_001):
            with pytest.raises(InvalidInputError):
                log.abandon_erasure(lost.erasure_id, requested_by=wrong)
        with pytest.raises(NotFoundError, match="no such erasure"):
            log.abandon_erasure("x", requested_by="the desk")
        assert log.abandon_erasure(lost.erasure_id, requested_by="the desk") == lost
        producer.commit()
    assert log.erasures() == []
    assert "abandon_erasure" in [name for one in log.history() for name in one.operations]
    assert erase(log).stage is ErasureStage.DELETING
    complete(log)
    with pytest.raises(ConflictError, match="the erasure is complete"):
        log.abandon_erasure(the(log).erasure_id, requested_by="the desk")


@pytest.mark.parametrize("other", ["aborted", "trimmed", "open"])
def test_rows_that_no_reader_sees_do_not_make_a_condition_harmless(log: TxnLog, other: str) -> None:
    """All records that are there match; a row that does not is no record any more, or not yet."""
    write(log, "other", commit=other == "trimmed")
    write(log, "a", "b")
    log.maintain("seal")
    if other == "trimmed":
        log.delete_records("t", {0: 1})
    with Producer(log, "opened", buffer="inline") as producer:
        producer.begin()
        if other == "open":
            producer.send("t", table("open"), partition=1)
            producer.flush()
        assert names(log) == ["a", "b"]
        for dry_run in (True, False):
            with pytest.raises(InvalidInputError) as got:
                erase(log, where="name IN ('a', 'b')", dry_run=dry_run)
            assert got.value.kind == "erases-all-rows"
        producer.abort()
    assert log.erasures() == []


def test_a_committed_record_behind_an_open_transaction_stays_so_not_all_rows_go(log: TxnLog) -> None:
    write(log, "a")
    with Producer(log, "opened", buffer="inline") as producer:
        producer.begin()
        producer.send("t", table("open"), partition=0)
        producer.flush()
        write(log, "behind")
        erase(log, where="name <> 'behind'")
        producer.abort()
    assert erase(log, where="name <> 'behind'").stage is ErasureStage.DELETING
    assert names(log) == ["behind"]


@pytest.mark.parametrize("compacted", [False, True])
def test_an_erasure_needs_no_file_below_the_log_start(log: TxnLog, compacted: bool) -> None:
    """A vacuum has deleted it, though the segment that names it has records above the log start."""
    for name in ("a", f"{CANARY}1", "b"):
        write(log, name)
    log.maintain("seal")
    if compacted:
        log.compact("t", min_lag_ms=0, target_bytes=1)
    log.delete_records("t", {0: 1})
    for _ in range(2):
        pass_time(log)
        log.vacuum(GRACE)
    assert erase(log).stage is ErasureStage.DELETING
    complete(log)
    assert names(log) == ["b"]
    assert canaries(log.store) == {}


def test_a_certificate_waits_for_files_that_went_below_the_log_start(log: TxnLog) -> None:
    """Nothing is rewritten, for no reader sees the records any more; their file is there until a vacuum
    deletes it."""
    for name in (f"{CANARY}1", "b"):
        write(log, name)
    log.maintain("seal")
    log.delete_records("t", {0: 1})
    assert erase(log).records == 0
    log.maintain("erasures")
    assert the(log).stage is not ErasureStage.COMPLETE
    complete(log)
    assert the(log).stage is ErasureStage.COMPLETE
    assert canaries(log.store) == {}


def test_all_rows_go_when_the_caller_says_so(log: TxnLog) -> None:
    write(log, f"{CANARY}1", f"{CANARY}2")
    assert erase(log, where="TRUE", all_rows=True).records == 2
    assert names(log) == []
    write(log, "later")
    complete(log)
    assert (canaries(log.store), names(log)) == ({}, ["later"])


def test_unknown_topics_and_older_logs_are_refused(log: TxnLog) -> None:
    with pytest.raises(NotFoundError, match="no such topic"):
        log.erase("x", "n = 1", requested_by="x")
    (old := older_log(MemoryStore())).create_topic("t", PEOPLE)
    with pytest.raises(UnsupportedFeatureError, match="upgrade"):
        erase(old)


def test_a_topic_with_values_in_several_records_is_refused(log: TxnLog) -> None:
    log.create_topic("k", "kafka")
    with Producer(log, "chunks", chunk_bytes=1_024) as producer, producer.transaction() as transaction:
        transaction.send("k", key=b"k", value=io.BytesIO(b"v" * 5_000))
    with pytest.raises(ConflictError) as caught:
        log.erase("k", "key = X'00'", requested_by="x")
    assert caught.value.kind == "chunks-in-erasure"
    assert log.erasures() == []


def test_rows_of_older_versions_of_the_schema_are_compared_as_they_read_now(log: TxnLog) -> None:
    write(log, "a", "b")
    log.alter_topic("t", add_columns=pa.schema([("city", pa.string())]))
    rows = [{"name": "c", "n": 1, "city": f"{CANARY}town"}, {"name": "d", "n": 2, "city": None}]
    with Producer(log, "new") as producer, producer.transaction() as transaction:
        transaction.send("t", rows)
    assert erase(log, where=f"city = '{CANARY}town'").records == 1
    assert sorted(names(log)) == ["a", "b", "d"]
    assert erase(log, where="city IS NULL AND n = 1").records == 1
    assert sorted(names(log)) == ["a", "d"]


def test_compaction_and_key_compaction_go_on_with_what_is_left(log: TxnLog) -> None:
    for number in range(6):
        write(log, f"k{number % 2}", f"{CANARY}{number}")
        log.maintain("seal")
    log.compact("t", min_lag_ms=0)
    write(log, "k5", f"{CANARY}9")
    erase(log)
    assert names(log) == ["k0", "k1"] * 3 + ["k5"]
    log.alter_topic("t", settings={"cleanup.policy": "compact"})
    log.compact("t", min_lag_ms=0)
    assert names(log) == ["k0", "k1", "k5"]
    complete(log)
    assert canaries(log.store) == {}


def test_a_file_that_several_ranges_name_is_given_up_by_all_of_them(log: TxnLog) -> None:
    """One upload holds both partitions; only one of them has a matching row, the other names the file,
    too.
    """
    with Producer(log, "both") as producer:
        producer.begin()
        producer.send("t", table("a", f"{CANARY}1"), partition=0)
        producer.send("t", table("b"), partition=1)
        producer.commit()
    erase(log)
    assert names(log) == ["a", "b"]
    complete(log)
    assert canaries(log.store) == {}


def test_the_deletion_of_the_topic_leaves_only_files_to_delete() -> None:
    log = made()
    write(log, f"{CANARY}1", "a")
    opened = Producer(log, "opened", buffer="inline")
    opened.init()
    opened.begin()
    opened.send("t", table("b"), partition=0)
    opened.flush()
    assert erase(log).stage is ErasureStage.REWRITING
    log.delete_topic("t", force=True)
    assert the(log).stage is ErasureStage.DELETING
    complete(log)
    assert the(log).stage is ErasureStage.COMPLETE
    assert canaries(log.store) == {}


def test_an_object_that_lands_late_is_seen_and_goes_with_the_next_vacuums(log: TxnLog) -> None:
    """A compactor that was paused before its upload, and lost: its file is born below the replace."""
    write(log, f"{CANARY}1", "a")
    born = log.refresh().entry
    old = next(iter(canaries(log.store)))
    data = log.store.get(old)
    assert data is not None
    erase(log)
    pass_time(log)
    log.vacuum(GRACE)
    pass_time(log)
    log.vacuum(GRACE)
    late = keys.data_key(log.state.topic("t").directory, born, str(uuid.uuid4()))
    log.store.create(late, data)
    (status,) = log.maintain("erasures").erasures
    assert status.stage is ErasureStage.DELETING
    assert late in status.missing[0]
    complete(log)
    assert (the(log).stage, canaries(log.store)) == (ErasureStage.COMPLETE, {})


class Uploading(MemoryStore):
    """Has an unfinished upload; says that it keeps old versions."""

    uploads: tuple[UnfinishedUpload, ...] = ()
    kept: bool | None = True

    def unfinished_uploads(self, before_ms: int) -> tuple[UnfinishedUpload, ...]:
        return self.uploads

    def keeps_versions(self) -> bool:
        assert self.kept is not None
        return self.kept


def test_unfinished_uploads_and_versions_of_the_store_are_part_of_the_certificate() -> None:
    clock = ManualClock()
    store = Uploading(clock)
    log = made(store, clock)
    write(log, f"{CANARY}1", "a")
    key = keys.data_key(log.refresh().topic("t").directory, log.state.entry, str(uuid.uuid4()))
    store.uploads = (UnfinishedUpload(key, "upload", 5),)
    erase(log)
    complete(log)
    (status,) = log.maintain("erasures").erasures
    assert "unfinished uploads still exist" in status.missing[0]
    store.uploads = ()
    log.maintain("erasures")
    assert (the(log).stage, the(log).kept_versions) == (ErasureStage.COMPLETE, "yes")


def test_a_certificate_does_not_come_before_the_vacuum(log: TxnLog) -> None:
    write(log, f"{CANARY}1", "a")
    erase(log)
    (status,) = log.maintain("erasures").erasures
    assert "a vacuum that deletes what was written before entry " in status.missing[0]
    pass_time(log)
    log.vacuum(GRACE)  # condemns
    (status,) = log.maintain("erasures").erasures
    assert "that nothing refers to still exist" in status.missing[0]
    assert status.stage is ErasureStage.DELETING
    pass_time(log)
    log.vacuum(GRACE)
    assert log.maintain("erasures").erasures[0].stage is ErasureStage.COMPLETE
    assert log.maintain("erasures").erasures == ()


def test_a_quiet_root_comes_to_its_certificate_by_maintenance_alone() -> None:
    log = made()
    write(log, f"{CANARY}1", "a")
    erase(log)
    for _ in range(4):
        log.committer.clock.sleep(8 * 24 * 3_600)
        TxnLog.open(log.store, clock=log.committer.clock).maintain()
    assert (the_again(log).stage, canaries(log.store)) == (ErasureStage.COMPLETE, {})


def the_again(log: TxnLog) -> ErasureStatus:
    (found,) = log.erasures()
    return found


def test_an_erasure_that_found_nothing_moves_the_floor_although_nothing_was_uploaded_since(
    log: TxnLog,
) -> None:
    write(log, "a")
    erase(log)
    complete(log)
    status = erase(log, key=KEY[::-1])
    assert (status.stage, status.records, status.replaced_entry) == (ErasureStage.DELETING, 0, -1)
    complete(log)
    assert [one.stage for one in log.erasures()] == [ErasureStage.COMPLETE] * 2


def test_it_survives_snapshots_and_truncated_states(log: TxnLog) -> None:
    write(log, f"{CANARY}1", "a")
    status = erase(log)
    for number in range(120):
        log.create_topic(f"more-{number}", PEOPLE)
    log.close()
    again = TxnLog.open(log.store, clock=log.committer.clock)
    assert again.erasures()[0].erasure_id == status.erasure_id
    assert erase(again).records == 1


def test_no_error_of_an_erasure_shows_the_condition(log: TxnLog) -> None:
    write(log, "a", f"{CANARY}1")
    opened = Producer(log, "opened", buffer="inline")
    opened.init()
    opened.begin()
    opened.send("t", table("b"), partition=0)
    opened.flush()
    status = erase(log)
    assert CANARY not in str(status)
    opened.abort()
    opened.close()
    with pytest.raises(TxnLogError) as caught:
        log.erase("t", WHERE, requested_by="", key=KEY)
    assert CANARY not in str(caught.value)
