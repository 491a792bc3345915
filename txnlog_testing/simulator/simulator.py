"""Deterministic simulation of the commit log: one seed is one history, with everything that may go wrong.

``run_history(seed)`` builds a world of three to six processes, lets the scheduler run them under faults for a
number of steps, then lets everything settle without faults, and checks that every caller has an answer and
that a cold open gives the true fold. A violation raises :class:`SimulationError`, which names the one command
that replays the seed.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial

from txnformat import keys
from txnformat.core.entry import sha256_hex
from txnformat.core.fold import apply
from txnformat.core.intents import Intent
from txnformat.core.state import EMBEDDING, LIFECYCLE, LogState
from txnformat.protocol.commit import CommitSettings
from txnformat.protocol.view import View
from txnformat.reading.sealed import SidecarCache
from txnformat.verify.live import live_objects
from txnformat.verify.requests import Requests
from txnlog_testing.simulator.acks import ACK_HITS, ACK_KINDS, ack_client
from txnlog_testing.simulator.actors import Protocol, SimProcess
from txnlog_testing.simulator.blocking import without_guesses, without_pools
from txnlog_testing.simulator.bundles import PAYLOAD_HITS, damage_some, put_past_bundles
from txnlog_testing.simulator.clients import (
    BulkClient,
    Client,
    GrowingClient,
    IdempotentClient,
    StaleClient,
    ToldClient,
    TopicClient,
    create_topic,
)
from txnlog_testing.simulator.compacting import COMPACTION_HITS
from txnlog_testing.simulator.contents import Contents, keyed_topic
from txnlog_testing.simulator.groups import GROUP_HITS, KINDS, group_clients
from txnlog_testing.simulator.keeping import (
    READER_JOBS,
    TRUNCATION_HITS,
    TRUNCATION_JOBS,
    UPKEEP_HITS,
    UPKEEP_JOBS,
    Keeper,
    Truncating,
)
from txnlog_testing.simulator.ledgers.ledger import Ledger
from txnlog_testing.simulator.ledgers.rewrites import RewriteLedger
from txnlog_testing.simulator.oracle import Oracle
from txnlog_testing.simulator.past import LONG_PAST, SHORT_PAST, Past, empty_log, older_first_entry, past_of
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
"""Steps within which every client must have an answer once nothing goes wrong any more."""
WRITERS_MIN = 3
PAYLOADS = 0.2
"""Share of the histories that embed in which there are payload bundles, too."""
UPKEEP_PAYLOADS = 0.7
"""The same of those with upkeep, in which readers get rows out of them."""
TEN_YEARS_MS = 10 * 365 * 86_400_000

REQUIRED_HITS = frozenset(
    {
        *(f"fault {kind}" for kind in FaultKind),
        "answer clock-skew",
        "begins as an older log",
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
        "sealed by another process",
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
        "verdict Done",
        "verdict Included",
        "verdict Rejected",
        "verdict Undecidable",
    }
)
SPILL_HITS = frozenset(
    {
        "answer spill-superseded",
        "read what was spilled",
        "sealed what was spilled",
        "spilled",
        "spilled with an earlier spill",
    }
)
REQUIRED_HITS |= SPILL_HITS
REQUIRED_HITS |= (
    PAYLOAD_HITS | GROUP_HITS | ACK_HITS | REMOVAL_HITS | COMPACTION_HITS | TRUNCATION_HITS | UPKEEP_HITS
)
"""Events that a run of a few hundred histories must have met, or it shows less than it seems to."""


class SimulationError(AssertionError):
    """A history in which something happened that must never happen."""

    def __init__(self, message: str, lines: list[str]) -> None:
        super().__init__(message)
        self.lines = lines
        """The trace, when it was asked for."""


@dataclass(slots=True)
class History:
    """The outcome of one seed."""

    seed: int
    steps: int
    entries: int
    writers: int
    trace_hash: str
    hits: Counter[str] = field(default_factory=Counter)
    lines: list[str] = field(default_factory=list)
    """The trace, when it was asked for."""


class _Simulation:
    """Builds the world of a seed and runs it."""

    def __init__(self, seed: int, protocol: Protocol, *, keep_lines: bool) -> None:
        self.seed = seed
        self.protocol = protocol
        # The oracle comes after the world, and nothing lands before both are there.
        self.world = World(seed, lambda slot, data: self.oracle.on_entry(slot, data), keep_lines=keep_lines)
        rng = self.world.rng
        self.is_truncated = seed % 16 == 7 or random.Random(f"truncated {seed}").random() < 0.15
        """Whether an operator deletes old entries: there must be some."""
        self.has_past = self.is_truncated and seed % 8 != 0
        self.has_many_transactions = seed % 4 == 1
        self.is_orderly = seed % 8 == 5
        """Whether nothing fails, so that transactions stay open next to others, and seals come in between."""
        self.has_acks = seed % 16 in (3, 11)
        self.has_groups = seed % 4 == 2 or self.has_acks
        self.has_removals = seed % 16 in (4, 12, 13)
        self.has_upkeep = seed % 8 == 0
        """Whether files hold records, and the product looks after them."""
        self.features = (LIFECYCLE, EMBEDDING) if seed % 16 == 8 else (LIFECYCLE,)
        """Features of topics with settings. In one half of the histories with upkeep, clients embed small
        files in their entries."""
        self._embedding = random.Random(f"embedding {seed}")  # its own: the rest of a history stays as it is
        self.embedding = self._chosen_embedding()
        self.is_older = self.embedding == "later" or self._embedding.random() < 0.3
        """Whether an older version has created the log, which an upgrade has to allow removals in."""
        self.runs_ahead = seed % 16 == 9
        """Whether a clock goes wrong by years where it is the store's time."""
        self.has_snapshots = True
        self.has_long_past = seed % 16 == 7
        self.has_payloads = self._chosen_payloads()
        """Whether processes write payload bundles, and followers ask for them. A past embeds then."""
        past = self._past()
        format_data, empty = (past.format_data, past.empty) if past else empty_log(rng)
        ledger = Ledger(self.world.store.get, self.world.hits)
        self.decisions = Decisions(rng.random, ledger.decisions)
        self.oracle = Oracle(empty, ledger, lambda: self.world.time.now_ms, self.world.hits)
        self.oracle.senders = self.world.senders
        self.world.store.put(keys.FORMAT_KEY, format_data)
        if past is not None:
            self._take_over(past)
        elif self.is_older:
            self._begin_older(empty)
        # Groups need several entries in a row, and calm.
        rates: tuple[float, ...] = (0.0, 0.0, 0.02, 0.08) if self.has_groups else (0.0, 0.02, 0.08, 0.2)
        rates = (0.0, 0.01, 0.03) if self.has_upkeep or self.is_truncated else rates
        self.world.plan.rate = 0.0 if self.is_orderly else rng.choice(rates)
        self.world.own_clock_is_store_time = (rng.random() < 0.25 and not self.is_orderly) or self.runs_ahead
        self.group_kinds = rng.choice(KINDS) if self.has_groups and not self.has_acks else ()
        self.clients: list[Client] = []
        self.contents = self._begin_contents(ledger) if self.has_upkeep else None
        self.sidecars = SidecarCache(self.world.store)
        self.writers = WRITERS_MIN if self.is_orderly or self.has_groups else rng.randint(WRITERS_MIN, 5)
        self._start_processes(past.stale if past else ())

    def _chosen_embedding(self) -> str:
        """Return when the log embeds: from its first entry on; later, when an upgrade of an older log allows
        it; or mixed: that depends on which process writes the first entry.

        Half of the histories with upkeep never embed.
        """
        if EMBEDDING in self.features:
            return self._embedding.choice(("later", "on", "mixed"))
        return "off" if self.has_upkeep else self._embedding.choice(("off", "on", "mixed"))

    def _past(self) -> Past | None:
        length = LONG_PAST if self.has_long_past else SHORT_PAST
        return past_of(length, embeds=self.has_payloads) if self.has_past else None

    def _begin_contents(self, ledger: Ledger) -> Contents:
        """Let files hold records, and judge what rewrites them."""
        store = self.world.store
        contents = Contents(self.world.rng, self.world.new_id, store, lambda: self.oracle.state.entry)
        ledger.rewrites = RewriteLedger(
            contents, store, ledger.committed_rows, ledger.removals.start, self.world.hits
        )
        return contents

    def _chosen_payloads(self) -> bool:
        share = 0 if self.embedding == "off" else UPKEEP_PAYLOADS if self.has_upkeep else PAYLOADS
        is_chosen = random.Random(f"payloads {self.seed}").random() < share
        if is_chosen:
            self.world.store.on_payloads = partial(damage_some, self.world)
        return is_chosen

    def _embeds(self) -> bool:
        """Return whether the next process asks for embedding if it writes the log's first entry."""
        return self.embedding == "on" or (self.embedding == "mixed" and self._embedding.random() < 0.5)

    def _take_over(self, past: Past) -> None:
        """Store what the past has left."""
        for (entry, data), state in zip(past.entries, past.states, strict=True):
            self.oracle.adopt(entry, state)
            self.world.store.put(keys.entry_key(entry.entry), data)
        # Without the snapshots a client that opens the log goes through its bundles.
        self.has_snapshots = self.world.rng.random() < 0.7
        for key, data in past.objects.items() if self.has_snapshots else ():
            self.world.store.put(key, data)
        put_past_bundles(self.world, past)

    def _begin_older(self, empty: LogState) -> None:
        """Store the first entry of an older version."""
        features = (EMBEDDING,) * self._embeds()
        entry, data = older_first_entry(empty, self._embedding, EPOCH_MS, features)
        self.oracle.adopt(entry, apply(empty, entry, sha256_hex(data)))
        self.world.store.put(keys.entry_key(0), data)
        self.world.hits["begins as an older log"] += 1

    def _start_processes(self, stale: tuple[Intent, ...]) -> None:
        rng, world = self.world.rng, self.world
        is_truncated = self.has_past and self.has_snapshots and not self.is_orderly
        skewed = rng.randrange(self.writers) if rng.random() < 0.2 and not self.is_orderly else -1
        checkpoints = 0.6 if is_truncated else 0.4 if self.has_many_transactions else 0.1
        # Where a machine's own clock is the store's time, no client can tell that it is wrong.
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
                embedding=self._embeds(),
            )
            process.actor = SimProcess(
                world, self.oracle, process.name, self.protocol, settings, clients,
                takes_checkpoints=number == 0
                or self.has_removals
                or self.has_upkeep
                or rng.random() < checkpoints,
                seal_share=self._seal_share(),
                sidecars=self.sidecars if self.has_removals else None,
                has_payloads=self.has_payloads,
                ends_expired=(self.has_many_transactions or rng.random() < 0.6) and number != ahead,
            )  # fmt: skip
            if self.has_past and rng.random() < 0.4:
                # It has slept, and follows the whole past.
                process.actor.view = View(rng.choice(self.oracle.states[1:]))
        if is_truncated:
            world.naps, world.sleepiness = (20, 300, 8_000), 0.1
            self._start_keepers(Truncating, rng.randint(1, 2), TRUNCATION_JOBS)
        if self.has_upkeep:
            self._start_keepers(Keeper, rng.randint(2, 3), UPKEEP_JOBS)
            self._start_keepers(Keeper, 3 if self.has_payloads else 1, READER_JOBS)

    def _seal_share(self) -> float:
        if self.has_payloads and self.has_upkeep:
            return 0.01  # what is sealed is not read out of entries any more
        return 0.3 if self.has_removals else 0.2 if self.has_many_transactions else 0.06

    def _start_keepers(self, kind: type[Keeper], number: int, jobs: tuple[str, ...]) -> None:
        for _ in range(number):
            process = self.world.start(f"k{len(self.world.processes)}")
            process.counts_suspended_time = self.world.rng.random() < 0.8
            settings = CommitSettings(attempts_max=20, deadline_ms=120_000, embedding=self._embeds())
            keeper = kind(
                self.world,
                self.oracle,
                process,
                settings,
                jobs,
                self.features,
                has_payloads=self.has_payloads,
            )
            if kind is Truncating:
                keeper.pauses, keeper.last = (300, 5_000), "look_back"
            process.actor = keeper

    def _clients(self, number: int, stale: tuple[Intent, ...]) -> tuple[Client, ...]:
        rng, new_id = self.world.rng, self.world.new_id
        create = keyed_topic if self.has_upkeep else create_topic
        clients: list[Client] = [TopicClient(rng, new_id, create=create, features=self.features)]
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
        for client in clients:
            client.uploads = None if self.contents is None else self.contents.upload
            client.embedding_share = 0.95 if self.has_payloads else 0.6
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
            + (4_000 if self.has_payloads else 1_500) * self.has_upkeep
            + 2_500 * self.is_truncated
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
                world.leap(ahead_ms)  # else no client could commit any more
            if world.step > limit + SETTLE_STEPS_MAX:
                waiting = [process.name for process in world.processes if process.actor is not None]
                raise HistoryViolation(
                    f"no answer within {SETTLE_STEPS_MAX} steps without faults: {waiting} wait"
                )
        if self.has_upkeep:
            self._finish_upkeep()
        elif self.is_truncated:
            self._do_last("look_back")
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

    def _finish_upkeep(self) -> None:
        """Bring all erasures to an end, without faults: but for those that a prepared transaction holds
        up.
        """
        rewrites = self.oracle.ledger.rewrites
        assert rewrites is not None
        self._do_last("finish")
        live: set[str] = set()
        live_objects(Requests(self.world.store, self.world.time, None), self.oracle.state, live.add)
        rewrites.check_live(live)

    def _do_last(self, job: str) -> None:
        process = self.world.start("last")
        process.actor = Keeper(self.world, self.oracle, process, CommitSettings(embedding=False), last=job)
        while self.world.run_step():
            pass

    def _check_cold_open(self) -> None:
        reader = self.world.start("end")
        actor = SimProcess(self.world, self.oracle, "end", self.protocol, CommitSettings(embedding=False))
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
        Something happened that must never happen; ``__cause__`` says what, and ``lines`` is the trace if
        kept.
    """
    simulation = _Simulation(seed, protocol or Protocol(), keep_lines=keep_lines)
    try:
        with without_pools(), without_guesses(tens=simulation.has_payloads):
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
