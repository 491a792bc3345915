"""Clients that are paused for days before each of their requests, while others write, and truncations delete
entries.

What a client shows afterwards was committed, and is not older than what there was when its call began. What a
writer commits counts once, or not at all. `make campaigns` tries more tips, and more of what the deleted
slots may hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import count

import pytest

from spark_datasource.options.read import parse_read_options
from spark_datasource.stream.followed_log import FollowedLog
from tests.integration.clients.failing import rows
from tests.integration.clients.paused_world import (
    BOUNDARY,
    LATER,
    WRITTEN,
    Chain,
    Days,
    Paused,
    days,
    grow_old,
    leave_behind,
    snapshots_often,
)
from tests.integration.upkeep.truncation_world import TruncationWorld, entries_in, one_by_one
from tests.rounds import rounds
from txnformat import keys
from txnformat.core.entry import sha256_hex
from txnformat.core.state import LogState
from txnlog import CommitStateUnknownError, Producer, TxnLogError

Call = Callable[[], LogState]
Client = Callable[[Paused, TruncationWorld], Call]
"""Prepares a client of a young log, and returns the call that is paused."""

AGAIN: dict[str, Callable[[int], range]] = {
    "none": lambda tip: range(0),
    "the last": lambda tip: range(BOUNDARY - 1, BOUNDARY),
    "the next": lambda tip: range(tip + 1, tip + 2),
    "all": lambda tip: range(tip - 15, BOUNDARY),
}
"""The deleted slots that writers which slept have created again."""
TIP = BOUNDARY - 1
"""The slot after it is never deleted."""
EARLIER = BOUNDARY - 8
"""The slots after it are deleted."""
MORE_TIPS = range(BOUNDARY - 25, BOUNDARY + 25)
TROUBLES = (None, "fails first", "loses answer")
MINE = 77_777
"""The record of the writer that is paused."""


@pytest.fixture(scope="module")
def template() -> TruncationWorld:
    with one_by_one(), snapshots_often():
        return TruncationWorld()


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    with one_by_one():
        yield


def opens(store: Paused, world: TruncationWorld) -> Call:
    return lambda: world.opened(store).state


def opens_a_directory(store: Paused, world: TruncationWorld) -> Call:
    store.scans = True
    return opens(store, world)


def refreshes(behind: int, store: Paused, world: TruncationWorld) -> Call:
    """A client that has followed the log to its tip, or almost, more than a minute ago."""
    found = entries_in(world.store)
    hidden = [keys.entry_key(number) for number in found[len(found) - behind :]]
    kept = {key: world.store.get(key) or b"" for key in hidden}
    for key in kept:
        world.store.delete(key)
    world.store.delete(keys.LATEST_KEY)
    log = world.opened(store)
    for key, data in kept.items():
        world.store.create(key, data)
    world.clock.sleep(61)
    return log.refresh


def follows(store: Paused, world: TruncationWorld) -> Call:
    options = parse_read_options({"path": "/log", "topic": "t", "endexpired": "false"})
    followed = FollowedLog(options, world.clock, store)
    world.clock.sleep(61)
    return lambda: followed.follow(is_idle=True)


CLIENTS: dict[str, Client] = {
    "opens": opens,
    "opens a directory": opens_a_directory,
    "refreshes, nothing is new": partial(refreshes, 0),
    "refreshes, one entry is new": partial(refreshes, 1),
    "refreshes, some are new": partial(refreshes, 8),
    "follows": follows,
}
SLOW = "opens a directory"
"""Some fifty requests more."""
FAR_BEHIND = 45
"""Entries of which the last are read out of a bundle."""


def pause_each(passed: Days, client: Client, *, fails_first: bool, step: int = 1) -> None:
    """Pause a call before each of its requests (every ``step`` of them), and check what it shows."""
    for number in count(0, step):
        world = passed.before.copied()
        store = Paused(world.store, fails_first=fails_first)
        call = client(store, world)
        store.pause(number, partial(passed.pass_in, world))
        passed.chain.check(call(), least=passed.tip)
        if not store.was_paused:
            assert number >= 2
            return


def pause_client(template: TruncationWorld, tip: int, name: str, again: Iterable[str] = AGAIN) -> None:
    for has_hint in (True, False) if name == "opens" else (True,):
        passed = days(template, tip, has_hint=has_hint)
        for slots in again:
            for fails_first in (False, True):
                pause_each(passed.left_behind(AGAIN[slots](tip)), CLIENTS[name], fails_first=fails_first)


@pytest.mark.parametrize("tip", rounds((TIP,), tuple(MORE_TIPS)))
@pytest.mark.parametrize("name", rounds([name for name in CLIENTS if name != SLOW], list(CLIENTS)))
def test_a_client_shows_what_was_committed(template: TruncationWorld, name: str, tip: int) -> None:
    pause_client(template, tip, name, rounds(("the last", "all"), tuple(AGAIN)))


def pause_far_behind(template: TruncationWorld, tip: int, step: int) -> None:
    passed = days(template, tip, has_bundles=True)
    for name in ("the last", "all"):
        pause_each(
            passed.left_behind(AGAIN[name](tip)),
            partial(refreshes, FAR_BEHIND),
            fails_first=name == "all",
            step=step,
        )


@pytest.mark.parametrize("tip", rounds((TIP,), tuple(MORE_TIPS)))
def test_a_client_that_is_far_behind_shows_what_was_committed(template: TruncationWorld, tip: int) -> None:
    pause_far_behind(template, tip, rounds(3, 1))


def commit_paused(
    world: TruncationWorld, number: int, again: Callable[[int], range], trouble: str | None
) -> bool:
    """Pause a commit before one of its requests; check that it counts once, or not at all; return whether
    there was such a request."""
    store = Paused(world.store, fails_first=trouble == "fails first", loses_answer=trouble == "loses answer")
    log = world.opened(store)
    tip = log.state.entry
    producer = Producer(log, linger_ms=10**12)
    producer.init()
    log.close()
    producer.send("t", rows(MINE), partition=0)
    chain: list[Chain] = []

    def meanwhile() -> None:
        chain.append(grow_old(world))
        world.truncate()
        assert world.truncate().deleted_below == BOUNDARY
        leave_behind(world.store, chain[0], (slot for slot in again(tip) if slot < BOUNDARY))

    store.pause(number, meanwhile)
    error: TxnLogError | None = None
    try:
        producer.flush()
    except TxnLogError as raised:
        error = raised
    if not store.was_paused:
        return False
    log = world.opened()
    shown = log.read("t").read_all()["n"].to_pylist()
    assert shown.count(MINE) == (1 if error is None else 0) or isinstance(error, CommitStateUnknownError), (
        error
    )
    for slot, data in chain[0].entries.items():
        if slot >= BOUNDARY:
            assert world.store.get(keys.entry_key(slot)) == data
    for _ in range(2):
        if error is not None:
            with suppress(CommitStateUnknownError):
                producer.flush()
                error = None
    log = world.opened()
    shown = log.read("t").read_all()["n"].to_pylist()
    assert shown.count(MINE) == 1, error
    assert shown.count(LATER) == shown.count(LATER + WRITTEN - 1) == 1
    history = list(log.history(limit=None))
    assert [one.entry for one in history] == list(range(log.state.entry, -1, -1))
    told = {one.entry: one.sha256 for one in history}
    assert all(told[slot] == sha256_hex(data) for slot, data in chain[0].entries.items())
    return True


@pytest.mark.parametrize("tip", rounds((EARLIER,), tuple(MORE_TIPS)))
@pytest.mark.parametrize("again", rounds(("none", "the next"), tuple(AGAIN)))
def test_a_commit_counts_once_or_not_at_all(template: TruncationWorld, again: str, tip: int) -> None:
    pause_commit(template, tip, AGAIN[again], rounds((None, "loses answer"), TROUBLES))


def pause_commit(
    template: TruncationWorld,
    tip: int,
    again: Callable[[int], range],
    troubles: Iterable[str | None],
) -> None:
    before = days(template, tip).before
    for trouble in troubles:
        for number in count():
            if not commit_paused(before.copied(), number, again, trouble):
                assert number >= 2
                break
