"""A writer of random commands, held against the naive model after each."""

from __future__ import annotations

import numpy as np
from hypothesis import event, note

from txnformat import keys
from txnformat.core.assemble import Assembled, assemble
from txnformat.core.entry import decode_entry, encode_entry, sha256_hex
from txnformat.core.fold import apply
from txnformat.core.intents import (
    CommitResult,
    Done,
    EndTransaction,
    Included,
    Intent,
    OpenProducer,
    Rejected,
    TakeCheckpoint,
    Write,
)
from txnformat.core.invariants import check_state, check_whole
from txnformat.core.operations import Checkpoint
from txnformat.core.records.visibility import committed_mask
from txnformat.core.snapshot.codec import decode_snapshot, encode_snapshot, state_digest
from txnformat.core.state import LogState
from txnformat.core.transactions.state import TransactionStatus
from txnformat.protocol.effects import Times
from txnformat.protocol.expiry import Watch
from txnformat.types import TopicPartition
from txnformat.verify.offsets import OffsetDerivation
from txnlog_testing.models.naive_model import NaiveModel
from txnlog_testing.strategies import Clients, Command

__all__ = [
    "LOG_ID",
    "Writer",
    "assert_state_is_the_models",
    "check_snapshot",
    "name_of",
    "snapshot_of",
    "visible_offsets",
]

LOG_ID = "0a8b4b7e-46a4-4d0f-9c3b-3f3e1f0f5a11"


def visible_offsets(state: LogState, key: TopicPartition) -> list[int]:
    """Return what read_committed returns by the log's own filter."""
    partition = state.partition(key)
    extents = partition.extents.array()
    extents = extents[extents["base_offset"] < partition.last_stable_offset]
    if not len(extents):
        return []
    last = extents["base_offset"] + extents["records"] - 1
    mask = committed_mask(
        extents["base_offset"],
        last,
        extents["producer_id"],
        extents["transactional"].astype(np.bool_),
        partition.aborted.array(),
    )
    return [
        offset
        for row in extents[mask]
        for offset in range(int(row["base_offset"]), int(row["base_offset"] + row["records"]))
    ]


def assert_state_is_the_models(state: LogState, model: NaiveModel) -> None:
    assert set(state.partitions) == set(model.log)
    for key in model.log:
        partition = state.partition(key)
        assert partition.log_end == model.log_end(key)
        assert partition.last_stable_offset == model.last_stable_offset(key)
        assert partition.open == model.open(key)
        aborted = [tuple(row)[:5] for row in partition.aborted.array().tolist()]
        assert aborted == model.abort_index(key)
        markers = [
            (
                int(row["offset"]),
                int(row["producer_id"]),
                int(row["epoch"]),
                "commit" if row["commit"] else "abort",
            )
            for row in partition.markers.array()
        ]
        assert markers == [
            (one.offset, one.producer_id, one.epoch, one.kind) for one in model.log[key] if one.kind != "data"
        ]
        data = [
            (offset, int(row["producer_id"]), int(row["epoch"]), int(row["entry"]))
            for row in partition.extents.array()
            for offset in range(int(row["base_offset"]), int(row["base_offset"] + row["records"]))
        ]
        assert data == [
            (one.offset, one.producer_id, one.epoch, one.entry)
            for one in model.log[key]
            if one.kind == "data"
        ]
        assert visible_offsets(state, key) == model.visible(key)
    assert {name: (known.producer_id, known.epoch) for name, known in state.transactional_ids.items()} == {
        name: (known.producer_id, known.epoch) for name, known in model.ids.items()
    }
    how = {
        TransactionStatus.PREPARED: "prepared",
        TransactionStatus.ONGOING: "appended",
    }
    assert {
        name: "staged" if known.staged and known.expires_ms is not None else how[known.status]
        for name, known in state.transactional_ids.items()
        if known.status in how
    } == model.undecided()
    assert state.undecided == set(model.undecided())
    for name, known in state.transactional_ids.items():
        assert known.last_end is None or model.ids[name].last_end == (
            known.last_end.epoch,
            known.last_end.outcome.value,
            known.last_end.cause.value,
            known.last_end.entry,
        )
        staged = [
            (TopicPartition(flush.topic_id, part.partition), part.records)
            for flush in known.staged
            for part in flush.partitions
        ]
        assert staged == model.ids[name].staged
        expiry = model.expiry(name)
        assert known.expires_ms == (expiry and expiry[1])
        if expiry is not None:
            assert (known.timed_entry, known.allowed_ms) == (model.ids[name].timed[0], expiry[0])
    assert state.next_producer_id == model.next_producer_id
    assert state.topic_ids == {name: topic.topic_id for name, topic in model.topics.items()}
    assert {topic_id: (topic.name, topic.partitions) for topic_id, topic in state.topics.items()} == {
        topic.topic_id: (topic.name, model.count(topic)) for topic in model.topics.values()
    }
    for topic_id, topic in state.topics.items():
        added = [
            {field.name: str(field.type) for field in list(topic.schema.version(number))[1:]}
            for number in range(1, topic.schema.schema_id + 1)
        ]
        assert added == model.columns.get(topic_id, [])
    assert {key: (known.version, known.entry) for key, known in state.app_versions.items()} == model.apps


class Writer:
    """Commits as real writers do, and compares every step with the model."""

    def __init__(self) -> None:
        self.state = LogState(log_id=LOG_ID, entry_sha256=sha256_hex(b"format.json"))
        self.model = NaiveModel()
        self.clients = Clients(self.model)
        self.results: dict[str, CommitResult] = {}
        self.intents: dict[str, Intent] = {}
        self.store_time_ms = 1_700_000_000_000
        self.boot_ms = 0
        self.watch = Watch()
        self.watched: list[tuple[int, dict[str, tuple[int, int]]]] = []
        """What was seen of open transactions: (boot time, producer id and entry that its time counts from).
        """
        self.derivations = [OffsetDerivation(self.state)]

    def commit(self, commands: list[Command], store_step_ms: int) -> None:
        """Commit a group, and those that may not share its entry after it."""
        self.store_time_ms += store_step_ms
        self.clients.forget_pending()
        slot = self.state.entry + 1
        waiting = {
            intent.intent_id: intent for intent in (self.clients.intent(one, slot) for one in commands)
        }
        self.commit_intents([*waiting.values(), *self.expired(store_step_ms, slot)])

    def expired(self, store_step_ms: int, slot: int) -> list[Intent]:
        """Return the ends of expired transactions that a writer adds to its entry: those that the model calls
        expired."""
        self.boot_ms += store_step_ms if store_step_ms >= 0 else 20_000  # a store's clock may be set back
        ends = self.watch.expired(self.state, Times(self.store_time_ms, self.boot_ms, self.store_time_ms))
        now = {
            name: (self.model.ids[name].producer_id, self.model.ids[name].timed[0])
            for name in self.model.undecided()
        }
        self.watched.append((self.boot_ms, now))
        expected = {}
        for name, what in now.items():
            expiry = self.model.expiry(name)
            if expiry is None:
                continue
            seen_ms = self.boot_ms
            for at_ms, seen in reversed(self.watched):
                if seen.get(name) != what:
                    break
                seen_ms = at_ms
            if self.store_time_ms >= expiry[1]:
                expected[name] = "by the store's time"
            elif self.boot_ms - seen_ms >= expiry[0]:
                expected[name] = "by watching"
        assert expected == {
            one.transactional_id: "by watching" if one.store_time_ms is None else "by the store's time"
            for one in ends
        }
        for why in expected.values():
            event(f"expired {why}")
        return [Intent(f"{slot}: {one.transactional_id} expired", slot, one) for one in ends]

    def commit_intents(self, waiting: list[Intent]) -> None:
        while waiting:
            before = self.state
            digest = state_digest(before)
            assembled = assemble(
                before, waiting, store_time_ms=self.store_time_ms, write_id=f"write {before.entry + 1}"
            )
            assert state_digest(before) == digest, "a decision changed the state it was made on"
            assert assembled.verdicts, "nobody is decided"
            if assembled.entry is not None:
                self.state = self.fold(before, assembled)
            for intent in waiting:
                if intent.intent_id in assembled.verdicts:
                    self.check_verdict(intent, assembled, before.entry + 1)
            self.check_waiting(
                [one for one in waiting if one.intent_id not in assembled.verdicts], assembled, waiting
            )
            waiting = [one for one in waiting if one.intent_id not in assembled.verdicts]
            assert_state_is_the_models(self.state, self.model)

    def fold(self, before: LogState, assembled: Assembled) -> LogState:
        entry = assembled.entry
        assert entry is not None
        assert entry.timestamp_ms == max(self.store_time_ms, before.timestamp_ms + 1)
        read = decode_entry(assembled.data, entry.entry)
        assert read == entry
        assert encode_entry(read) == assembled.data
        after = apply(before, read, sha256_hex(assembled.data))
        assert state_digest(after) == state_digest(assembled.after), (
            "the writer's draft is not what readers fold"
        )
        assert check_state(before, entry, after) == []
        assert check_whole(after) == []
        check_snapshot(after)
        for derivation in self.derivations:
            derivation.add(read)
        return after

    def check_verdict(self, intent: Intent, assembled: Assembled, slot: int) -> None:
        verdict = assembled.verdicts[intent.intent_id]
        time_ms = assembled.entry.timestamp_ms if assembled.entry is not None else 0
        expected = self.model.commit(intent, slot, time_ms)
        note(f"{slot}: {intent.action} -> {verdict}")
        match verdict:
            case Included():
                assert expected.verdict == "included"
                assert assembled.entry is not None
                result = CommitResult.of(assembled.entry, intent.intent_id, repeated=False)
                assert result.offsets == expected.offsets
                assert intent.intent_id not in self.results
                self.results[intent.intent_id] = result
                self.intents[intent.intent_id] = intent
            case Done():
                assert (expected.verdict, expected.entry) == ("done", verdict.entry)
                if verdict.offsets is not None:
                    assert verdict.offsets == expected.offsets
            case Rejected(error):
                assert expected.verdict == type(error).__name__
            case _:
                raise AssertionError(verdict)

    def check_waiting(self, left: list[Intent], assembled: Assembled, group: list[Intent]) -> None:
        """Only an init keeps others of its id, or is kept by them."""
        included = [one for one in group if isinstance(assembled.verdicts.get(one.intent_id), Included)]
        for intent in left:
            peers = [one for one in included if name_of(one) == name_of(intent)]
            assert name_of(intent) is not None
            assert any(isinstance(one.action, OpenProducer) for one in [*peers, intent])
            assert peers

    def reopen(self) -> None:
        """Go on from a snapshot, as a process that opens the log does."""
        data = encode_snapshot(self.state)
        checkpoint = snapshot_of(self.state, data)
        state = decode_snapshot(data, checkpoint, LOG_ID)
        assert state_digest(state) == checkpoint.digest
        assert encode_snapshot(state) == data
        assert check_whole(state) == []
        take = Intent(f"snapshot of {self.state.entry}", state.entry + 1, TakeCheckpoint(checkpoint))
        self.state = state
        self.derivations.append(OffsetDerivation(state))
        self.commit_intents([take])


def snapshot_of(state: LogState, data: bytes) -> Checkpoint:
    key = keys.snapshot_key(state.entry, LOG_ID)
    return Checkpoint(state.entry, key, len(data), sha256_hex(data), state_digest(state))


def check_snapshot(state: LogState) -> None:
    """Write a snapshot of a state of any log, read it, and write it again: the bytes are the same."""
    data = encode_snapshot(state)
    again = decode_snapshot(data, snapshot_of(state, data), state.log_id)
    assert encode_snapshot(again) == data


def name_of(intent: Intent) -> str | None:
    match intent.action:
        case OpenProducer(name) | EndTransaction(name):
            return name
        case Write(producer) if producer is not None:
            return producer.transactional_id
    return None
