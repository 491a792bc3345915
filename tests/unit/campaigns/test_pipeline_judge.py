"""The oracle of `make chaos-pipeline`: it finds what is wrong with a pipeline, and nothing where
nothing is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.chaos.oracle import Place, Seen
from tests.pipeline.judge import Ledger, Made, Order, judge_pipeline
from tests.pipeline.ledger import ledger_of
from tests.pipeline.notes import HandedOn, check_repeats
from tests.pipeline.topics import ORDERS, side_of
from txnformat.persistent import replace
from txnlog_testing.checker import Event, EventType, Function, Send

RECORDS, BATCHES = 12, 3
GIVEN_UP = 100


def order(n: int) -> Order:
    """Record n: two partitions; four records, of one batch, were made visible by one entry."""
    return Order(
        place=Place(n % 2, 2 * n),  # there are gaps: markers, and what was given up
        entry=n,
        n=n,
        query="",
        batch=0,
        task=0,
        index=0,
        attempt="",
        key=f"key-{n}",
        commit_entry=20 + n // 4,
    )


def made() -> list[Made]:
    rows = []
    for n in range(RECORDS):
        source = order(n)
        rows.append(
            Made(
                place=Place(0, n // 2),
                entry=50 + n // 4,
                n=n,
                query="q",
                batch=n // 4,
                task=n % 2,
                index=n % 4 // 2,
                attempt=f"attempt {n // 4} {n % 2}",
                topic=side_of(n),
                key=source.key,
                part=source.place.partition,
                at=source.place.offset,
                doubled=2 * n,
            )
        )
    return rows


def seen(rows: list[Made]) -> dict[str, Seen]:
    found: dict[str, Any] = {ORDERS: {}}
    for n in range(RECORDS):
        place = order(n).place
        found[ORDERS].setdefault(place.partition, []).append((place.offset, n, ""))
    for row in rows:
        found.setdefault(row.topic, {}).setdefault(0, []).append((row.place.offset, row.n, row.attempt))
    return found


LEDGER = Ledger(frozenset(range(RECORDS - 1)), frozenset({GIVEN_UP}), frozenset({RECORDS - 1}))


@pytest.mark.parametrize("by", ["offset", "commit"])
def test_nothing_is_found_where_nothing_is_wrong(by: str) -> None:
    orders, rows = [order(n) for n in range(RECORDS)], made()
    found = judge_pipeline(orders, LEDGER, rows, range(BATCHES), seen(rows), by)
    assert found.violations == ()
    assert (found.rows, found.duplicates, found.losses, found.torn) == (RECORDS, 0, 0, 0)


def swapped(rows: list[Made]) -> None:
    """Records 0 and 4 of partition 0 changed places in the source, and are where they were."""
    rows[0], rows[4] = replace(rows[0], at=rows[4].at), replace(rows[4], at=rows[0].at)


WRONG: dict[str, Callable[[list[Made]], object]] = {
    "1 rows missing: [3]": lambda rows: rows.pop(3),
    "1 rows too many: [3]": lambda rows: rows.append(replace(rows[3], place=Place(0, 6), entry=60, batch=3)),
    "record 5 became": lambda rows: rows.__setitem__(5, replace(rows[5], doubled=11)),
    "record 6 became": lambda rows: rows.__setitem__(6, replace(rows[6], key="other")),
    "comes after": swapped,
    "rows of 2 attempts": lambda rows: rows.__setitem__(2, replace(rows[2], attempt="another")),
    "is in entries": lambda rows: rows.__setitem__(11, replace(rows[11], entry=60)),
    "have rows and no version": lambda rows: [
        rows.__setitem__(n, replace(rows[n], batch=7)) for n in range(8, 12)
    ],
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_found(what: str) -> None:
    rows = made()
    WRONG[what](rows)
    orders = [order(n) for n in range(RECORDS)]
    found = judge_pipeline(orders, LEDGER, rows, range(BATCHES), seen(rows), "offset")
    assert any(what in one for one in found.violations), found.violations


def test_a_transaction_over_two_batches_is_wrong_in_the_order_of_commits() -> None:
    orders = [replace(order(n), commit_entry=20) for n in range(RECORDS)]
    rows = made()
    found = {
        by: judge_pipeline(orders, LEDGER, rows, range(BATCHES), seen(rows), by).violations
        for by in ("offset", "commit")
    }
    assert found == {"offset": (), "commit": ("what entry 20 made visible is in batches [0, 1, 2]",)}


@pytest.mark.parametrize(
    ("ledger", "what"),
    [
        (
            Ledger(frozenset({*range(RECORDS), 50}), frozenset(), frozenset()),
            "committed, and not there: [50]",
        ),
        (Ledger(frozenset(range(11)), frozenset({11}), frozenset()), "given up, and there: [11]"),
        (Ledger(frozenset(range(11)), frozenset(), frozenset()), "sent by nobody: [11]"),
    ],
)
def test_what_producers_were_told_has_to_be_so(ledger: Ledger, what: str) -> None:
    rows = made()
    orders = [order(n) for n in range(RECORDS)]
    (violation,) = judge_pipeline(orders, ledger, rows, range(BATCHES), seen(rows), "offset").violations
    assert violation.endswith(what)


def test_a_reader_that_saw_what_was_given_up_is_told() -> None:
    rows = made()
    saw = seen(rows)
    saw[ORDERS] = {**saw[ORDERS], 1: [*saw[ORDERS][1], (24, GIVEN_UP, "")]}
    orders = [order(n) for n in range(RECORDS)]
    (violation,) = judge_pipeline(orders, LEDGER, rows, range(BATCHES), saw, "offset").violations
    assert "a reader saw (24, 100, '')" in violation


def test_attempts_of_a_batch_that_read_other_records_are_told() -> None:
    rows = made()
    batches = [HandedOn("q", number, 0, 0) for number in range(BATCHES)]
    for row in rows:
        batches[row.batch].values[row.topic, row.n] = None
    assert check_repeats(batches, rows) == []
    batches[1].values["even", 8] = None  # an attempt that did not commit read further
    (violation,) = check_repeats(batches, rows)
    assert violation.startswith("batch 1: its attempts read 5 records, 4 are there")


def test_who_was_killed_leaves_records_of_which_nobody_knows() -> None:
    def event(process: str, type_: EventType, *numbers: int) -> Event:
        value = tuple(Send(ORDERS, n) for n in numbers) or None
        return Event(process=process, type=type_, f=Function.TXN, time_ns=0, value=value)

    ledger = ledger_of(
        [
            event("a", EventType.INVOKE, 1, 2),
            event("b", EventType.INVOKE, 3),
            event("a", EventType.OK),
            event("a", EventType.INVOKE, 4),
            event("b", EventType.FAIL),
            event("b", EventType.INVOKE, 5),
            event("b", EventType.INFO),
        ]
    )
    assert ledger == Ledger(frozenset({1, 2}), frozenset({3}), frozenset({4, 5}))
