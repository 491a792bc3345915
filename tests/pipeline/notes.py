"""What tasks of the query hand to the sink, as they note it; and the query's part of the history, made of
that.

A task cannot know whether its rows are committed. So a micro-batch is one transaction of the query whose
outcome is unknown, and that sends whatever any attempt of any of its tasks handed on.
"""

from __future__ import annotations

import itertools
import json
import os
import time
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.pipeline.judge import Made
from tests.pipeline.topics import ORDERS
from txnlog_testing.checker import (
    Event,
    EventType,
    Function,
    MicroOperation,
    Order,
    Poll,
    Send,
    TransactionTag,
    partition_key,
)

__all__ = ["HandedOn", "Notes", "check_repeats", "handed_on", "query_events"]


class Notes:
    """A file of one task attempt."""

    def __init__(self, folder: str) -> None:
        Path(folder).mkdir(parents=True, exist_ok=True)
        self._file = os.open(
            Path(folder) / f"{uuid.uuid4().hex}.note", os.O_CREAT | os.O_WRONLY | os.O_APPEND
        )

    def note(self, query: str, batch: int, rows: Sequence[dict[str, Any]]) -> None:
        """Say what is handed on next."""
        line = {
            "time_ns": time.monotonic_ns(),
            "query": query,
            "batch": batch,
            "values": [[row["topic"], row["n"]] for row in rows],
        }
        os.write(self._file, f"{json.dumps(line)}\n".encode())

    def close(self) -> None:
        os.close(self._file)


@dataclass
class HandedOn:
    """What a micro-batch handed on, over all attempts of all of its tasks."""

    query: str
    batch: int
    first_ns: int
    last_ns: int
    values: dict[tuple[str, int], None] = field(default_factory=dict)
    """(topic, n), in the order in which they came first."""


def handed_on(folder: Path) -> list[HandedOn]:
    """Return all micro-batches, by number."""
    by_key: dict[tuple[str, int], HandedOn] = {}
    for line in sorted(_lines(folder), key=lambda line: int(line["time_ns"])):
        at = line["time_ns"]
        one = by_key.setdefault(
            (line["query"], line["batch"]), HandedOn(line["query"], line["batch"], at, at)
        )
        one.last_ns = at
        one.values.update(dict.fromkeys((topic, n) for topic, n in line["values"]))
    found = [by_key[key] for key in sorted(by_key)]
    for one, following in itertools.pairwise(found):  # a driver that was replaced may still be at it
        one.last_ns = min(one.last_ns, following.first_ns)
    return found


def _lines(folder: Path) -> Iterator[dict[str, Any]]:
    for path in folder.glob("*.note"):
        *lines, _ = path.read_text().split("\n")  # what a task had not finished when it was killed is no line
        yield from map(json.loads, lines)


def check_repeats(batches: Iterable[HandedOn], made: Iterable[Made]) -> list[str]:
    """A micro-batch that is repeated, by whichever process and however late, reads what it read before."""
    final: dict[tuple[str, int], set[int]] = defaultdict(set)
    for row in made:
        final[row.query, row.batch].add(row.n)
    violations = []
    for one in batches:
        got, there = {n for _, n in one.values}, final[one.query, one.batch]
        if got != there:
            violations.append(
                f"batch {one.batch}: its attempts read {len(got)} records, {len(there)} are there; of one "
                "only: "
                f"{sorted(got ^ there)[:5]}"
            )
    return violations


def query_events(batches: Iterable[HandedOn], made: Iterable[Made], order: str) -> list[Event]:
    """Return the query's part of the history: what each micro-batch read of ``orders``, and what it sent."""
    read: dict[tuple[str, int], list[Made]] = defaultdict(list)
    for row in sorted(made, key=lambda row: (row.task, row.index)):
        read[row.query, row.batch].append(row)
    events = []
    for one in batches:
        records: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for row in read[one.query, one.batch]:
            records[partition_key(ORDERS, row.part)].append((row.at, row.n))
        sends = tuple(Send(topic, n) for topic, n in one.values)
        poll = Poll({key: tuple(value) for key, value in records.items()}, order=Order(order))
        tag = TransactionTag(one.query, version=one.batch)
        steps: list[tuple[EventType, int, tuple[MicroOperation, ...]]] = [
            (EventType.INVOKE, one.first_ns, sends),
            (EventType.INFO, one.last_ns, (poll, *sends)),
        ]
        events += [
            Event(
                process="query",
                type=type_,
                f=Function.TXN,
                time_ns=at,
                value=value,
                transaction=tag,
                unordered=True,
            )
            for type_, at, value in steps
        ]
    return events
