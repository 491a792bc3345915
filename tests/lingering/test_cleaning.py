"""Mechanisms 50 to 54: names that change from run to run, and who cleans up which of them."""

from __future__ import annotations

import pytest

from tests.lingering.lingering import Scene
from txnformat.admin.transactions import EndingOutcome
from txnformat.errors import InvalidInputError


def opened(scene: Scene, *names: str) -> None:
    for number, name in enumerate(names):
        scene.begun(name, number)


def undecided(scene: Scene) -> list[str]:
    return sorted(scene.log.refresh().undecided)


def clean(scene: Scene, parallelism: int, *workers: int, restored: bool = False) -> list[list[str]]:
    """Let workers of a new run clean up; return what each aborted, in its order."""
    return [
        [
            one.transactional_id
            for one in scene.other_process().transactions.abort_lingering(
                "job", parallelism, worker, restored=restored
            )
            if one.outcome is EndingOutcome.ABORTED
        ]
        for worker in workers
    ]


def test_50_names_that_change_with_every_run_are_aborted_by_their_prefix() -> None:
    scene = Scene()
    opened(scene, "job-2024-0", "job-2024-1", "other-0")
    ended = scene.log.transactions.abort(prefix="job-")
    assert [one.transactional_id for one in ended] == ["job-2024-0", "job-2024-1"]
    assert undecided(scene) == ["other-0"]


def test_51_names_are_prefix_dash_subtask_and_nothing_else() -> None:
    scene = Scene()
    alien = ["job-01", "job--1", "job-1x", "job", "job-", "jobs-1", "job-1-2", "job-x"]
    opened(scene, "job-0", "job-1", *alien)
    assert clean(scene, 2, 0, 1) == [["job-0"], ["job-1"]]
    assert undecided(scene) == sorted(alien)


def test_52_ten_workers_come_back_as_two_and_everything_is_covered() -> None:
    scene = Scene()
    opened(scene, *(f"job-{subtask}" for subtask in range(10)))
    clean(scene, 2, 0, 1)
    assert undecided(scene) == []


def test_52_ten_workers_come_back_as_one_and_the_listing_finds_what_is_beyond_the_factor() -> None:
    scene = Scene()
    opened(scene, *(f"job-{subtask}" for subtask in range(10)))
    clean(scene, 1, 0)
    assert undecided(scene) == [f"job-{subtask}" for subtask in range(5, 10)]
    found = scene.log.transactions.lingering("job", 1)
    assert [(one.transactional_id, one.worker) for one in found] == [(f"job-{k}", None) for k in range(5, 10)]
    for one in found:
        scene.log.transactions.abort(one.transactional_id)
    assert undecided(scene) == []


def test_53_the_range_is_split_over_the_new_workers_without_overlap() -> None:
    scene = Scene()
    opened(scene, *(f"job-{subtask}" for subtask in range(9)))
    assert clean(scene, 3, 0, 1, 2) == [
        ["job-0", "job-3", "job-6"],
        ["job-1", "job-4", "job-7"],
        ["job-2", "job-5", "job-8"],
    ]
    with pytest.raises(InvalidInputError):
        scene.log.transactions.abort_lingering("job", 3, 3)


def test_54_a_restored_worker_aborts_its_own_id_only_and_a_fresh_start_the_range() -> None:
    scene = Scene()
    opened(scene, *(f"job-{subtask}" for subtask in range(4)))
    assert clean(scene, 2, 0, restored=True) == [["job-0"]]
    assert clean(scene, 2, 0, 1) == [["job-2"], ["job-1", "job-3"]]


def test_54_transactions_that_were_opened_after_the_start_are_not_touched() -> None:
    scene = Scene()
    opened(scene, "job-0", "job-2")
    start = scene.log.refresh().entry + 1
    young = scene.begun("job-4", 7)
    ended = scene.log.transactions.abort_lingering("job", 2, 0, opened_before_entry=start)
    assert [(one.transactional_id, one.outcome) for one in ended if one.outcome is EndingOutcome.YOUNGER] == [
        ("job-4", EndingOutcome.YOUNGER)
    ]
    young.commit()
    assert scene.read() == [7]
