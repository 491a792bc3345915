"""A writer that commits without end until its standard input ends: run by test_s3_faults.py, not a test
itself.

Arguments: location, storage options (JSON), the writer's number, and the name of a mutation or ``none``. It
prints every answer that it gets, as JSON lists (:class:`txnlog_testing.models.chain_oracle.Report`).
"""

from __future__ import annotations

import json
import random
import select
import sys
import threading
from collections import Counter
from typing import Any

from txnformat import keys
from txnformat.clock import SystemClock
from txnformat.core.intents import (
    AllocateIds,
    CommitResult,
    Intent,
    OpenProducer,
    PendingPartition,
    ProducerRef,
    TopicAppend,
    Write,
)
from txnformat.core.operations import AllocateProducerIds, InitProducer
from txnformat.core.state import TopicState
from txnformat.errors import CommitStateUnknownError, ConflictError, StorageError, TxnLogError
from txnformat.log import TxnLog
from txnformat.persistent import replace
from txnformat.protocol import commit
from txnformat.protocol.effects import CreateObject, ReadClock, Steps
from txnformat.protocol.follow import get_object
from txnformat.protocol.slot import Lost, Ours, Refused, SlotOutcome, Unknown, create_slot
from txnformat.store.base import CreateOutcome
from txnformat.store.open import open_store
from txnformat.types import NO_TIMESTAMP_MS, BatchRecord, FileRecord, Outcome

CLOCK_SCALE = 0.1
"""Real seconds that the writer sleeps per second that the protocol asks for."""


class HurriedClock(SystemClock):
    """Tells the real time, and sleeps a tenth of it."""

    def sleep(self, seconds: float, wake: threading.Event | None = None) -> None:
        super().sleep(seconds * CLOCK_SCALE, wake)


def http_412_is_lost(number: int, data: bytes, *, deadline_ms: int) -> Steps[SlotOutcome]:
    """Tell the caller of a 412 that somebody else has won, without reading the slot back."""
    steps = create_slot(number, data, deadline_ms=deadline_ms)
    answer: Any = None
    while True:
        try:
            effect = steps.send(answer)
        except StopIteration as end:
            outcome: SlotOutcome = end.value
            return outcome
        answer = yield effect
        if isinstance(effect, CreateObject) and answer.outcome is CreateOutcome.EXISTS:
            raise ConflictError("somebody else has the slot", kind="commit-contention")


def no_answer_is_no(number: int, data: bytes, *, deadline_ms: int) -> Steps[SlotOutcome]:
    """Take an unclear answer for a failure."""
    outcome = yield from no_answer_is_unknown(number, data, deadline_ms=deadline_ms)
    if isinstance(outcome, Unknown) and isinstance(outcome.error, StorageError):
        return Refused(outcome.error)
    return outcome


def no_answer_is_unknown(number: int, data: bytes, *, deadline_ms: int) -> Steps[SlotOutcome]:
    """Never read back after an unclear answer: harmless, unless the work then gets another identity."""
    sent = yield ReadClock()
    result = yield CreateObject(keys.entry_key(number), data)
    if result.outcome is CreateOutcome.AMBIGUOUS:
        return Unknown(result.error)
    if result.outcome is CreateOutcome.CREATED:
        return Ours(sent)
    found = yield from get_object(keys.entry_key(number))
    return Ours(sent) if found == data else Lost(found or b"")


MUTATIONS = {
    "412-is-lost": http_412_is_lost,
    "no-answer-is-no": no_answer_is_no,
    "resend-as-new": no_answer_is_unknown,
}


class Storm:
    """Appends of three kinds in turn, each with a mark of its own."""

    def __init__(self, log: TxnLog, writer: int, *, resends_as_new: bool) -> None:
        self.log = log
        self.committer = log.committer
        self.rng = random.Random(writer)
        self.writer = writer
        self.count = 0
        self.resends_as_new = resends_as_new
        self.sequences: Counter[int] = Counter()
        self.plain = self._open(AllocateIds("storm", 1))
        self.transactional = self._open(OpenProducer(f"storm-{writer}"))

    def _open(self, action: AllocateIds | OpenProducer) -> ProducerRef:
        """Get an identity; asked for until the answer is clear."""
        intent = self.committer.intend(action)
        while True:
            try:
                result = self.committer.commit(intent)
            except TxnLogError:
                continue
            for op in result.operations:
                if isinstance(op, InitProducer):
                    return ProducerRef(op.producer_id, op.epoch, op.transactional_id)
                if isinstance(op, AllocateProducerIds):
                    return ProducerRef(op.first, 0)

    def _append(self, mark: str, *, sequenced: bool) -> tuple[TopicAppend, Counter[int]]:
        topic: TopicState = self.log.state.topic("t")
        chosen = sorted(self.rng.sample(range(topic.partitions), self.rng.randint(1, topic.partitions)))
        counts = Counter({number: self.rng.randint(1, 3) for number in chosen})
        parts = tuple(
            PendingPartition(
                number, counts[number], 1, self.sequences[number] if sequenced else -1, mark, 10, NO_TIMESTAMP_MS,
                NO_TIMESTAMP_MS,
            )
            for number in chosen
        )  # fmt: skip
        batches = tuple(
            BatchRecord(part.partition, 0, index, 1, part.records, 10, NO_TIMESTAMP_MS, NO_TIMESTAMP_MS)
            for index, part in enumerate(parts)
        )
        key = keys.data_key(topic.directory, max(0, self.log.state.entry), self.committer.ids.new())
        file = FileRecord(key, 100, "0" * 64, 20, "0" * 64, counts.total())
        return TopicAppend(topic.topic_id, topic.partitions, (file,), parts, batches), counts

    def step(self) -> None:
        """Commit one piece of work."""
        self.count += 1
        mark = f"{self.writer:04x}{self.count:012x}"
        match self.count % 3:
            case 0:  # nothing but the intent's id tells a repeat
                append, _ = self._append(mark, sequenced=False)
                self._commit(mark, Write(appends=(append,)), gives_up=self.rng.random() < 0.5)
            case 1:
                append, counts = self._append(mark, sequenced=True)
                self._commit(mark, Write(self.plain, (append,)))
                self.sequences += counts
            case _:
                append, _ = self._append(mark, sequenced=False)
                append = replace(
                    append, partitions=tuple(replace(part, base_sequence=0) for part in append.partitions)
                )
                self._commit(mark, Write(self.transactional, (append,), Outcome.COMMIT))
                self.transactional = replace(self.transactional, epoch=self.transactional.epoch + 1)

    def _commit(self, mark: str, write: Write, *, gives_up: bool = False) -> None:
        intent: Intent = self.committer.intend(write)
        while True:
            try:
                result = self.committer.commit(intent)
            except CommitStateUnknownError as error:
                say(mark, "unknown", detail=str(error))
                if gives_up:
                    return
                if self.resends_as_new:
                    intent = self.committer.intend(write)
            except TxnLogError as error:
                say(mark, "failed", detail=str(error))
                return
            else:
                say(mark, "done", result)
                return


def say(mark: str, answer: str, result: CommitResult | None = None, detail: str = "") -> None:
    offsets = sorted((key.partition, offset) for key, offset in result.offsets.items()) if result else []
    line = json.dumps([mark, answer, result.entry if result else -1, offsets, detail])
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main(location: str, options: str, writer: int, mutation: str) -> None:
    """Commit until standard input ends."""
    if mutation != "none":
        vars(commit)["create_slot"] = MUTATIONS[mutation]
    clock = HurriedClock()
    store = open_store(location, clock, storage_options=json.loads(options))
    while True:
        try:
            log = TxnLog.open(store, clock=clock)
            break
        except StorageError:
            continue
    with log:
        storm = Storm(log, writer, resends_as_new=mutation == "resend-as-new")
        while not select.select([sys.stdin], [], [], 0)[0]:
            storm.step()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
