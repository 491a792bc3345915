"""A sidecar or a segment list that a task of maintenance reads is missing or corrupt: one clear error that
names the object, nothing is deleted, and the log can be used."""

from __future__ import annotations

import pytest

from tests.maintenance.deaths import Watched, examine, kinds_of, requests_of
from tests.maintenance.tasks import TASKS, world_of
from tests.rounds import rounds, spread, telling
from txnformat.store.requests import KeyClass, RequestKind, key_class
from txnlog import CorruptDataError, NotFoundError, Producer

READS = (
    "delete_records",
    "retention",
    "compact",
    "compact keys",
    "erase",
    "erasures",
    "vacuum",
    "seal",
    "maintain",
)
"""The tasks that read sidecars or lists."""
DAMAGED_MAX = 3
"""Objects that are damaged for a task, in a short round."""


@pytest.mark.parametrize("damage", ["missing", "corrupt"])
@pytest.mark.parametrize("name", READS)
def test_a_damaged_sidecar_is_one_error_that_names_it(name: str, damage: str) -> None:
    """When the object is back, the next run completes the task. ``make faults`` takes some of the first of each
    kind and the last of all, of those that were there before."""
    task, world = TASKS[name], world_of(name)
    found = [
        key
        for operation, key in requests_of(task, world)
        if operation in (RequestKind.GET, RequestKind.GET_RANGE)
        and key_class(key) in (KeyClass.SIDECAR, KeyClass.TABLE)
        and key in world.store._objects
    ]
    wanted = list(dict.fromkeys(found))
    assert wanted
    kinds = kinds_of([(RequestKind.GET, key) for key in wanted])
    for index in rounds(spread(telling(kinds), DAMAGED_MAX), [*range(len(wanted))]):
        key, left = wanted[index], world.copied()
        data = left.store._objects[key]
        left.store.delete(key)
        if damage == "corrupt":
            left.store.create(key, data[:-20] + bytes([data[-20] ^ 1]) + data[-19:])
        watched = Watched(left, lambda *_: None)
        try:
            report = watched.run(task)
        except (NotFoundError, CorruptDataError) as error:
            told = str(error)
        else:
            told = " ".join(one.reason for one in getattr(report, "damaged", ()))
        assert key in told, (key, told)
        assert not [one for operation, one in watched.requests if operation is RequestKind.DELETE]
        with Producer(left.opened(), "another") as producer, producer.transaction():
            pass  # the log takes writes
        left.store.delete(key)
        left.store.create(key, data)
        examine(task, left, in_use=index % 2 == 0)
