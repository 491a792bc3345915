"""The judgement of a vacuum: it keeps, condemns or deletes every object of a root, for a reason. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from txnformat import keys
from txnformat.admin.publishing.holding import Published
from txnformat.core.state import LogState
from txnformat.core.wire.small_documents import CondemnedDocument
from txnformat.store.base import ObjectInfo
from txnformat.store.unfinished import UnfinishedUpload

__all__ = ["Fate", "Garbage", "Judge", "Kind", "Known", "Limits", "VacuumReport", "VacuumRow"]

EXAMPLES_MAX = 5


class Fate(StrEnum):
    """The vacuum's decision about an object."""

    DELETED = "deleted"
    CONDEMNED = "condemned"
    """A later vacuum deletes it, when readers have had the grace."""
    KEPT = "kept"


class Kind(StrEnum):
    """The kind of an object, by its key."""

    FILE = "data file"
    TABLE = "batch table, segment list or spill"
    SIDECAR = "sidecar"
    SNAPSHOT = "snapshot"
    PROBE = "probe of the store"
    CONDEMNED = "list of a vacuum"
    UPLOAD = "unfinished upload"
    LOG = "entry, bundle or hint"
    PAYLOADS = "payload bundle"
    VIEW = "version, checkpoint or manifest of a published view"
    FOREIGN = "foreign object"


class Why(StrEnum):
    """The reason."""

    UNNAMED = "nothing names it, and readers have had the grace"
    UNNAMED_NOW = "nothing names it; a vacuum deletes it after the grace"
    WAITING = "nothing names it; its grace is not over"
    LIVE = "in use"
    PUBLISHED = "a published table has it, or had it in its hold time"
    OLD_VIEW = "its topic was deleted, and readers have had the grace"
    DELETED_TOPIC = "its topic was deleted; the grace is not over"
    OLD_MANIFEST = "there is a newer one, and its hold time is over"
    YOUNG = "its upload began within the grace: it may still be committed"
    NEWEST = "one of the two newest snapshots, or written within the grace"
    OLD_SNAPSHOT = "older than the two newest snapshots and than the grace"
    SNAPSHOT_MISSING = "one of the two newest snapshots is missing or damaged"
    DONE = "none of its objects is left"
    OPEN = "some of its objects are left"
    REPEATED = "readers have had the grace, and no row is in these entries alone"
    LEFT = "its process has ended: it was not written to for the grace"
    STRANGE = "not a key of txnlog"


@dataclass(frozen=True, slots=True)
class VacuumRow:
    """Objects of one kind with one fate."""

    fate: Fate
    kind: Kind
    why: str
    objects: int
    bytes: int
    examples: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class VacuumReport:
    """The effect of :meth:`txnformat.log.TxnLog.vacuum`."""

    url: str
    log_id: str
    entry: int
    """The state that was looked at is the one after this entry."""
    floor: int
    """Objects born below this entry were judged."""
    grace_ms: int
    dry_run: bool
    """Nothing was changed: the rows are what a vacuum would do now."""
    rows: tuple[VacuumRow, ...]
    """First what goes, then what is kept."""
    notes: tuple[str, ...] = ()
    """The parts of the root that the vacuum could not look at."""

    def count(self, fate: Fate, kind: Kind | None = None) -> int:
        """Return the number of objects with a fate, of one kind or of all."""
        return sum(row.objects for row in self.rows if row.fate is fate and kind in (None, row.kind))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return asdict(self)


class Limits(NamedTuple):
    """From where on objects are too young."""

    floor: int
    """Entry: of objects that entries name."""
    old_entry: int
    """The last entry whose time is the grace ago or longer: what was condemned by then may go. -1: there is
    none."""
    old_ms: int
    """The store's time a grace ago."""


@dataclass(slots=True)
class Garbage:
    """Keys to delete and to condemn, of some objects of a root."""

    delete: list[str] = field(default_factory=list)
    condemn: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Known:
    """Knowledge of the keys that are judged together."""

    live: set[str] = field(default_factory=set)
    """Keys that the state leads to."""
    held: set[str] = field(default_factory=set)
    """Keys of files that published tables have, or had within their hold time."""
    condemned: dict[str, list[int]] = field(default_factory=dict)
    """The lists of condemned objects that have a key, by their place in the order in which the judge got to
    know them."""


class Rows:
    """The rows of a report."""

    def __init__(self) -> None:
        self._rows: dict[tuple[Fate, Kind, str], tuple[list[int], list[str]]] = {}

    def add(self, fate: Fate, kind: Kind, why: Why, key: str, size: int) -> None:
        """Count an object."""
        counts, examples = self._rows.setdefault((fate, kind, why.value), ([0, 0], []))
        counts[0] += 1
        counts[1] += size
        if len(examples) < EXAMPLES_MAX:
            examples.append(key)

    def sorted(self) -> tuple[VacuumRow, ...]:
        """Return the rows: first what goes, then what is kept."""
        fates, kinds = list(Fate), list(Kind)
        ordered = sorted(
            self._rows.items(), key=lambda one: (fates.index(one[0][0]), kinds.index(one[0][1]), one[0][2])
        )
        return tuple(
            VacuumRow(*head, counts[0], counts[1], tuple(examples)) for head, (counts, examples) in ordered
        )


@dataclass(slots=True)
class _List:
    """A list of condemned objects."""

    key: str
    size: int = 0
    is_due: bool = False
    """No state of the last grace names its objects."""
    is_due_by_time: bool = False
    """They were there a grace ago."""
    is_open: bool = False
    """Some of its objects are left."""


class Judge:
    """The judgement of the objects of a root, in parts: first the lists of condemned objects, then each
    object once, then the end.

    ``snapshots_sound``: whether the two newest named snapshots were read back. ``views``: what published
    views hold back; None: there are none.
    """

    def __init__(
        self, state: LogState, limits: Limits, *, snapshots_sound: bool, views: Published | None = None
    ) -> None:
        self._state = state
        self._limits = limits
        self._sound = snapshots_sound
        self._views = views or Published()
        places = (file.place for file in state.files)
        self._embedded_from = min(
            (place.entry for place in places if place is not None), default=state.entry + 1
        )
        self._of_views = _Views(state, self._views, limits.old_entry)
        self._lists: list[_List] = []
        self._by_key: dict[str, _List] = {}
        self.rows = Rows()

    def list_of(self, key: str, document: CondemnedDocument) -> int:
        """Get to know a list of condemned objects; return its place."""
        one = _List(
            key,
            is_due=document.entry <= self._limits.old_entry,
            is_due_by_time=document.timestamp_ms <= self._limits.old_ms,
        )
        self._lists.append(one)
        self._by_key[key] = one
        return len(self._lists) - 1

    def part(self, objects: Iterable[ObjectInfo], known: Known) -> Garbage:
        """Return what becomes of some objects of the root. ``known``: of their keys."""
        garbage = Garbage()
        for key, size in objects:
            lists = [self._lists[number] for number in known.condemned.get(key, ())]
            if not self._is_deleted(garbage, key, size, known, lists):
                for one in lists:
                    one.is_open = True
        return garbage

    def _is_deleted(self, garbage: Garbage, key: str, size: int, known: Known, lists: list[_List]) -> bool:
        """Judge an object; return whether it goes now."""
        rows, before = self.rows, len(garbage.delete)
        if (name := keys.named_after(key)) is not None:
            kind = _kind(key)
            if key in known.live:
                rows.add(Fate.KEPT, kind, Why.LIVE, key, size)
            elif key in known.held or self._views.holds(key):
                rows.add(Fate.KEPT, kind, Why.PUBLISHED, key, size)
            elif name.born >= self._limits.floor:
                rows.add(Fate.KEPT, kind, Why.YOUNG, key, size)
            else:
                self._unnamed(
                    garbage, kind, key, size, due=any(one.is_due for one in lists), known=bool(lists)
                )
        elif (name := keys.parse_snapshot_key(key)) is not None:
            self._snapshot(garbage, name.born, key, size)
        elif keys.parse_probe_key(key) is not None:
            due = any(one.is_due_by_time for one in lists)
            self._unnamed(garbage, Kind.PROBE, key, size, due=due, known=bool(lists))
        elif (entries := keys.parse_payloads_key(key)) is not None:
            # Only a hint: who looks for it now reads the entries.
            if entries[1] <= self._limits.old_entry and entries[1] < self._embedded_from:
                rows.add(Fate.DELETED, Kind.PAYLOADS, Why.REPEATED, key, size)
                garbage.delete.append(key)
            else:
                rows.add(Fate.KEPT, Kind.PAYLOADS, Why.LIVE, key, size)
        elif key in self._by_key:
            self._by_key[key].size = size
        elif not self._of_views.add(rows, garbage, key, size):
            ours = _is_log(key)
            rows.add(
                Fate.KEPT, Kind.LOG if ours else Kind.FOREIGN, Why.LIVE if ours else Why.STRANGE, key, size
            )
        return len(garbage.delete) > before

    def _unnamed(self, garbage: Garbage, kind: Kind, key: str, size: int, *, due: bool, known: bool) -> None:
        if due:
            self.rows.add(Fate.DELETED, kind, Why.UNNAMED, key, size)
            garbage.delete.append(key)
        elif known:
            self.rows.add(Fate.KEPT, kind, Why.WAITING, key, size)
        else:
            self.rows.add(Fate.CONDEMNED, kind, Why.UNNAMED_NOW, key, size)
            garbage.condemn.append(key)

    def _snapshot(self, garbage: Garbage, entry: int, key: str, size: int) -> None:
        """Judge a snapshot; readers that meet a deleted one begin with another."""
        named = self._state.checkpoints
        if len(named) < 2 or entry >= min(self._limits.floor, named[0].entry):
            self.rows.add(Fate.KEPT, Kind.SNAPSHOT, Why.NEWEST, key, size)
        elif not self._sound:
            self.rows.add(Fate.KEPT, Kind.SNAPSHOT, Why.SNAPSHOT_MISSING, key, size)
        else:
            self.rows.add(Fate.DELETED, Kind.SNAPSHOT, Why.OLD_SNAPSHOT, key, size)
            garbage.delete.append(key)

    def uploads(self, found: Iterable[UnfinishedUpload]) -> list[UnfinishedUpload]:
        """Return those of the uploads, begun before the grace, that go."""
        gone = []
        for upload in found:
            ours = _is_ours(upload)
            fate, why = (Fate.DELETED, Why.LEFT) if ours else (Fate.KEPT, Why.STRANGE)
            self.rows.add(fate, Kind.UPLOAD, why, upload.key, upload.size)
            if ours:
                gone.append(upload)
        return gone

    def done_lists(self) -> list[str]:
        """Return the keys of the lists of which nothing is left; after all objects.

        To be deleted after their objects.
        """
        done = []
        for one in self._lists:
            fate, why = (Fate.KEPT, Why.OPEN) if one.is_open else (Fate.DELETED, Why.DONE)
            self.rows.add(fate, Kind.CONDEMNED, why, one.key, one.size)
            if not one.is_open:
                done.append(one.key)
        return done


class _Views:
    """The judgement of versions, checkpoints and manifests."""

    def __init__(self, state: LogState, views: Published, old_entry: int) -> None:
        self._directories = {topic.directory for topic in state.topics.values()}
        self._deleted = state.deleted
        self._old_entry = old_entry
        self._manifests_from = views.manifests_from

    def add(self, rows: Rows, garbage: Garbage, key: str, size: int) -> bool:
        """Judge an object, if it is one of a view.

        That of a table goes with its topic: a state forgets a deletion that is older than the grace.
        """
        if not keys.is_of_view(key):
            return False
        manifest = keys.manifest_name(key)
        if manifest is not None:
            is_old = manifest.entry < self._manifests_from
            _gone(rows, garbage, Why.OLD_MANIFEST if is_old else Why.LIVE, key, size, is_gone=is_old)
            return True
        name = keys.delta_name(key) or keys.iceberg_name(key)
        if name is None:
            return False
        deleted = self._deleted.get(name.directory)
        if name.directory in self._directories:
            _gone(rows, garbage, Why.LIVE, key, size, is_gone=False)
        elif deleted is not None and deleted.entry > self._old_entry:
            _gone(rows, garbage, Why.DELETED_TOPIC, key, size, is_gone=False)
        else:
            _gone(rows, garbage, Why.OLD_VIEW, key, size, is_gone=True)
        return True


def _gone(rows: Rows, garbage: Garbage, why: Why, key: str, size: int, *, is_gone: bool) -> None:
    rows.add(Fate.DELETED if is_gone else Fate.KEPT, Kind.VIEW, why, key, size)
    if is_gone:
        garbage.delete.append(key)


def _kind(key: str) -> Kind:
    if key.startswith(keys.TABLE_PREFIX):
        return Kind.TABLE
    return Kind.FILE if keys.parse_data_key(key) is not None else Kind.SIDECAR


def _is_log(key: str) -> bool:
    parsers = (keys.parse_entry_key, keys.parse_bundle_key, keys.parse_boundary_key, keys.parse_condemned_key)
    return key in (keys.FORMAT_KEY, keys.LATEST_KEY) or any(parse(key) is not None for parse in parsers)


def _is_ours(upload: UnfinishedUpload) -> bool:
    if not upload.upload_id:
        return keys.is_temporary_file(upload.key)
    named = keys.named_after(upload.key) or keys.parse_snapshot_key(upload.key)
    return named is not None or _is_log(upload.key)
