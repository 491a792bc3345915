"""Random histories whose topics are deleted, made again and shortened by retention while transactions are
open: what is left is what the ledger says."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random

from hypothesis import event

from tests.property.cut_histories import (
    COLUMNS,
    PARTITIONS,
    SCHEMA,
    TOPICS,
    CutHistory,
    any_log,
    cut_histories,
    offsets_of,
    small_pieces,
)
from tests.property.random_writer import check_snapshot
from txnformat.core.invariants import check_whole
from txnformat.core.snapshot.state import encode_state
from txnformat.core.state import LogState
from txnformat.store.memory import MemoryStore
from txnformat.types import OffsetRange, TopicPartition
from txnlog import Consumer, Subscription, TxnLog, TxnLogError


def refused(call: Callable[[], object]) -> str | None:
    """Return the kind of the error that a call raises; None: it raises none."""
    try:
        call()
    except TxnLogError as error:
        return error.kind
    return None


class Deleter:
    """Deletes the topics of a history, and keeps its ledger."""

    def __init__(self, random: Random, log: TxnLog, history: CutHistory) -> None:
        self.random, self.log, self.history = random, log, history
        self.gone: list[str] = []
        """Ids of deleted topics."""
        for topic in TOPICS:
            self._begin(topic)

    def _begin(self, topic: str) -> None:
        limit = self.random.choice([-1, 0, 500, 5_000])
        self.log.alter_topic(topic, settings={"retention.bytes": limit})
        self.log.subscriptions.create(topic, "work")

    def read_some(self) -> None:
        """Read a little by a group and a subscription, which the deletion has to take away."""
        topic = self.random.choice(TOPICS)
        with Consumer(
            self.log, "readers", enable_auto_commit=False, auto_offset_reset="earliest"
        ) as consumer:
            consumer.subscribe([topic])
            if consumer.poll(0, 3) is not None:
                consumer.commit()
        subscription = Subscription(self.log, topic, "work")
        batch = subscription.receive(2, timeout_ms=0)
        if batch is not None:
            subscription.acknowledge(batch)

    def delete(self) -> None:
        topic = self.random.choice(TOPICS)
        history = self.history
        touching = [
            number
            for number, unit in enumerate(history._open)
            if unit is not None and any(row[0] == topic for row in unit.rows)
        ]
        prepared = [number for number in touching if history._producers[number].prepared is not None]
        before = self.log.refresh()
        held = refused(lambda: self.log.delete_topic(topic))
        event(f"held: {held}")
        if held is not None:
            assert held in ("topic-in-use", "transaction-prepared")
            assert touching
            assert self.log.refresh().entry == before.entry
            if self.random.random() < 0.4:
                return
            self._force(topic, prepared)
        self.gone.append(before.topic_ids[topic])
        for unit in history.units:
            unit.rows = [row for row in unit.rows if row[0] != topic]
        for number in touching:
            if number not in prepared:
                self._end(number)
        assert topic not in self.log.refresh().topic_ids
        self.log.create_topic(topic, SCHEMA, partitions=PARTITIONS)
        history._partitions[topic] = PARTITIONS
        self._begin(topic)
        self.check(self.log)

    def _force(self, topic: str, prepared: list[int]) -> None:
        """Delete although transactions hold the topic; prepared ones by name."""
        names = [self.history._names[number] for number in prepared]
        state = self.log.state
        done = self.log.delete_topic(topic, force=names or True)
        assert set(done.given_up) <= set(names)
        for name in done.aborted:
            assert name in state.undecided
            assert name not in self.log.refresh().undecided
        for name in done.given_up:
            assert name in self.log.refresh().undecided, "its coordinator decides the rest"

    def _end(self, number: int) -> None:
        """Whether records of it were in the log or in memory, the transaction cannot commit."""
        history = self.history
        kind = refused(history._producers[number].commit)
        event(f"commit: {kind}")
        assert kind in ("topic-gone", "aborted-by-operator")
        history._producers[number], history._open[number] = history._opened(number), None

    def retain(self) -> None:
        """Apply retention; the ledger forgets what went."""
        self.log.maintain("seal")
        places = offsets_of(self.log)
        gone = {}
        for one in self.log.maintain("retention").removed:
            event("retention removed records")
            gone[one.topic, one.partition] = one.earliest
        rows = {row for (topic, number, at), row in places.items() if at < gone.get((topic, number), 0)}
        for unit in self.history.units:
            unit.rows = [row for row in unit.rows if row not in rows]
        state = self.log.refresh()
        for key, partition in state.partitions.items():
            topic = state.topics[key.topic_id]
            ((limit,),) = [[one.value for one in topic.settings]]
            sealed = OffsetRange(partition.log_start, partition.sealed_end)
            sizes = [int(part.row["size"]) for part in self.log.sidecars.segments(state, key, sealed)]
            total = partition.sealed.size + int(partition.extents.array()["size"].sum())
            if isinstance(limit, int) and limit >= 0 and sizes:
                assert total - sizes[0] < limit, "the oldest segment could go, too"
            if (topic.name, key.partition) in gone and isinstance(limit, int):
                assert total >= limit

    def check(self, log: TxnLog) -> None:
        """Hold what can be read, and what the state names, against the ledger."""
        state = log.refresh()
        assert check_whole(state) == []
        shown = self.history.shown(state.entry)
        for topic in TOPICS:
            table = log.read(topic, isolation="snapshot", columns=COLUMNS[:2]).read_all()
            found = sorted(zip(*(column.to_pylist() for column in table.columns), strict=True))
            assert found == sorted(row[1:] for row in shown if row[0] == topic)
            assert log.subscriptions.describe(topic, "work").partitions
        self.check_forgotten(state)

    def check_forgotten(self, state: LogState) -> None:
        """The ids of deleted topics are in a snapshot once each: with the directory that no other topic
        gets.
        """
        named = str(encode_state(state))
        for topic_id in self.gone:
            assert named.count(topic_id) == 1
            assert refused(partial(state.topic_of, topic_id, "a test")) == "topic-gone"
            assert state.partition(TopicPartition(topic_id, 0)).log_end == 0


@cut_histories(examples=25)
def test_what_is_deleted_is_gone_and_the_rest_stays_as_it_was(
    random: Random, steps: int, listed_rows: int, batches_max: int
) -> None:
    """While transactions of all buffers are open, segments of any size are sealed and listed, and logs are
    opened anew."""
    with small_pieces(listed_rows, batches_max):
        store = MemoryStore()
        log = any_log(random, store)
        history = CutHistory(random, log, grows=True, batch_bytes=1)
        deleter = Deleter(random, log, history)
        for _ in range(steps):
            history.step()
            chance = random.random()
            if chance < 0.15:
                deleter.delete()
            elif chance < 0.3:
                deleter.retain()
            elif chance < 0.45:
                deleter.read_some()
        deleter.delete()
        history.close()
        deleter.retain()
        opened = TxnLog.open(store)
        deleter.check(opened)
        check_snapshot(opened.state)
        report = opened.verify(deep=True)
        assert report.ok, report.problems
