"""A process that maintains a log dies at any request: readers and writers find the log as it was, and the
next run completes the task.

``make faults`` lets it die at the first request of each kind and at the last of all, and examines a few of the
states that this leaves; ``make campaigns`` takes all of all.
"""

from __future__ import annotations

import pytest

from tests.maintenance.deaths import deaths
from tests.maintenance.tasks import TASKS
from tests.rounds import rounds
from txnformat.admin import maintenance


@pytest.mark.parametrize("name", TASKS)
def test_a_death_at_any_request_loses_nothing_and_the_next_run_completes_the_task(name: str) -> None:
    assert deaths(name, full=rounds(False, True)) > 8


def test_every_task_of_maintain_is_tried() -> None:
    assert maintenance.TASKS.keys() <= TASKS.keys()
