"""Histories with real signals: a process works on a local disk, and its calls are interrupted at moments that
a seed chooses.

SIGALRM comes from ``setitimer``, SIGINT from another thread, each with a handler that raises, but only while
a call of the project runs. What the user was told is written down as in the deterministic trials, and another
process holds it against the log.
"""

from __future__ import annotations

import gc
import random
import signal
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

from tests.interrupts.ledger import Ledger
from tests.interrupts.trials import Hung, Interruption, open_files, watched
from tests.interrupts.user import User
from tests.interrupts.world import World, fill
from txnformat.errors import InternalError, TxnLogError
from txnformat.store.local import LocalStore
from txnlog import ProducerStatus

__all__ = ["History", "judge", "run_history"]

KINDS = ("auto", "deferred", "inline", "idempotent", "plain")
CALL_SECONDS = 60.0
"""A call takes milliseconds; one that takes this long hangs."""


LINGER_MS_MAX = 60_000
"""So long a flush waits in half of the producers without transactions; one that was never closed makes it
after that."""


@dataclass(slots=True)
class History:
    """What came of one history."""

    seed: int
    interrupts: int = 0
    """Calls that were cut short, or in which a signal was raised without cutting them short."""
    calls: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(call, outcome) of every call; outcome: "returned", "interrupted", or the kind of an error."""
    problems: list[str] = field(default_factory=list)
    ledger: Ledger = field(default_factory=Ledger)
    seconds: float = 0.0


class _Signals:
    """Raises in the main thread in the middle of a call."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._inside = False
        self._typical: dict[str, float] = {}
        self.raised = 0

    def __enter__(self) -> Self:
        self._before = [
            (number, signal.signal(number, self._raise)) for number in (signal.SIGALRM, signal.SIGINT)
        ]
        return self

    def __exit__(self, *error: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in self._before:
            signal.signal(number, handler)

    def _raise(self, number: int, frame: FrameType | None) -> None:
        if self._inside:
            self._inside = False
            self.raised += 1
            raise Interruption

    def run(self, name: str, call: Callable[[], object], *, interrupted: bool) -> None:
        """Call; perhaps a signal comes at a moment of the time that such calls take."""
        after = self._rng.uniform(0.0, 1.0) * self._typical.get(name, 0.005) if interrupted else 0.0
        by_thread = self._rng.random() < 0.3
        timer: threading.Timer | None = None
        start = time.perf_counter()
        try:
            if interrupted and by_thread:
                main = threading.main_thread().ident or 0
                timer = threading.Timer(after, lambda: signal.pthread_kill(main, signal.SIGINT))
                timer.start()
            self._inside = True
            if interrupted and not by_thread:
                signal.setitimer(signal.ITIMER_REAL, max(after, 1e-6))
            call()
        finally:
            self._inside = False
            signal.setitimer(signal.ITIMER_REAL, 0)
            if timer is not None:
                timer.cancel()
                timer.join()
        # The longest that is not out of the ordinary.
        took = time.perf_counter() - start
        self._typical[name] = max(took, 0.9 * self._typical.get(name, took))


class _Worker:
    """A user who makes random calls."""

    def __init__(self, history: History, root: Path, signals: _Signals, rng: random.Random) -> None:
        self._history = history
        self._rng = rng
        self._signals = signals
        self._world = World(LocalStore(root))
        self._world.ledger = history.ledger
        self._number = 0
        self.user = self._new_user()

    def _new_user(self) -> User:
        kind = self._rng.choice(KINDS)
        small: dict[str, Any] = (
            {"batch_bytes": 2_000, "buffer_bytes": 4_000} if self._rng.random() < 0.3 else {}
        )
        self._number += 1
        if kind in ("idempotent", "plain"):
            linger = self._rng.choice((1, LINGER_MS_MAX))
            small |= {"linger_ms": linger, "enable_idempotence": kind == "idempotent"}
            return User(self._world, None, **small)
        return User(self._world, f"t{self._number % 3}", buffer=kind, **small)

    def call(self, name: str, *, chance: float = 0.8) -> str:
        """Call; return what came of it."""
        call: Callable[[], None] = getattr(self.user, name)
        raised = self._signals.raised
        before, status = self.user.group, self.user.status
        try:
            with watched(CALL_SECONDS):
                self._signals.run(name, call, interrupted=self._rng.random() < chance)
            outcome = "returned"
        except Interruption:
            outcome = "interrupted"
        except InternalError as error:
            outcome = error.kind
            self._history.problems.append(f"{name}: {error}")
        except TxnLogError as error:
            outcome = error.kind
        except Hung as hung:
            outcome = "hangs"
            self._history.problems.append(f"{name} hangs at {_stack(hung.__traceback__)}; {_others_stacks()}")
        except Exception as error:  # noqa: BLE001  # that is what is looked for
            outcome = type(error).__name__
            self._history.problems.append(f"{name}: {error!r:.200}")
        if self._signals.raised > raised:
            self._history.interrupts += 1
            if outcome != "interrupted":
                outcome += " (signal)"
        self._history.calls[name, outcome] += 1
        for group in {id(one): one for one in (before, self.user.group) if one is not None}.values():
            group.notes.append(f"{status} {name}: {outcome}")
        return outcome

    def live(self) -> None:
        """Use one producer from its beginning to its end."""
        for _ in range(3):
            if self.call("init") != "interrupted":
                break
        for _ in range(self._rng.randint(1, 4)):
            if self.user.status in (ProducerStatus.CLOSED, ProducerStatus.FENCED):
                break
            self._transaction() if self.user.is_transactional else self._sends()
        self._close()
        if self._rng.random() < 0.5:
            self.user.renew()
        else:
            self.user = self._new_user()

    def _transaction(self) -> None:
        rng = self._rng
        if self.user.status is ProducerStatus.PREPARED:
            self._settled(rng.choice(("commit", "abort")))
        if rng.random() < 0.15:
            self._settled("transaction")
            return
        if self.call("begin") != "returned" and not self._begun():
            return
        for _ in range(rng.randint(1, 4)):
            name = rng.choice(
                ("send", "send", "send_table", "send_text", "send_large", "flush", "send_offsets")
            )
            if self.call(name) not in ("returned", "returned (signal)") and rng.random() < 0.5:
                break
        if rng.random() < 0.15:
            self._settled("prepare")
        self._settled(rng.choice(("commit", "commit", "commit", "abort")))

    def _begun(self) -> bool:
        """Get to an open transaction whatever came before; return whether that was possible."""
        if self.user.status is ProducerStatus.IN_TRANSACTION:
            return True
        for _ in range(3):
            if self.user.status is ProducerStatus.READY and self.call("begin") == "returned":
                return True
            if self.user.status is ProducerStatus.CLOSED:
                return False
            self.call("abort", chance=0.3)
        return False

    def _settled(self, name: str) -> None:
        """Call, and after an interrupt do what a user may do."""
        if not self.call(name).startswith("interrupted"):
            return
        if self._rng.random() < 0.2:
            self._other_thread()
        for _ in range(3):
            then = self._rng.choice(("repeat", "abort", "close", "go on"))
            if then == "go on" or self.call(name if then == "repeat" else then, chance=0.3) != "interrupted":
                return

    def _sends(self) -> None:
        for _ in range(self._rng.randint(1, 4)):
            self.call(self._rng.choice(("send", "send", "send_table", "send_text")))
        self._settled("flush") if self._rng.random() < 0.8 else None

    def _other_thread(self) -> None:
        """Another thread must get an answer from the producer."""
        answered = threading.Event()

        def ask() -> None:
            try:
                self.user.producer.init()
            except TxnLogError:
                pass
            finally:
                answered.set()

        if self.user.status is ProducerStatus.UNINITIALISED:
            return
        threading.Thread(target=ask, daemon=True).start()
        if not answered.wait(CALL_SECONDS):
            self._history.problems.append(f"another thread hangs; {_others_stacks()}")

    def _close(self) -> None:
        for chance in (0.5, 0.3, 0.0, 0.0, 0.0):
            if self.user.status is ProducerStatus.CLOSED:
                return
            self.call("close", chance=chance)
        if self.user.status is not ProducerStatus.CLOSED:
            self._history.problems.append(f"cannot be closed: {self.user.status}")

    def end(self) -> None:
        """Let new instances end what is left under each name."""
        for number in range(3):
            user = User(self._world, f"t{number}")
            user.init()
            if user.status is ProducerStatus.PREPARED:
                user.producer.abort()
            user.close()


def run_history(seed: int, root: Path, interrupts: int) -> History:
    """Run one history, in the main thread of a process."""
    rng = random.Random(seed)  # moments, not secrets
    history = History(seed)
    start = time.perf_counter()
    fill(root)
    files, threads = open_files(), threading.active_count()
    unraisable, sys.unraisablehook = sys.unraisablehook, lambda what: _ignored(history, what)
    with _Signals(rng) as signals:
        worker = _Worker(history, root, signals, rng)
        while history.interrupts < interrupts and not history.problems:
            worker.live()
        worker.end()
    del worker
    gc.collect()
    sys.unraisablehook = unraisable
    # Background work, which nobody waits for, comes to its end, also what begins when the longest linger is
    # over. Two threads
    # may stay: the library's, and one that waits.
    end = time.monotonic() + CALL_SECONDS + LINGER_MS_MAX / 1000
    while time.monotonic() < end and (threading.active_count() > threads + 2 or open_files() - files):
        gc.collect()
        time.sleep(0.01)
    if threading.active_count() > threads + 2:
        history.problems.append(f"threads that do not end: {_others_stacks()}")
    if left := open_files() - files:
        history.problems.append(f"left open: {', '.join(sorted(left))}")
    history.seconds = time.perf_counter() - start
    return history


def _ignored(history: History, what: Any) -> None:
    """Note what is raised where nobody can catch it. The interruption itself may be: no call is cut short by
    it then."""
    if not isinstance(what.exc_value, Interruption):
        history.problems.append(f"ignored in {what.object!r:.80}: {what.exc_value!r:.120}")


def _stack(trace: TracebackType | FrameType | None) -> str:
    frames = (
        traceback.extract_tb(trace) if isinstance(trace, TracebackType) else traceback.extract_stack(trace)
    )
    return " < ".join(f"{Path(one.filename).name}:{one.lineno} {one.name}" for one in reversed(frames[-12:]))


def _others_stacks() -> str:
    """Return where every other thread is."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return "; ".join(
        f"{names.get(ident, ident)}: {_stack(frame)}"
        for ident, frame in sys._current_frames().items()
        if ident != threading.get_ident()
    )


def judge(history: History, root: Path) -> list[str]:
    """Hold a history against its log; in another process than the one that ran it."""
    world = World(LocalStore(root))
    seen = world.seen(verified=True)
    problems = [*history.problems, *history.ledger.check(seen)]
    if seen.undecided:
        problems.append(f"left undecided: {', '.join(seen.undecided)}")
    if left := [path.name for path in root.rglob(".tmp-*")]:
        problems.append(f"left behind: {', '.join(left)}")
    return [f"seed {history.seed}: {problem}" for problem in problems]
