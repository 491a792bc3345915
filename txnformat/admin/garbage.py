"""The judgement of a vacuum: it keeps, condemns or deletes every object of a root, for a reason. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from txnformat import keys
from txnformat.admin.publishing.holding import Published
from txnformat.core.state import LogState
from txnformat.core.wire.small_documents import CondemnedDocument
from txnformat.store.base import ObjectInfo
from txnformat.store.unfinished import UnfinishedUpload

__all__ = ["Fate", "Garbage", "Kind", "Limits", "VacuumReport", "VacuumRow", "judge"]

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
    YOUNG = "an upload may still be committed: it was born at the floor or later"
    NEWEST = "one of the two newest snapshots, or not older than they and the floor"
    OLD_SNAPSHOT = "older than the two newest snapshots and the floor"
    SNAPSHOT_MISSING = "one of the two newest snapshots is missing or damaged"
    DONE = "none of its objects is left"
    OPEN = "some of its objects are left"
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
    """The last entry whose time is the grace ago or longer: what was condemned by then may go. -1: there is none."""
    old_ms: int
    """The store's time a grace ago."""


@dataclass(slots=True)
class Garbage:
    """Keys to delete and to condemn, and the rows of the report."""

    delete: list[str] = field(default_factory=list)
    lists: list[str] = field(default_factory=list)
    """Lists of condemned objects that are done; to be deleted after the objects."""
    uploads: list[UnfinishedUpload] = field(default_factory=list)
    condemn: list[str] = field(default_factory=list)
    _rows: dict[tuple[Fate, Kind, str], list[Any]] = field(default_factory=dict)

    def add(self, fate: Fate, kind: Kind, why: Why, key: str, size: int) -> None:
        """Count an object."""
        row = self._rows.setdefault((fate, kind, why.value), [0, 0, []])
        row[0] += 1
        row[1] += size
        if len(row[2]) < EXAMPLES_MAX:
            row[2].append(key)

    def rows(self) -> tuple[VacuumRow, ...]:
        """Return the rows of the report."""
        fates, kinds = list(Fate), list(Kind)
        ordered = sorted(
            self._rows.items(), key=lambda one: (fates.index(one[0][0]), kinds.index(one[0][1]), one[0][2])
        )
        return tuple(
            VacuumRow(*head, objects, size, tuple(examples)) for head, (objects, size, examples) in ordered
        )


def judge(
    objects: Iterable[ObjectInfo],
    uploads: Sequence[UnfinishedUpload],
    live: Container[str],
    state: LogState,
    lists: Mapping[str, CondemnedDocument],
    limits: Limits,
    *,
    snapshots_sound: bool,
    views: Published | None = None,
) -> Garbage:
    """Return what becomes of each object of a root.

    ``objects``: those that were listed. ``uploads``: begun before the grace. ``live``: keys that the state leads to. ``lists``: of condemned
    objects, by key. ``snapshots_sound``: whether the two newest named snapshots were read back. ``views``: what published views hold back; None: there are none.
    """
    garbage = Garbage()
    views = views or Published()
    judged = _Views(state, views, limits.old_entry)
    condemned = _Condemned(lists.values(), limits)
    listed: dict[str, int] = {}
    for key, size in objects:
        if key in lists or key in condemned.all:
            listed[key] = size
        if (name := keys.named_after(key)) is not None:
            kind = _kind(key)
            if key in live:
                garbage.add(Fate.KEPT, kind, Why.LIVE, key, size)
            elif views.holds(key):
                garbage.add(Fate.KEPT, kind, Why.PUBLISHED, key, size)
            elif name.born >= limits.floor:
                garbage.add(Fate.KEPT, kind, Why.YOUNG, key, size)
            else:
                _unnamed(garbage, kind, key, size, due=key in condemned.due, known=key in condemned.all)
        elif (name := keys.parse_snapshot_key(key)) is not None:
            _snapshot(garbage, state, name.born, key, size, limits.floor, sound=snapshots_sound)
        elif keys.parse_probe_key(key) is not None:
            due = key in condemned.due_by_time
            _unnamed(garbage, Kind.PROBE, key, size, due=due, known=key in condemned.all)
        elif key not in lists and not judged.add(garbage, key, size):
            ours = _is_log(key)
            garbage.add(
                Fate.KEPT, Kind.LOG if ours else Kind.FOREIGN, Why.LIVE if ours else Why.STRANGE, key, size
            )
    _judge_lists(garbage, lists, listed)
    for upload in uploads:
        ours = _is_ours(upload)
        fate, why = (Fate.DELETED, Why.LEFT) if ours else (Fate.KEPT, Why.STRANGE)
        garbage.add(fate, Kind.UPLOAD, why, upload.key, upload.size)
        if ours:
            garbage.uploads.append(upload)
    return garbage


def _judge_lists(garbage: Garbage, lists: Mapping[str, CondemnedDocument], sizes: Mapping[str, int]) -> None:
    """Judge lists of condemned objects. ``sizes``: of the lists, and of those of their objects that are there."""
    gone = set(garbage.delete)
    for key, one in lists.items():
        done = all(named not in sizes or named in gone for named in one.keys)
        fate, why = (Fate.DELETED, Why.DONE) if done else (Fate.KEPT, Why.OPEN)
        garbage.add(fate, Kind.CONDEMNED, why, key, sizes.get(key, 0))
        if done:
            garbage.lists.append(key)


class _Condemned:
    """Keys in lists of condemned objects."""

    def __init__(self, lists: Iterable[CondemnedDocument], limits: Limits) -> None:
        self.all: set[str] = set()
        self.due: set[str] = set()
        """No state of the last grace names them."""
        self.due_by_time: set[str] = set()
        """They were there a grace ago."""
        for one in lists:
            self.all.update(one.keys)
            if one.entry <= limits.old_entry:
                self.due.update(one.keys)
            if one.timestamp_ms <= limits.old_ms:
                self.due_by_time.update(one.keys)


def _unnamed(garbage: Garbage, kind: Kind, key: str, size: int, *, due: bool, known: bool) -> None:
    if due:
        garbage.add(Fate.DELETED, kind, Why.UNNAMED, key, size)
        garbage.delete.append(key)
    elif known:
        garbage.add(Fate.KEPT, kind, Why.WAITING, key, size)
    else:
        garbage.add(Fate.CONDEMNED, kind, Why.UNNAMED_NOW, key, size)
        garbage.condemn.append(key)


def _snapshot(
    garbage: Garbage, state: LogState, entry: int, key: str, size: int, floor: int, *, sound: bool
) -> None:
    """Judge a snapshot; readers that meet a deleted one begin with another."""
    named = state.checkpoints
    if len(named) < 2 or entry >= min(floor, named[0].entry):
        garbage.add(Fate.KEPT, Kind.SNAPSHOT, Why.NEWEST, key, size)
    elif not sound:
        garbage.add(Fate.KEPT, Kind.SNAPSHOT, Why.SNAPSHOT_MISSING, key, size)
    else:
        garbage.add(Fate.DELETED, Kind.SNAPSHOT, Why.OLD_SNAPSHOT, key, size)
        garbage.delete.append(key)


class _Views:
    """The judgement of versions, checkpoints and manifests."""

    def __init__(self, state: LogState, views: Published, old_entry: int) -> None:
        self._directories = {topic.directory for topic in state.topics.values()}
        self._deleted = state.deleted
        self._old_entry = old_entry
        self._manifests_from = views.manifests_from

    def add(self, garbage: Garbage, key: str, size: int) -> bool:
        """Judge an object, if it is one of a view. That of a table goes with its topic: a state forgets a deletion that is older than the grace."""
        if not keys.is_of_view(key):
            return False
        manifest = keys.manifest_name(key)
        if manifest is not None:
            is_old = manifest.entry < self._manifests_from
            _gone(garbage, Why.OLD_MANIFEST if is_old else Why.LIVE, key, size, is_gone=is_old)
            return True
        name = keys.delta_name(key) or keys.iceberg_name(key)
        if name is None:
            return False
        deleted = self._deleted.get(name.directory)
        if name.directory in self._directories:
            _gone(garbage, Why.LIVE, key, size, is_gone=False)
        elif deleted is not None and deleted.entry > self._old_entry:
            _gone(garbage, Why.DELETED_TOPIC, key, size, is_gone=False)
        else:
            _gone(garbage, Why.OLD_VIEW, key, size, is_gone=True)
        return True


def _gone(garbage: Garbage, why: Why, key: str, size: int, *, is_gone: bool) -> None:
    garbage.add(Fate.DELETED if is_gone else Fate.KEPT, Kind.VIEW, why, key, size)
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
