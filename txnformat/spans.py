"""Spans of what a log does, for programs that trace it.

While no tracer is set, a span is one comparison, and nothing is imported.

``txnlog.otel`` sets one. Attributes are plain values under plain names; the tracer gives them the names of
its conventions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

__all__ = ["Span", "Tracer", "carried", "counted", "flush", "here", "set_tracer", "span", "under"]

T = TypeVar("T")


class Batch(Protocol):
    """A record batch."""

    @property
    def num_rows(self) -> int: ...

    @property
    def nbytes(self) -> int: ...


B = TypeVar("B", bound=Batch)


class Span(Protocol):
    """One piece of work, from ``__enter__`` to ``__exit__``.

    False while nothing is traced: its attributes need not be computed.
    """

    def __bool__(self) -> bool: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def set(self, **attributes: Any) -> None:
        """Add attributes."""
        ...

    def failed(self, error: BaseException) -> None:
        """Say that the work failed, with an error that is an answer and is not raised here."""
        ...


class Tracer(Protocol):
    """Makes spans."""

    def span(self, name: str, attributes: dict[str, Any], *, is_current: bool, parent: str | None) -> Span:
        """Return a span that has not begun; ``is_current``: spans that begin within it, in its thread, are
        its children.
        """
        ...

    def here(self) -> str | None:
        """Return the span that is current here, as text for another process; None: there is none."""
        ...

    def under(self, parent: str) -> AbstractContextManager[object]:
        """Make a span of another process the current one, for a while."""
        ...

    def flush(self, seconds: float, *, is_last: bool) -> None:
        """Hand over the spans that have ended. Never raises an Exception."""
        ...

    def carried(self, call: Callable[[], T]) -> Callable[[], T]:
        """Return a call for another thread, whose spans are children of the span that is current here."""
        ...


class _Nothing:
    """The span of a process that traces nothing."""

    def __bool__(self) -> bool:
        return False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def set(self, **attributes: Any) -> None: ...

    def failed(self, error: BaseException) -> None: ...


_NOTHING = _Nothing()
_tracer: Tracer | None = None


def set_tracer(tracer: Tracer | None) -> None:
    """Let spans be made by a tracer, in this process from now on; None: make none."""
    global _tracer
    _tracer = tracer


def span(name: str, /, *, is_current: bool = True, parent: str | None = None, **attributes: Any) -> Span:
    """Return the span of a piece of work: ``with span("seal", log=url): …``.

    ``is_current`` is False for work that is suspended between its steps, as a generator is. ``parent``: a
    span of another process (:func:`here`), for work that has none in this one.
    """
    tracer = _tracer
    return _NOTHING if tracer is None else tracer.span(name, attributes, is_current=is_current, parent=parent)


def here() -> str | None:
    """Return the span that is current here, as another process can take it (W3C's ``traceparent``); None:
    there is none, or nothing is traced.
    """
    tracer = _tracer
    return None if tracer is None else tracer.here()


def under(parent: str | None) -> AbstractContextManager[object]:
    """Make a span of another process (:func:`here`) the current one, for a while; None: leave all as it
    is.
    """
    tracer = _tracer
    return _NOTHING if tracer is None or parent is None else tracer.under(parent)


def counted(one: Span, batches: Iterator[B]) -> Iterator[B]:
    """Yield batches within a span, from the first to the last that the caller takes; as they are while
    nothing is traced.
    """
    return _counted(one, batches) if one else batches


def _counted(one: Span, batches: Iterator[B]) -> Iterator[B]:
    records = size = 0
    with one:
        try:
            for batch in batches:
                records += batch.num_rows
                size += batch.nbytes
                yield batch
        finally:
            one.set(records=records, size=size)


def flush(seconds: float, *, is_last: bool = False) -> None:
    """Hand over the spans that have ended, as this process may be stopped at any time; wait so long at most.

    ``is_last``: the process ends now, so durations are handed over, too. Never raises an Exception.
    """
    tracer = _tracer
    if tracer is not None:
        tracer.flush(seconds, is_last=is_last)


def carried(call: Callable[[], T]) -> Callable[[], T]:
    """Return a call for another thread, whose spans belong to the span that is current here."""
    tracer = _tracer
    return call if tracer is None else tracer.carried(call)
