"""What a timeline tells is what the log had: at every entry, of every transaction."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from tests.integration.looking.world import SCHEMA, World
from txnformat.looking import collecting
from txnformat.looking.model import Document, Transaction
from txnformat.looking.timeline import EntryWindow
from txnlog import InvalidInputError, NotFoundError, Producer, StorageError, TxnLog
from txnlog_testing.stores.counting import CountingStore


@pytest.fixture(scope="module")
def world() -> World:
    made = World()
    made.everything()
    return made


def document(log: TxnLog, **arguments: object) -> Document:
    return log.timeline(**arguments).document  # type: ignore[arg-type]


def named(shown: Document, name: str) -> Transaction:
    (found,) = [one for one in shown.transactions if one.transactional_id == name]
    return found


def offsets_of(shown: Document, number: int) -> dict[tuple[str, int], tuple[int, int, int, str | None]]:
    """Return log start, last stable offset, log end and holder of each partition in a sample."""
    found = {}
    for part, place in zip(shown.partitions, shown.samples[number].places, strict=True):
        holder = None if place.holder == -1 else shown.transactions[place.holder].transactional_id
        found[part.topic, part.partition] = (place.log_start, place.last_stable_offset, place.log_end, holder)
    return found


def expected(world: World, entry: int) -> dict[tuple[str, int], tuple[int, int, int, str | None]]:
    return {
        (one.topic, one.partition): (
            one.earliest,
            one.last_stable_offset,
            one.log_end,
            one.held_by.transactional_id if one.held_by else None,
        )
        for one in world.seen[entry]
    }


def test_each_sample_is_what_the_log_had_after_its_entry(world: World) -> None:
    shown = document(world.opened())
    entries = [one.entry for one in shown.samples]
    assert entries == list(range(world.log.refresh().entry + 1))
    for number, entry in enumerate(entries):
        if entry in world.seen:
            assert offsets_of(shown, number) == expected(world, entry), entry


def test_a_timeline_of_an_old_entry_ends_with_it(world: World) -> None:
    whole = document(world.opened())
    for entry in sorted(world.seen)[::7]:
        shown = document(world.opened(), version_as_of=entry)
        assert (shown.entry, shown.samples[-1].entry, shown.newest) == (entry, entry, whole.newest)
        assert offsets_of(shown, -1) == expected(world, entry)
        assert all(one.begin_entry <= entry for one in shown.transactions)
        assert all(one.end_entry is None or one.end_entry <= entry for one in shown.transactions)


@pytest.mark.parametrize(
    ("name", "outcome", "cause"),
    [
        ("kept", "committed", "producer"),
        ("lost", "aborted", "producer"),
        ("staged", "committed", "producer"),
        ("unstaged", "aborted", "producer"),
        ("fenced", "aborted", "init"),
        ("late", "aborted", "timeout"),
        ("prepared", "prepared", ""),
        ("open", "open", ""),
        ("open-staged", "open", ""),
        ("", "plain", ""),
    ],
)
def test_every_outcome_is_told(world: World, name: str, outcome: str, cause: str) -> None:
    found = named(document(world.opened()), name)
    assert (found.outcome, found.cause) == (outcome, cause)
    assert (found.end_entry is None) == (outcome in ("prepared", "open"))
    assert bool(found.runs) == (name not in ("unstaged", "open-staged"))
    assert sum(run.end - run.start for run in found.runs) == found.records


def test_runs_and_markers_fill_each_partition(world: World) -> None:
    """No offset is in two runs, and those in none are markers: one for each end of a transaction in the
    partition."""
    shown = document(world.opened())
    for number, (part, place) in enumerate(zip(shown.partitions, shown.samples[-1].places, strict=True)):
        offsets = [
            offset
            for one in shown.transactions
            for run in one.runs
            if run.partition == number
            for offset in range(run.start, run.end)
        ]
        assert len(offsets) == len(set(offsets)), part
        ended = sum(
            any(run.partition == number for run in one.runs)
            for one in shown.transactions
            if one.outcome in ("committed", "aborted")
        )
        assert place.log_end - len(offsets) == ended, part


def test_a_late_transaction_is_told_with_what_ends_it() -> None:
    world = World()
    world.begun("late", transaction_timeout_ms=60_000)
    assert named(document(world.opened()), "late").outcome == "open"
    world.clock.sleep(61)
    shown = document(world.opened())
    assert named(shown, "late").outcome == "late"
    assert shown.samples[-1].undecided == ((0, "late"),)
    assert shown.samples[-2].undecided == ((0, "open"),)
    (one,) = shown.open
    assert (one.status, one.command) == ("late", f"txnlog transactions end-expired --root {world.store.url}")
    assert sum(held for _, _, held in one.holds_back) == 9


def test_what_a_prepared_transaction_gives_up_is_a_part_of_its_own() -> None:
    made = World()
    log = made.log
    producer = Producer(log, "bank", buffer="inline")
    producer.init()
    producer.begin()
    for number in range(2):
        producer.send("a", [{"id": number}] * 3, partition=number)
    producer.prepare()
    before = log.refresh().entry
    log.delete_records("a", {0: log.offsets("a")[0].log_end}, force=["bank"])
    gave_up = log.refresh().entry
    shown = document(log)
    part, whole = (one for one in shown.transactions if one.transactional_id == "bank")
    if part.outcome != "given-up":
        part, whole = whole, part
    assert (part.outcome, part.cause, part.records) == ("given-up", "operator", 3)
    assert before < (part.end_entry or 0) <= gave_up
    assert {shown.partitions[run.partition].partition for run in part.runs} == {0}
    assert (whole.outcome, whole.end_entry, whole.records) == ("prepared", None, 3)
    assert {shown.partitions[run.partition].partition for run in whole.runs} == {1}
    assert (part.producer_id, part.epoch) == (whole.producer_id, whole.epoch)
    for sample in shown.samples:
        if sample.entry >= before:
            assert sample.undecided == ((shown.transactions.index(whole), "prepared"),)
    assert [one.transactional_id for one in shown.open] == ["bank"]
    # The window begins behind the transaction.
    late = document(log, entries=shown.entry - (part.end_entry or 0) + 1)
    assert {one.outcome: one.before_window for one in late.transactions} == {
        "given-up": True,
        "prepared": True,
    }


def test_open_transactions_come_with_what_they_hold_back(world: World) -> None:
    shown = document(world.opened())
    assert [(one.transactional_id, one.status, one.staged) for one in shown.open] == [
        ("prepared", "prepared", 0),
        ("open", "open", 0),
        ("open-staged", "open", 9),
    ]
    held = {(topic, partition): count for topic, partition, count in shown.open[0].holds_back}
    last = offsets_of(shown, -1)
    assert held == {key: end - stable for key, (_, stable, end, _) in last.items()}
    assert shown.open[1].holds_back == shown.open[2].holds_back == ()


def test_a_window_takes_over_what_was_open_before(world: World) -> None:
    whole = document(world.opened())
    begun = named(whole, "prepared")
    shown = document(world.opened(), entries=whole.newest - begun.begin_entry - 1)
    assert shown.first > begun.begin_entry
    found = named(shown, "prepared")
    assert found.before_window
    assert (found.begin_entry, found.outcome, len(found.runs)) == (begun.begin_entry, "prepared", 3)
    assert offsets_of(shown, -1) == offsets_of(whole, -1)
    assert {one.transactional_id for one in shown.transactions} < {
        one.transactional_id for one in whole.transactions
    }


def test_one_topic_has_its_own_transactions_only(world: World) -> None:
    with Producer(world.log, "elsewhere") as producer, producer.transaction():
        producer.send("b", [{"id": 1}], partition=0)
    shown = document(world.opened(), topic="a")
    assert {one.topic for one in shown.partitions} == {"a"}
    names = {one.transactional_id for one in shown.transactions}
    assert "elsewhere" not in names
    assert {"kept", "open"} <= names
    assert all(run.partition < 2 for one in shown.transactions for run in one.runs)


def test_groups_have_their_lag_at_every_entry(world: World) -> None:
    shown = document(world.opened())
    assert shown.group_names == ("readers",)
    lags = {one.entry: [group.lag for group in one.groups] for one in shown.samples}
    metrics = world.opened().metrics()
    assert lags[shown.entry] == [sum(part.lag_records for part in metrics.groups[0].partitions)]
    assert lags[0] == []
    assert [position[:2] for position in shown.groups[0].positions] == [("a", 0), ("a", 1)]


def test_objects_are_those_in_the_store(world: World) -> None:
    """Each object that writers made is counted once, but for hints, the format, probes, bundles and blocks of
    ids."""
    counts = {one.kind: one.objects for one in document(world.opened()).objects}
    keys = [info.key for info in world.store.list("")]
    assert counts["commit entries"] == sum("/log/" in key for key in keys)
    assert counts["data files"] == sum(key.endswith(".parquet") for key in keys)
    assert counts["batch tables and spills"] == sum("/tables/" in key for key in keys)


def test_a_followed_window_is_the_window_that_is_opened_now() -> None:
    world = World()
    followed = world.opened()
    window = EntryWindow(followed.committer)
    assert not window.follow()
    world.everything()
    assert window.follow()
    now_ms = world.store.store_time_ms()
    ours, fresh = window.document("x", now_ms), EntryWindow(world.opened().committer).document("x", now_ms)
    assert ours.transactions == fresh.transactions
    assert ours.samples == fresh.samples
    assert ours.open == fresh.open


def test_a_window_that_follows_for_long_stays_bounded() -> None:
    world = World()
    window = EntryWindow(world.opened().committer, entries=5)
    for number in range(12):
        with Producer(world.log, f"p-{number}") as producer, producer.transaction():
            producer.send("b", [{"id": 1}], partition=0)
        window.follow()
        shown = window.document("x", 0)
        assert shown.entry == world.log.refresh().entry
        assert len(shown.entries) <= 10


def test_following_costs_one_request_when_nothing_is_new() -> None:
    world = World()
    counting = CountingStore(world.store)
    window = EntryWindow(world.opened(counting).committer)
    with counting.measure() as measured:
        window.follow()
    assert measured.counts.count() == 1
    before = world.log.refresh().entry
    with Producer(world.log) as producer:
        producer.send("b", [{"id": 1}], partition=0)
    with counting.measure() as measured:
        window.follow()
    assert measured.counts.count() == 1 + 2 * (world.log.refresh().entry - before)


def test_bounds_leave_the_oldest_out_and_say_so(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = document(world.opened())
    monkeypatch.setattr(collecting, "TRANSACTIONS_MAX", 4)
    monkeypatch.setattr(collecting, "PARTITIONS_MAX", 2)
    shown = document(world.opened())
    left = {one.transactional_id for one in shown.transactions}
    assert {"prepared", "open", "open-staged"} <= left
    assert "kept" not in left
    assert len(shown.transactions) < len(whole.transactions)
    assert len(shown.partitions) == 2
    assert [note.partition(" ")[0] for note in shown.notes] == ["2", "the"]


def test_runs_are_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collecting, "RUNS_MAX", 5)
    shown = document(world.opened())
    ended = [one for one in shown.transactions if one.end_entry is not None]
    assert 0 < sum(len(one.runs) for one in ended) <= 5


def test_samples_are_bounded_and_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    with Producer(world.log) as producer:
        for _ in range(60):
            producer.send("b", [{"id": 1}], partition=0)
            producer.flush()
    monkeypatch.setattr(collecting, "SAMPLES_MAX", 10)
    monkeypatch.setattr(collecting, "SAMPLES_MIN", 1)
    shown = document(world.opened())
    entries = [one.entry for one in shown.samples]
    assert len(entries) <= 10
    assert entries[-1] == shown.entry
    assert max(after - before for before, after in itertools.pairwise(entries)) <= 16


def test_a_log_without_an_entry_has_a_timeline() -> None:
    log = TxnLog.create(World().store.__class__(name="empty-to-look-at"))
    shown = document(log)
    assert (shown.entry, shown.transactions, shown.partitions) == (-1, (), ())
    assert "<html" in log.timeline().to_html()


def test_what_cannot_be_shown_is_refused(world: World) -> None:
    log = world.opened()
    with pytest.raises(NotFoundError) as unknown:
        log.timeline("c")
    assert unknown.value.kind == "unknown-topic"
    with pytest.raises(NotFoundError) as version:
        log.timeline(version_as_of=10**6)
    assert version.value.kind == "unknown-version"
    with pytest.raises(InvalidInputError) as both:
        log.timeline(version_as_of=1, timestamp_as_of=1)
    assert both.value.kind == "invalid-version"
    for entries in (0, 20_001, True, "7"):
        with pytest.raises(InvalidInputError) as number:
            log.timeline(entries=entries)  # type: ignore[arg-type]
        assert number.value.kind == "invalid-entries"
    with pytest.raises(NotFoundError) as early:
        log.timeline("a", version_as_of=0)
    assert early.value.kind == "unknown-topic"


def test_a_timeline_is_saved_and_shown(world: World, tmp_path: Path) -> None:
    timeline = world.opened().timeline()
    path = timeline.save(tmp_path / "report.html")
    assert path.read_text(encoding="utf-8") == timeline.to_html()
    assert json.loads(timeline.to_json())["entry"] == timeline.document.entry
    assert timeline._repr_html_().startswith("<iframe")
    with pytest.raises(StorageError) as refused:
        timeline.save(tmp_path / "none" / "report.html")
    assert refused.value.kind == "output-failed"


def test_a_deleted_topic_is_shown_no_more() -> None:
    world = World()
    world.begun("kept").commit()
    world.log.delete_topic("b", force=True)
    shown = document(world.opened())
    assert {one.topic for one in shown.partitions} == {"a"}
    assert len(named(shown, "kept").runs) == 2
    assert SCHEMA.names == ["id"]
