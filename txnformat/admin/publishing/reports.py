"""Reports of publications, and the formats that there are."""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from txnformat.admin.topics import DamagedTopic

if TYPE_CHECKING:
    from txnformat.views.delta_table import DeltaTable
    from txnformat.views.iceberg_table import IcebergTable

__all__ = [
    "DELTA",
    "FORMATS",
    "ICEBERG",
    "OFFSETS",
    "HeldBack",
    "KnownTables",
    "Maintained",
    "PublishReport",
    "PublishedTopic",
]

DELTA, OFFSETS, ICEBERG = "delta", "delta-offsets", "iceberg"
FORMATS = (DELTA, ICEBERG, OFFSETS)


@dataclass(slots=True)
class KnownTables:
    """Published tables as a process saw them last, by topic id."""

    delta: MutableMapping[str, DeltaTable] = field(default_factory=dict)
    offsets: MutableMapping[str, DeltaTable] = field(default_factory=dict)
    iceberg: MutableMapping[str, IcebergTable] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PublishedTopic:
    """A topic's table after a publication."""

    topic: str
    topic_id: str
    directory: str
    """Directory of the table, relative to the root."""
    version: int
    """The version that shows the publication's entry; with ``superseded_by`` a later one."""
    is_new: bool
    """This call made the version: there was something to change."""
    files: int
    added: int
    """Files that this call added."""
    removed: int
    """Files that this call removed."""
    superseded_by: int | None = None
    """A later entry that another process has published meanwhile."""


@dataclass(frozen=True, slots=True)
class HeldBack:
    """Something because of which a later entry could not be published."""

    topic: str
    file: str
    reason: str
    waits_for: str
    """The action or the event after which it can be."""


@dataclass(frozen=True, slots=True)
class PublishReport:
    """The effect of :meth:`txnformat.log.TxnLog.publish`."""

    format: str
    entry: int
    """All tables show this entry."""
    topics: tuple[PublishedTopic, ...]
    """The topics that were published, by name."""
    manifest: str | None
    """Key of the manifest. If None, another process has published a later entry meanwhile."""
    held_back: tuple[HeldBack, ...] = ()
    """The reasons why the entry is not the log's last one."""
    compacted_parts: int = 0
    """Sealed parts that were written anew first."""
    refused: tuple[tuple[str, str], ...] = ()
    """Topics that were not published, as the format has no such table, each with the reason."""


@dataclass(frozen=True, slots=True)
class Maintained:
    """The publications of a round of maintenance."""

    reports: tuple[PublishReport, ...] = ()
    """A report for each format, all of the same entry. If empty, no topic's settings ask for it, or nothing
    could be published."""
    damaged: tuple[DamagedTopic, ...] = ()
    """Topics with a table that could not be written."""
