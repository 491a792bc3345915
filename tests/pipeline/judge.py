"""What has to be true of a pipeline, however often its parts were killed. Pure: values in, violations out."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

from tests.chaos.oracle import (
    Found,
    Place,
    Row,
    Seen,
    check_attempts,
    check_batches,
    check_exactly_once,
    check_order,
    check_seen,
    check_versions,
)
from tests.pipeline.topics import ORDERS, side_of

__all__ = ["Ledger", "Made", "Order", "judge_pipeline", "source_row"]

SHOWN_MAX = 5


@dataclass(frozen=True, kw_only=True)
class Made(Row):
    """A row of ``even`` or ``odd``."""

    topic: str
    key: str
    part: int
    at: int
    doubled: int

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Made:
        """Return the row of a record that was read with its metadata columns."""
        own = ("n", "query", "batch", "task", "index", "attempt", "key", "part", "at", "doubled")
        place = Place(record["_partition"], record["_offset"])
        values = {name: record[name] for name in own}
        return cls(place=place, entry=record["_entry"], topic=record["_topic"], **values)


@dataclass(frozen=True, kw_only=True)
class Order(Row):
    """A record of ``orders``; where it comes from, nobody says."""

    key: str
    commit_entry: int


def source_row(record: Mapping[str, Any]) -> Order:
    """Return the record of ``orders`` that was read with its metadata columns."""
    return Order(
        place=Place(record["_partition"], record["_offset"]),
        entry=record["_entry"],
        n=record["n"],
        query="",
        batch=0,
        task=0,
        index=0,
        attempt="",
        key=record["key"],
        commit_entry=record["_commit_entry"],
    )


@dataclass(frozen=True)
class Ledger:
    """What the producers say of their records."""

    committed: AbstractSet[int]
    given_up: AbstractSet[int]
    unknown: AbstractSet[int]
    """Of transactions in which they were killed."""


def judge_pipeline(
    orders: Sequence[Order],
    ledger: Ledger,
    made: Sequence[Made],
    versions: Sequence[int],
    seen: Mapping[str, Seen],
    order: str,
) -> Found:
    """Apply every rule.

    Parameters
    ----------
    orders : sequence of Order
        What is committed in ``orders``.
    ledger : Ledger
    made : sequence of Made
        What is committed in the topics that the query wrote.
    versions : sequence of int
        Of the query, in the order of the log's entries.
    seen : mapping of str to Seen
        By topic: what the reader that followed it got.
    order : str
        In which the query read: ``offset`` or ``commit``.
    """
    duplicates, losses, violations = check_exactly_once(made, (row.n for row in orders))
    torn = [*check_attempts(made), *check_batches(made)]
    violations += [*torn, *check_ledger(orders, ledger), *check_values(orders, made)]
    violations += check_source_order(orders, made, order)
    violations += check_versions(versions, made)
    by_topic: dict[str, list[Row]] = defaultdict(list)
    for row in made:
        by_topic[row.topic].append(row)
    for topic, rows in sorted(by_topic.items()):
        violations += [f"{topic}: {one}" for one in check_order(rows)]
    for topic, reader in seen.items():
        final: Sequence[Row] = orders if topic == ORDERS else by_topic[topic]
        violations += [f"{topic}: {one}" for one in check_seen(final, reader)]
    return Found(
        rows=len(made),
        duplicates=duplicates,
        losses=losses,
        torn=len(torn),
        violations=tuple(violations),
    )


def check_ledger(orders: Iterable[Order], ledger: Ledger) -> list[str]:
    """What producers were told to be committed is there, what they gave up is not, and nothing that nobody
    sent."""
    there = {row.n for row in orders}
    wrong = {
        "committed, and not there": ledger.committed - there,
        "given up, and there": ledger.given_up & there,
        "sent by nobody": there - ledger.committed - ledger.given_up - ledger.unknown,
    }
    return [
        f"{len(found)} records {what}: {sorted(found)[:SHOWN_MAX]}" for what, found in wrong.items() if found
    ]


def check_values(orders: Iterable[Order], made: Iterable[Made]) -> list[str]:
    """Every row says rightly what it was made of, and is where it belongs."""
    by_n = {row.n: row for row in orders}
    violations = []
    for row in made:
        source = by_n.get(row.n)
        if source is None:
            continue  # said elsewhere
        wanted = (side_of(row.n), source.key, *source.place, 2 * row.n)
        got = (row.topic, row.key, row.part, row.at, row.doubled)
        if got != wanted:
            violations.append(f"record {row.n} became {got}, not {wanted}")
    return violations[:SHOWN_MAX]


def check_source_order(orders: Iterable[Order], made: Iterable[Made], order: str) -> list[str]:
    """In each partition that was written the records of each partition that was read are in the order of the
    read.

    In the order of commits, besides, all that one entry made visible is in one micro-batch.
    """
    entries = {row.n: row.commit_entry for row in orders}

    def rank(row: Made) -> tuple[int, int]:
        return (entries.get(row.n, -1) if order == "commit" else 0, row.at)

    lanes: dict[tuple[str, int, int], list[Made]] = defaultdict(list)
    for row in sorted(made, key=lambda row: (row.topic, row.place)):
        lanes[row.topic, row.place.partition, row.part].append(row)
    violations = []
    for (topic, partition, part), rows in lanes.items():
        back = next((pair for pair in itertools.pairwise(rows) if rank(pair[0]) >= rank(pair[1])), None)
        if back is not None:
            violations.append(
                f"{topic}/{partition}: offset {back[1].at} of orders/{part} comes after {back[0].at}"
            )
    if order == "commit":
        batches: dict[int, set[int]] = defaultdict(set)
        for row in made:
            batches[entries.get(row.n, -1)].add(row.batch)
        violations += [
            f"what entry {entry} made visible is in batches {sorted(of)}"
            for entry, of in batches.items()
            if len(of) > 1
        ]
    return violations
