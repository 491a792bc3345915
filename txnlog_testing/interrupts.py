"""Raises an exception at any point of a call at which CPython can run a signal handler, one point at a time.

A call is run once under :func:`record`, which lists its points; then again and again under :func:`interrupt`,
each time with another point and everything else anew. The test then compares the answer to the caller with
the effect::

    with record() as points:
        producer.commit()
    for point in points:
        producer = ...  # anew
        with interrupt(point, KeyboardInterrupt) as struck:
            producer.commit()

Where CPython runs signal handlers
----------------------------------
In the main thread, where the interpreter looks at its *eval breaker*, and in C functions that call
``PyErr_CheckSignals``. From ``Python/ceval.c`` (3.11) and ``Python/bytecodes.c`` (3.12 to 3.14):

==========================  =====================================================
================================= version                     eval breaker
name in the source ==========================  =====================================================
=================================
3.11, 3.12                  ``RESUME``, backward jumps, after ``CALL`` and         ``CHECK_EVAL_BREAKER``
                            ``CALL_FUNCTION_EX`` of anything but a plain function
3.13                        the same, and ``CALL_KW``                              ``CHECK_EVAL_BREAKER``
3.14                        the same; ``with`` is compiled to ``LOAD_SPECIAL``     ``_CHECK_PERIODIC``,
                            and ``CALL``, so also between ``__enter__`` and the    ``_CHECK_PERIODIC_IF_NOT_``
                            block (python/cpython#148874)                          ``YIELD_FROM``
==========================  =====================================================
=================================

A plain Python function is entered without leaving the interpreter's loop: its ``RESUME`` looks, the ``CALL``
that entered it does not look again when it returns. :class:`PointKind` says how each of these is raised at.
Points lie in the frames of the project's packages, and in those of the standard library's Python code that
they wait in; code of other packages in between is passed over. A point is named by its place in the bytecode
and by the how-manieth time the call comes there, so that the run that is interrupted need not be traced in
whole.

CPython 3.14 has a point between a ``with`` statement's ``__enter__`` and its block that 3.11 lacks: it is not
here, since on 3.14 it is a ``CALL`` like others.
"""

from __future__ import annotations

import dis
import importlib.util
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, TypeVar

__all__ = [
    "PACKAGES",
    "STANDARD_LIBRARY",
    "Point",
    "PointKind",
    "Struck",
    "interrupt",
    "interrupted_at_each",
    "record",
    "thinned",
]

PACKAGES = ("txnformat", "writers", "spark_datasource", "txnlog")
"""Packages in whose frames points are looked for; those of this test kit are left out."""

STANDARD_LIBRARY = (
    "contextlib",
    "threading",
    "queue",
    "weakref",
    "tempfile",
    "concurrent.futures._base",
    "concurrent.futures.thread",
)
"""Modules of the standard library in which the project's threads wait, or that hold its resources."""

_CALLS = frozenset(
    dis.opmap[name] for name in ("CALL", "CALL_FUNCTION_EX", "CALL_KW", "PRECALL") if name in dis.opmap
) - {dis.opmap.get("PRECALL", -1)}
_BACKWARD = frozenset(number for name, number in dis.opmap.items() if "JUMP_BACKWARD" in name) - {
    dis.opmap.get("JUMP_BACKWARD_NO_INTERRUPT", -1)
}
_MAKERS = frozenset({"__init__", "__new__", "__post_init__", "__call__"})
"""Python functions that C code calls for a ``CALL``: when that returns, the interpreter looks."""

_WAITING = frozenset(
    {"acquire", "acquire_lock", "__enter__", "join", "sleep", "get", "wait", "select", "poll"}
)
_SYSTEM = frozenset({"posix", "time", "_io", "io", "select", "_socket"})
"""Modules whose functions and objects make system calls, which signals interrupt."""


TRIES = 5
"""Trials of a point that the call does not come to."""

T = TypeVar("T")


class PointKind(StrEnum):
    """Where in a call a point lies."""

    ENTRY = "entry"
    """A function begins, or a generator goes on: ``RESUME``."""
    RETURNED = "returned"
    """A function written in C has returned; its value is lost."""
    WAITING = "waiting"
    """A function written in C that waits, or makes a system call, handles the signal itself and has done
    nothing."""
    MADE = "made"
    """A ``CALL`` of a class, or of another object that is no function, has returned."""
    JUMP = "jump"
    """A loop begins its next round."""


@dataclass(frozen=True, slots=True, order=True)
class Point:
    """A point of a call."""

    place: str
    """File and qualified name of the function."""
    line: int
    offset: int
    """Offset of the instruction in the function's bytecode."""
    kind: PointKind
    nth: int
    """The how-manieth time the call is there, from 1."""

    def __str__(self) -> str:
        return f"{self.place}:{self.line} {self.kind} #{self.nth}"


@dataclass(slots=True)
class Struck:
    """Whether, and where, an exception was raised."""

    hit: bool = False
    trace: tuple[str, ...] = ()
    """The frames at the point, the innermost first: ``file:line function``."""


class _Frame:
    """The known state of a running frame."""

    __slots__ = ("call", "is_inside", "jump")

    def __init__(self) -> None:
        self.call = -1  # offset of the CALL that was last begun, and has not been looked at
        self.is_inside = False  # whether what it called is looked at elsewhere
        self.jump = -1  # offset of the backward jump that was last looked at


class _Tracer:
    """Counts the points of a call, and passes each on."""

    def __init__(
        self, at: Callable[[Point, FrameType], None], only: Point | None, roots: Sequence[str]
    ) -> None:
        self._at = at
        self._only = only
        self._roots = tuple(roots)
        self._names: dict[CodeType, str | None] = {}
        self._codes: dict[CodeType, bytes] = {}
        self._counts: Counter[tuple[str, int, PointKind]] = Counter()
        self._frames: dict[FrameType, _Frame] = {}
        self._before: tuple[Any, Any] = (None, None)

    def start(self) -> None:
        """Begin to trace this thread."""
        self._before = sys.gettrace(), sys.getprofile()
        wanted = None if self._only is None else self._only.kind
        if wanted in (None, PointKind.RETURNED, PointKind.WAITING):
            sys.setprofile(self._profile)
        if wanted not in (PointKind.RETURNED, PointKind.WAITING):
            sys.settrace(self._trace)

    def stop(self) -> None:
        """Trace as before."""
        sys.setprofile(self._before[1])
        sys.settrace(self._before[0])

    def _name(self, code: CodeType) -> str | None:
        """Return the place of a function that points are looked for in."""
        if code not in self._names:
            name = None
            for root in self._roots:
                if code.co_filename.startswith(root):
                    file = code.co_filename.removeprefix(str(Path(root).parent) + "/")
                    name = None if "/testing/" in file else f"{file}:{code.co_qualname}"
                    break
            if self._only is not None and name != self._only.place:
                name = None
            self._names[code] = name
        return self._names[code]

    def _point(
        self, frame: FrameType, name: str, offset: int, kind: PointKind, *, is_one: bool = True
    ) -> None:
        key = (name, offset, kind)
        if self._only is not None and (offset != self._only.offset or kind is not self._only.kind):
            return
        self._counts[key] += 1
        nth = self._counts[key]
        if is_one and (self._only is None or nth == self._only.nth):
            self._at(Point(name, frame.f_lineno or 0, offset, kind, nth), frame)

    def _trace(self, frame: FrameType, event: str, arg: Any) -> Any:
        """Take note of a frame that begins or goes on."""
        code = frame.f_code
        if frame.f_back is not None and code.co_name not in _MAKERS:
            caller = self._frames.get(frame.f_back)
            if caller is not None:
                caller.is_inside = True
        name = self._name(code)
        if name is None:
            return None
        self._point(frame, name, frame.f_lasti, PointKind.ENTRY)
        if self._only is not None and self._only.kind is PointKind.ENTRY:
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        self._frames.setdefault(frame, _Frame())
        return self._step

    def _step(self, frame: FrameType, event: str, arg: Any) -> Any:
        """Follow a frame instruction by instruction."""
        known = self._frames.get(frame)
        name = self._name(frame.f_code)
        if known is None or name is None:
            return None
        if event == "exception":
            known.call = -1
        elif event == "return":
            del self._frames[frame]
        elif event == "opcode":
            offset = frame.f_lasti
            if known.call >= 0:
                call, known.call = known.call, -1
                self._point(frame, name, call, PointKind.MADE, is_one=not known.is_inside)
            if known.jump >= 0:
                jump, known.jump = known.jump, -1
                if offset <= jump:  # else it was not taken
                    self._point(frame, name, jump, PointKind.JUMP)
            opcode = self._code(frame.f_code)[offset]
            if opcode in _CALLS:
                known.call, known.is_inside = offset, False
            elif opcode in _BACKWARD:
                known.jump = offset
        return self._step

    def _profile(self, frame: FrameType, event: str, arg: Any) -> None:
        """Take note of a function written in C that is called, or has returned."""
        if event not in ("c_call", "c_return"):
            return
        known = self._frames.get(frame)
        if known is not None:
            known.is_inside = True
        name = self._name(frame.f_code)
        if name is None:
            return
        if event == "c_return":
            self._point(frame, name, frame.f_lasti, PointKind.RETURNED)
        elif _waits(arg):
            self._point(frame, name, frame.f_lasti, PointKind.WAITING)

    def _code(self, code: CodeType) -> bytes:
        known = self._codes.get(code)
        if known is None:
            known = self._codes[code] = code.co_code
        return known


class record:  # used as a function; contextlib's frames would be among the points
    """List the points of the block, in their order; the list is complete behind the block.

    Parameters
    ----------
    roots : sequence of str, optional
        Beginnings of the file names in whose frames points lie; by default those of :data:`PACKAGES` and
        :data:`STANDARD_LIBRARY`.
    """

    def __init__(self, roots: Sequence[str] | None = None) -> None:
        self.points: list[Point] = []
        """The points so far."""
        self._tracer = _Tracer(self._note, None, _roots() if roots is None else roots)

    def _note(self, point: Point, frame: FrameType) -> None:
        self.points.append(point)

    def __enter__(self) -> list[Point]:
        self._tracer.start()
        return self.points

    def __exit__(self, *error: object) -> None:
        self._tracer.stop()


class interrupt:  # used as a function
    """Raise ``error()`` when the block comes to a point; only once.

    It passes through this as through all else.

    Parameters
    ----------
    point : Point or None
        None: the first point of a kind, by default where the thread waits.
    kind : PointKind
        With None: of this kind.
    place : str
        With None: only where the place holds this text.
    """

    def __init__(
        self,
        point: Point | None,
        error: Callable[[], BaseException],
        roots: Sequence[str] | None = None,
        *,
        kind: PointKind = PointKind.WAITING,
        place: str = "",
    ) -> None:
        self._kind = kind
        self._place = place
        self._error = error
        self.struck = Struck()
        """The result of the call."""
        self._is_any = point is None
        self._tracer = _Tracer(self._strike, point, _roots() if roots is None else roots)

    def _strike(self, point: Point, frame: FrameType) -> None:
        if self._is_any and (point.kind is not self._kind or self._place not in point.place):
            return
        if not self.struck.hit:
            self.struck.hit = True
            self.struck.trace = tuple(_frames_of(frame))
            raise self._error()

    def __enter__(self) -> Struck:
        self._tracer.start()
        return self.struck

    def __exit__(self, *error: object) -> None:
        self._tracer.stop()


def thinned(points: Sequence[Point], per_place: int = 2) -> list[Point]:
    """Return the points with at most ``per_place`` of each place in the bytecode: the first ones, and the
    last one.
    """
    total = Counter((point.place, point.offset, point.kind) for point in points)
    return [
        point
        for point in points
        if point.nth < per_place or point.nth == total[point.place, point.offset, point.kind]
    ]


def interrupted_at_each(
    points: Sequence[Point],
    begin: Callable[[], T],
    call: Callable[[T], object],
    error: type[BaseException],
    end: Callable[[T], object] = lambda _: None,
    roots: Sequence[str] | None = None,
) -> Iterator[tuple[T, Point]]:
    """Yield, for each point, an object whose call was interrupted there.

    How often a thread looks while it waits for another one depends on the machine: a point that a call does
    not come to is tried five times, and then passed over. AssertionError: more than a tenth of the points
    were passed over.

    Parameters
    ----------
    points : sequence of Point
        Points that :class:`record` has listed.
    begin : callable
        Makes an object for one trial.
    call : callable
        The call.
    error : type of BaseException
        The exception that is raised at the point.
    end : callable
        Ends a trial; also one whose call did not come to its point.
    roots : sequence of str, optional
        As of :class:`record`.
    """
    passed: list[Point] = []
    for point in points:
        for _ in range(TRIES):
            one = begin()
            struck = None
            try:
                with interrupt(point, error, roots) as struck:
                    call(one)
            except error:
                pass
            if struck is not None and struck.hit:
                yield one, point
                end(one)
                break
            end(one)
        else:
            passed.append(point)
    if len(passed) > max(1, len(points) // 10):
        raise AssertionError(f"{len(passed)} of {len(points)} points were not reached: {passed[:5]}")


@cache
def _roots() -> tuple[str, ...]:
    roots = []
    for name in (*PACKAGES, *STANDARD_LIBRARY):
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            continue
        path = Path(spec.origin)
        roots.append(f"{path.parent}/" if path.name == "__init__.py" else str(path))
    return tuple(roots)


def _waits(function: Any) -> bool:
    """Return whether a C function can handle a signal itself before it has done anything."""
    owner = getattr(function, "__self__", None)
    if function.__name__ == "close":  # never tried again, so no handler is run
        return False
    if getattr(function, "__module__", None) in _SYSTEM or type(owner).__module__ in _SYSTEM:
        return True
    return function.__name__ in _WAITING and type(owner).__module__ in ("_thread", "_queue")


def _frames_of(frame: FrameType | None) -> Iterator[str]:
    while frame is not None:
        code = frame.f_code
        yield f"{code.co_filename}:{frame.f_lineno} {code.co_qualname}"
        frame = frame.f_back
