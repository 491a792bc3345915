"""How a topic's settings shape its compaction: the size of files, and what stays apart because retention
removes whole parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from txnformat.core.operations import TopicSetting
from txnformat.core.sealing.segment_list import SegmentPart
from txnformat.core.topics.cleanup import deletes, keeps_latest
from txnformat.core.topics.settings import SETTINGS, value_of
from txnformat.errors import InvalidInputError, repr_of
from txnformat.reading.sealed import SidecarCache

__all__ = ["Ages", "check_arguments", "is_left_alone", "lag_of", "target_of"]

LAG = "min.compaction.lag.ms"
TARGET = "compact.target.bytes"
RETENTION_SHARE = 8
"""A part has at most this fraction of the time, and of the bytes, that retention keeps: it goes as a whole.
"""


def target_of(settings: Sequence[TopicSetting]) -> int:
    """Return the size that a topic's files shall have.

    An explicit compaction ignores maintenance's schedule: -1 counts as the default.
    """
    found, most = (int(value_of(settings, name)) for name in (TARGET, "retention.bytes"))
    target = int(SETTINGS[TARGET].default) if found < 0 else found
    return target if most < 0 or not deletes(settings) else min(target, max(1, most // RETENTION_SHARE))


def lag_of(settings: Sequence[TopicSetting]) -> int:
    """Return for how many milliseconds after the end of its transaction an aborted record stays."""
    return int(value_of(settings, LAG))


def is_left_alone(settings: Sequence[TopicSetting]) -> bool:
    """Return whether maintenance leaves a topic's files as they are."""
    return value_of(settings, TARGET) == -1


class Ages(NamedTuple):
    """Which parts are too far apart in time to be written together: retention removes whole parts."""

    span_ms: int
    """0: none are."""
    by_record: bool
    """Time is the records' own, not that of their appends."""

    @classmethod
    def of(cls, settings: Sequence[TopicSetting]) -> Ages:
        """Return what a topic's retention asks for, and its key compaction, which takes whole parts that are
        old enough.
        """
        ms = int(value_of(settings, "retention.ms"))
        if ms >= 0 and deletes(settings):
            return cls(max(1, ms // RETENTION_SHARE), value_of(settings, "retention.time") == "record")
        lag = int(value_of(settings, "min.compaction.lag.ms")) if keeps_latest(settings) else 0
        return cls(max(1, lag // RETENTION_SHARE) if lag else 0, False)

    def of_part(self, sidecars: SidecarCache, partition: int, part: SegmentPart) -> int:
        """Return the number of the span that the newest record of a part is in.

        Requests: 1 GET, none when it is kept or the records' times count.
        """
        if not self.span_ms:
            return 0
        if self.by_record:
            return int(part.row["max_timestamp_ms"]) // self.span_ms
        index = sidecars.index(part.record.index)
        return index.log_times(partition, part.range)[1] // self.span_ms


def check_arguments(
    topic: str | None, partitions: Sequence[int] | None, target_bytes: int | None, min_lag_ms: int | None
) -> None:
    """Raise InvalidInputError about the first argument of a compaction that cannot be right."""
    if partitions is not None and topic is None:
        raise InvalidInputError(
            "partitions are given without a topic", kind="invalid-partitions", hint="name the topic"
        )
    if partitions is not None and not isinstance(partitions, list):
        raise InvalidInputError(
            f"partitions is {repr_of(partitions)}, not a list of numbers", kind="invalid-partitions"
        )
    for name, value, least in (("target_bytes", target_bytes, 1), ("min_lag_ms", min_lag_ms, 0)):
        if value is not None and (type(value) is not int or value < least):
            raise InvalidInputError(
                f"{name} is {repr_of(value)}, not a number from {least} on",
                kind=f"invalid-{name.replace('_', '-')}",
                hint="leave it out: then the topic's setting counts",
            )
