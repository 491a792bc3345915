"""The disk is full when a task of maintenance writes: one clear error, nothing is deleted, the log can be
used, and the next run completes the task."""

from __future__ import annotations

import pytest

from tests.maintenance.deaths import WRITES, Watched, examine, kinds_of, requests_of
from tests.maintenance.tasks import TASKS, world_of
from tests.rounds import rounds, spread, telling
from txnformat import keys
from txnformat.store.requests import RequestKind
from txnlog import StorageError
from txnlog_testing.stores.faulty import Fault, FaultKind

FILLS = {RequestKind.CREATE, RequestKind.PUT, RequestKind.OPEN_WRITE}
WRITES_MAX = 3
"""Of a task, in a short round."""
HINTS = (keys.LATEST_KEY, keys.delta_hint_key(""), keys.iceberg_hint_key(""))


def _is_hint(key: str) -> bool:
    return key.endswith(HINTS)


@pytest.mark.parametrize("name", TASKS)
def test_a_full_disk_at_any_write_is_one_error_and_deletes_nothing(name: str) -> None:
    """From the write on the disk stays full; deleting and reading go on. ``make faults`` takes some of the
    first writes of each kind, and the last of all."""
    task, world = TASKS[name], world_of(name)
    requests = requests_of(task, world)
    writes = [number for number, (operation, _) in enumerate(requests) if operation in FILLS]
    kinds = kinds_of([requests[at] for at in writes])
    assert bool(writes) is (name not in ("truncate", "truncate far away")), (
        "this run deletes only; others begin the truncation"
    )
    for index in rounds(spread(telling(kinds), WRITES_MAX), [*range(len(writes))]) if writes else ():
        first, left = writes[index], world.copied()

        def at(number: int, operation: RequestKind, key: str, first: int = first) -> Fault | None:
            return Fault(FaultKind.DISK_FULL) if number >= first and operation in FILLS else None

        watched = Watched(left, at)
        refusal: StorageError | None = None
        try:
            watched.run(task)
        except StorageError as error:
            refusal = error
        refused = [key for operation, key in watched.requests[first:] if operation in FILLS]
        if refusal is None:
            assert all(map(_is_hint, refused)), "the log and its tables are whole without a hint"
        else:
            assert refusal.kind == "disk-full"
            assert "free space" in str(refusal)
            needed = next(
                (
                    number
                    for number, (operation, key) in enumerate(watched.requests)
                    if number >= first and operation in FILLS and not _is_hint(key)
                ),
                first,  # a snapshot that the caller has asked for tells of its hint, too
            )
            later = watched.requests[needed + 1 :]
            assert not [one for one in later if one[0] in WRITES], "the first refusal ends the task"
        examine(task, left, in_use=index % 2 == 0)
