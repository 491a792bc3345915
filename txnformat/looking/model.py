"""The document that a page about a log draws: declared once, encoded as JSON. Values only.

Numbers of partitions and transactions in a document are indexes into its own lists: a name is in it once.
"""

from __future__ import annotations

import msgspec

__all__ = [
    "Document",
    "EntryTotals",
    "GroupAtSample",
    "GroupView",
    "ObjectKind",
    "OpenTransaction",
    "Partition",
    "Place",
    "Request",
    "Run",
    "Sample",
    "StorageView",
    "TopicView",
    "Transaction",
]


class Partition(msgspec.Struct, frozen=True, gc=False):
    """A partition that the document shows."""

    topic: str
    partition: int
    window_start: int
    """Its log end before the first entry of the window: transactions below are not in the document, but for
    those that were open."""


class Run(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Consecutive records of one transaction in one partition."""

    partition: int
    """Index into the document's partitions."""
    start: int
    end: int
    """Exclusive."""
    entry: int
    """The entry that gave the records their offsets."""


class Transaction(msgspec.Struct, frozen=True):
    """A transaction, an append without one, or the part of a prepared transaction that an operator gave
    up.
    """

    transactional_id: str
    """Empty for an append without a transaction, and for a hanging transaction."""
    producer_id: int
    epoch: int
    begin_entry: int
    begin_ms: int
    """Log time of that entry."""
    runs: tuple[Run, ...]
    records: int
    """Records with offsets that the window saw."""
    bytes: int
    """Compressed bytes of these."""
    staged: int = 0
    """Records without offsets."""
    prepared_entry: int | None = None
    end_entry: int | None = None
    """The entry that ended it. If None, it is open at the document's entry."""
    end_ms: int | None = None
    outcome: str = "open"
    """At the document's entry: "open", "prepared", "late" (its timeout is over), "committed", "aborted",
    "plain" (records without a transaction), or "given-up": records that a prepared transaction, which has the
    same producer id and epoch, has lost to a deletion of records or of a topic."""
    cause: str = ""
    """The cause of its end: "producer", "init", "timeout" or "operator"."""
    before_window: bool = False
    """True: it began before the window, and records that were sealed or spilled by then are not in its runs.
    """


class Place(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A partition in a sample."""

    log_start: int
    last_stable_offset: int
    log_end: int
    holder: int
    """Index of the transaction that holds the last stable offset back; -1: none does, -2: one that the
    document does not list."""


class GroupAtSample(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A group in a sample."""

    group: int
    """Index into the document's names of groups."""
    lag: int
    exact: bool
    """False: ``lag`` is an upper bound."""


class Sample(msgspec.Struct, frozen=True):
    """The log after one entry, as far as the slider shows it."""

    entry: int
    timestamp_ms: int
    """Log time of the entry; of the newest entry the store's time, if that is later."""
    places: tuple[Place, ...]
    """In the order of the document's partitions."""
    undecided: tuple[tuple[int, str], ...]
    """Open transactions: the index, and "open", "prepared" or "late"."""
    groups: tuple[GroupAtSample, ...]
    segments: int
    """Sealed segments."""
    extents: int
    """Batches, and parts of batch tables, that are not sealed."""


class EntryTotals(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The additions of one entry."""

    entry: int
    timestamp_ms: int
    records: int
    bytes: int
    """Compressed bytes of the records."""


class OpenTransaction(msgspec.Struct, frozen=True):
    """A transaction without an outcome, and the way to end it."""

    transactional_id: str
    producer_id: int
    epoch: int
    status: str
    """"open", "prepared", "late" or "hanging"."""
    age_ms: int
    expires_ms: int | None
    """Log time from which on any client may end it. If None, it is prepared or hanging."""
    buffer: str
    holds_back: tuple[tuple[str, int, int], ...]
    """Topic, partition, and the offsets there that read_committed does not reach because of it."""
    staged: int
    command: str
    """The command that ends it."""
    effect: str
    """The effect of that command."""


class TopicView(msgspec.Struct, frozen=True):
    """A topic at the document's entry."""

    name: str
    partitions: int
    records: int
    """Below the last stable offsets."""
    bytes: int
    aborted_records: int
    lag: int
    """Offsets that open transactions hold back, of all partitions together."""
    settings: dict[str, int | str]
    key_columns: tuple[str, ...]


class GroupView(msgspec.Struct, frozen=True):
    """A consumer group at the document's entry."""

    group: str
    state: str
    member: str
    """Name of its member; empty without one."""
    idle_ms: int
    pending: int
    """Positions in transactions that are not decided."""
    positions: tuple[tuple[str, int, int, int, bool], ...]
    """Topic, partition, committed offset, lag in records, and whether the lag is exact."""


class StorageView(msgspec.Struct, frozen=True):
    """Objects and segments of the log at the document's entry, as the state names them."""

    topics: tuple[tuple[str, int, int, int, int], ...]
    """Topic, compressed bytes of decided records, bytes of aborted ones, unsealed extents, and offsets that
    are not sealed."""
    segments: int
    listed_segments: int
    """Segments that only segment lists describe."""
    segment_lists: tuple[tuple[str, int], ...]
    """Key and bytes."""
    snapshots: tuple[tuple[int, str, int], ...]
    """Entry, key and bytes of the newest named snapshots."""
    files: int
    """Data files that unsealed extents may refer to."""
    files_bytes: int
    tables: int
    """Batch tables and spills."""
    tables_bytes: int
    tail_entries: int
    """Entries after the newest snapshot: an opener reads them."""


class ObjectKind(msgspec.Struct, frozen=True):
    """Objects of one kind that the entries of the window name."""

    kind: str
    objects: int
    bytes: int
    """0 where the entries do not say."""


class Request(msgspec.Struct, frozen=True):
    """Requests of this process to the store since it opened the log."""

    operation: str
    object: str
    count: int


class Document(msgspec.Struct, frozen=True):
    """A log as of one entry, with the entries before it that the window has."""

    url: str
    log_id: str
    topic: str | None
    """The only topic that is shown. If None, all are, up to a bound."""
    version: str
    """Version of the program that made it."""
    entry: int
    """The entry that the document ends with (inclusive); -1 for a log without any."""
    newest: int
    """The newest entry of the log when the document was made."""
    earliest: int
    """The earliest entry that a document can end with."""
    first: int
    """The first entry of the window (inclusive)."""
    timestamp_ms: int
    """Log time of ``entry``."""
    now_ms: int
    """The moment at which ages are measured."""
    notes: tuple[str, ...]
    """Sentences about what the document does not show."""
    partitions: tuple[Partition, ...]
    transactions: tuple[Transaction, ...]
    """In the order of their beginnings."""
    samples: tuple[Sample, ...]
    """Ascending by entry; the last one is ``entry``."""
    entries: tuple[EntryTotals, ...]
    group_names: tuple[str, ...]
    topics: tuple[TopicView, ...]
    open: tuple[OpenTransaction, ...]
    """Open transactions, those first that hold back most."""
    groups: tuple[GroupView, ...]
    storage: StorageView
    objects: tuple[ObjectKind, ...]
    requests: tuple[Request, ...]
    prices: dict[str, float]
    """US$ for a thousand requests, by "read" and "write"."""
