"""Faults, and the folder through which a test arms them and learns that they were hit.

A fault waits at a named point of a Python worker that Spark has started. The points around what Spark calls:

====================  ==========================================================================================
``plan``              the driver's Spark asks for a writer, to plan a write
``initial/start``     a query whose source is a log asks where it begins; ``initial/done``: that is known, and Spark does not
                      know yet
``latest/start``      it asks up to where there is something to read; ``latest/done``
``splits/start``      it asks for the splits of a micro-batch; ``splits/done``. All six in the process that follows the log
``fetch/start``       a task begins to read its split; ``fetch/row``: it handed on one Arrow batch, and asks for the next. In
                      a Python worker of their own
``read/row``          the task's query was given one Arrow batch of rows; in a Python worker other than the sink's
``write/start``       a task begins
``write/row``         a task's sink took one Arrow batch of rows, and asks for the next
``write/last``        a task's sink took all rows, and has not closed its file
``write/uploaded``    a task's sink is done, and its message has not left the Python worker
``commit/start``      the driver's Spark asks for the commit
``commit/done``       the commit is done, and Spark does not know yet
``abort/start``       the driver's Spark gives a batch up
``abort/done``        that is done, and Spark does not know yet
====================  ==========================================================================================

Around every request to the store that writes there are ``<call>/before-<object>`` and
``<call>/after-<object>``, where the call is ``plan``, ``write``, ``commit`` or ``abort`` and the object a
:class:`txnformat.store.requests.KeyClass`: at ``commit/after-entry`` the entry is in the log, and its answer
has not arrived.

The folder has, for each fault: ``<name>.fault`` as it was armed; ``<name>.at.<i>`` for the i-th time that its
point was reached, made by whoever reached it, which counts over all processes; ``<name>.hit.<i>`` written
before it is carried out; ``<name>.go`` when somebody lets go on who waits.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, TypeVar

__all__ = [
    "CONTROL_SECONDS_MAX",
    "DRIVER_FILE",
    "Control",
    "Fault",
    "Hit",
    "Place",
    "wait_until",
    "write_whole",
]

CONTROL_SECONDS_MAX = 240.0
"""How long anybody waits for a file. Generous: a loaded machine is no defect."""
POLL_SECONDS = 0.005

DRIVER_FILE = "driver.json"
"""In the control folder: the pids of a driver."""

Answer = TypeVar("Answer")


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a process is as it reaches a point."""

    point: str
    pid: int
    batch: int | None = None
    """The micro-batch; None where Spark does not say: at ``plan``, and in batch writes."""
    partition: int | None = None
    """The task's number; None at the driver."""
    attempt: int | None = None
    """Of the task, from 0."""
    task: int | None = None
    """Spark's task attempt id: no two attempts of one driver share it."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What is to happen, where, and to whom."""

    point: str
    """A point, or a pattern as file names have it: ``write/*``, ``*-entry``."""
    victim: Literal["worker", "jvm", "driver"] = "worker"
    """This Python worker; the JVM that started it: the executor's, or on the driver the driver's; or all that is the
    driver: its JVM, its Python and its Python workers, in a local master the tasks too, but no executor's JVM."""
    how: Literal["kill", "stop", "raise", "wait", "note"] = "kill"
    """SIGKILL; SIGSTOP; raise an exception; stand still until :meth:`Control.release`; only say that the point was
    reached. The last three: this worker."""
    batch: int | None = None
    partition: int | None = None
    attempt: int | None = None
    """None matches any."""
    nth: int = 1
    """At which time that the point is reached, from 1, counted over all processes."""
    times: int = 1
    """How often from then on."""

    def __post_init__(self) -> None:
        if self.how in ("raise", "wait", "note") and self.victim != "worker":
            raise ValueError(f"{self.how} is for the worker that reaches the point")

    def matches(self, place: Place) -> bool:
        """Tell whether this is where it waits."""
        return fnmatchcase(place.point, self.point) and all(
            wanted is None or wanted == found
            for wanted, found in (
                (self.batch, place.batch),
                (self.partition, place.partition),
                (self.attempt, place.attempt),
            )
        )


@dataclass(frozen=True, kw_only=True)
class Hit:
    """What is known of a fault that was carried out."""

    place: Place
    victims: tuple[int, ...]
    """Pids."""
    driver: bool
    """Whether a driver's process was the victim."""


class Control:
    """A control folder. One driver at a time has it."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)

    # --- the test's side ------------------------------------------------------------------------------------

    def arm(self, name: str, fault: Fault) -> None:
        """Let a fault wait. A name is used once."""
        if (self.folder / f"{name}.at.1").exists():
            raise ValueError(f"{name} was armed before")
        write_whole(self.folder / f"{name}.fault", asdict(fault))

    def disarm(self, name: str) -> None:
        """Take a fault back. It may be hit at this very moment."""
        (self.folder / f"{name}.fault").unlink(missing_ok=True)

    def release(self, name: str) -> None:
        """Let go on who waits at a fault, and who comes there later."""
        write_whole(self.folder / f"{name}.go", {})

    def hit(self, name: str, time: int = 1) -> Hit | None:
        """Return what is known of the ``time``-th hit of a fault, counted from 1; None: there was none
        yet.
        """
        found = read_whole(self.folder / f"{name}.hit.{time}")
        if found is None:
            return None
        return Hit(place=Place(**found["place"]), victims=tuple(found["victims"]), driver=found["driver"])

    def wait_hit(self, name: str, time: int = 1, *, alive: Callable[[], Any] | None = None) -> Hit:
        """Wait until a fault is hit, and return what is known of it; ``alive`` raises when that is in
        vain.
        """
        return wait_until(lambda: self.hit(name, time), f"fault {name} to be hit", alive)

    # --- the worker's side ----------------------------------------------------------------------------------

    def armed(self) -> list[tuple[str, Fault]]:
        """Return the faults that wait, by name."""
        found = []
        for path in sorted(self.folder.glob("*.fault")):
            fault = read_whole(path)
            if fault is not None:  # else it was taken back meanwhile
                found.append((path.stem, Fault(**fault)))
        return found

    def claim(self, name: str, fault: Fault) -> int | None:
        """Count that a fault's point was reached; return which hit that is, from 1, if it is one."""
        for count in range(1, fault.nth + fault.times):
            try:
                os.close(os.open(self.folder / f"{name}.at.{count}", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            except FileExistsError:
                continue
            hit = count - fault.nth + 1
            return hit if hit >= 1 else None
        return None

    def note(self, name: str, time: int, hit: Hit) -> None:
        """Say that a fault is being carried out."""
        write_whole(self.folder / f"{name}.hit.{time}", asdict(hit))

    def wait_release(self, name: str) -> None:
        """Stand still until the test lets go on."""
        wait_until(lambda: read_whole(self.folder / f"{name}.go") is not None, f"{name} to be released")


def write_whole(path: Path, value: Any) -> None:
    """Write JSON so that nobody sees half of it."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    beside.write_text(json.dumps(value))
    beside.replace(path)


def read_whole(path: Path) -> Any:
    """Return what :func:`write_whole` wrote; None: there is nothing."""
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return None


def wait_until(
    look: Callable[[], Answer | None],
    what: str,
    alive: Callable[[], Any] | None = None,
    seconds: float = CONTROL_SECONDS_MAX,
) -> Answer:
    """Look until it is something else than None or False, and return that; ``alive`` is called as well, and
    may raise.

    Raises
    ------
    TimeoutError
        Nothing was seen in that time.
    """
    end = time.monotonic() + seconds
    while True:
        found = look()
        if found is not None and found is not False:
            return found
        if alive is not None:
            try:
                alive()
            except Exception:
                found = look()  # what came before the end counts
                if found is not None and found is not False:
                    return found
                raise
        if time.monotonic() > end:
            raise TimeoutError(f"waited {seconds:.0f} s for {what}")
        time.sleep(POLL_SECONDS)
