"""PIP-31's two figures as a golden history: txn1 and txn2 commit, txn3 aborts, among plain messages.

Each figure's history is replayed on every buffer. Where messages and markers then stand must be what the
figure draws, for the kind of buffer that it draws; the other combinations follow the same two rules.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.conformance.pulsar import BUFFERS
from txnformat.core.sealing.sidecar import decode_markers
from txnformat.core.transactions.abort_index import AbortedTransaction
from txnformat.reading.sealed import SidecarCache
from txnformat.store.memory import MemoryStore
from txnformat.types import OffsetRange, TopicPartition
from txnlog import Producer, TxnLog
from writers.settings import Buffer

DATA = Path(__file__).resolve().parents[1] / "golden" / "data"
FIGURES: dict[str, Any] = json.loads((DATA / "pip31_figures.json").read_text(encoding="utf-8"))
LABELS = pa.schema([("label", pa.string())])
TRANSACTIONS = ("txn1", "txn2", "txn3")

HISTORIES = pytest.mark.parametrize("figure", ["marker", "sidecar"])


def _transaction(step: str) -> str | None:
    """Return the transaction that a step belongs to; None for a plain message."""
    name = step.partition("-")[0]
    return name if name in TRANSACTIONS else None


def _is_end(step: str) -> bool:
    return step.endswith(("-commit", "-abort"))


def _at_flush(history: list[str]) -> list[str]:
    """Return the partition when every message takes its offset at once: figure 2."""
    return history


def _at_commit(history: list[str]) -> list[str]:
    """Return the partition when a commit gives offsets, and an abort writes nothing there: figure 3."""
    partition: list[str] = []
    for position, step in enumerate(history):
        name = _transaction(step)
        if name is None:
            partition.append(step)
        elif step.endswith("-commit"):
            sent = [each for each in history[:position] if _transaction(each) == name]
            partition += [*sent, step]
    return partition


def _layout(history: list[str], buffer: Buffer) -> list[str]:
    return _at_flush(history) if buffer is Buffer.INLINE else _at_commit(history)


def _visible(history: list[str], buffer: Buffer) -> list[str]:
    """Return what read_committed gives: the layout below the first message of an open transaction, what
    committed of it."""
    ended = {_transaction(step): step for step in history if _is_end(step)}
    seen = []
    for step in _layout(history, buffer):
        name = _transaction(step)
        if name is not None and name not in ended:
            break
        if not _is_end(step) and (name is None or ended[name].endswith("-commit")):
            seen.append(step)
    return seen


class Replay:
    """A log on which a history is replayed, step by step, one flush each."""

    def __init__(self, buffer: Buffer) -> None:
        self.log = TxnLog.create(MemoryStore())
        self.log.create_topic("t", LABELS)
        self._plain = Producer(self.log)
        self._plain.init()
        self._producers = {name: Producer(self.log, name, buffer=buffer) for name in TRANSACTIONS}
        for producer in self._producers.values():
            producer.init()
            producer.begin()

    def do(self, step: str) -> None:
        producer = self._producers.get(_transaction(step) or "", self._plain)
        if step.endswith("-commit"):
            producer.commit()
        elif step.endswith("-abort"):
            producer.abort()
        else:
            producer.send("t", [{"label": step}])
            producer.flush()

    def read(self, isolation: str = "read_committed") -> list[str]:
        """Return the labels that a process reads that has just opened the log."""
        table = TxnLog.open(self.log.store).read("t", isolation=isolation).read_all()
        labels: list[str] = table.column("label").to_pylist()
        return labels

    def partition(self) -> list[str]:
        """Return what stands at each offset: a message's label, or the marker of a transaction."""
        found: dict[int, str] = {}
        everything = self.log.read("t", isolation="read_uncommitted", columns=["_offset", "label"]).read_all()
        for row in everything.to_pylist():
            found[row["_offset"]] = row["label"]
        names = {known.producer_id: name for name, known in self.log.state.transactional_ids.items()}
        for offset, producer_id, commit in self._markers():
            found[offset] = f"{names[producer_id]}-{'commit' if commit else 'abort'}"
        assert sorted(found) == list(range(self.log.offsets("t")[0].log_end)), "one thing at each offset"
        return [found[offset] for offset in range(len(found))]

    def _markers(self) -> list[tuple[int, int, int]]:
        state = self.log.refresh()
        key = TopicPartition(state.topic("t").topic_id, 0)
        rows = [state.partition(key).markers.array()]
        sealed = OffsetRange(0, state.partition(key).sealed_end)
        for part in SidecarCache(self.log.store).segments(state, key, sealed):
            if part.record.markers is not None:
                named = part.record.markers
                rows.append(decode_markers(self.log.store.get(named.key), named))
        return [
            (int(row["offset"]), int(row["producer_id"]), int(row["commit"]))
            for array in rows
            for row in array
        ]


def test_the_two_rules_give_what_the_figures_draw() -> None:
    marker, sidecar = FIGURES["marker"], FIGURES["sidecar"]
    assert _at_flush(marker["history"]) == marker["partition"]
    drawn = []
    for step in sidecar["partition"]:  # a commit points to its transaction's messages in the transaction log
        if _is_end(step):
            log = sidecar["transaction_log"]
            drawn += [each for each in log if _transaction(each) == _transaction(step) and not _is_end(each)]
        drawn.append(step)
    assert _at_commit(sidecar["history"]) == drawn
    assert [step for step in sidecar["history"] if _transaction(step)] == sidecar["transaction_log"]
    assert [step for step in sidecar["history"] if step != "m6"] == marker["history"]


@BUFFERS
@HISTORIES
def test_after_every_step_readers_see_what_is_decided_before_the_oldest_open_transaction(
    figure: str, buffer: Buffer
) -> None:
    history = FIGURES[figure]["history"]
    replay = Replay(buffer)
    for number, step in enumerate(history):
        replay.do(step)
        assert replay.read() == _visible(history[: number + 1], buffer), step


@BUFFERS
@HISTORIES
def test_every_message_and_marker_stands_where_the_figure_has_it(figure: str, buffer: Buffer) -> None:
    """As appended and sealed; what is uncommitted or aborted has offsets where offsets are given by flushes
    alone."""
    history = FIGURES[figure]["history"]
    replay = Replay(buffer)
    for step in history:
        replay.do(step)
    expected = _layout(history, buffer)
    for _ in ("as appended", "sealed"):
        assert replay.partition() == expected
        assert replay.read() == _visible(history, buffer)
        assert replay.read("read_uncommitted") == [step for step in expected if not _is_end(step)]
        replay.log.maintain("seal")
    assert replay.log.state.extents == 0


@HISTORIES
def test_with_markers_in_the_partition_the_abort_index_names_txn3(figure: str) -> None:
    history = FIGURES[figure]["history"]
    replay = Replay(Buffer.INLINE)
    for step in history:
        replay.do(step)
    state = replay.log.refresh()
    partition = state.partition(TopicPartition(state.topic("t").topic_id, 0))
    fields = ["producer_id", "first_offset", "last_offset", "last_stable_offset"]
    rows = partition.aborted.array()[fields].tolist()
    txn3 = state.transactional_ids["txn3"].producer_id
    first, marker = history.index("txn3-m1"), history.index("txn3-abort")
    # txn1 is open when txn3 aborts: its first message is the last stable offset at that moment.
    assert [AbortedTransaction(*row) for row in rows] == [
        AbortedTransaction(txn3, first, marker, history.index("txn1-m1"))
    ]


@BUFFERS
def test_a_buffer_beside_the_partition_leaves_no_abort_in_it(buffer: Buffer) -> None:
    """An abort writes to the transaction log alone: no offsets, no marker, no abort index. Inline: all
    of it.
    """
    replay = Replay(buffer)
    for step in FIGURES["sidecar"]["history"]:
        replay.do(step)
    labels = replay.partition()
    in_partition = [label for label in labels if _transaction(label) == "txn3"]
    aborted = replay.log.offsets("t")[0].aborted_transactions
    if buffer is Buffer.INLINE:
        assert (len(in_partition), aborted) == (5, 1)
    else:
        assert (in_partition, aborted) == ([], 0)
