"""Windows of entries: what is in them, where they end, what their floors say, what they cost, and what is
refused."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.integration.clients.failing import NUMBERS, rows
from txnformat.reading.commits import CommitWindow, committed_between, committed_sizes, next_end
from txnformat.reading.plan import topic_predicate
from txnformat.reading.rows import read_rows
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import KeyClass, RequestKind
from txnlog import InvalidInputError, NotFoundError, OffsetOutOfRangeError, Producer, TxnLog
from txnlog_testing.stores.counting import CountingStore
from writers.bulk import BulkAppend


@pytest.fixture
def log() -> TxnLog:
    """Topics t (2 partitions) and u; entries 0 and 1 made them."""
    log = TxnLog.create(CountingStore(MemoryStore()))
    log.create_topic("t", NUMBERS, partitions=2)
    log.create_topic("u", NUMBERS)
    return log


def append(log: TxnLog, *numbers: int, topic: str = "t", partition: int = 0) -> int:
    """Append without a transaction; return the entry."""
    with BulkAppend(log) as bulk:
        bulk.send(topic, rows(*numbers), partition)
        entry = bulk.commit().entry
    assert entry is not None
    return entry


def begin(producer: Producer, *numbers: int, topic: str = "t", partition: int = 0) -> None:
    """Begin a transaction and append to it."""
    producer.begin()
    producer.send(topic, rows(*numbers), partition=partition)
    producer.flush()


def end(log: TxnLog, since: int, **asked: int | None) -> int:
    """Return where the window of t ends."""
    return next_end(log.sidecars, log.refresh(), ["t"], since, {}, **asked)


def window(
    log: TxnLog, since: int, until: int, floors: Sequence[int] = (), where: str | None = None
) -> CommitWindow:
    """Plan a window of t."""
    return committed_between(log.sidecars, log.refresh(), "t", since, until, floors=floors, where=where)


def numbers(log: TxnLog, found: CommitWindow) -> list[list[int]]:
    """Return what a window reads, by partition."""
    schema = log.state.topic("t").schema
    read = []
    for part in found.partitions:
        batches = read_rows(log.store, "t", schema, part.partition, part.rows, found.files.__getitem__, ["n"])
        read.append([number for batch in batches for number in batch.column("n").to_pylist()])
    return read


def sidecar_gets(log: TxnLog) -> int:
    """Return how many sidecars were fetched up to now."""
    assert isinstance(log.store, CountingStore)
    return log.store.counts.count(RequestKind.GET, KeyClass.SIDECAR)


# --- what is in a window ------------------------------------------------------------------------------------


def test_an_inline_transaction_shows_where_it_commits_and_holds_nothing_back(log: TxnLog) -> None:
    with Producer(log, "slow", buffer="inline") as slow:
        begin(slow, 1)
        slow.send("t", rows(2), partition=1)
        slow.flush()
        plain = append(log, 3)
        assert end(log, -1) == plain
        first = window(log, -1, plain)
        assert numbers(log, first) == [[3], []]
        assert first.floors == (0, 0)  # of the open transaction
        slow.send("t", rows(4), partition=0)
        committed = slow.commit().entry
    assert committed is not None
    assert end(log, plain) == committed
    second = window(log, plain, committed, first.floors)
    assert numbers(log, second) == [[1, 4], [2]]
    assert second.floors == tuple(one.log_end for one in log.offsets("t"))
    # As one window: by commit entry, then offset.
    assert numbers(log, window(log, -1, committed)) == [[3, 1, 4], [2]]


def test_an_aborted_transaction_shows_nowhere_and_its_offsets_are_passed(log: TxnLog) -> None:
    with Producer(log, "gone", buffer="inline") as gone:
        begin(gone, 1)
        entry = append(log, 2)
        gone.abort()
    found = window(log, -1, log.refresh().entry)
    assert numbers(log, found) == [[2], []]
    assert found.floors == (3, 0)
    assert end(log, -1) == entry
    assert end(log, entry) == entry


def test_a_floor_stays_below_what_commits_after_the_window_though_it_is_decided_when_it_is_planned(
    log: TxnLog,
) -> None:
    with Producer(log, "slow", buffer="inline") as slow:
        append(log, 0)
        begin(slow, 1)
        middle = append(log, 2)
        slow.commit()
    for is_sealed in (False, True):
        if is_sealed:
            log.maintain("seal")
        assert window(log, -1, middle).floors == (1, 0)
        assert numbers(log, window(log, middle, log.state.entry, (1, 0))) == [[1], []]


def test_offsets_that_are_appended_after_the_window_are_not_passed(log: TxnLog) -> None:
    first = append(log, 0)
    with Producer(log, "gone", buffer="inline") as gone:
        begin(gone, 1)
        gone.abort()
    append(log, 2)
    assert window(log, -1, first).floors[0] == 1
    log.maintain("seal")
    # A segment is known as a whole once it is open, but nothing after the window is below the floor.
    assert window(log, -1, first).floors[0] == 3


def test_partitions_that_were_added_begin_at_their_start(log: TxnLog) -> None:
    first = append(log, 0)
    floors = window(log, -1, first).floors
    log.alter_topic("t", partitions=3)
    second = append(log, 1, partition=2)
    found = window(log, first, second, floors)
    assert numbers(log, found) == [[], [], [1]]
    assert found.floors == (1, 0, 1)


def test_batches_come_whole_even_where_a_floor_is_inside_of_one(log: TxnLog) -> None:
    entry = append(log, 0, 1, 2)
    for _ in range(2):
        found = window(log, -1, entry, (1, 0))
        assert (numbers(log, found), found.floors) == ([[0, 1, 2], []], (3, 0))
        log.maintain("seal")


def test_a_condition_leaves_out_batches_but_moves_no_floor(log: TxnLog) -> None:
    entries = [append(log, number) for number in range(3)]
    for _ in range(2):
        found = window(log, -1, entries[2], where="_offset = 1")
        assert numbers(log, found) == [[1], []]
        assert found.floors == window(log, -1, entries[2]).floors == (3, 0)
        parsed = topic_predicate("_offset = 1", log.state.topic("t").schema)
        again = committed_between(log.sidecars, log.state, "t", -1, entries[2], where=parsed)
        assert numbers(log, again) == [[1], []]
        log.maintain("seal")


# --- where a window ends ------------------------------------------------------------------------------------


def test_entries_of_other_topics_are_no_news(log: TxnLog) -> None:
    entry = append(log, 1)
    append(log, 2, topic="u")
    assert end(log, -1) == entry
    assert end(log, entry) == entry
    assert end(log, log.state.entry) == log.state.entry


def test_a_window_ends_within_its_limits_at_an_entry(log: TxnLog) -> None:
    entries = [append(log, *range(count)) for count in (2, 3, 1, 10, 1)]
    append(log, 1, topic="u")
    state = log.refresh()
    sizes = committed_sizes(log.sidecars, state, ["t"], -1, state.entry, {})
    assert sizes["entry"].tolist() == entries
    assert sizes["records"].tolist() == [2, 3, 1, 10, 1]
    for _ in range(2):
        assert end(log, -1, rows_max=5) == entries[1]
        assert end(log, -1, rows_max=4) == entries[0]
        assert end(log, -1, rows_max=1) == entries[0]  # larger than the limit, and whole
        assert end(log, entries[2], rows_max=5) == entries[3]
        assert end(log, -1, rows_max=1_000) == end(log, -1) == entries[4]
        assert end(log, -1, upto=entries[2]) == end(log, -1, upto=entries[3] - 1) == entries[2]
        assert end(log, entries[2], upto=entries[1]) == entries[2]
        assert end(log, -1, bytes_max=int(sizes["size"][:3].sum())) == entries[2]
        assert end(log, -1, bytes_max=int(sizes["size"][:3].sum()) - 1) == entries[1]
        assert end(log, -1, rows_max=5, bytes_max=1) == entries[0]
        log.maintain("seal")


def test_an_entry_whose_batches_are_in_two_segments_is_counted_as_a_whole(
    log: TxnLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("txnformat.protocol.sealing.BATCHES_MAX", 1)
    with Producer(log, "several", batch_bytes=1) as several, several.transaction() as txn:
        for number in range(4):
            txn.send("t", rows(number), partition=0)
    entry = log.refresh().entry
    append(log, 4)
    log.maintain("seal")
    assert log.state.segments.end == 5
    sizes = committed_sizes(log.sidecars, log.state, ["t"], -1, log.state.entry, {}, rows_enough=1)
    assert sizes[["entry", "records"]].tolist() == [(entry, 4)]
    assert numbers(log, window(log, -1, entry)) == [[0, 1, 2, 3], []]


def test_limits_count_all_topics_of_a_read(log: TxnLog) -> None:
    first, second = append(log, 1, 2), append(log, 3, 4, topic="u")
    state = log.refresh()
    assert next_end(log.sidecars, state, ["t", "u"], -1, {}, rows_max=3) == first
    assert next_end(log.sidecars, state, [state.topic("u"), "t"], -1, {}, rows_max=4) == second
    with Producer(log, "both") as both:
        both.begin()
        both.send("t", rows(5), partition=0)
        both.send("u", rows(6), partition=0)
        third = both.commit().entry
    sizes = committed_sizes(log.sidecars, log.refresh(), ["t", "u"], second, log.state.entry, {})
    assert sizes[["entry", "records"]].tolist() == [(third, 2)]


# --- requests -----------------------------------------------------------------------------------------------


def sealed(log: TxnLog, count: int) -> list[int]:
    """Append to both partitions and seal, so many times; return the last entry of each segment, in a log
    opened anew."""
    entries = []
    for number in range(count):
        append(log, number)
        entries.append(append(log, number, partition=1))
        log.maintain("seal")
    return entries


def test_a_window_opens_segments_up_to_the_first_younger_append(log: TxnLog) -> None:
    entries = sealed(log, 10)
    opened = TxnLog.open(log.store)
    state = opened.refresh()
    before = sidecar_gets(log)
    first = committed_between(opened.sidecars, state, "t", -1, entries[1])
    assert numbers(opened, first) == [[0, 1], [0, 1]]
    assert sidecar_gets(log) - before == 3
    committed_between(opened.sidecars, state, "t", -1, entries[1])
    assert sidecar_gets(log) - before == 3  # kept
    assert [part.range.end for part in first.partitions] == [3, 3]


def test_nothing_is_opened_below_the_floors(log: TxnLog) -> None:
    entries = sealed(log, 10)
    floors = window(log, -1, entries[7]).floors
    assert floors == (8, 8)
    opened = TxnLog.open(log.store)
    state = opened.refresh()
    before = sidecar_gets(log)
    found = committed_between(opened.sidecars, state, "t", entries[7], entries[9], floors=floors)
    assert numbers(opened, found) == [[8, 9], [8, 9]]
    assert sidecar_gets(log) - before == 2
    by_id = {state.topic_ids["t"]: floors}
    assert next_end(opened.sidecars, state, ["t"], entries[7], by_id) == entries[9]
    assert sidecar_gets(log) - before == 2
    opened = TxnLog.open(log.store)
    before = sidecar_gets(log)
    assert next_end(opened.sidecars, state, ["t"], -1, {}, upto=entries[1]) == entries[1]
    assert sidecar_gets(log) - before == 3


def test_the_end_of_a_limited_window_opens_no_more_of_a_backlog_than_it_needs(log: TxnLog) -> None:
    entries = sealed(log, 20)
    for rows_max, until, segments in ((1, entries[0] - 1, 2), (4, entries[1], 4), (1_000, entries[19], 20)):
        opened = TxnLog.open(log.store)
        state = opened.refresh()
        before = sidecar_gets(log)
        assert next_end(opened.sidecars, state, ["t"], -1, {}, rows_max=rows_max) == until
        assert sidecar_gets(log) - before == segments


def test_an_idle_reader_and_one_that_begins_at_the_end_open_nothing(log: TxnLog) -> None:
    sealed(log, 5)
    append(log, 9)
    append(log, 9, partition=1)
    opened = TxnLog.open(log.store)
    state = opened.refresh()
    before = sidecar_gets(log)
    assert committed_between(opened.sidecars, state, "t", state.entry, state.entry).floors == (6, 6)
    append(log, 1, topic="u")
    later = opened.refresh()
    assert next_end(opened.sidecars, later, ["t"], state.entry, {}) == state.entry
    found = committed_between(opened.sidecars, later, "t", state.entry, later.entry)
    assert (numbers(opened, found), found.floors) == ([[], []], (6, 6))
    assert sidecar_gets(log) == before
    with Producer(log, "open", buffer="inline") as producer:
        begin(producer, 1)
        append(log, 2)
        entry = opened.refresh().entry
        assert committed_between(opened.sidecars, opened.state, "t", entry, entry).floors == (6, 6)
    # Of a window that ends in between nothing is known without a look: the floors stay.
    assert committed_between(opened.sidecars, later, "t", 3, 3, floors=(1, 1)).floors == (1, 1)
    assert sidecar_gets(log) == before


def test_segments_of_aborted_records_are_not_opened(log: TxnLog) -> None:
    with Producer(log, "gone", buffer="inline") as gone:
        for _ in range(3):
            begin(gone, 1)
            gone.abort()
            log.maintain("seal")
    entry = append(log, 2)
    opened = TxnLog.open(log.store)
    state = opened.refresh()
    before = sidecar_gets(log)
    assert next_end(opened.sidecars, state, ["t"], -1, {}) == entry
    assert numbers(opened, committed_between(opened.sidecars, state, "t", -1, entry)) == [[2], []]
    assert sidecar_gets(log) == before


def test_counting_opens_no_batch_table_and_a_plan_only_those_in_the_window(log: TxnLog) -> None:
    store = log.store
    assert isinstance(store, CountingStore)
    ends = []
    for number in range(3):
        with Producer(log, f"deferred-{number}", buffer="deferred") as deferred:
            begin(deferred, number)
            ends.append(deferred.commit().entry)
    opened = TxnLog.open(store)
    state = opened.refresh()
    with store.measure() as counted:
        sizes = committed_sizes(opened.sidecars, state, ["t"], -1, state.entry, {})
    assert sizes[["entry", "records"]].tolist() == [(entry, 1) for entry in ends]
    assert counted.counts.count() == 0
    assert ends[0] is not None
    assert ends[1] is not None
    with store.measure() as planned:
        found = committed_between(opened.sidecars, state, "t", ends[0], ends[1])
    assert planned.counts.count() == planned.counts.count(RequestKind.GET, KeyClass.TABLE) == 1
    assert numbers(opened, found) == [[1], []]


def test_a_condition_saves_batch_tables(log: TxnLog) -> None:
    store = log.store
    assert isinstance(store, CountingStore)
    with (
        Producer(log, "deferred", buffer="deferred", batch_bytes=1) as deferred,
        deferred.transaction() as txn,
    ):
        for number in range(4):
            txn.send("t", rows(number), partition=0)
        deferred.flush()
    entry = log.refresh().entry
    with store.measure() as nothing:
        assert numbers(log, window(log, -1, entry, where="_offset > 100")) == [[], []]
    assert nothing.counts.count(RequestKind.GET, KeyClass.TABLE) == 0
    assert numbers(log, window(log, -1, entry, where="_offset = 1")) == [[1], []]


# --- bad input ----------------------------------------------------------------------------------------------


def test_windows_that_cannot_be_are_refused(log: TxnLog) -> None:
    append(log, 1)
    state = log.refresh()
    with pytest.raises(NotFoundError) as unknown:
        window(log, -1, state.entry + 1)
    assert unknown.value.kind == "unknown-version"
    with pytest.raises(NotFoundError) as uncounted:
        committed_sizes(log.sidecars, state, ["t"], -1, state.entry + 1, {})
    assert uncounted.value.kind == "unknown-version"
    with pytest.raises(NotFoundError) as before:
        window(log, -2, state.entry)
    assert before.value.kind == "unknown-version"
    with pytest.raises(InvalidInputError) as reverse:
        window(log, 1, 0)
    assert reverse.value.kind == "invalid-version"
    with pytest.raises(NotFoundError) as no_topic:
        committed_between(log.sidecars, state, "v", -1, 0)
    assert no_topic.value.kind == "unknown-topic"
    other = TxnLog.create(MemoryStore()).create_topic("t", NUMBERS)
    with pytest.raises(NotFoundError) as other_topic:
        next_end(log.sidecars, state, [other], -1, {})
    assert other_topic.value.kind == "unknown-topic"


@pytest.mark.parametrize("floors", [(2, 0), (0, 1), (-1,), (0, 0, 0)])
def test_floors_that_are_no_offsets_are_refused(log: TxnLog, floors: tuple[int, ...]) -> None:
    entry = append(log, 1)
    with pytest.raises(OffsetOutOfRangeError) as refused:
        window(log, -1, entry, floors)
    assert "floor" in str(refused.value)
