"""Valid histories from seeds: a small log in memory, and clients that write, read, crash and doubt at any
moment.

The log is what the checker must never object to: transactions of one entry and interleaved ones, open ones
that hold back the last stable offset, aborts, attempts of one version, zombies that come too late to be told
yes, writes that land after their client was told that the outcome is unknown, readers of committed and
uncommitted records and in the order of commits, that lag, are set anew, and crash. Nothing of it is taken
from the product.
"""

from __future__ import annotations

import random
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field

from txnformat.persistent import replace
from txnformat.types import IsolationLevel
from txnlog_testing.checker.vocabulary import (
    CommitOffsets,
    Event,
    EventType,
    Function,
    Key,
    MicroOperation,
    Order,
    Poll,
    ReadOffsets,
    Send,
    StableOffset,
    TransactionTag,
)

__all__ = ["generate_history"]

COMMITTED, UNCOMMITTED = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED
Steps = Iterator[None]
INPUT = ("in/0", "in/1")
OUTPUT = ("out/0", "out/1", "out/2")
KEYS = (*INPUT, *OUTPUT)


@dataclass(slots=True, eq=False)
class _Transaction:
    """A transaction: the writer of its records, and its outcome."""

    status: str = "open"
    entry: int = -1


@dataclass(slots=True)
class _Partition:
    records: list[tuple[int | None, _Transaction]] = field(default_factory=list)
    """Records by offset; None is a marker."""

    def stable(self) -> int:
        for offset, (_, owner) in enumerate(self.records):
            if owner.status == "open":
                return offset
        return len(self.records)


class _Log:
    def __init__(self) -> None:
        self.partitions = {key: _Partition() for key in KEYS}
        self.entry = 0
        self.groups: dict[Key, int] = {}
        self.epochs: dict[str, int] = {}
        self.open: dict[str, _Transaction] = {}
        self.versions: dict[str, int] = {}

    def append(self, key: Key, value: int | None, owner: _Transaction) -> int:
        self.partitions[key].records.append((value, owner))
        return len(self.partitions[key].records) - 1

    def end(self, owner: _Transaction, status: str, keys: set[Key]) -> None:
        """Decide a transaction: one entry, a marker in each partition."""
        self.entry += 1
        owner.status, owner.entry = status, self.entry
        for key in sorted(keys):
            self.append(key, None, owner)

    def init(self, name: str) -> int:
        """Begin an epoch: what the one before left open is aborted."""
        owner = self.open.pop(name, None)
        if owner is not None:
            keys = {key for key in KEYS if any(found is owner for _, found in self.partitions[key].records)}
            self.end(owner, "aborted", keys)
        self.epochs[name] = self.epochs.get(name, -1) + 1
        return self.epochs[name]

    def visible(self, key: Key, isolation: IsolationLevel, start: int, end: int) -> list[tuple[int, int]]:
        """Return the records in [start, end) as a reader sees them: (offset, value)."""
        found = []
        for offset in range(start, end):
            value, owner = self.partitions[key].records[offset]
            if value is not None and (isolation is UNCOMMITTED or owner.status == "committed"):
                found.append((offset, value))
        return found

    def end_of(self, key: Key, isolation: IsolationLevel) -> int:
        partition = self.partitions[key]
        return partition.stable() if isolation is COMMITTED else len(partition.records)


class _World:
    """The log, its clients, and what they say."""

    def __init__(self, rng: random.Random, rounds: int) -> None:
        self.rng = rng
        self.rounds = rounds
        self.log = _Log()
        self.events: list[Event] = []
        self.values = iter(range(1_000_000))
        self.late: list[Iterator[None]] = []
        """Records sent by clients that are gone; they may still land."""

    def say(
        self, process: str, f: str, type_: str, value: list[MicroOperation] | None = None, **more: object
    ) -> None:
        index = len(self.events)
        event = Event(
            process=process,
            type=EventType(type_),
            f=Function(f),
            time_ns=index * 1_000_000,
            value=None if value is None else tuple(value),
            index=index,
        )
        self.events.append(replace(event, **more))

    def sends(self, keys: tuple[Key, ...], most: int, *, sequences: bool = False) -> list[Send]:
        chosen = [self.rng.choice(keys) for _ in range(self.rng.randint(1, most))]
        counts: dict[Key, int] = {}
        found = []
        for key in chosen:
            number = counts[key] = counts.get(key, -1) + 1
            found.append(Send(key, next(self.values), sequence=number if sequences else None))
        return found

    def told(self, sends: list[Send], offsets: list[int]) -> list[MicroOperation]:
        """Return sends as a completion tells them: with their offsets, or without."""
        if self.rng.random() < 0.5:
            return list(sends)
        return [replace(send, offset=offset) for send, offset in zip(sends, offsets, strict=True)]

    # --- writers --------------------------------------------------------------------------------------------

    def plain_writer(self, name: str) -> Steps:
        """Send without transactions: each record lands by itself."""
        for _ in range(self.rounds):
            sends = self.sends(INPUT, 3)
            self.say(name, "send", "invoke", list(sends))
            yield
            offsets = []
            landing = self.rng.choice([len(sends)] * 6 + [0, self.rng.randint(0, len(sends))])
            for send in sends[:landing]:
                offsets.append(self.log.append(send.key, int(send.value), _Transaction("committed")))
                self._enter(send.key)
                yield
            if landing == len(sends) and self.rng.random() < 0.95:
                self.say(name, "send", "ok", self.told(sends, offsets))
            elif landing == 0 and self.rng.random() < 0.5:
                self.say(name, "send", "fail")
            else:
                self.say(name, "send", "info", error="no answer")
            yield

    def _enter(self, key: Key) -> None:
        self.log.entry += 1
        self.log.partitions[key].records[-1][1].entry = self.log.entry

    def transactional_writer(self, name: str, process: str) -> Steps:
        """Write transactions of one entry, each in an epoch of its own, as the client that ended the one
        before.
        """
        epoch = yield from self._init(name, process)
        for _ in range(self.rounds):
            tag = TransactionTag(name, epoch=epoch)
            sends = self.sends(KEYS, 5, sequences=True)
            self.say(process, "txn", "invoke", list(sends), transaction=tag)
            yield
            what = self.rng.random()
            if what < 0.12:
                self.say(process, "txn", "fail", error="aborted")
            elif what < 0.2:
                # The outcome is unknown: it may land later, as long as no other client has fenced it.
                self.late.append(self._landing(sends, name, epoch))
                if self.rng.random() < 0.5:
                    self.say(process, "txn", "info", error="no answer")
                epoch = yield from self._init(name, process)
                continue
            elif self.log.epochs[name] != epoch:
                self.say(process, "txn", "fail", error="fenced")
                epoch = yield from self._init(name, process)
                continue
            else:
                offsets = self._commit(sends)
                self.log.epochs[name] = epoch = epoch + 1  # as every end of a transaction
                yield
                self.say(process, "txn", "ok", self.told(sends, offsets), transaction=tag)
            yield

    def _init(self, name: str, process: str) -> Generator[None, None, int]:
        self.say(process, "init", "invoke", transaction=TransactionTag(name))
        yield
        epoch = self.log.init(name)
        yield
        self.say(process, "init", "ok", transaction=TransactionTag(name, epoch=epoch))
        return epoch

    def _landing(self, sends: list[Send], name: str, epoch: int) -> Steps:
        yield
        if self.log.epochs[name] == epoch:
            self._commit(sends)
            self.log.epochs[name] += 1

    def _commit(self, sends: list[Send]) -> list[int]:
        owner = _Transaction()
        places = {}
        for key in sorted({send.key for send in sends}):  # a partition's records stand together
            for number, send in enumerate(sends):
                if send.key == key:
                    places[number] = self.log.append(key, int(send.value), owner)
        self.log.end(owner, "committed", {send.key for send in sends})
        return [places[number] for number in range(len(sends))]

    def interleaved_writer(self, name: str) -> Steps:
        """Append as it goes: its open transaction holds back the last stable offset."""
        epoch = yield from self._init(name, name)
        for _ in range(self.rounds):
            sends = self.sends(KEYS, 4, sequences=True)
            tag = TransactionTag(name, epoch=epoch)
            self.say(name, "txn", "invoke", list(sends), transaction=tag, interleaved=True)
            owner = self.log.open[name] = _Transaction()
            dies = self.rng.random() < 0.15
            offsets = []
            for send in sends:
                yield
                offsets.append(self.log.append(send.key, int(send.value), owner))
                if dies and self.rng.random() < 0.5:
                    break
            yield
            if dies:
                self.say(name, "txn", "info", error="died", transaction=tag, interleaved=True)
                for _ in range(self.rng.randint(0, 5)):
                    yield
                if self.rng.random() < 0.2:
                    return  # and no client ever ends it
                epoch = yield from self._init(name, name)
                continue
            del self.log.open[name]
            commits = self.rng.random() < 0.8
            self.log.end(owner, "committed" if commits else "aborted", {send.key for send in sends})
            self.log.epochs[name] = epoch = epoch + 1
            yield
            value = self.told(sends, offsets) if commits else None
            self.say(name, "txn", "ok" if commits else "fail", value, transaction=tag, interleaved=True)
            yield

    def batch_writer(self, name: str) -> Steps:
        """Write numbered batches: an attempt that died is repeated, and finds out if it was there."""
        for version in range(self.rounds):
            tag = TransactionTag(name, version=version)
            sends = self.sends(OUTPUT, 4)
            offsets: list[int] | None = None
            while True:
                process = f"{name}-{self.rng.randint(0, 2)}"
                self.say(process, "txn", "invoke", list(sends), transaction=tag)
                yield
                dies = self.rng.random() < 0.25
                if offsets is None and (not dies or self.rng.random() < 0.5):
                    offsets = self._commit(sends)
                yield
                if dies:
                    self.say(process, "crash", "ok")
                    continue
                self.say(process, "txn", "ok", transaction=tag)
                break
            yield

    def copier(self, name: str) -> Steps:
        """Consume, transform, produce: positions in the transaction."""
        self.say(name, "assign", "ok", keys=("in/0",))
        position = 0
        for _ in range(self.rounds):
            end = min(self.log.end_of("in/0", COMMITTED), position + 4)
            records = self.log.visible("in/0", COMMITTED, position, end)
            sends = [Send(self.rng.choice(OUTPUT), f"copy-{value}") for _, value in records]
            poll = Poll({"in/0": tuple(records)}, ranges={"in/0": (position, end)})
            moved: list[MicroOperation] = [*sends, CommitOffsets(f"group-{name}", {"in/0": end})]
            self.say(name, "txn", "invoke", moved)
            yield
            if sends and self.rng.random() < 0.75:
                self._commit_copies(sends)
                self.log.groups[f"group-{name}"] = position = end
                yield
                self.say(name, "txn", "ok", [poll, *moved])
            else:
                self.say(name, "txn", "fail", [poll])
                self.say(name, "seek", "ok", keys=("in/0",))
            yield

    def _commit_copies(self, sends: list[Send]) -> None:
        owner = _Transaction()
        for send in sends:
            self.log.partitions[send.key].records.append((send.value, owner))  # type: ignore[arg-type]  # a str
        self.log.end(owner, "committed", {send.key for send in sends})

    def committer(self, name: str) -> Steps:
        """Commit positions outside of transactions; some of them land late, or never."""
        for number in range(self.rounds):
            value: list[MicroOperation] = [CommitOffsets(f"group-{name}", {"in/0": number})]
            self.say(name, "commit", "invoke", value)
            yield
            if self.rng.random() < 0.2:
                self.say(name, "commit", "info", error="no answer")
                self.late.append(self._landing_position(f"group-{name}", number))
                continue
            self.log.groups[f"group-{name}"] = number
            yield
            self.say(name, "commit", "ok")
            yield

    def _landing_position(self, group: str, offset: int) -> Steps:
        yield
        self.log.groups[group] = offset

    # --- readers --------------------------------------------------------------------------------------------

    def reader(self, name: str, isolation: IsolationLevel) -> Steps:
        """Read on, a few records at a time; be set anew now and then."""
        keys = self.rng.sample(KEYS, self.rng.randint(1, len(KEYS)))
        says_ranges = self.rng.random() < 0.5
        starts = [0, self.rng.randint(0, 9)]
        positions: dict[Key, int] = {}
        anew = True
        for _ in range(self.rounds * 2):
            if anew or self.rng.random() < 0.05:
                self.say(name, self.rng.choice(["assign", "subscribe", "crash"]), "ok", keys=tuple(keys))
                positions = {
                    key: min(self.rng.choice(starts), self.log.end_of(key, isolation)) for key in keys
                }
                anew = False
            self.say(name, "poll", "invoke")
            yield
            records, ranges = {}, {}
            for key in keys:
                end = min(self.log.end_of(key, isolation), positions[key] + self.rng.randint(0, 6))
                records[key] = tuple(self.log.visible(key, isolation, positions[key], end))
                ranges[key] = (positions[key], end)
                positions[key] = end
            yield
            poll = Poll(records, isolation=isolation, ranges=ranges if says_ranges else {})
            self.say(name, "poll", "ok", [poll])
            yield

    def commit_reader(self, name: str) -> Steps:
        """Read in the order of commits, entry by entry."""
        keys = self.rng.sample(KEYS, self.rng.randint(2, len(KEYS)))
        position = 0
        self.say(name, "assign", "ok", keys=tuple(keys))
        for _ in range(self.rounds):
            self.say(name, "poll", "invoke")
            yield
            end = min(self.log.entry, position + self.rng.randint(0, 5))
            records = {}
            for key in keys:
                found = [
                    (owner.entry, offset, value)
                    for offset, (value, owner) in enumerate(self.log.partitions[key].records)
                    if value is not None and owner.status == "committed" and position < owner.entry <= end
                ]
                records[key] = tuple((offset, value) for _, offset, value in sorted(found))
            position = end
            yield
            self.say(name, "poll", "ok", [Poll(records, order=Order.COMMIT)])
            yield

    def observer(self, name: str) -> Steps:
        """Look at positions and ends."""
        for _ in range(self.rounds):
            key = self.rng.choice(KEYS)
            self.say(name, "observe", "invoke")
            yield
            partition = self.log.partitions[key]
            looks: list[MicroOperation] = [StableOffset(key, partition.stable(), len(partition.records))]
            looks += [ReadOffsets(group, {"in/0": self.log.groups.get(group)}) for group in ("group-copier",)]
            yield
            self.say(name, "observe", "ok", looks)
            yield

    def whole(self, name: str, keys: tuple[Key, ...]) -> Steps:
        """Read all that there is, as of one moment."""
        self.say(name, "poll", "invoke")
        yield
        isolation = self.rng.choice([COMMITTED, IsolationLevel.SNAPSHOT])
        records = {
            key: tuple(self.log.visible(key, isolation, 0, self.log.end_of(key, isolation))) for key in keys
        }
        yield
        self.say(name, "poll", "ok", [Poll(records, isolation=isolation, whole=True)])


def generate_history(seed: int, *, rounds: int = 8) -> list[Event]:
    """Return a valid history.

    Parameters
    ----------
    seed : int
        The same one gives the same history.
    rounds : int
        Operations of each client, about; there are 10 to 13 clients.
    """
    rng = random.Random(seed)
    world = _World(rng, rounds)
    clients = {
        "plain": world.plain_writer("plain"),
        "txn": world.transactional_writer("txn", "txn"),
        "zombie": world.transactional_writer("txn", "zombie"),
        "inline": world.interleaved_writer("inline"),
        "batch": world.batch_writer("batch"),
        "copier": world.copier("copier"),
        "committer": world.committer("committer"),
        "observer": world.observer("observer"),
        "committed-1": world.reader("committed-1", COMMITTED),
        "committed-2": world.reader("committed-2", COMMITTED),
        "uncommitted": world.reader("uncommitted", UNCOMMITTED),
        "commits": world.commit_reader("commits"),
        "snapshot": world.whole("snapshot", KEYS),
    }
    for name in rng.sample(sorted(clients), rng.randint(0, 3)):
        if not name.startswith(("plain", "txn")):
            del clients[name]
    running = [clients[name] for name in sorted(clients)]
    while running:
        # Now and then a write lands whose client is long gone.
        pool = world.late if world.late and rng.random() < 0.1 else running
        one = rng.choice(pool)
        try:
            next(one)
        except StopIteration:
            pool.remove(one)
    if rng.random() < 0.9:
        for name in sorted(world.log.open):
            world.log.init(name)
        world.say("operator", "quiesce", "ok")
        parts = [KEYS] if rng.random() < 0.5 else [INPUT, OUTPUT]
        for part in parts:
            for _ in world.whole("final", part):
                pass
    return world.events
