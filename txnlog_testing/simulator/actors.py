"""The processes of a simulated history: each has its own view of the log and one to several clients.

A *client* is a thread of the process as a state machine: it says which intents it wants committed and is told
the answers. A process commits those of several clients as one group, refreshes, opens anew, takes
checkpoints.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from txnformat.core.intents import (
    Action,
    CommitResult,
    Intent,
    SealSegments,
    SpillExtents,
    TakeCheckpoint,
)
from txnformat.core.operations import Seal
from txnformat.errors import CorruptDataError, FormatError, InternalError, StorageError, TxnLogError
from txnformat.protocol.commit import Answers, CommitSettings, commit_group
from txnformat.protocol.effects import ReadClock, Sleep, Steps, Times
from txnformat.protocol.expiry import Watch
from txnformat.protocol.follow import open_view, refresh
from txnformat.protocol.pace import Pace
from txnformat.protocol.sealing import list_segments, write_segments
from txnformat.protocol.snapshots import write_hint, write_snapshot
from txnformat.protocol.spilling import write_spill
from txnformat.protocol.view import View
from txnformat.reading.sealed import SidecarCache
from txnlog_testing.simulator.bundles import write_due_bundles
from txnlog_testing.simulator.clients import Client
from txnlog_testing.simulator.compacting import compacted
from txnlog_testing.simulator.oracle import Oracle, is_definite
from txnlog_testing.simulator.world import HistoryViolation, World

__all__ = ["CommitStep", "Protocol", "SimProcess"]

CommitStep = Callable[[View, Sequence[Intent], CommitSettings], Steps[tuple[View, Answers]]]


@dataclass(frozen=True, slots=True)
class Protocol:
    """The steps under test; a test of the simulator itself passes broken ones."""

    commit_group: CommitStep = commit_group
    refresh: Callable[[View], Steps[View]] = refresh


@dataclass(slots=True, eq=False)
class SimProcess:
    """A process: follows the log, and commits what its clients want."""

    world: World
    oracle: Oracle
    name: str
    protocol: Protocol
    settings: CommitSettings
    clients: tuple[Client, ...] = ()
    takes_checkpoints: bool = False
    seal_share: float = 0.06
    """Share of the turns of a process that takes checkpoints."""
    sidecars: SidecarCache | None = None
    """Reads what was sealed, without faults; a process that has it compacts."""
    ends_expired: bool = False
    """Whether it ends expired transactions of others with its own entries, and now and then without."""
    has_payloads: bool = False
    """Whether it writes payload bundles where the log embeds."""
    view: View | None = None
    in_flight: list[Intent] = field(default_factory=list)
    pace: Pace = field(default_factory=Pace)
    watch: Watch = field(default_factory=Watch)

    def crashed(self) -> None:
        """Forget everything but what the clients keep elsewhere."""
        for intent in self.in_flight:
            self.oracle.abandoned(intent)
        self.in_flight = []
        self.view = None
        self.pace = Pace()
        self.watch = Watch()
        for client in self.clients:
            client.crashed()

    def main(self) -> Steps[None]:
        """Run until the history ends and no client waits for an answer."""
        rng = self.world.rng
        while True:
            if self.view is None:
                yield from self._open()
            elif self.world.is_finishing and not any(client.is_pending for client in self.clients):
                break
            else:
                yield from self._turn(self.view)
            yield Sleep(2_000 if self.world.is_finishing else rng.choice((1, 20, 20, 300)))
        yield from self._follow(self.view)

    def _turn(self, view: View) -> Steps[None]:
        kind = self.world.rng.random()
        if self.clients and (self.world.is_finishing or kind < 0.78 - self.seal_share):
            yield from self._commit_some(view)
        elif self.takes_checkpoints and kind < 0.9 - self.seal_share:
            yield from self._take_checkpoint(view)
        elif self.takes_checkpoints and kind < 0.9:
            yield from self._keep_small(view)
        elif self.ends_expired and kind < 0.94:
            yield from self._end_expired(view)
        elif kind < 0.98:
            yield from self._follow(view)
        else:
            self.view = None

    def _see(self, view: View, *, deep: bool = False) -> None:
        self.oracle.seen(self.name, self.view, view, deep=deep)
        self.view = view

    def _open(self) -> Steps[None]:
        try:
            view = yield from open_view()
        except StorageError:
            return
        except CorruptDataError as error:
            raise HistoryViolation(f"{self.name} cannot open a log that is sound: {error}") from error
        self.world.hits["opened cold"] += 1
        self._see(view, deep=self.world.is_finishing or self.world.rng.random() < 0.1)

    def _follow(self, view: View) -> Steps[None]:
        try:
            self._see((yield from self.protocol.refresh(view)))
            now: Times = yield ReadClock()
            if self.view is not None:
                self.watch.note(self.view.state, now.boot_ms)
        except StorageError:
            return
        except CorruptDataError as error:
            raise HistoryViolation(f"{self.name} cannot follow a log that is sound: {error}") from error

    def _commit_some(self, view: View) -> Steps[None]:
        rng = self.world.rng
        chosen = [client for client in self.clients if self.world.is_finishing or rng.random() < 0.6]
        wanted = [(client, client.wanted(view.state)) for client in chosen]
        intents = [intent for _, wants in wanted for intent in wants][:8]
        if not intents:
            return
        if len(intents) > 1:
            self.world.hits["group of several"] += 1
        answers = yield from self._commit(view, intents)
        after = self.view or view
        for client, wants in wanted:
            for intent in wants:
                if intent.intent_id in answers:
                    client.answered(intent, answers[intent.intent_id], after.state)

    def _commit(self, view: View, intents: list[Intent]) -> Steps[Answers]:
        self.in_flight = intents
        since = self.oracle.called(self.name, intents)
        try:
            step = self.protocol.commit_group
            if step is commit_group:  # broken ones of the simulator's own tests know no pace
                watch = self.watch if self.ends_expired else None
                step = partial(commit_group, pace=self.pace, watch=watch)
            after, answers = yield from step(view, intents, self.settings)
        except TxnLogError as error:
            if isinstance(error, FormatError | InternalError):
                raise HistoryViolation(f"{self.name} calls a sound log corrupt: {error}") from error
            after, answers = view, {intent.intent_id: error for intent in intents}
        self.in_flight = []
        self._see(after)
        for intent in intents:
            answer = answers[intent.intent_id]
            if isinstance(answer, FormatError | InternalError):
                raise HistoryViolation(f"{self.name} calls a sound log corrupt: {answer}")
            self.world.note(
                f"{self.name:6} {type(intent.action).__name__} {intent.intent_id[:8]}: {_brief(answer)}"
            )
            self.oracle.answered(intent, answer, since)
        own = [
            answer.entry
            for answer in answers.values()
            if isinstance(answer, CommitResult) and not answer.repeated
        ]
        yield from write_due_bundles(self.world, after.state, own, with_payloads=self.has_payloads)
        return answers

    def _take_checkpoint(self, view: View) -> Steps[None]:
        if view.state.entry < 0:
            return
        try:
            checkpoint = yield from write_snapshot(view)
            intent = Intent(self.world.new_id(), view.state.entry + 1, TakeCheckpoint(checkpoint))
            answers = yield from self._commit(view, [intent])
            answer = answers[intent.intent_id]
            if isinstance(answer, CommitResult):
                self.world.hits["checkpoint taken"] += 1
                yield from write_hint(checkpoint)
            elif not is_definite(answer):
                self.oracle.abandoned(intent)
        except StorageError:
            return

    def _end_expired(self, view: View) -> Steps[None]:
        """Do what maintenance does: end the transactions whose time is over."""
        yield from self._follow(view)
        now: Times = yield ReadClock()
        view = self.view or view
        ends = self.watch.expired(view.state, now)[:8]
        intents = [Intent(self.world.new_id(), view.state.entry + 1, end) for end in ends]
        if not intents:
            return
        answers = yield from self._commit(view, intents)
        for intent in intents:
            answer = answers[intent.intent_id]
            if not isinstance(answer, CommitResult) and not is_definite(answer):
                self.oracle.abandoned(intent)

    def _keep_small(self, view: View) -> Steps[None]:
        """Seal; where a process compacts, also spill, list what is sealed, or compact what is listed."""
        choice = 0.0 if self.sidecars is None else self.world.rng.random()
        try:
            if choice < 0.35:
                yield from self._seal(view, (yield from write_segments(view.state)), "sealed")
            elif choice < 0.5:
                yield from self._seal(view, (yield from list_segments(view.state)), "segments listed")
            elif choice < 0.65:
                yield from self._spill(view)
            else:
                yield from self._compact(view)
        except StorageError:
            return
        except (
            CorruptDataError
        ):  # what an old view names may be deleted by now; the newest names nothing that is
            if view.state.entry == self.oracle.state.entry:
                raise
            self.world.hits["old view sealed"] += 1

    def _seal(self, view: View, seal: Seal | None, done: str) -> Steps[None]:
        if seal is None:
            return
        answer = yield from self._commit_one(view, SealSegments(seal))
        if isinstance(answer, CommitResult):
            self.world.hits[done] += 1
            if seal.segment_list is not None:
                self.world.hits["segment list written"] += 1
            sealed = {
                (segment.record.topic_id, part.partition)
                for segment in seal.segments
                for part in segment.partitions
            }
            self.world.hits["sealed what was spilled"] += any(
                one.spills and (*key,) in sealed for key, one in view.state.partitions.items()
            )
        elif answer.kind == "seal-superseded":
            self.world.hits["sealed by another process"] += 1

    def _spill(self, view: View) -> Steps[None]:
        """Move what open transactions keep from being sealed into an object, however little it is."""
        spill = yield from write_spill(view.state, 1)
        if spill is None:
            return
        answer = yield from self._commit_one(view, SpillExtents(spill))
        if isinstance(answer, CommitResult):
            self.world.hits["spilled"] += 1
            self.world.hits["spilled with an earlier spill"] += any(
                part.replaced for part in spill.partitions
            )
        else:
            self.world.hits[f"answer {answer.kind}"] += 1

    def _compact(self, view: View) -> Steps[None]:
        assert self.sidecars is not None
        action = yield from compacted(self.sidecars, view.state, self.world.rng, self.world.new_id)
        if action is not None:
            yield from self._commit_one(view, action)

    def _commit_one(self, view: View, action: Action) -> Steps[CommitResult | TxnLogError]:
        """Commit intents that no client asks for again."""
        intent = Intent(self.world.new_id(), view.state.entry + 1, action)
        answer = (yield from self._commit(view, [intent]))[intent.intent_id]
        if not isinstance(answer, CommitResult) and not is_definite(answer):
            self.oracle.abandoned(intent)
        return answer


def _brief(answer: CommitResult | TxnLogError) -> str:
    if isinstance(answer, CommitResult):
        return f"entry {answer.entry}" + (" (repeated)" if answer.repeated else "")
    return f"{type(answer).__name__} {answer.kind}"
