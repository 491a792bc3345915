"""Producers of ``orders``, each of its own kind; what they did they write down as a history."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Iterator

from tests.pipeline.processes import Task, open_log
from tests.pipeline.topics import ORDERS
from txnformat.errors import ProducerFencedError
from txnlog import Producer
from txnlog_testing.checker import HistoryWriter, Send, TransactionTag

__all__ = ["KINDS", "produce"]

KINDS = ("auto", "inline", "deferred", "plain")
"""Buffers; ``plain`` has no transactions: each flush is a step of its own."""

KEYS = 7
RECORDS_MAX = 12
ABORTS, HOLDS = 0.2, 0.3
"""How often: a transaction is given up; stays open for up to HELD_MS_MAX between two flushes."""
HELD_MS_MAX = 2_500
PAUSE_MS = (20, 250)
TIMEOUT_MS = 60_000


def produce(task: Task) -> None:
    """Produce until everybody is to end. What the incarnation before left open ends first."""
    kind = task.settings["kind"]
    rng = random.Random(f"{task.seed} {task.slot} {task.incarnation}")
    numbers = _numbers(task)
    with contextlib.ExitStack() as opened:
        log = opened.enter_context(open_log(task))
        history = opened.enter_context(HistoryWriter.in_directory(task.history))
        who = f"{task.slot}-{task.incarnation}"
        if kind == "plain":
            producer = opened.enter_context(Producer(log, linger_ms=60_000))
        else:
            producer = Producer(log, task.slot, buffer=kind, transaction_timeout_ms=TIMEOUT_MS)
            with history.operation(who, "init") as op:
                producer.init()
                op.transaction = TransactionTag(task.slot, epoch=producer.epoch)
        task.began.touch()
        while not task.is_over:
            while task.is_paused and not task.is_over:
                _wait(task, 50)
            taken = [next(numbers) for _ in range(rng.randint(1, RECORDS_MAX))]
            rows: list[dict[str, object]] = [{"n": n, "key": f"key-{rng.randrange(KEYS)}"} for n in taken]
            sends = [Send(ORDERS, n) for n in taken]
            if kind == "plain":
                with history.operation(who, "send", sends):
                    producer.send(ORDERS, rows)
                    producer.flush()
            else:
                _transaction(task, rng, producer, history, who, rows, sends)
            _wait(task, rng.randint(*PAUSE_MS))
        if kind != "plain":
            producer.close()


def _transaction(
    task: Task,
    rng: random.Random,
    producer: Producer,
    history: HistoryWriter,
    who: str,
    rows: list[dict[str, object]],
    sends: list[Send],
) -> None:
    tag = TransactionTag(task.slot, epoch=producer.epoch)
    is_inline = task.settings["kind"] == "inline"
    holds, aborts = rng.random() < HOLDS, rng.random() < ABORTS
    half = len(rows) // 2 if holds else len(rows)
    with history.operation(
        who, "txn", sends, transaction=tag, interleaved=is_inline, fails=(ProducerFencedError,)
    ) as op:
        producer.begin()
        producer.send(ORDERS, rows[:half])
        if holds:
            producer.flush()
            _wait(task, rng.randint(0, HELD_MS_MAX))
            producer.send(ORDERS, rows[half:])
        if aborts:
            producer.abort()
            op.fail("given up")
        else:
            producer.commit()


def _wait(task: Task, milliseconds: int) -> None:
    """Let time pass; not when everybody is to end."""
    if not task.is_over:
        threading.Event().wait(milliseconds / 1_000)


def _numbers(task: Task) -> Iterator[int]:
    """Yield numbers that nobody else has."""
    start = task.settings["number"] * 10**14 + task.incarnation * 10**9
    yield from range(start, start + 10**9)
