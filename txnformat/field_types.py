"""Types of the fields of documents: a declaration with them is all that a decoder needs to check a value by
itself.

``Meta.description`` is what an error says was expected; numbers and texts without one are described by their
bounds.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from txnformat import keys

__all__ = [
    "FEATURE",
    "INT64_MAX",
    "LEFT_OUT",
    "LOG_PARTITIONS_MAX",
    "LOG_TIME_MS_MAX",
    "OLDER_LACK",
    "PARTITIONS_MAX",
    "SCHEMAS_MAX",
    "SIZE_MAX",
    "Content32",
    "Count",
    "Digest16",
    "Flag",
    "Int32",
    "Item",
    "LogTime",
    "Name",
    "OrMinusOne",
    "PartitionCount",
    "PartitionNumber",
    "Positive",
    "PositiveInt32",
    "ReaderName",
    "SchemaId",
    "Sha256",
    "Size",
    "Text",
    "Time",
    "TimeoutMs",
    "TopicName",
    "TransactionalId",
    "Uuid",
]

INT64_MAX = 2**63 - 1
INT32_MAX = 2**31 - 1
PARTITIONS_MAX = 10_000
"""Most partitions of one topic."""
LOG_PARTITIONS_MAX = 200_000
"""Most partitions of all topics of a log together."""
SCHEMAS_MAX = 1_000
"""Most versions of one topic's schema."""
TIMEOUT_MS_MAX = 2**53
"""Far above any timeout."""
SIZE_MAX = 2**48
"""Largest size of batches that are counted together, in bytes (inclusive): far above any, and sums of them
fit int64."""
LOG_TIME_MS_MAX = 253_402_300_799_999
"""Latest log time (inclusive): the end of the year 9999. Python has no later ones."""
TEXT_BYTES_MAX = 4_096
"""Longest text, in UTF-8, of a field without a bound of its own."""

LEFT_OUT = Meta(extra={"may_lack": True, "left_out": True})
"""Marks a field of an operation that writers leave out when it has its default."""
OLDER_LACK = Meta(extra={"may_lack": True})
"""Likewise: earlier versions have not written it."""
FEATURE = Meta(extra={"feature": True})
"""Marks a field whose further values are features that this version does not have."""

Count = Annotated[int, Meta(ge=0, le=INT64_MAX)]
Positive = Annotated[int, Meta(ge=1, le=INT64_MAX)]
OrMinusOne = Annotated[int, Meta(ge=-1, le=INT64_MAX)]
Size = Annotated[int, Meta(ge=0, le=SIZE_MAX)]
Int32 = Annotated[int, Meta(ge=0, le=INT32_MAX)]
PositiveInt32 = Annotated[int, Meta(ge=1, le=INT32_MAX)]
Time = Annotated[int, Meta(ge=-(2**63), le=INT64_MAX)]
LogTime = Annotated[int, Meta(ge=0, le=LOG_TIME_MS_MAX)]
TimeoutMs = Annotated[int, Meta(ge=1, le=TIMEOUT_MS_MAX)]
PartitionNumber = Annotated[int, Meta(ge=0, le=PARTITIONS_MAX - 1)]
PartitionCount = Annotated[int, Meta(ge=1, le=PARTITIONS_MAX)]
SchemaId = Annotated[int, Meta(ge=0, le=SCHEMAS_MAX - 1)]
Flag = Annotated[int, Meta(ge=0, le=1)]


def bounded(bytes_max: int, bytes_min: int = 0) -> Meta:
    """Return what is said of a text of so many bytes in UTF-8 (inclusive)."""
    return Meta(min_length=bytes_min or None, max_length=bytes_max, extra={"bytes_max": bytes_max})


Text = Annotated[str, bounded(TEXT_BYTES_MAX)]
Item = Annotated[str, Meta(max_length=TEXT_BYTES_MAX)]
"""An item of a list of texts."""
Name = Annotated[str, bounded(TEXT_BYTES_MAX, 1)]
TransactionalId = Annotated[str, bounded(keys.TRANSACTIONAL_ID_BYTES_MAX, 1)]
Uuid = Annotated[str, Meta(pattern=rf"\A{keys.UUID_PATTERN}\Z", description="uuid")]
TopicName = Annotated[str, Meta(pattern=rf"\A{keys.TOPIC_PATTERN}\Z", description="topic name")]
ReaderName = Annotated[
    str, Meta(pattern=rf"\A{keys.TOPIC_PATTERN}\Z", description="name of 1 to 249 of A-Z a-z 0-9 . _ -")
]
Digest16 = Annotated[str, Meta(pattern=r"\A[0-9a-f]{16}\Z", description="16 hex digits")]
Content32 = Annotated[str, Meta(pattern=r"\A[0-9a-f]{32}\Z", description="32 hex digits")]
Sha256 = Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z", description="64 hex digits")]
