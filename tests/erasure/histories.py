"""Random histories of a log whose records have owners, and an oracle that knows which records must go, may
go, and must stay."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pyarrow as pa

from tests.erasure.world import GRACE, PEOPLE, canaries, complete, made, pass_time
from tests.model.groups import DrawnIds, ManualClock
from tests.property.random_writer import snapshot_of
from txnformat.admin.erasure.status import ErasureStage
from txnformat.core.invariants import check_whole
from txnformat.core.snapshot.codec import decode_snapshot, encode_snapshot
from txnformat.store.memory import MemoryStore
from txnlog import Producer, TxnLog

__all__ = ["History"]

OWNERS = 4
WEEK_MS = 7 * 24 * 3_600_000


@dataclass(slots=True)
class Erasing:
    """One erasure, as its caller knows it."""

    topic: str
    owner: int
    key: str
    must_go: set[str]


@dataclass(slots=True)
class Open:
    """A transaction that is not decided."""

    producer: Producer
    topic: str
    tokens: list[tuple[int, str]]
    """Owner and token."""
    prepared: Any = None


@dataclass(slots=True)
class Topic:
    """The oracle's knowledge of a topic."""

    committed: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Owner and partition by token, in the order of commits."""
    may_go: set[str] = field(default_factory=set)
    must_go: set[str] = field(default_factory=set)


class History:
    """A log, and what is true of it. ``t`` keeps all records, ``k`` the latest of each key; the key is the
    owner, so an erasure takes all of a key's records."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.clock = ManualClock()
        self.log = made(
            MemoryStore(self.clock), self.clock, ids=DrawnIds(seed), max_transaction_timeout_ms=WEEK_MS
        )
        self.log.create_topic("k", PEOPLE, key_columns=["name"], settings={"cleanup.policy": "compact"})
        self.topics = {"t": Topic(), "k": Topic()}
        self.open: list[Open] = []
        self.erasures: list[Erasing] = []
        self.trimmed: set[str] = set()
        self.number = 0

    def run(self, steps: int) -> None:
        """Take random steps, then end everything, and judge."""
        actions: list[tuple[int, Callable[[], None]]] = [
            (6, self.write),
            (3, self.begin),
            (3, self.end),
            (2, self.prepare),
            (2, lambda: void(self.log.maintain("seal"))),
            (2, lambda: void(self.log.compact(min_lag_ms=self.random.choice([0, None])))),
            (1, self.trim),
            (1, self.vacuum),
            (2, self.erase),
            (1, self.reopen),
        ]
        for _ in range(steps):
            (action,) = self.random.choices([one for _, one in actions], [weight for weight, _ in actions])
            action()
        while self.open:
            self.end()
        for one in self.erasures:
            status = self.call(one)
            assert status.stage is not ErasureStage.REWRITING, status
        complete(self.log)
        self.judge()

    # Steps of a history.

    def rows(self) -> tuple[str, list[tuple[int, str]]]:
        """Return a topic, and owners with tokens of fresh records."""
        topic = self.random.choice(["t", "t", "k"])
        found = []
        for _ in range(self.random.randint(1, 3)):
            self.number += 1
            owner = self.random.randrange(OWNERS)
            found.append((owner, f"canary-{owner}-{self.number:06}-"))
        return topic, found

    def send(self, producer: Producer, topic: str, rows: list[tuple[int, str]]) -> None:
        """Send records; in ``t`` the name is the token, in ``k`` the owner."""
        for owner, token in rows:
            name = token if topic == "t" else f"canary-{owner}"
            producer.send(
                topic,
                pa.table({"name": [name], "n": [int(token.split("-")[2])]}, PEOPLE),
                partition=owner % (2 if topic == "t" else 1),
            )

    def write(self) -> None:
        """Commit, or abort, one transaction."""
        topic, rows = self.rows()
        with Producer(
            self.log, "writer", buffer=self.random.choice(["auto", "inline", "deferred"])
        ) as producer:
            producer.begin()
            self.send(producer, topic, rows)
            if self.random.random() < 0.4:
                producer.flush()
            if self.random.random() < 0.7:
                producer.commit()
                self.committed(topic, rows)
            else:
                producer.abort()

    def begin(self) -> None:
        """Leave a transaction open that has appended or staged."""
        if len(self.open) == 2:
            return
        topic, rows = self.rows()
        producer = Producer(
            self.log,
            f"open-{self.number}",
            buffer=self.random.choice(["inline", "deferred"]),
            transaction_timeout_ms=WEEK_MS,
            deferred_timeout_ms=WEEK_MS,
        )
        producer.init()
        producer.begin()
        self.send(producer, topic, rows)
        producer.flush()
        self.open.append(Open(producer, topic, rows))

    def prepare(self) -> None:
        """Prepare an open transaction."""
        for one in self.open:
            if one.prepared is None:
                one.prepared = one.producer.prepare()
                return

    def end(self) -> None:
        """Commit or abort a transaction that is open."""
        if not self.open:
            return
        one = self.open.pop(self.random.randrange(len(self.open)))
        commits = self.random.random() < 0.6
        if one.prepared is not None:
            (self.log.commit_prepared if commits else self.log.abort_prepared)(one.prepared)
        else:
            (one.producer.commit if commits else one.producer.abort)()
        with suppress(Exception):
            one.producer.close()
        if commits:
            self.committed(one.topic, one.tokens)

    def committed(self, topic: str, rows: list[tuple[int, str]]) -> None:
        """Note what is readable by now."""
        known = self.topics[topic]
        for owner, token in rows:
            known.committed[token] = (owner, owner % (2 if topic == "t" else 1))

    def trim(self) -> None:
        """Remove the oldest records of a partition of ``t``."""
        number = self.random.randrange(2)
        at = self.log.offsets("t")[number]
        if at.last_stable_offset == at.earliest:
            return
        to = self.random.randint(at.earliest, at.last_stable_offset)
        if to > at.earliest:
            self.log.maintain("seal")
            self.log.delete_records("t", {number: to})
            left = set(self.read("t"))
            known = self.topics["t"]
            gone = {
                token for token, (_, part) in known.committed.items() if part == number and token not in left
            }
            self.trimmed |= gone
            known.may_go |= gone

    def vacuum(self) -> None:
        """Let the grace pass, and vacuum."""
        pass_time(self.log)
        self.log.vacuum(GRACE)
        self.log.maintain("erasures")

    def erase(self) -> None:
        """Begin an erasure of an owner, or go on with one."""
        if self.erasures and self.random.random() < 0.4:
            self.call(self.random.choice(self.erasures))
            return
        if len(self.erasures) == 5:
            return
        topic, owner = self.random.choice(["t", "t", "k"]), self.random.randrange(OWNERS)
        known = self.topics[topic]
        covered = {token for token, (of, _) in known.committed.items() if of == owner}
        covered |= {
            token for one in self.open if one.topic == topic for of, token in one.tokens if of == owner
        }
        one = Erasing(topic, owner, f"{self.number:032}-{len(self.erasures)}", covered)
        self.erasures.append(one)
        known.must_go |= covered
        self.call(one)

    def call(self, one: Erasing) -> Any:
        """Call with the same condition and key; what came since the first call may go as well."""
        known = self.topics[one.topic]
        known.may_go |= {token for token, (of, _) in known.committed.items() if of == one.owner}
        where = f"name LIKE 'canary-{one.owner}-%'" if one.topic == "t" else f"name = 'canary-{one.owner}'"
        report = self.log.erase(one.topic, where, requested_by="a test", key=one.key, all_rows=True)
        assert report.status is not None
        return report.status

    def reopen(self) -> None:
        """Go on as another client, by a snapshot of the state."""
        state = self.log.refresh()
        assert check_whole(state) == []
        data = encode_snapshot(state)
        again = decode_snapshot(data, snapshot_of(state, data), state.log_id)
        assert again.erasures == state.erasures
        assert encode_snapshot(again) == data
        self.log = TxnLog.open(self.log.store, clock=self.clock, ids=DrawnIds(self.random.getrandbits(32)))

    # Checks.

    def read(self, topic: str, **values: Any) -> list[str]:
        """Return the tokens, or owners and numbers, that a reader sees."""
        found: pa.Table = self.log.read(topic, **values).read_all()
        if topic == "t":
            return [str(name) for name in found["name"].to_pylist()]
        pairs = zip(found["name"].to_pylist(), found["n"].to_pylist(), strict=True)
        return [f"{name}-{number:06}-" for name, number in pairs]

    def judge(self) -> None:
        """Compare every way to read, and every byte of the root, with what must be there and what must
        not.
        """
        for name, known in self.topics.items():
            for isolation in ("read_committed", "read_uncommitted", "snapshot"):
                seen = set(self.read(name, isolation=isolation))
                assert not seen & known.must_go, (name, isolation)
                if isolation != "read_uncommitted":
                    assert seen <= known.committed.keys(), (name, isolation)
                self.check_left(name, known, seen)
        assert {one.stage for one in self.log.erasures()} <= {ErasureStage.COMPLETE}, self.log.erasures()
        texts = {text for found in canaries(self.log.store).values() for text in found}
        for token in self.topics["t"].must_go:
            assert not any(text.startswith(token) for text in texts), token
        report = self.log.verify(deep=True)
        assert report.ok, report.problems

    def check_left(self, name: str, known: Topic, seen: set[str]) -> None:
        """Check that nothing is lost which nothing may have taken; of ``k`` a record of each owner stays."""
        stays = known.committed.keys() - known.must_go - known.may_go
        if name == "t":
            assert stays <= seen
            return
        for owner in {known.committed[token][0] for token in stays}:
            tokens = {token for token, (of, _) in known.committed.items() if of == owner}
            if tokens <= stays:
                assert tokens & seen, owner


def void(_: object) -> None:
    """Return nothing."""
