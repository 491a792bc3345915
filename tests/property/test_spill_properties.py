"""Random histories whose open transactions are spilled behind: every reader finds what it finds without
spills, and seals are the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import event

from tests.property.cut_histories import TOPICS, CutHistory, any_log, cut_histories, small_pieces
from tests.rounds import rounds
from txnformat import keys
from txnformat.clock import SystemClock
from txnformat.core import fold
from txnformat.core.entry import decode_entry, sha256_hex
from txnformat.core.groups.listing import Unread
from txnformat.core.invariants import check_state, check_whole
from txnformat.core.operations import Checkpoint, Spill
from txnformat.core.snapshot.codec import decode_snapshot, encode_snapshot, state_digest
from txnformat.core.state import LogState
from txnformat.errors import TxnLogError
from txnformat.protocol.follow import empty_state
from txnformat.reading.commits import committed_between, committed_sizes, next_end
from txnformat.reading.matching import unlisted_files
from txnformat.reading.plan import extents_since, plan_read
from txnformat.reading.sealed import SidecarCache
from txnformat.reading.visible import count_records
from txnformat.segments.payload import head_of
from txnformat.store.memory import MemoryStore
from txnformat.types import IsolationLevel, OffsetRange, TopicPartition
from txnformat.verify.live import live_objects
from txnformat.verify.log import verify_log
from txnformat.verify.requests import Requests
from txnlog import TxnLog


class Twin:
    """The states of a log as its entries give them, and as they would be if its spills were none."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        data = store.get(keys.FORMAT_KEY)
        assert data is not None
        self.spilled = self.plain = empty_state(data)
        self.spills = 0

    def follow(self, entry: int) -> None:
        """Fold the entries up to one."""
        for number in range(self.spilled.entry + 1, entry + 1):
            data = self._store.get(keys.entry_key(number))
            assert data is not None
            read = decode_entry(data, number)
            before = self.spilled
            self.spilled = fold.apply(before, read, sha256_hex(head_of(data)))
            assert check_state(before, read, self.spilled) == []
            self.spills += sum(isinstance(op, Spill) for op in read.operations)
            with pytest.MonkeyPatch.context() as patch:
                patch.setitem(fold._FOLDS, Spill, lambda state, op, at: state)
                self.plain = fold.apply(self.plain, read, sha256_hex(head_of(data)))
        assert check_whole(self.spilled) == []
        assert check_snapshot(self.spilled)
        for key, one in self.spilled.partitions.items():
            plain = self.plain.partitions[key]
            for name in ("log_end", "sealed_end", "last_stable_offset", "open", "sequences", "sealed"):
                assert getattr(one, name) == getattr(plain, name)
            assert one.aborted_transactions == plain.aborted_transactions


def check_snapshot(state: LogState) -> bool:
    """Return whether a state comes back from its snapshot."""
    data = encode_snapshot(state)
    named = Checkpoint(
        state.entry,
        keys.snapshot_key(state.entry, "0" * 8 + "-0000-4000-8000-" + "0" * 12),
        len(data),
        sha256_hex(data),
        state_digest(state),
    )
    restored = decode_snapshot(data, named, state.log_id)
    return state_digest(restored) == state_digest(state) and all(
        one.spills == state.partitions[key].spills for key, one in restored.partitions.items()
    )


def outcome(call: Callable[..., object], *args: object, **kwargs: object) -> object:
    """Return what a call returns, as values that can be compared, or the error that it raises."""
    try:
        return plain(call(*args, **kwargs))
    except TxnLogError as error:
        return type(error), str(error)


def plain(found: Any) -> object:
    """Return plans and arrays as values."""
    if isinstance(found, np.ndarray):
        return found.tolist()
    if hasattr(found, "partitions"):
        is_window = hasattr(found, "floors")  # its range is what was looked at
        return (
            [
                (part.partition, None if is_window else part.range, part.rows.tolist())
                for part in found.partitions
            ],
            {number: record.sha256 for number, record in found.files.items()},
        )
    return list(found) if isinstance(found, Iterator) else found


def check_objects(twin: Twin, sidecars: SidecarCache) -> None:
    """A vacuum keeps, and an erasure looks at, what they do without spills; and the objects of the spills."""
    live: list[set[str]] = [set(), set()]
    for state, into in zip((twin.spilled, twin.plain), live, strict=True):
        live_objects(Requests(sidecars.store, SystemClock(), None), state, into.add)
    spills = {
        twin.spilled.tables[one.table].key
        for partition in twin.spilled.partitions.values()
        for one in partition.spills
    }
    # The embedded files of spills are objects; two spills that name one file copy it twice.
    copied = {file.key for file in twin.plain.files if file.place is not None} - live[0]
    assert len(live[0] - live[1] - spills) >= len(copied)
    assert live[0] | copied >= live[1] | spills
    for topic in TOPICS:
        found = [
            {one.record.key for one in unlisted_files(sidecars, state, state.topic(topic))}
            for state in (twin.spilled, twin.plain)
        ]
        assert len(found[0]) >= len(found[1])
        assert found[0] - live[0] == found[1] - live[1] == set()


def check_reads(twin: Twin, sidecars: SidecarCache, random: Random) -> None:
    """Every way of planning gives on both states the same."""
    spilled, bare = twin.spilled, twin.plain
    check_objects(twin, sidecars)
    for topic in TOPICS:
        for level in IsolationLevel:
            as_of = random.randint(0, spilled.entry)
            both = [
                outcome(plan_read, sidecars, state, topic, isolation=level, as_of=as_of)
                for state in (spilled, bare)
            ]
            assert both[0] == both[1]
        since, until = sorted(random.choices(range(-1, spilled.entry + 1), k=2))
        topic_id = spilled.topic_ids[topic]
        windows: tuple[tuple[Callable[..., object], tuple[object, ...]], ...] = (
            (committed_between, (topic, since, until)),
            (committed_sizes, ([topic], since, until, {})),
            (next_end, ([topic], since, {})),
        )
        for call, args in windows:
            assert outcome(call, sidecars, spilled, *args) == outcome(call, sidecars, bare, *args)
        floors = committed_between(sidecars, spilled, topic, since, until).floors
        rest = [
            outcome(committed_between, sidecars, bare, topic, until, spilled.entry, floors=given)
            for given in (floors, ())
        ]
        assert rest[0] == rest[1]
        for number in range(spilled.topic(topic).partitions):
            key = TopicPartition(topic_id, number)
            partition = spilled.partition(key)
            ends = random.choices(range(partition.log_end + 1), k=2)
            within = OffsetRange(*sorted(ends))
            for level in IsolationLevel:
                start, end = ({number: offset} for offset in within)
                both = [
                    outcome(
                        plan_read,
                        sidecars,
                        state,
                        topic,
                        isolation=level,
                        start=start,
                        end=end,
                        partitions=[number],
                    )
                    for state in (spilled, bare)
                ]
                assert both[0] == both[1]
            stable = OffsetRange(*(min(offset, partition.last_stable_offset) for offset in within))
            middle = random.choice([0, spilled.timestamp_ms // 2, spilled.timestamp_ms])
            counted: tuple[tuple[Callable[..., object], tuple[object, ...]], ...] = (
                (count_records, (stable,)),
                (count_records, (within, IsolationLevel.READ_UNCOMMITTED)),
                (extents_since, (within, middle)),
            )
            for call, args in counted:
                assert outcome(call, sidecars, spilled, key, *args) == outcome(
                    call, sidecars, bare, key, *args
                )
            exact, bound = Unread(bare.partition(key)), Unread(partition)
            for offset in within:
                assert bound.since(offset).records >= exact.since(offset).records
                assert not bound.since(offset).exact or bound.since(offset) == exact.since(offset)


def check_values(log: TxnLog, history: CutHistory, random: Random) -> None:
    """Compare the records of some versions with what the history has written."""
    for entry in {log.state.entry, random.randint(4, log.state.entry)}:
        found = {
            (topic, partition, value)
            for topic in TOPICS
            for partition, value in zip(
                *(
                    column.to_pylist()
                    for column in log.read(
                        topic, isolation="snapshot", version_as_of=entry, columns=["_partition", "value"]
                    )
                    .read_all()
                    .columns
                ),
                strict=True,
            )
        }
        assert found == history.shown(entry)


@contextmanager
def eager(batches_max: int) -> Iterator[None]:
    """Let spills take what little there is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("txnformat.protocol.sealing.ROWS_SHARE", 1_000_000)
        patch.setattr("txnformat.protocol.spilling.BATCHES_MAX", batches_max)
        yield


@cut_histories(examples=rounds(15, 25))
def test_what_is_spilled_reads_as_if_it_were_not(
    random: Random, steps: int, listed_rows: int, batches_max: int
) -> None:
    """While transactions of all buffers are open, prepared and ended, and whatever can be sealed or spilled
    is, at random moments."""
    with small_pieces(listed_rows, batches_max), eager(batches_max):
        store = MemoryStore()
        log = any_log(random, store)
        history = CutHistory(random, log, batch_bytes=1)
        twin, sidecars = Twin(store), SidecarCache(store)
        for _ in range(steps):
            history.step()
            if random.random() < 0.3:
                log.maintain("seal")
            if random.random() < 0.3:
                twin.follow(log.refresh().entry)
                check_reads(twin, sidecars, random)
        twin.follow(log.refresh().entry)
        assert verify_log(store).problems == ()
        event(f"{min(twin.spills, 5)} spills or more")
        check_values(TxnLog.open(store), history, random)
        history.close()
        for name in [*log.state.undecided]:
            log.transactions.force_terminate(name)
        log.maintain("seal")
        twin.follow(log.refresh().entry)
        check_reads(twin, sidecars, random)
        assert all(not one.spills and not len(one.extents) for one in twin.spilled.partitions.values())
        assert twin.spilled.segments.end == twin.plain.segments.end
        check_values(TxnLog.open(store), history, random)
        assert verify_log(store).problems == ()
