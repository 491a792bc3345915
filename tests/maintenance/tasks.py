"""Every task of maintenance by name: a world in which it has something to do, the call, and what must be so
when it is done."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from tests.erasure.world import canaries
from tests.integration.upkeep.truncation_world import entries_in
from tests.integration.upkeep.vacuum_world import new_key, unnamed
from tests.maintenance.ledger import End, Ledger, Row
from tests.maintenance.world import HOUR_S, World
from txnformat import keys
from txnformat.views.delta_log import follow_table
from txnformat.views.delta_table import DeltaTable
from txnformat.views.iceberg_log import follow_iceberg
from txnformat.views.iceberg_table import IcebergTable, key_of
from txnlog import Producer, Subscription, TxnLog

__all__ = ["GRACE", "TASKS", "Task", "erase", "world_of"]

GRACE = datetime.timedelta(hours=2)
WEEK_S = 7 * 24 * HOUR_S
KEY = "0123456789abcdef" * 2


def _nothing(_: Any) -> None:
    """Do nothing."""


@dataclass(frozen=True, slots=True)
class Task:
    """A task, as the tests of deaths and of full disks drive it."""

    run: Callable[[TxnLog], Any]
    """The call, in a process that has just opened the log."""
    prepare: Callable[[World], None] = _nothing
    """Brings the world to where the task has something to do."""
    after: Callable[[Ledger], None] = _nothing
    """Makes in the ledger the change that the task makes to records."""
    done: Callable[[World], None] = _nothing
    """Checks what readers do not see, after the last run."""
    runs: int = 1
    """How many runs complete what a dead one has left: of some tasks a later run goes on."""
    rest_s: float = 0
    """Seconds between them."""
    repeats: bool = False
    """Each run does something."""


def _seal_small(world: World) -> None:
    """Leave lists that writers find too large, and records that are not sealed."""
    log = world.opened()
    for number in range(3):
        for topic in ("t", "k", "old", "keep"):
            world.write(log, {(topic, 0): [("a", 400 + number)]})
        log.committer.seal()
    world.write(log, {("t", 1): [("b", 404)]})
    log.close()
    assert len(log.refresh().segment_lists) > 1


def _open(world: World) -> None:
    """Leave a transaction open, of a process that is no more, with a committed record behind it."""
    log = world.opened()
    producer = Producer(log, "lost", buffer="inline", transaction_timeout_ms=60_000)
    producer.init()
    producer.begin()
    producer.send("old", [{"k": "lost", "n": 1}], partition=0)
    producer.flush()
    world.ledger.wrote([(("old", 0), [("lost", 1)])], End.OPEN)
    world.write(log, {("old", 0): [("o", 500)]})
    world.clock.sleep(2 * HOUR_S)


def _leave_gap(world: World) -> None:
    """Leave a subscription whose mark lies before an aborted transaction: no reader will ever acknowledge
    that."""
    log = world.opened()
    log.subscriptions.create("old", "gap")
    with Subscription(log, "old", "gap") as subscription:
        batch = subscription.receive(100, 0)
        assert batch is not None
        subscription.acknowledge(batch)
    world.write(log, {("old", 0): [("o", 600), ("o", 601)]}, End.ABORTED)
    world.write(log, {("old", 0): [("o", 602)]})
    log.close()


def _rest(seconds: float) -> Callable[[World], None]:
    return lambda world: world.clock.sleep(seconds)


def _compact(log: TxnLog) -> None:
    log.compact("t", min_lag_ms=0)


def _compact_keys(log: TxnLog) -> None:
    log.compact("k", min_lag_ms=0, target_bytes=1)


def _keep_latest(ledger: Ledger) -> None:
    ledger.keep_latest(("k", 0), ledger.log_end(("k", 0)))


def _is_secret(row: Row) -> bool:
    return row[0] == "secret"


def erase(log: TxnLog) -> Any:
    """Make one call, and return the status."""
    return log.erase("t", "k = 'secret'", requested_by="a test", key=KEY).status


def _erased(ledger: Ledger) -> None:
    ledger.take_out("t", _is_secret)


def _tick(world: World) -> None:
    """Let an hour more than a grace pass, and write an entry, as a log that is used does."""
    world.clock.sleep(GRACE.total_seconds() + 1)
    log = world.opened()
    world.write(log, {("keep", 0): [("tick", 800)]})
    log.close()


def _complete_erasure(world: World) -> None:
    """Let vacuums and the last look complete the erasure: then no byte of what was erased is anywhere."""
    world.end_prepared()  # they began before the request, so the erasure waits for them
    erase(world.opened())
    for _ in range(4):
        _tick(world)
        world.opened().vacuum(GRACE)
        world.opened().maintain("erasures")
    assert canaries(world.store, "secret") == {}
    assert [one.stage.value for one in world.opened().erasures()] == ["complete"]


def _erase_and_vacuum(world: World) -> None:
    """Leave an erasure that lacks nothing but the last look."""
    world.end_prepared()
    erase(world.opened())
    _erased(world.ledger)
    for _ in range(3):
        _tick(world)
        world.opened().vacuum(GRACE)
    world.opened().close()


def _make_garbage(world: World) -> None:
    """Leave objects that a vacuum deletes now, and some that it condemns now."""
    _compact(world.opened())
    _tick(world)
    world.opened().vacuum(GRACE)
    _tick(world)
    _compact_keys(world.opened())
    _keep_latest(world.ledger)
    state = world.opened().state
    for directory in (state.topic("t").directory, "lost-0a1b2c3d"):
        world.store.create(new_key(directory, state.entry - 1), b"given up")
    _tick(world)


def _is_clean(world: World) -> None:
    assert unnamed(world.opened()) == set()


def _is_compacted(world: World) -> None:
    log = world.opened()
    state = log.state
    for key in state.partitions:
        if key.topic_id == state.topic_ids["t"]:
            parts = [part for one in state.segment_lists for part in log.sidecars.listed(one, state, key)]
            assert parts
            assert all(keys.is_runs_key(part.record.index.key) for part in parts)


def _trim(ledger: Ledger) -> None:
    ledger.trim(("t", 0), 16)
    ledger.trim(("t", 1), 5)


def _leave_idle(world: World) -> None:
    """Leave a transactional id that has had no use for a week."""
    log = world.opened()
    world.write(log, {("keep", 0): [("k", 300)]}, name="idle")
    world.clock.sleep(WEEK_S + HOUR_S)
    world.write(log, {("keep", 0): [("k", 301)]})
    log.close()


def _delete_topic(log: TxnLog) -> None:
    if "t" in log.topics():
        log.delete_topic("t")


def _grow(world: World) -> None:
    """Append until two snapshots are named and entries are old enough to go; of the bundles one is
    missing.
    """
    log = world.opened()
    for number in range(76):
        world.write(log, {("keep", 0): [("grown", number)]})
        log.close()
    world.clock.sleep(WEEK_S + 24 * HOUR_S)
    world.write(log, {("keep", 0): [("grown", 100)]})
    log.close()
    first = next(info.key for info in world.store.list(keys.BUNDLE_PREFIX))
    world.store.delete(first)


def _ripen(world: World) -> None:
    """Leave a boundary that is old enough, and the entries below it."""
    _grow(world)
    world.opened().truncate()
    world.clock.sleep(HOUR_S + 1)


def _ripen_far(world: World) -> None:
    """The same of a log far away with rows in its entries, that is read by payload bundles; those rows are
    sealed."""
    world.is_far = True
    world.opened().upgrade(embedding=True)
    _grow(world)
    world.opened().maintain("seal")
    world.opened().truncate()
    world.clock.sleep(HOUR_S + 1)
    assert _payload_bundles(world)[0][0] < 100


def _payload_bundles(world: World) -> list[tuple[int, int]]:
    """Return the first and last entry of each."""
    found = [keys.parse_payloads_key(info.key) for info in world.store.list(keys.PAYLOAD_PREFIX)]
    return [one for one in found if one is not None]


def _is_truncated(world: World) -> None:
    assert entries_in(world.store)[0] == 100


def _is_truncated_far(world: World) -> None:
    _is_truncated(world)
    assert [last for _, last in _payload_bundles(world) if last < 100] == []


def _is_truncated_further(world: World) -> None:
    """The task has written the snapshot without which the boundary would be lower."""
    assert entries_in(world.store)[0] == 200


def _age_all(world: World) -> None:
    """Leave something for each task of maintenance."""
    world.end_prepared()
    erase(world.opened())
    _erased(world.ledger)
    _leave_idle(world)
    _seal_small(world)
    world.clock.sleep(WEEK_S + 24 * HOUR_S)
    _tick(world)
    world.opened().vacuum()
    world.clock.sleep(WEEK_S + 24 * HOUR_S)
    world.read_on()
    _open(world)


def _maintained(ledger: Ledger) -> None:
    ledger.abort_open()
    _keep_latest(ledger)
    rows = [cell.row for cell in ledger.cells["old", 0]]
    ledger.trim(("old", 0), rows.index(("lost", 1)))  # what is older than two days


def _publish_before(world: World) -> None:
    """Leave tables of an older entry: since then files were written together, one was cut by a removal, and
    records came."""
    log = world.opened()
    log.alter_topic("old", settings={"publish.formats": "delta,iceberg"})
    log.publish()
    log.publish(format="iceberg")
    _compact(log)
    log.delete_records("old", {0: 1})
    world.ledger.trim(("old", 0), 1)
    world.write(log, {("t", 1): [("b", 500)], ("old", 0): [("o", 500)]})
    log.close()


def _is_published(world: World) -> None:
    """Every table shows the log at the manifest's entry, and names only files that are there."""
    log = world.opened()
    tables = log.published_tables()
    assert set(tables) == set(log.topics()) or set(tables) == {"old"}
    for table in tables.values():
        topic = log.state.topic(table.topic)
        found = log.committer.read(follow_table(DeltaTable(), topic.directory, topic.topic_id)).table
        assert found.version == table.version
        assert all(log.store.head(f"{topic.directory}/{path}") is not None for path in found.files)
        shown = log.read(table.topic, version_as_of=table.entry).read_all()
        assert sum(json.loads(one.stats or "")["numRecords"] for one in found.files.values()) == len(shown)
        assert world.store.head(keys.manifest_key(table.entry)) is not None


def _is_published_as_iceberg(world: World) -> None:
    """The same of Iceberg tables, whose hints name the newest version."""
    log = world.opened()
    tables = log.published_tables(format="iceberg")
    assert set(tables) == set(log.topics()) or set(tables) == {"old"}
    for table in tables.values():
        topic = log.state.topic(table.topic)
        found = log.committer.read(follow_iceberg(IcebergTable(), topic.directory, topic.topic_id)).table
        assert found.version == table.version
        assert found.metadata is not None
        keys_ = [key_of(path, found.metadata.location, topic.directory) for path in found.files]
        assert all(log.store.head(key) is not None for key in keys_)
        shown = log.read(table.topic, version_as_of=table.entry).read_all()
        assert sum(one.rows for one in found.files.values()) == len(shown)
        assert log.store.get(keys.iceberg_hint_key(topic.directory)) == str(table.version).encode()
        assert world.store.head(keys.manifest_key(table.entry, format_="iceberg")) is not None


def _are_published(world: World) -> None:
    _is_published(world)
    _is_published_as_iceberg(world)


TASKS: dict[str, Task] = {
    "publish": Task(lambda log: log.publish(), _publish_before, done=_is_published, runs=2),
    "publish as Iceberg": Task(
        lambda log: log.publish(format="iceberg"),
        _publish_before,
        done=_is_published_as_iceberg,
        runs=2,
    ),
    "publish by settings": Task(
        lambda log: log.maintain("publish"), _publish_before, done=_are_published, runs=2
    ),
    "timeouts": Task(lambda log: log.maintain("timeouts"), _open, Ledger.abort_open),
    "seal": Task(lambda log: log.maintain("seal"), _seal_small),
    "expire": Task(lambda log: log.maintain("expire"), _leave_idle),
    "subscriptions": Task(lambda log: log.maintain("subscriptions"), _leave_gap),
    "retention": Task(
        lambda log: log.maintain("retention"),
        _rest(46.5 * HOUR_S),
        lambda ledger: ledger.trim(("old", 0), 6),
    ),
    "delete_records": Task(lambda log: log.delete_records("t", {0: 16, 1: 5}), after=_trim),
    "delete_topic": Task(_delete_topic, after=lambda ledger: ledger.gone.add("t")),
    "compact": Task(_compact, done=_is_compacted),
    "compact keys": Task(_compact_keys, after=_keep_latest),
    "erase": Task(erase, after=_erased, done=_complete_erasure),
    "erasures": Task(lambda log: log.maintain("erasures"), _erase_and_vacuum),
    "vacuum": Task(
        lambda log: log.vacuum(GRACE), _make_garbage, done=_is_clean, runs=3, rest_s=2 * HOUR_S + 1
    ),
    "snapshot": Task(lambda log: log.committer.write_snapshot(), repeats=True),
    "begin truncation": Task(
        lambda log: log.truncate(), _grow, done=_is_truncated, runs=3, rest_s=HOUR_S + 1
    ),
    "truncate a quiet log": Task(
        lambda log: log.maintain("truncate"),
        _grow,
        done=_is_truncated_further,
        runs=3,
        rest_s=HOUR_S + 1,
    ),
    "truncate": Task(lambda log: log.truncate(), _ripen, done=_is_truncated, runs=2, rest_s=HOUR_S + 1),
    "truncate far away": Task(
        lambda log: log.truncate(),
        _ripen_far,
        done=_is_truncated_far,
        runs=2,
        rest_s=HOUR_S + 1,
    ),
    "maintain": Task(lambda log: log.maintain(), _age_all, _maintained, runs=3, rest_s=HOUR_S),
}
"""By name."""


@cache
def world_of(name: str) -> World:
    """Return the world of a task: take copies of it."""
    world = _base().copied()
    TASKS[name].prepare(world)
    return world


@cache
def _base() -> World:
    return World()
