"""The calls of a producer that are interrupted: what comes before, and the call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from tests.interrupts.trials import Interruption, Next, Trial
from tests.interrupts.user import User
from tests.interrupts.world import SEED, World
from txnlog import ProducerStatus, Subscription
from txnlog_testing.interrupts import PointKind, interrupt

__all__ = ["SCENARIOS", "Scenario"]

Step = Callable[[User], None]


@dataclass(frozen=True, slots=True)
class Scenario:
    """One call of one kind of producer."""

    name: str
    kind: str
    """"idempotent", "plain" (neither numbers nor transactions), or the buffer of a transactional producer."""
    before: tuple[Step, ...]
    """Calls that are not interrupted."""
    call: Step
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def is_transactional(self) -> bool:
        """Whether its producer has a transactional id."""
        return self.kind not in ("idempotent", "plain")

    @property
    def needs_own_log(self) -> bool:
        """Whether its producer takes an id from a block that the process has."""
        return self.kind == "idempotent"

    def __str__(self) -> str:
        return f"{self.name}/{self.kind}"

    def play(self, world: World) -> ProducerPlay:
        """Return a play in which all calls before were made."""
        user = self._user(world)
        for step in self.before:
            step(user)
        return ProducerPlay(self, user)

    def _user(self, world: World) -> User:
        """Return a user of a producer as the scenario has it; nothing was called."""
        settings = dict(self.settings)
        if self.is_transactional:
            return User(world, "t", buffer=self.kind, **settings)
        return User(world, None, enable_idempotence=self.kind == "idempotent", **settings)


class ProducerPlay:
    """A producer whose call is interrupted, and its user."""

    def __init__(self, scenario: Scenario, user: User) -> None:
        self.world = user.world
        self._scenario = scenario
        self._user = user

    def call(self) -> None:
        """Do what is interrupted."""
        self._scenario.call(self._user)

    def other(self) -> Callable[[], None] | None:
        """Return a call that nobody needs; it takes its turn like others."""
        return None if self._user.status is ProducerStatus.UNINITIALISED else self._user.producer.init

    def leave(self, trial: Trial, error: BaseException) -> None:
        """Leave the producer's ``with`` statement."""
        trial.attempt("leave", lambda: self._user.leave(error))

    def go_on(self, trial: Trial) -> None:
        """Repeat, abort, close, or nothing of it."""
        match trial.then:
            case Next.REPEAT:
                trial.attempt(self._scenario.name, self.call)
            case Next.ABORT if self._user.is_transactional:
                trial.attempt("abort", self._user.abort)
            case Next.CLOSE | Next.ABORT:
                trial.attempt("close", self._user.close)
            case Next.GO_ON | Next.LEAVE:
                pass

    def end(self, trial: Trial) -> None:
        """Do the next work with the same producer if it can be had, then with a new one of the same name."""
        user = self._user
        if user.status is not ProducerStatus.CLOSED:
            self._work(trial)
        for _ in range(3):
            if user.status is ProducerStatus.CLOSED or trial.attempt("close", user.close):
                break
        else:
            trial.problems.append(f"cannot be closed: {user.status}")
        user.renew()
        if not trial.attempt("init", user.init):
            trial.problems.append("a new instance cannot be initialised")
            return
        if user.status is ProducerStatus.PREPARED and not trial.attempt("abort", user.abort):
            trial.problems.append("what is prepared cannot be aborted")
        if not self._work(trial):
            trial.problems.append("a new instance cannot write")
        if not trial.attempt("close", user.close):
            trial.problems.append("a new instance cannot be closed")

    def _work(self, trial: Trial) -> bool:
        """Write records, and have them acknowledged."""
        user = self._user
        if user.status is ProducerStatus.UNINITIALISED:
            trial.attempt("init", user.init)
        if not user.is_transactional:
            return trial.attempt("send", user.send) and trial.attempt("flush", user.flush)
        if not trial.attempt("begin", user.begin) and not (
            trial.attempt("abort", user.abort) and trial.attempt("begin", user.begin)
        ):
            return False
        return trial.attempt("send", user.send) and trial.attempt("commit", user.commit)

    def check(self, *, verified: bool) -> Iterator[str]:
        """Hold the ledger against the log."""
        seen = self.world.seen(verified=verified)
        yield from self.world.ledger.check(seen)
        if seen.undecided:
            yield f"left undecided: {', '.join(seen.undecided)}"


def _left_open(user: User) -> None:
    """Leave what an instance that died leaves."""
    user.init()
    user.begin()
    user.send()
    user.flush()
    user.renew()


def _left_prepared(user: User) -> None:
    user.init()
    user.begin()
    user.send()
    user.prepare()
    user.renew()


def _commit_cut(user: User) -> None:
    """Interrupt a commit when the library's thread has done it, and its caller does not know the answer
    yet.
    """
    with suppress(Interruption), interrupt(None, Interruption, kind=PointKind.RETURNED, place="Errand.wait"):
        user.commit()


def _subscribed(user: User) -> None:
    subscription = Subscription(user.producer._log, SEED, "readers")
    subscription.receive(timeout_ms=0)
    user.subscription = subscription  # type: ignore[attr-defined]


def _acknowledge(user: User) -> None:
    user.acknowledge_one(user.subscription, user.world.next_seed())  # type: ignore[attr-defined]


INIT, BEGIN, SEND, FLUSH = User.init, User.begin, User.send, User.flush
OPENED = (INIT, BEGIN)
FILLED = (INIT, BEGIN, SEND, User.send_table, User.send_text)
FLUSHED = (*FILLED, FLUSH, SEND)
SECOND = (INIT, BEGIN, SEND, User.commit, BEGIN, SEND)  # an earlier transaction is in the log
SMALL: dict[str, Any] = {"batch_bytes": 2_000, "buffer_bytes": 4_000}
"""Two tables do not fit: the second send writes the first."""


def _all() -> list[Scenario]:
    found: list[Scenario] = []
    for kind in ("auto", "deferred", "inline"):
        found += [
            Scenario("init", kind, (_left_open,), INIT),
            Scenario("init-prepared", kind, (_left_prepared,), INIT),
            Scenario("begin", kind, (INIT, BEGIN, SEND, User.commit), BEGIN),
            Scenario("send", kind, (*OPENED, SEND), SEND),
            Scenario("send-table", kind, (*OPENED, SEND), User.send_table),
            Scenario("send-text", kind, (*OPENED, SEND), User.send_text),
            Scenario("send-large", kind, (*OPENED, SEND), User.send_large),
            Scenario("send-full", kind, (*OPENED, User.send_table, SEND), User.send_table, SMALL),
            Scenario("send-offsets", kind, (*OPENED, SEND), User.send_offsets),
            Scenario("acknowledge", kind, (*OPENED, SEND, _subscribed), _acknowledge),
            Scenario("flush", kind, FILLED, FLUSH),
            Scenario("flush-second", kind, FLUSHED, FLUSH),
            Scenario("commit", kind, FILLED, User.commit),
            Scenario("commit-second", kind, SECOND, User.commit),
            Scenario("commit-flushed", kind, (*FLUSHED, User.send_offsets), User.commit),
            Scenario("commit-acks", kind, (*OPENED, _subscribed, _acknowledge), User.commit),
            Scenario("commit-empty", kind, OPENED, User.commit),
            Scenario("commit-prepared", kind, (*FILLED, User.prepare), User.commit),
            Scenario("commit-recovered", kind, (_left_prepared, INIT), User.commit),
            Scenario("prepare", kind, FILLED, User.prepare),
            Scenario("prepare-flushed", kind, FLUSHED, User.prepare),
            Scenario("abort", kind, FILLED, User.abort),
            Scenario("abort-flushed", kind, FLUSHED, User.abort),
            Scenario("abort-prepared", kind, (*FILLED, User.prepare), User.abort),
            Scenario("close", kind, FILLED, User.close),
            Scenario("close-flushed", kind, FLUSHED, User.close),
            Scenario("close-after-cut", kind, (*FILLED, _commit_cut), User.close),
            Scenario("abort-after-cut", kind, (*FILLED, _commit_cut), User.abort),
            Scenario("commit-after-cut", kind, (*FILLED, _commit_cut), User.commit),
            Scenario("transaction", kind, (INIT, BEGIN, SEND, User.commit), User.transaction),
        ]
    for kind in ("idempotent", "plain"):
        found += [
            Scenario("init", kind, (), INIT),
            Scenario("send", kind, (INIT, SEND), SEND),
            Scenario("send-table", kind, (INIT, SEND), User.send_table),
            Scenario("send-text", kind, (INIT, SEND), User.send_text),
            Scenario("send-full", kind, (INIT, User.send_table, SEND), User.send_table, SMALL),
            Scenario("flush", kind, (INIT, SEND, User.send_table, User.send_text), FLUSH),
            Scenario("flush-second", kind, (INIT, SEND, FLUSH, SEND, User.send_table), FLUSH),
            Scenario("close", kind, (INIT, SEND, FLUSH, SEND, User.send_text), User.close),
        ]
    return found


SCENARIOS: tuple[Scenario, ...] = tuple(_all())
