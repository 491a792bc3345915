"""Settings of a consumer, as plain values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from txnformat import keys
from txnformat.arguments import check_settings, is_flag, is_text, problems_of_columns
from txnformat.consumers.looks import LOOK_INTERVAL_BOUNDS, LOOK_INTERVAL_MS
from txnformat.core.groups.checks import SESSION_TIMEOUT_MS_MAX
from txnformat.errors import InvalidInputError
from txnformat.types import IsolationLevel

__all__ = ["ConsumerSettings", "OffsetReset"]

LEVELS = (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
"""The isolation levels that follow a log as it grows."""


class OffsetReset(StrEnum):
    """Where a partition is begun of which no position is known, or whose position is not there any more."""

    EARLIEST = "earliest"
    LATEST = "latest"
    NONE = "none"
    """No default: the caller must seek."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    """Settings of a :class:`~txnformat.consumers.consumer.Consumer`.

    Every problem is in an InvalidInputError of kind ``invalid-settings``.
    """

    group: str | None = None
    """The group whose positions are committed. If None, positions live in the consumer alone. Kafka's
    group.id."""
    isolation: IsolationLevel = IsolationLevel.READ_COMMITTED
    """read_committed: up to the last stable offset, without aborted records. read_uncommitted: all, up to the
    end."""
    auto_offset_reset: OffsetReset = OffsetReset.EARLIEST
    """Where a partition without a position is begun. Kafka's auto.offset.reset, whose default is latest."""
    enable_auto_commit: bool = False
    """Commit positions now and then without being told. Kafka's enable.auto.commit, whose default is true."""
    auto_commit_interval_ms: int = 5_000
    """Shortest time between two such commits, ms; 0: with every poll."""
    session_timeout_ms: int = 45_000
    """How long after the group's last use its member counts as live for resets and deletion, ms."""
    default_api_timeout_ms: int = 60_000
    """How long to wait for positions that are pending in a transaction, ms."""
    max_poll_records: int = 500
    """Most records of one poll. Kafka's max.poll.records."""
    look_interval_ms: int = LOOK_INTERVAL_MS
    """Longest wait between two looks at a log without news, ms, 10 to 60,000 (inclusive): each look is a
    request. Kafka's fetch.max.wait.ms."""
    columns: tuple[str, ...] | None = None
    """Columns of the batches, in the wanted order: the topics' own and metadata columns. If None, all own
    ones and four of metadata."""

    def __post_init__(self) -> None:
        """Report all problems at once."""
        problems = [
            *self._problems_of_group(),
            *([] if self.columns is None else problems_of_columns(self.columns)),
        ]
        bounds: dict[str, tuple[int, int | None]] = {
            "auto_commit_interval_ms": (0, None),
            "session_timeout_ms": (1, SESSION_TIMEOUT_MS_MAX),
            "default_api_timeout_ms": (0, None),
            "max_poll_records": (1, None),
            "look_interval_ms": LOOK_INTERVAL_BOUNDS,
        }
        if is_text(self.isolation) and self.isolation == "snapshot":
            problems.append("a snapshot does not grow, so there is nothing to follow; read it with log.read")
        choices: dict[str, Iterable[str]] = {"isolation": LEVELS, "auto_offset_reset": OffsetReset}
        check_settings(self, bounds, choices, problems, ["enable_auto_commit"])
        object.__setattr__(self, "isolation", IsolationLevel(self.isolation))
        object.__setattr__(self, "auto_offset_reset", OffsetReset(self.auto_offset_reset))
        object.__setattr__(self, "columns", None if self.columns is None else tuple(self.columns))

    def _problems_of_group(self) -> list[str]:
        problems = []
        if self.group is not None:
            try:
                keys.check_reader_name(self.group, "group")
            except InvalidInputError as error:
                problems += [f"{problem}: {error.hint}" for problem in error.problems]
        if self.group is None and is_flag(self.enable_auto_commit) and self.enable_auto_commit:
            problems.append("enable_auto_commit needs a group")
        return problems
