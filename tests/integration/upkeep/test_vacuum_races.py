"""A vacuum beside everything else: something happens at each of its requests. Each test fails without the
rule that it is about.

The suite tries some of the first requests of each kind (operation and sort of key), and the last of all;
`make campaigns` tries all that write, and a third of the reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from tests.integration.clients.failing import rows
from tests.integration.upkeep.vacuum_world import GRACE, LIVE, WEEK_MS, Interposed, World, one_by_one, unnamed
from tests.rounds import rounds, spread, telling
from txnformat import keys
from txnformat.admin.garbage import Fate
from txnformat.store.requests import READS, RequestKind
from txnlog import Producer, TxnLog, UploadExpiredError
from writers.bulk import BulkAppend
from writers.transaction import ProducerStatus


@pytest.fixture
def world() -> Iterator[World]:
    with one_by_one():
        yield World()


def shown(log: TxnLog) -> list[int]:
    return sorted(log.read("t").read_all()["n"].to_pylist())


MOMENTS_MAX = 5
"""In a short round."""
SHOWN = [number for number in LIVE if number != 7]


def settle(world: World, expected: list[int] = SHOWN) -> None:
    """Let vacuums finish, and check that all is there that must be, and nothing else."""
    for _ in range(3):
        world.wait()
        world.opened().vacuum(GRACE)
    assert shown(world.opened()) == expected
    assert unnamed(world.opened()) == set()


@pytest.fixture(params=["first run", "second run"])
def prepared(world: World, request: pytest.FixtureRequest) -> World:
    """Return a world in which the next vacuum condemns, or one in which it deletes."""
    world.wait()
    if request.param == "second run":
        world.log.vacuum(GRACE)
        world.append(9, world.log)
        world.wait()
    return world


def expected_in(world: World) -> list[int]:
    return shown(world.opened())


def requests_of(world: World) -> list[tuple[RequestKind, str]]:
    """Return the kinds of the requests that the next vacuum of a world makes, with those that open the
    log.
    """
    store = Interposed(world.copied().store)
    world.copied().opened(store).vacuum(GRACE)
    assert {RequestKind.DELETE, RequestKind.CREATE} & {operation for operation, _ in store.kinds}
    return store.kinds


def moments(world: World) -> list[int]:
    """Return the numbers of the requests in whose middle something happens."""
    kinds = requests_of(world)
    full = [
        number for number, (operation, _) in enumerate(kinds) if operation not in READS or number % 3 == 0
    ]
    return rounds(spread(telling(kinds), MOMENTS_MAX), full)


def test_two_vacuums_at_once_delete_what_one_deletes(prepared: World) -> None:
    expected = expected_in(prepared)
    for number in moments(prepared):
        other = prepared.copied()
        store = Interposed(other.store, number, partial(_vacuum, other))
        other.opened(store).vacuum(GRACE)
        assert shown(other.opened()) == expected
        settle(other, expected)


def _vacuum(world: World) -> None:
    world.opened().vacuum(GRACE)


def _extend(more: list[int], what: Callable[[World], list[int]], world: World) -> None:
    more += what(world)


def seal(world: World) -> list[int]:
    """Seal, which merges lists: the old ones are garbage from then on."""
    log = world.opened()
    world.append(30, log)
    assert log.maintain("seal").segments
    return [30]


def upload(world: World) -> list[int]:
    """Upload, and commit a transaction that staged."""
    with Producer(world.opened(), "other", buffer="deferred") as producer:
        producer.begin()
        producer.send("t", rows(31))
        producer.flush()
        producer.send("t", rows(32))
        producer.commit()
    return [31, 32]


def trim(world: World) -> list[int]:
    """Remove records, so that objects are garbage that the vacuum takes to be live."""
    log = world.opened()
    log.maintain("seal")
    log.delete_records("t", 3)
    return []


@pytest.mark.parametrize("what", [seal, upload, trim])
def test_what_happens_in_the_middle_of_a_vacuum_loses_nothing(
    prepared: World, what: Callable[[World], list[int]]
) -> None:
    before = expected_in(prepared)
    for number in moments(prepared):
        other = prepared.copied()
        more: list[int] = []
        store = Interposed(other.store, number, partial(_extend, more, what, other))
        other.opened(store).vacuum(GRACE)
        expected = sorted([*before, *more]) if what is not trim else before[1:]
        assert shown(other.opened()) == expected
        settle(other, expected)


def test_a_read_that_was_planned_within_the_grace_goes_on(prepared: World) -> None:
    """After any vacuum the objects that were planned before records were removed, and lists replaced, are
    still there."""
    log = prepared.opened()
    before = shown(log)
    reader = log.read("t")
    trim(prepared)
    seal(prepared)
    prepared.opened().vacuum(GRACE)
    prepared.clock.sleep(GRACE.total_seconds() - 1)
    report = prepared.opened().vacuum(GRACE)
    assert report.count(Fate.CONDEMNED) + report.count(Fate.KEPT)
    assert sorted(reader.read_all()["n"].to_pylist()) == before


# --- slow uploads -------------------------------------------------------------------------------------------


def _bulk(log: TxnLog) -> BulkAppend:
    return BulkAppend(log)


def _idempotent(log: TxnLog) -> Producer:
    producer = Producer(log, linger_ms=3_600_000)
    producer.init()
    return producer


def _transactional(log: TxnLog, buffer: str) -> Producer:
    timeouts: dict[str, Any] = {"transaction_timeout_ms": WEEK_MS, "deferred_timeout_ms": WEEK_MS}
    producer = Producer(log, "slow", buffer=buffer, **timeouts)
    producer.init()
    producer.begin()
    return producer


@pytest.mark.parametrize("made", [_bulk, _idempotent, "inline", "auto", "deferred"])
def test_an_upload_that_waits_for_longer_than_the_grace_is_refused_and_nothing_is_lost(
    world: World, made: Any
) -> None:
    """Its file was deleted: an entry that named it would make a log that cannot be read."""
    log = world.opened()
    slow = _transactional(log, made) if isinstance(made, str) else made(log)
    before = files_of(world)
    slow.send("t", rows(40), partition=0)
    if isinstance(slow, Producer):
        slow._staging.take_in()
    slow._staging.finish()
    uploaded = files_of(world) - before
    assert len(uploaded) == 1
    world.append(9, world.opened())
    for _ in range(3):
        world.wait()
        world.opened().vacuum(GRACE)
    assert not uploaded & files_of(world)
    with pytest.raises(UploadExpiredError):
        slow.flush() if made is _idempotent else slow.commit()
    assert shown(world.opened()) == [*SHOWN, 9]
    if slow_transaction := isinstance(made, str):
        assert slow.status is ProducerStatus.ABORT_REQUIRED
        slow.abort()
        slow.begin()
    elif made is _bulk:
        slow = BulkAppend(log)
    slow.send("t", rows(41), partition=0)
    if slow_transaction or made is _bulk:
        slow.commit()
    else:
        slow.flush()
    assert shown(world.opened()) == [*SHOWN, 9, 41]
    report = world.opened().verify(deep=True)
    assert report.ok, report.problems


def files_of(world: World) -> set[str]:
    return {info.key for info in world.store.list("t-") if keys.parse_data_key(info.key)}
