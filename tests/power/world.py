"""A machine whose power can be cut: processes on one disk, what they were told, and every moment judged."""

from __future__ import annotations

import itertools
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.power.facts import Fact, Prepared, rows_of
from txnformat.clock import Instant
from txnformat.errors import NotFoundError, TxnLogError
from txnformat.protocol.commit import CommitSettings
from txnformat.store.base import ObjectStore
from txnformat.store.local import LocalStore
from txnlog import Producer, TxnLog
from txnlog_testing.power_cut import CutPosix, Disk, Survivor

__all__ = ["NUMBERS", "Machine", "numbers"]

NUMBERS = pa.schema([("n", pa.int64())])
NEW_VALUE = 1_000_000
PROBLEMS_MAX = 20


def numbers(*values: int) -> pa.Table:
    """Return rows to send."""
    return pa.table({"n": list(values)}, schema=NUMBERS)


class Ticking:
    """A clock that advances a millisecond at every look: so one history makes the same bytes each time."""

    def __init__(self) -> None:
        self._ms = itertools.count(1_700_000_000_000)

    def now(self) -> Instant:
        now = next(self._ms)
        return Instant(now, now)

    def sleep(self, seconds: float, wake: Any = None) -> None:
        for _ in range(round(seconds * 1000)):
            next(self._ms)


class Counted:
    """Ids one after the other."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def new(self) -> str:
        return f"cafecafe-0000-4000-8000-{next(self._numbers):012x}"  # files of a seal are told apart by the last digits

    def uniform(self) -> float:
        return 0.5


class Tally:
    """What was tried, over many histories."""

    def __init__(self) -> None:
        self.histories = 0
        self.calls: Counter[str] = Counter()
        """System calls before which the power was cut."""
        self.moments = 0
        """Cuts: before a system call, and right after an answer."""
        self.states = 0
        """Trees that could be found after them."""
        self.judged = 0
        """Different ones, with what was told by then: each was opened, read, verified, and written to."""
        self.problems: list[str] = []
        self._known: dict[tuple[bytes, frozenset[Fact]], None] = {}

    def is_new(self, survivor: Survivor, facts: frozenset[Fact]) -> bool:
        """Return whether these were not judged yet."""
        key = survivor.digest, facts
        if key in self._known:
            return False
        self._known[key] = None
        return True


class Machine:
    """One history: processes, a disk, and what was told.

    Parameters
    ----------
    make_store, make_posix : callable
        The store of a process, and its system calls. Tests break them.
    embeds : bool
        Whether records travel in entries; else each transaction has files.
    """

    def __init__(
        self,
        tally: Tally,
        name: str,
        make_store: Callable[..., LocalStore] = LocalStore,
        make_posix: Callable[[Disk], CutPosix] = CutPosix,
        *,
        embeds: bool = True,
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="power-")
        base = Path(self._folder.name)
        self._root = base / "root"
        self._tally = tally
        self._name = name
        self._make_store = make_store
        self._make_posix = make_posix
        self._clock = Ticking()
        self._ids = Counted()
        self._settings = CommitSettings(embedding=embeds)
        self._facts: frozenset[Fact] = frozenset()
        self._watching = False
        self._processes: dict[int, CutPosix] = {}
        self._stores: list[LocalStore] = []
        self._found: dict[bytes, tuple[Survivor, list[tuple[frozenset[Fact], str]]]] = {}
        self.disk = Disk(base, self._before)
        tally.histories += 1

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Cut the power before every system call of the block and after every answer; judge it all at its
        end."""
        self._watching = True
        try:
            yield
            self._cut("end")
        finally:
            self._watching = False
        self._judge()

    def close(self) -> None:
        """Remove what is on the real disk."""
        self._folder.cleanup()

    def store(self) -> LocalStore:
        """Return the store of a new process."""
        posix = self._make_posix(self.disk)
        store = self._make_store(self._root, self._clock, self._ids, posix)
        self._processes[id(store)] = posix
        self._stores.append(store)  # an id is only that of something that lives
        return store

    def open(self, store: LocalStore | None = None) -> TxnLog:
        """Open or create the log, in a new process unless its store is given."""
        return TxnLog.open_or_create(
            store or self.store(), clock=self._clock, ids=self._ids, settings=self._settings
        )

    def arm(self, store: ObjectStore, calls: int | None) -> None:
        """Let the process of a store end before its n-th system call from now (from 1); None: let it live."""
        self._processes[id(store)].die_before(calls)

    def told(self, *facts: Fact) -> None:
        """Take note of an answer: from now on it has to stay true."""
        self._facts |= frozenset(facts)
        self._cut("answer")

    def asked_otherwise(self, *facts: Fact) -> None:
        """Take note that somebody is asked to change this: from now on it may be so or not."""
        self._facts -= frozenset(facts)

    def _before(self, call: str) -> None:
        if self._watching:
            self._tally.calls[call] += 1
            self._cut(call)

    def _cut(self, where: str) -> None:
        if not self._watching:
            return
        self._tally.moments += 1
        for survivor in self.disk.survivors():
            self._tally.states += 1
            _, wanted = self._found.setdefault(survivor.digest, (survivor, []))
            # What was told later is told by this tree, too, or it is a problem: only the largest sets are
            # judged.
            if not any(self._facts <= facts for facts, _ in wanted):
                wanted[:] = [(facts, at) for facts, at in wanted if not facts <= self._facts]
                wanted.append((self._facts, f"{self._name}, cut before {where} (call {self.disk.calls})"))

    def _judge(self) -> None:
        for survivor, wanted in self._found.values():
            for facts, where in wanted:
                if self._tally.is_new(survivor, facts):
                    self._tally.judged += 1
                    self._tally.problems += [f"{where}: {problem}" for problem in _problems(survivor, facts)]
        self._found.clear()


def _problems(survivor: Survivor, facts: frozenset[Fact]) -> list[str]:
    ids, clock = Counted(), Ticking()
    store = survivor.store("root", clock)
    for _ in range(100_000):
        ids.new()  # others than those of the history
    try:
        try:
            log = TxnLog.open(store, clock=clock, ids=ids)
        except NotFoundError:
            if facts:
                return [f"there is no log, though {min(map(str, facts))}"]
            log = TxnLog.open_or_create(store, clock=clock, ids=ids)
        return [
            *_unsound(log),
            *_untrue(log, facts),
            *_unusable(log, facts),
            *_untrue(log, facts),
            *_unsound(log),
        ]
    except TxnLogError as error:
        return [f"{type(error).__name__}: {error}"]


def _unsound(log: TxnLog) -> list[str]:
    return [str(problem) for problem in log.verify().problems]


def _untrue(log: TxnLog, facts: frozenset[Fact]) -> list[str]:
    found = []
    for fact in sorted(facts, key=lambda fact: (isinstance(fact, Prepared), str(fact))):
        problem = fact.check(log)
        if problem is not None:
            found.append(f"{fact}: {problem}")
    return found


def _unusable(log: TxnLog, facts: frozenset[Fact]) -> list[str]:
    """Write in the name of the producer of the history, as its next instance does."""
    for topic in {"t", *log.topics()}:
        log.create_topic(topic, NUMBERS, exist_ok=True)
        with Producer(log, "p") as producer:
            if producer.prepared is not None:  # nobody was told of it
                producer.abort()
            with producer.transaction() as transaction:
                transaction.send(topic, numbers(NEW_VALUE), partition=0)
        if [value for _, _, value in rows_of(log, topic)].count(NEW_VALUE) != 1:
            return [f"{topic}: what was written after the cut is not there once"]
    return []
