"""The log that trials begin with, the stores that it is in, and what a reader finds there."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.interrupts.ledger import Ledger, Seen
from txnformat.store.base import ObjectStore
from txnformat.store.local import TEMPORARY_PREFIX, LocalStore
from txnformat.store.memory import MemoryStore
from txnlog import Producer, Subscription, TxnLog, read_values

__all__ = ["NUMBERS", "SEED", "SEED_RECORDS", "TEXTS", "Stores", "World", "fill"]

NUMBERS, TEXTS, SEED = "numbers", "texts", "seed"
SEED_RECORDS = 24


def _filled() -> MemoryStore:
    """Return a log with topics and something to read in it."""
    store = MemoryStore()
    log = TxnLog.create(store)
    schema = pa.schema([("n", pa.int64())])
    log.create_topic(NUMBERS, schema, partitions=2)
    log.create_topic(TEXTS, "kafka", partitions=2)
    log.create_topic(SEED, schema)
    with Producer(log, enable_idempotence=False, linger_ms=60_000) as producer:
        producer.send(SEED, pa.table({"n": pa.array(range(SEED_RECORDS), pa.int64())}))
    log.subscriptions.create(SEED, "readers")
    return store


_template = cache(_filled)


def fill(root: Path) -> None:
    """Make the log of all histories in a directory."""
    made = _filled()
    _write(root, {info.key: made.get(info.key) or b"" for info in made.list("")})


def _write(root: Path, objects: Mapping[str, bytes]) -> None:
    for key, data in objects.items():
        path = root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


class Stores:
    """Makes stores that hold the log of all trials, each of them used by nobody else.

    Parameters
    ----------
    folder : Path or None
        Where local disks are; None: in memory.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._made = 0

    def new(self, *, is_own_log: bool = False) -> ObjectStore:
        """Return a store.

        Parameters
        ----------
        is_own_log : bool
            With a log that has an id of its own: a process keeps blocks of producer ids by the log's id.
        """
        made = _filled() if is_own_log else _template()
        objects = {info.key: made.get(info.key) or b"" for info in made.list("")}
        if self._folder is None:
            memory = MemoryStore()
            for key, data in objects.items():
                memory.put(key, data)
            return memory
        self._made += 1
        root = self._folder / str(self._made)
        _write(root, objects)
        return LocalStore(root)

    def drop(self, store: ObjectStore) -> list[str]:
        """Remove what a trial made; return the names of temporary files that were left."""
        if self._folder is None:
            return []
        root = self._folder / str(self._made)
        left = [path.name for path in root.rglob(f"{TEMPORARY_PREFIX}*")]
        shutil.rmtree(root)
        return left


class World:
    """A log in a store that is used by nobody else, and what its users were told."""

    def __init__(self, store: ObjectStore) -> None:
        self.store = store
        self.ledger = Ledger()
        self._used = 0

    def next_seed(self) -> int:
        """Return an offset of the topic "seed" that was never returned."""
        self._used += 1
        return self._used - 1

    def seen(self, *, verified: bool) -> Seen:
        """Read everything with a handle that has seen nothing."""
        log = TxnLog.open(self.store)
        values = {NUMBERS: Counter(log.read(NUMBERS).read_all().column("n").to_pylist())}
        texts = [whole.read() or b"" for whole in read_values(log, TEXTS)]
        values[TEXTS] = Counter(int(text[:12]) for text in texts)
        groups = frozenset(
            one.group
            for one in log.groups.describe_all()
            if any(position.current_offset is not None for position in one.positions)
        )
        with Subscription(log, SEED, "readers") as subscription:
            free = {row["_offset"] for row in _polled(subscription)}
        report = log.verify(deep=True) if verified else None
        problems = () if report is None else tuple(f"verify: {problem}" for problem in report.problems)
        return Seen(values, groups, frozenset(free), tuple(log.state.undecided), problems)


def _polled(subscription: Subscription) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while (batch := subscription.receive(timeout_ms=0)) is not None:
        found += batch.to_pylist()
    return found
