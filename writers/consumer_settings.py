"""What a consumer is told once, as plain values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from txnformat.errors import InvalidInputError
from txnformat.types import IsolationLevel

__all__ = ["ConsumerSettings", "OffsetReset"]

LEVELS = (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
"""Those that follow a log as it grows."""


class OffsetReset(StrEnum):
    """Where a partition is begun of which no position is known, or whose position is not there any more."""

    EARLIEST = "earliest"
    LATEST = "latest"
    NONE = "none"
    """Nowhere: the consumer is to be told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    """Settings of a :class:`~writers.consumer.Consumer`.

    Raises
    ------
    InvalidInputError
        Kind ``invalid-settings``: every problem found.
    """

    isolation: IsolationLevel = IsolationLevel.READ_COMMITTED
    """read_committed: up to the last stable offset, without aborted records. read_uncommitted: all, up to the end."""
    auto_offset_reset: OffsetReset = OffsetReset.EARLIEST
    """Where a partition without a position is begun. Kafka's auto.offset.reset, whose default is latest."""
    max_poll_records: int = 500
    """Most records of one poll. Kafka's max.poll.records."""
    columns: tuple[str, ...] | None = None
    """Of the batches, in the wanted order: topics' own and metadata columns; None: all own ones and four of metadata."""

    def __post_init__(self) -> None:
        """Report all problems at once."""
        problems = [
            *_problems_of_level(self.isolation),
            *_problems_of_choice("auto_offset_reset", self.auto_offset_reset, OffsetReset),
            *_problems_of_columns(self.columns),
        ]
        if type(self.max_poll_records) is not int or self.max_poll_records < 1:
            problems.append(
                f"max_poll_records is {self.max_poll_records!r:.80}, not a whole number from 1 on"
            )
        if problems:
            raise InvalidInputError(problems, kind="invalid-settings")
        object.__setattr__(self, "isolation", IsolationLevel(self.isolation))
        object.__setattr__(self, "auto_offset_reset", OffsetReset(self.auto_offset_reset))
        object.__setattr__(self, "columns", None if self.columns is None else tuple(self.columns))


def _problems_of_choice(name: str, value: Any, choices: type[StrEnum]) -> list[str]:
    if isinstance(value, str) and value in set(choices):
        return []
    return [f"{name} is {value!r:.80}, not one of {', '.join(choices)}"]


def _problems_of_level(value: Any) -> list[str]:
    if isinstance(value, str) and value in LEVELS:
        return []
    problem = f"isolation is {str(value)!r:.80}, not one of {', '.join(LEVELS)}"
    if value == "snapshot":
        problem += ": a snapshot does not grow, so there is nothing to follow; read it with log.read"
    return [problem]


def _problems_of_columns(value: Any) -> list[str]:
    if value is None:
        return []
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        return [f"columns is {value!r:.80}, not a list of names"]
    if not value:
        return ["columns is empty: name at least one"]
    problems = [f"columns has {name!r:.80}, not a name" for name in value if not isinstance(name, str)]
    names = [name for name in value if isinstance(name, str)]
    problems += [f"columns has {name!r:.80} twice" for name in dict.fromkeys(names) if names.count(name) > 1]
    return problems
