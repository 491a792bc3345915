"""The oracle of the chaos tests finds each violation that it is there for, and nothing where there is
none.
"""

from __future__ import annotations

from tests.chaos.oracle import (
    Place,
    Row,
    Seen,
    check_attempts,
    check_batches,
    check_exactly_once,
    check_order,
    check_seen,
    check_versions,
    judge,
)
from txnformat.persistent import replace


def rows_of(batches: int = 3, tasks: int = 2, each: int = 4, partitions: int = 2) -> list[Row]:
    """Return what a query writes that nobody disturbs: row i of a task goes to partition i % partitions."""
    rows, ends, n = [], [0] * partitions, 0
    for batch in range(batches):
        for task in range(tasks):
            for index in range(each):
                partition = index % partitions
                rows.append(
                    Row(
                        place=Place(partition, ends[partition]),
                        entry=10 + batch,
                        n=n,
                        query="q",
                        batch=batch,
                        task=task,
                        index=index,
                        attempt=f"{batch}-{task}",
                    )
                )
                ends[partition] += 1
                n += 1
    return rows


def seen_of(rows: list[Row], upto: dict[int, int]) -> dict[int, list[tuple[int, int, str]]]:
    return {
        partition: [
            (row.place.offset, row.n, row.attempt)
            for row in rows
            if row.place.partition == partition and row.place.offset < end
        ]
        for partition, end in upto.items()
    }


def test_what_nobody_disturbed_is_exact() -> None:
    rows = rows_of()
    found = judge(rows, range(24), [0, 1, 2], [seen_of(rows, {0: 5, 1: 12}), {}])
    assert found.violations == ()
    assert (found.rows, found.duplicates, found.losses, found.torn) == (24, 0, 0, 0)
    assert found.is_exact


def test_an_empty_batch_has_a_version_and_no_rows() -> None:
    rows = [row for row in rows_of() if row.batch != 1]
    assert check_versions([0, 1, 2], rows) == []


def test_a_row_that_is_there_twice_is_found() -> None:
    rows = rows_of()
    again = replace(rows[0], place=Place(0, 12), entry=13, attempt="again")
    assert check_exactly_once([*rows, again], range(24)) == (1, 0, ["1 rows too many: [0]"])
    found = judge([*rows, again], range(24), [0, 1, 2], [])
    assert (found.duplicates, found.losses, found.torn) == (1, 0, 2)


def test_a_row_that_is_missing_is_found() -> None:
    assert check_exactly_once(rows_of()[1:], range(24)) == (0, 1, ["1 rows missing: [0]"])


def test_a_row_that_nobody_wrote_is_found() -> None:
    assert check_exactly_once(rows_of(), range(23)) == (1, 0, ["1 rows too many: [23]"])


def test_rows_of_two_attempts_of_a_task_are_found() -> None:
    rows = rows_of()
    rows[1] = replace(rows[1], attempt="other")
    assert check_attempts(rows)[0] == "batch 0, task 0: rows of 2 attempts"


def test_part_of_an_attempt_is_found() -> None:
    rows = rows_of()
    assert check_attempts([row for row in rows if (row.batch, row.task, row.index) != (1, 0, 1)]) == [
        "batch 1, task 0: attempt 1-0 is there in part"
    ]


def test_a_batch_in_two_entries_is_found() -> None:
    rows = rows_of()
    rows[-1] = replace(rows[-1], entry=13)
    assert check_batches(rows) == ["batch 2 is in entries [12, 13]"]


def test_two_batches_in_one_entry_are_found() -> None:
    rows = [replace(row, entry=10) if row.batch < 2 else row for row in rows_of()]
    assert check_batches(rows) == ["entry 10 has batches [0, 1]"]


def test_a_hole_in_the_offsets_is_found() -> None:
    assert check_order([row for row in rows_of() if row.place != Place(1, 3)]) == [
        "partition 1: offsets are not 0 to 10"
    ]


def test_rows_out_of_order_are_found() -> None:
    rows = rows_of()
    rows[0], rows[2] = replace(rows[0], place=rows[2].place), replace(rows[2], place=rows[0].place)
    assert check_order(rows) == ["partition 0: (batch, task, index) (0, 0, 0) comes after (0, 0, 2)"]


def test_an_older_batch_behind_a_newer_one_is_found() -> None:
    rows = [replace(row, batch={0: 1, 1: 0}.get(row.batch, row.batch)) for row in rows_of()]
    assert len(check_order(rows)) == 2


def test_versions_that_are_missing_repeated_or_swapped_are_found() -> None:
    assert check_versions([0, 1, 2]) == []
    for versions in ([0, 2], [0, 0, 1], [1, 0], [1]):
        assert check_versions(versions), versions


def test_rows_without_a_version_are_found() -> None:
    assert check_versions([0, 1], rows_of()) == ["batches [2] have rows and no version"]


def test_what_a_reader_saw_and_is_not_there_is_found() -> None:
    rows = rows_of()
    seen = seen_of(rows, {0: 5, 1: 5})
    assert check_seen(rows, seen) == []
    vanished: Seen = {**seen, 1: [*seen[1], (5, 99, "aborted")]}
    assert "partition 1: a reader saw (5, 99, 'aborted') as row 5" in check_seen(rows, vanished)[0]
    beyond: Seen = {0: seen_of(rows, {0: 12})[0] + [(12, 7, "x")]}
    assert check_seen(rows, beyond) == [
        "partition 0: a reader saw (12, 7, 'x') as row 12, the topic has no such row"
    ]


def test_what_a_reader_saw_in_another_order_or_twice_is_found() -> None:
    rows = rows_of()
    zero = seen_of(rows, {0: 4})[0]
    for got in ([zero[1], zero[0]], [zero[0], zero[0]], [zero[0], zero[2]]):
        assert check_seen(rows, {0: got}), got
