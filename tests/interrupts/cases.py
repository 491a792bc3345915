"""What calls of other objects than producers have in common when they are interrupted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import ClassVar

from tests.interrupts.trials import Next, Trial
from tests.interrupts.world import World
from txnlog import TxnLog

__all__ = ["Case", "CaseActor"]


class Case:
    """One call. Subclasses make what it is called on in ``before``."""

    name: ClassVar[str]
    family: ClassVar[str]
    """Of what the call is."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.log = TxnLog.open(world.store)
        self.is_told = False
        """Whether the call returned, now or when it was repeated."""
        self.before()

    def before(self) -> None:
        """Do what comes before the call."""

    def do(self) -> None:
        """Call."""
        raise NotImplementedError

    def done(self) -> None:
        """Do the next work with the same object."""

    def close(self) -> None:
        """Close what is open."""

    def problems(self) -> Iterator[str]:
        """Yield what is not as it was told, asked of new objects."""
        yield from ()

    # --- as a play ------------------------------------------------------------------------------------------

    def call(self) -> None:
        """Call, and take note of the answer."""
        self.do()
        self.is_told = True

    def other(self) -> Callable[[], None] | None:
        """Use the same log in another thread."""

        def use() -> None:
            self.log.refresh()
            self.log.create_topic("of-another-thread", "kafka", exist_ok=True)

        return use

    def go_on(self, trial: Trial) -> None:
        """Repeat, close, or nothing of it."""
        if trial.then in (Next.REPEAT, Next.ABORT):
            trial.attempt(self.name, self.call)
        elif trial.then is Next.CLOSE:
            trial.attempt("close", self.close)

    def leave(self, trial: Trial, error: BaseException) -> None:
        """Leave: these have no other way to close."""
        trial.attempt("close", self.close)

    def end(self, trial: Trial) -> None:
        """Go on, and close."""
        if (
            trial.then not in (Next.CLOSE, Next.LEAVE)
            and not trial.attempt("next", self.done)
            and trial.told[-1] not in ("next: close-required", "next: abort-required")  # and it is true
        ):
            trial.problems.append(f"cannot go on: {trial.told[-1]}")
        trial.attempt("close", self.close)
        trial.attempt("close the log", self.log.close)

    def check(self, *, verified: bool) -> Iterator[str]:
        """Ask new objects."""
        yield from self.problems()
        if verified:
            yield from (
                f"verify: {problem}" for problem in TxnLog.open(self.world.store).verify(deep=True).problems
            )


class CaseActor:
    """Makes plays of one case."""

    needs_own_log = False

    def __init__(self, case: type[Case]) -> None:
        self._case = case

    def __str__(self) -> str:
        return f"{self._case.name}/{self._case.family}"

    def play(self, world: World) -> Case:
        """Return a play."""
        return self._case(world)
