"""Readers that follow a topic from its beginning, and write down what they saw as a history."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.chaos.outside import Tail
from tests.pipeline.topics import ORDERS
from txnlog_testing.checker import HistoryWriter, Poll, records_of

__all__ = ["Follower"]


class Follower(Tail):
    """Follows ``orders`` or one of the sides."""

    def __init__(self, location: str, topic: str, partitions: int, history: Path) -> None:
        super().__init__(location, partitions, topic=topic)
        own = () if topic == ORDERS else ("attempt",)
        self.columns = ("n", *own, "_topic", "_partition", "_offset")
        self._history = history
        self._written: HistoryWriter | None = None

    def took(self, rows: list[dict[str, Any]]) -> None:
        if self._written is None:  # the file is of the thread that polls
            self._written = HistoryWriter.in_directory(self._history)
        if rows:
            self._written.event(f"tail of {self.topic}", "poll", value=(Poll(records_of(rows, "n")),))

    def run(self) -> None:
        try:
            super().run()
        finally:
            if self._written is not None:
                self._written.close()
