"""Deterministic simulation of the commit log: one seed is one history, with everything that may go wrong.

``run_history(seed)`` builds a world of three to six processes, lets the scheduler run them under faults for a number
of steps, then lets everything settle without faults, and checks that every caller has an answer and that a cold open
gives the true fold. A violation raises :class:`SimulationError`, which names the one command that replays the seed.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

from txnformat import keys
from txnformat.core.assemble import assemble
from txnformat.core.entry import CommitEntry, encode_entry, sha256_hex
from txnformat.core.fold import apply
from txnformat.core.intents import AllocateIds, AppRef, Intent, TakeCheckpoint, Write
from txnformat.core.operations import Checkpoint, Upgrade
from txnformat.core.snapshot.codec import encode_snapshot, state_digest
from txnformat.core.state import FEATURES, INTENT_WINDOW_ENTRIES, LogState
from txnformat.core.wire.bundle import BUNDLE_ENTRIES, encode_bundle
from txnformat.core.wire.document import encode_json
from txnformat.errors import InternalError
from txnformat.protocol.commit import CommitSettings
from txnformat.protocol.tail import bundle_key_of
from txnformat.protocol.view import View
from txnformat.reading.sealed import SidecarCache
from txnlog_testing.simulator.acks import ACK_HITS, ACK_KINDS, ack_client
from txnlog_testing.simulator.actors import Operator, Protocol, SimProcess
from txnlog_testing.simulator.clients import (
    BulkClient,
    Client,
    GrowingClient,
    IdempotentClient,
    StaleClient,
    ToldClient,
    TopicClient,
)
from txnlog_testing.simulator.compacting import COMPACTION_HITS
from txnlog_testing.simulator.groups import GROUP_HITS, KINDS, group_clients
from txnlog_testing.simulator.ledger import Ledger
from txnlog_testing.simulator.oracle import Oracle
from txnlog_testing.simulator.removing import REMOVAL_HITS, RemovingClient
from txnlog_testing.simulator.store import EPOCH_MS
from txnlog_testing.simulator.transactions import (
    TIMEOUTS,
    CleaningClient,
    DecidingClient,
    Decisions,
    TransactionalClient,
)
from txnlog_testing.simulator.world import HistoryViolation, World
from txnlog_testing.stores.faulty import FaultKind

__all__ = ["REQUIRED_HITS", "History", "SimulationError", "run_histories", "run_history"]

STEPS_MIN = 150
STEPS_MAX = 800
SETTLE_STEPS_MAX = 20_000
"""Steps within which everybody must have an answer once nothing goes wrong any more."""
WRITERS_MIN = 3
TEN_YEARS_MS = 10 * 365 * 86_400_000
PAST_BEYOND = 98
"""Entries of a long past beyond the window of intent ids."""

REQUIRED_HITS = frozenset(
    {
        *(f"fault {kind}" for kind in FaultKind),
        "answer clock-skew",
        "answer commit-contention",
        "answer invalid-alter",
        "answer log-time-ahead",
        "abort before a commit over a seal's seam",
        "answer aborted-by-operator",
        "answer partition-count-changed",
        "answer transaction-prepared",
        "answer transaction-timed-out",
        "bundle written",
        "checkpoint taken",
        "clock jumped",
        "clock years ahead",
        "crashed",
        "deleted slot created again",
        "ended by operator",
        "ended by producer",
        "ended by timeout",
        "ended what was prepared",
        "fault fsync after the link",
        "fault of a get",
        "fault of a list",
        "fault server-error, applied",
        "group of several",
        "init aborted a transaction",
        "late request applied",
        "late request came too late",
        "opened cold",
        "placed what was staged",
        "prepared",
        "read a bad bundle",
        "read a bundle",
        "sealed",
        "sealed by somebody else",
        "slot absent after no answer",
        "slot gone",
        "slot lost",
        "slot ours",
        "slot ours, read back",
        "slot refused",
        "slot unknown",
        "staged",
        "staged records timed out",
        "suspended",
        "timed out by the store's time",
        "timed out by watching",
        "timed out in a log whose time ran ahead",
        "truncated",
        "verdict Done",
        "verdict Included",
        "verdict Rejected",
        "verdict Undecidable",
    }
)
REQUIRED_HITS |= GROUP_HITS | ACK_HITS | REMOVAL_HITS | COMPACTION_HITS
"""What a run of a few hundred histories must have met, or it shows less than it seems to."""


class SimulationError(AssertionError):
    """A history in which something happened that must never happen."""

    def __init__(self, message: str, lines: list[str]) -> None:
        super().__init__(message)
        self.lines = lines
        """The trace, when it was asked for."""


@dataclass(slots=True)
class History:
    """What came of one seed."""

    seed: int
    steps: int
    entries: int
    writers: int
    trace_hash: str
    hits: Counter[str] = field(default_factory=Counter)
    lines: list[str] = field(default_factory=list)
    """The trace, when it was asked for."""


class _Past(NamedTuple):
    """A log that had a long life before the history begins."""

    format_data: bytes
    empty: LogState
    entries: tuple[tuple[CommitEntry, bytes], ...]
    states: tuple[LogState, ...]
    objects: dict[str, bytes]
    bundles: dict[str, bytes]
    stale: tuple[Intent, ...]
    """Old intents without a natural key: the first ones landed, the others never did."""


def _empty_log(rng: random.Random) -> tuple[bytes, LogState]:
    log_id = f"{rng.getrandbits(32):08x}-0000-4000-8000-{rng.getrandbits(48):012x}"
    data = encode_json({"format": 1, "log_id": log_id})
    return data, LogState(log_id=log_id, entry_sha256=sha256_hex(data))


@cache
def _long_past() -> _Past:
    """Return a log whose window of intent ids has begun to slide; the same for every history."""
    rng = random.Random("a long past")
    format_data, empty = _empty_log(rng)
    state, time_ms = empty, EPOCH_MS - 10_000_000
    entries: list[tuple[CommitEntry, bytes]] = []
    states: list[LogState] = []
    objects: dict[str, bytes] = {}

    def land(entry: CommitEntry, data: bytes) -> None:
        nonlocal state
        state = apply(state, entry, sha256_hex(data))
        entries.append((entry, data))
        states.append(state)

    def new_id() -> str:
        return f"{rng.getrandbits(32):08x}-0000-4000-8000-{rng.getrandbits(48):012x}"

    reader, writer, maintenance = (tuple(sorted(names)) for names in FEATURES)
    features = Upgrade(reader, writer, maintenance)
    first = CommitEntry(
        entry=0, log_id=empty.log_id, write_id=new_id(), previous=empty.entry_sha256, timestamp_ms=time_ms,
        engine="past", intents=(new_id(),), operations=(features,),
    )  # fmt: skip
    land(first, encode_entry(first))
    stale = [Intent(new_id(), 1 + index, AllocateIds("past", 1)) for index in range(6)]
    # The last hundred is nearly complete: some of the histories write its bundle.
    for index in range(INTENT_WINDOW_ENTRIES + PAST_BEYOND):
        time_ms += 100
        action = stale[index].action if index < 3 else Write(app=AppRef("past", "app", index))
        intent = stale[index] if index < 3 else Intent(new_id(), state.entry + 1, action)
        if index in (INTENT_WINDOW_ENTRIES + 20, INTENT_WINDOW_ENTRIES + 60):
            data = encode_snapshot(state)
            key = keys.snapshot_key(state.entry, new_id())
            objects[key] = data
            checkpoint = Checkpoint(state.entry, key, len(data), sha256_hex(data), state_digest(state))
            objects[keys.LATEST_KEY] = encode_json(
                {"entry": state.entry, "key": key, "sha256": checkpoint.sha256}
            )
            intent = Intent(new_id(), state.entry + 1, TakeCheckpoint(checkpoint))
        assembled = assemble(state, [intent], store_time_ms=time_ms, write_id=new_id())
        if assembled.entry is None:
            raise InternalError("the past could not be made", verdicts=assembled.verdicts)
        land(assembled.entry, assembled.data)
    bundles = {}
    for slot in range(0, len(entries) - BUNDLE_ENTRIES + 1, BUNDLE_ENTRIES):
        bundle = encode_bundle([data for _, data in entries[slot : slot + BUNDLE_ENTRIES]])
        if bundle is not None:
            bundles[bundle_key_of(slot)] = bundle
    return _Past(format_data, empty, tuple(entries), tuple(states), objects, bundles, tuple(stale))


class _Simulation:
    """Builds the world of a seed and runs it."""

    def __init__(self, seed: int, protocol: Protocol, *, keep_lines: bool) -> None:
        self.seed = seed
        self.protocol = protocol
        # The oracle comes after the world, and nothing lands before both are there.
        self.world = World(seed, lambda slot, data: self.oracle.on_entry(slot, data), keep_lines=keep_lines)
        rng = self.world.rng
        self.has_past = seed % 16 == 7
        self.has_many_transactions = seed % 4 == 1
        self.is_orderly = seed % 8 == 5
        """Whether nothing fails, so that transactions stay open next to others, and seals come in between."""
        self.has_acks = seed % 16 in (3, 11)
        self.has_groups = seed % 4 == 2 or self.has_acks
        self.has_removals = seed % 16 in (4, 12, 13)
        self.runs_ahead = seed % 16 == 9
        """Whether a clock goes wrong by years where it is the store's time."""
        self.has_snapshots = True
        past = _long_past() if self.has_past else None
        format_data, empty = (past.format_data, past.empty) if past else _empty_log(rng)
        ledger = Ledger(self.world.store.get, self.world.hits)
        self.decisions = Decisions(rng.random, ledger.decisions)
        self.oracle = Oracle(empty, ledger, lambda: self.world.time.now_ms, self.world.hits)
        self.oracle.senders = self.world.senders
        self.world.store.put(keys.FORMAT_KEY, format_data)
        if past is not None:
            for (entry, data), state in zip(past.entries, past.states, strict=True):
                self.oracle.adopt(entry, state)
                self.world.store.put(keys.entry_key(entry.entry), data)
            # Without the snapshots whoever opens the log goes through its bundles.
            self.has_snapshots = rng.random() < 0.7
            for key, data in past.objects.items() if self.has_snapshots else ():
                self.world.store.put(key, data)
            self._put_bundles(past)
        # What groups do needs several entries in a row, and calm.
        rates = (0.0, 0.0, 0.02, 0.08) if self.has_groups else (0.0, 0.02, 0.08, 0.2)
        self.world.plan.rate = 0.0 if self.is_orderly else rng.choice(rates)
        self.world.own_clock_is_store_time = (rng.random() < 0.25 and not self.is_orderly) or self.runs_ahead
        self.group_kinds = rng.choice(KINDS) if self.has_groups and not self.has_acks else ()
        self.clients: list[Client] = []
        self.sidecars = SidecarCache(self.world.store)
        self.writers = WRITERS_MIN if self.is_orderly or self.has_groups else rng.randint(WRITERS_MIN, 5)
        self._start_processes(past.stale if past else ())

    def _put_bundles(self, past: _Past) -> None:
        """Store the bundles of the past: some of them missing, cut, changed, or those of other entries."""
        rng = self.world.rng
        if rng.random() < 0.2:
            return
        for key, data in past.bundles.items():
            match rng.randrange(12):
                case 0:
                    continue
                case 1:
                    data = data[: rng.randrange(len(data))]
                case 2:
                    at = rng.randrange(len(data))
                    data = data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]
                case 3:
                    data = past.bundles[rng.choice(sorted(past.bundles))]
                case _:
                    pass
            self.world.store.put(key, data)
            if data != past.bundles[key]:
                self.world.bad_bundles.add(key)

    def _start_processes(self, stale: tuple[Intent, ...]) -> None:
        rng, world = self.world.rng, self.world
        # Who deletes entries has looked at the snapshots. It takes days, and no transaction is open for so long.
        is_truncated = (
            rng.random() < (0.2 if self.has_groups else 0.5) and self.has_snapshots and not self.is_orderly
        )
        skewed = rng.randrange(self.writers) if rng.random() < 0.2 and not self.is_orderly else -1
        checkpoints = 0.6 if is_truncated else 0.4 if self.has_many_transactions else 0.1
        # Where a machine's own clock is the store's time, nobody can tell that it is wrong.
        ahead = rng.randrange(self.writers) if self.runs_ahead else -1
        for number in range(self.writers + 1):
            process = world.start(f"p{number}")
            if world.own_clock_is_store_time:
                process.offset_ms = rng.choice((0, rng.randint(-45_000, 45_000)))
            else:
                process.offset_ms = rng.randint(-25_000, 25_000)
                process.is_skewed = number == skewed
                if process.is_skewed:
                    process.offset_ms = rng.choice((-1, 1)) * rng.randint(30_001, 500_000)
            if number == ahead:
                process.jump = (rng.randint(STEPS_MIN, 4 * STEPS_MIN), TEN_YEARS_MS)
            process.counts_suspended_time = rng.random() < 0.8 or self.runs_ahead
            if self.runs_ahead:
                process.offset_ms = 0
            is_writer = number < self.writers
            clients = self._clients(number, stale) if is_writer else ()
            settings = CommitSettings(
                attempts_max=1_000 if self.is_orderly else rng.choice((2, 5, 1_000)),
                deadline_ms=rng.choice((100, 2_000, 120_000)),
                strict_boundary=rng.random() < 0.15,
            )
            process.actor = SimProcess(
                world, self.oracle, process.name, self.protocol, settings, clients,
                takes_checkpoints=number == 0 or self.has_removals or rng.random() < checkpoints,
                seal_share=0.3 if self.has_removals else 0.2 if self.has_many_transactions else 0.06,
                sidecars=self.sidecars if self.has_removals else None,
                ends_expired=(self.has_many_transactions or rng.random() < 0.6) and number != ahead,
            )  # fmt: skip
            if self.has_past and rng.random() < 0.4:
                # It has slept, and follows the whole past.
                process.actor.view = View(rng.choice(self.oracle.states[1:]))
        if is_truncated:
            world.start("op").actor = Operator(world, self.oracle)

    def _clients(self, number: int, stale: tuple[Intent, ...]) -> tuple[Client, ...]:
        rng, new_id = self.world.rng, self.world.new_id
        clients: list[Client] = [TopicClient(rng, new_id)]
        if rng.random() < 0.3:
            clients.append(GrowingClient(rng, new_id))
        if rng.random() < 0.4:
            clients.append(DecidingClient(rng, new_id, decisions=self.decisions))
        if rng.random() < 0.15:
            clients.append(CleaningClient(rng, new_id))
        if self.has_removals:
            clients.append(RemovingClient(rng, new_id, sidecars=self.sidecars))
        clients += self._readers()
        many = (3,) if self.is_orderly else (3, 4, 5)
        counts = many if self.has_many_transactions else (0, 1) if self.has_groups else (1, 1, 2, 4)
        for _ in range(rng.choice(counts)):
            match 0 if self.has_many_transactions else rng.randrange(9) // 2:
                case 0 | 1:
                    clients.append(self._transactional())
                case 2:
                    clients.append(IdempotentClient(rng, new_id))
                case 4:
                    clients.append(ToldClient(rng, new_id, told=lambda: self.oracle.state))
                case _:
                    clients.append(BulkClient(rng, new_id, app_id=f"app-{rng.randint(0, 1)}"))
        if stale and number == 0:
            clients.append(StaleClient(rng, new_id, pending=list(stale)))
            for intent in stale:
                self.oracle.abandoned(intent)
        self.clients += clients
        return tuple(clients)

    def _transactional(self) -> TransactionalClient:
        rng, new_id = self.world.rng, self.world.new_id
        if not self.has_many_transactions:
            return TransactionalClient(
                rng, new_id, [], False, f"tx-{rng.randint(0, 2)}", self.decisions, self._put
            )
        # Transactions that stay open, each next to others of the same partitions.
        name = f"tx-{len(self.clients) if rng.random() < 0.8 else 0}-{rng.randint(0, 3)}"
        return TransactionalClient(
            rng,
            new_id,
            [],
            False,
            name,
            self.decisions,
            self._put,
            one_shots=0.1,
            deferred=0.2,
            ends=0.5 if self.is_orderly else 0.25,
            is_focused=True,
            timeouts=TIMEOUTS[1:2] if self.is_orderly else TIMEOUTS[2:],
        )

    def _readers(self) -> list[Client]:
        """Return what a process has to do with groups, or with subscriptions."""
        rng, new_id, put = self.world.rng, self.world.new_id, self._put
        groups, acks = self.oracle.ledger.groups, self.oracle.ledger.acks
        if self.has_acks:
            kinds = [rng.choice(ACK_KINDS) for _ in range(rng.randint(2, 4))]
            return [ack_client(kind, rng, new_id, self.decisions, put, acks.claims) for kind in kinds]
        if not self.has_groups:
            return []
        return group_clients(rng, new_id, self.decisions, put, groups.claims, self._now_ms, self.group_kinds)

    def _now_ms(self) -> int:
        return self.world.time.now_ms

    def _put(self, key: str, data: bytes) -> None:
        """Store what an entry will name: uploads that fail are no part of what is simulated."""
        self.world.store.put(key, data)

    def run(self) -> History:
        world = self.world
        limit = (
            world.rng.randint(STEPS_MIN, STEPS_MAX)
            + 600 * self.has_many_transactions
            + 300 * self.has_groups
            + 600 * self.is_orderly
        )
        while world.step < limit and world.run_step():
            pass
        world.calm_down()
        for client in self.clients:
            client.is_stopping = True
            if isinstance(client, StaleClient):
                client.pending = []
        while world.run_step():
            ahead_ms = self.oracle.state.timestamp_ms - world.time.now_ms
            if ahead_ms > TEN_YEARS_MS // 2:
                world.leap(ahead_ms)  # else nobody could commit any more
            if world.step > limit + SETTLE_STEPS_MAX:
                waiting = [process.name for process in world.processes if process.actor is not None]
                raise HistoryViolation(
                    f"no answer within {SETTLE_STEPS_MAX} steps without faults: {waiting} wait"
                )
        self._check_cold_open()
        self.oracle.check_end(self.sidecars)
        return History(
            self.seed,
            world.step,
            len(self.oracle.entries),
            self.writers,
            world.trace_hash,
            world.hits,
            world.lines,
        )

    def _check_cold_open(self) -> None:
        reader = self.world.start("end")
        actor = SimProcess(self.world, self.oracle, "end", self.protocol, CommitSettings())
        reader.actor = actor
        while self.world.run_step():
            pass
        if actor.view is None or actor.view.state.entry != self.oracle.state.entry:
            raise HistoryViolation(f"a cold open ends before entry {self.oracle.state.entry}: {actor.view}")


def run_history(seed: int, protocol: Protocol | None = None, *, keep_lines: bool = False) -> History:
    """Run one history.

    Parameters
    ----------
    seed : int
        Decides everything.
    protocol : Protocol, optional
        The steps under test; the real ones by default.
    keep_lines : bool
        Keep the trace as text, for reading.

    Raises
    ------
    SimulationError
        Something happened that must never happen; ``__cause__`` says what, and ``lines`` is the trace if kept.
    """
    simulation = _Simulation(seed, protocol or Protocol(), keep_lines=keep_lines)
    try:
        return simulation.run()
    except Exception as error:  # a violation or a plain defect: whatever it is, the seed shows it
        raise SimulationError(
            f"seed {seed}, step {simulation.world.step}: {error}\n"
            f"replay it with: python -m txnlog_testing.replay {seed}",
            simulation.world.lines,
        ) from error


def run_histories(seeds: Iterable[int]) -> tuple[Counter[str], int, int]:
    """Run many histories; return what they met, and the number of steps and of entries."""
    hits: Counter[str] = Counter()
    steps = entries = 0
    for seed in seeds:
        history = run_history(seed)
        hits += history.hits
        steps += history.steps
        entries += history.entries
    return hits, steps, entries
