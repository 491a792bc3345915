"""Histories made by hand: a few lines for each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from txnformat.types import IsolationLevel
from txnlog_testing.checker import (
    TXNLOG,
    Event,
    EventType,
    Function,
    MicroOperation,
    Poll,
    Report,
    Send,
    check_history,
)

UNCOMMITTED = IsolationLevel.READ_UNCOMMITTED


class Hand:
    """A history made by hand; its time is 1 ms per event."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def event(
        self, process: str, f: str, type_: str, value: Iterable[MicroOperation] = (), **more: Any
    ) -> None:
        index = len(self.events)
        self.events.append(
            Event(
                process=process,
                type=EventType(type_),
                f=Function(f),
                time_ns=index * 1_000_000,
                value=tuple(value) or None,
                index=index,
                **more,
            )
        )

    def do(self, process: str, f: str, *value: MicroOperation, end: str | None = "ok", **more: Any) -> None:
        """Begin an operation and end it."""
        self.event(process, f, "invoke", value, **more)
        if end is not None:
            self.event(process, f, end, value, **more)

    def send(self, *sends: Send, by: str = "w", end: str | None = "ok", f: str = "txn", **more: Any) -> None:
        self.do(by, f, *sends, end=end, **more)

    def poll(self, *records: tuple[int, Any], by: str = "r", key: str = "t/0", **more: Any) -> None:
        self.do(by, "poll", Poll({key: records}, **more))

    def whole(self, by: str = "final", **records: Iterable[tuple[int, Any]]) -> None:
        """Read all of some partitions: a_0 is a/0."""
        keys = {key.replace("_", "/"): tuple(found) for key, found in records.items()}
        self.do(by, "poll", Poll(keys, whole=True))

    def found(self) -> dict[str, int]:
        return {cls.value: count for cls, count in self.check().counts.items()}

    def check(self) -> Report:
        return check_history(self.events, TXNLOG)


def crossed(h: Hand, **more: Any) -> None:
    h.event("a", "txn", "invoke", [Send("t/0", 1), Send("t/1", 2)], **more)
    h.event("b", "txn", "invoke", [Send("t/0", 3), Send("t/1", 4)])
    h.event("a", "txn", "ok", **more)
    h.event("b", "txn", "ok")
    h.poll((0, 1), (1, 3))
    h.poll((0, 4), (1, 2), key="t/1")
