"""The only builder and parser of object keys, and the only judge of names.

Layout (relative to the root)::

    _txnlog/format.json                      log id and format version, created once _txnlog/log/<20
    digits>.json             commit entries, create-only _txnlog/bundles/<20 digits>-<20 digits>  the heads of
    the entries from the first to the last _txnlog/payloads/<20 digits>-<20 digits> the same entries with
    their payloads _txnlog/snapshots/<20 digits>-<uuid>     state after an entry _txnlog/tables/<20
    digits>-<uuid>.arrow  batch tables and segment lists _txnlog/latest                           hint,
    replaced _txnlog/boundary/<20 digits>             entries below may be deleted, create-only
    _txnlog/condemned/<20 digits>-<uuid>     what a vacuum may delete, since a state does not name it
    _txnlog/probe/<uuid>                     no part of the log: made and deleted to try the store <name>-<8
    hex>/data/<20 digits>-<uuid>.parquet   segment files <name>-<8 hex>/data/<20 digits>-<uuid>.parquet@<20
    digits>+<first byte>   embedded files: no objects, but parts of the entry's payload <name>-<8
    hex>/segments/<20 digits>-<uuid>.index      sealed segments: batches, <name>-<8 hex>/segments/<20
    digits>-<uuid>.markers    markers, <name>-<8 hex>/segments/<20 digits>-<uuid>.txnindex   aborted
    transactions <name>-<8 hex>/_delta_log/<20 digits>.json            the topic as a Delta table: versions,
    create-only, <name>-<8 hex>/_delta_log/<20 digits>.checkpoint.parquet   checkpoints, <name>-<8
    hex>/_delta_log/_last_checkpoint            and a hint, replaced <name>-<8 hex>/data/_delta_log/…
    the same of the table with offsets, which has compacted files only <name>-<8
    hex>/_iceberg/metadata/v<number>.metadata.json   the topic as an Iceberg table: versions, create-only,
    <name>-<8 hex>/_iceberg/metadata/snap-<snapshot>-<number>-<32 hex>.avro, <number>-<32 hex>.avro   manifest
    lists and manifests made for them, <name>-<8 hex>/_iceberg/metadata/version-hint.text    and a hint,
    replaced _views/<format>/<20 digits>[.<number>].json  which versions of tables show one entry,
    create-only; "delta", "delta-offsets" or "iceberg"

Names that come from a log are checked on read as on write: nothing in a log can lead outside its root.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from txnformat.errors import CorruptDataError, InvalidInputError, repr_of

__all__ = [
    "BOUNDARY_PREFIX",
    "BUNDLE_PREFIX",
    "CONDEMNED_PREFIX",
    "FORMAT_KEY",
    "KEYS_PREFIX",
    "LATEST_KEY",
    "LOG_PREFIX",
    "PAYLOAD_PREFIX",
    "PROBE_PREFIX",
    "SNAPSHOT_PREFIX",
    "TABLE_PREFIX",
    "TOPIC_PATTERN",
    "TRANSACTIONAL_ID_BYTES_MAX",
    "UUID_PATTERN",
    "VIEWS_PREFIX",
    "DeltaName",
    "IcebergName",
    "ManifestName",
    "ObjectName",
    "Place",
    "born_of",
    "boundary_key",
    "bundle_key",
    "check_key",
    "check_new_topic_name",
    "check_reader_name",
    "check_topic_name",
    "check_topics_file",
    "check_topics_sidecar",
    "check_transactional_id",
    "condemned_key",
    "data_key",
    "delta_checkpoint_key",
    "delta_hint_key",
    "delta_name",
    "delta_prefix",
    "delta_version_key",
    "embedded_key",
    "entry_key",
    "has_own_directory_only",
    "iceberg_hint_key",
    "iceberg_list_key",
    "iceberg_location",
    "iceberg_manifest_key",
    "iceberg_name",
    "iceberg_prefix",
    "iceberg_version_key",
    "is_of_view",
    "is_runs_key",
    "is_temporary_file",
    "is_topics_file",
    "is_topics_sidecar",
    "manifest_key",
    "manifest_name",
    "manifest_prefix",
    "named_after",
    "offsets_location",
    "own_key",
    "parse_any_file_key",
    "parse_boundary_key",
    "parse_bundle_key",
    "parse_condemned_key",
    "parse_data_key",
    "parse_entry_key",
    "parse_index_key",
    "parse_markers_key",
    "parse_payloads_key",
    "parse_probe_key",
    "parse_runs_key",
    "parse_snapshot_key",
    "parse_table_key",
    "parse_txnindex_key",
    "payloads_key",
    "place_of",
    "probe_key",
    "sidecar_key",
    "snapshot_key",
    "table_key",
    "topic_directory",
]

FORMAT_KEY = "_txnlog/format.json"
LATEST_KEY = "_txnlog/latest"
LOG_PREFIX = "_txnlog/log/"
BUNDLE_PREFIX = "_txnlog/bundles/"
PAYLOAD_PREFIX = "_txnlog/payloads/"
SNAPSHOT_PREFIX = "_txnlog/snapshots/"
TABLE_PREFIX = "_txnlog/tables/"
BOUNDARY_PREFIX = "_txnlog/boundary/"
PROBE_PREFIX = "_txnlog/probe/"
CONDEMNED_PREFIX = "_txnlog/condemned/"
KEYS_PREFIX = "_txnlog/keys/"
"""The key ring of an encrypted log: only its store sees these objects."""
VIEWS_PREFIX = "_views/"

TEMPORARY_PREFIX = ".tmp-"
"""Names of a local store's unfinished files begin so; no key has such a part."""

NAME_CHARS_MAX = 249
"""Longest topic name, as in Kafka."""

TRANSACTIONAL_ID_BYTES_MAX = 249
"""Longest transactional id, UTF-8 bytes."""

UUID_PATTERN = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
TOPIC_PATTERN = r"(?!_|\.{1,2}\Z)[A-Za-z0-9._-]{1,249}"
"""Pattern of a legal topic name: Kafka's rule, and no leading underscore."""
_ENTRY = re.compile(r"_txnlog/log/([0-9]{20})\.json")
_BOUNDARY = re.compile(r"_txnlog/boundary/([0-9]{20})")
_BUNDLE = re.compile(r"_txnlog/bundles/([0-9]{20})-([0-9]{20})")
_PAYLOADS = re.compile(r"_txnlog/payloads/([0-9]{20})-([0-9]{20})")
_SNAPSHOT = re.compile(rf"_txnlog/snapshots/([0-9]{{20}})-({UUID_PATTERN})")
_CONDEMNED = re.compile(rf"_txnlog/condemned/([0-9]{{20}})-({UUID_PATTERN})")
_PROBE = re.compile(rf"_txnlog/probe/({UUID_PATTERN})")
_TABLE = re.compile(rf"_txnlog/tables/([0-9]{{20}})-({UUID_PATTERN})\.arrow")
_DATA = re.compile(
    rf"[A-Za-z0-9.-][A-Za-z0-9._-]{{0,248}}-[0-9a-f]{{8}}/data/([0-9]{{20}})-({UUID_PATTERN})\.parquet"
)
_PLACE = re.compile(r"([0-9]{20})\+(0|[1-9][0-9]{0,7})")
_SIDECAR = re.compile(
    rf"[A-Za-z0-9.-][A-Za-z0-9._-]{{0,248}}-[0-9a-f]{{8}}/segments/([0-9]{{20}})-({UUID_PATTERN})\.(index|runs|markers|txnindex)"
)
_TEMPORARY = re.compile(
    rf"(?:_txnlog(?:/[a-z]+)?|[A-Za-z0-9.-][A-Za-z0-9._-]{{0,248}}-[0-9a-f]{{8}}/(?:data|segments|(?:data/)?_delta_log|_iceberg/metadata)|_views/(?:delta|delta-offsets|iceberg))/\.tmp-{UUID_PATTERN}"
)
_DELTA = re.compile(
    r"([A-Za-z0-9.-][A-Za-z0-9._-]{0,248}-[0-9a-f]{8})/(data/)?_delta_log/(?:([0-9]{20})\.(json|checkpoint\.parquet)|_last_checkpoint)"
)
_ICEBERG = re.compile(
    r"([A-Za-z0-9.-][A-Za-z0-9._-]{0,248}-[0-9a-f]{8})/_iceberg/metadata/"
    r"(?:v([1-9][0-9]{0,17})\.metadata\.json|snap-([1-9][0-9]{0,17})-([1-9][0-9]{0,17})-[0-9a-f]{32}\.avro|([1-9][0-9]{0,17})-[0-9a-f]{32}\.avro|version-hint\.text)"
)
_MANIFEST = re.compile(r"_views/(delta|delta-offsets|iceberg)/([0-9]{20})(?:\.([1-9][0-9]{0,5}))?\.json")
_TOPIC = re.compile(TOPIC_PATTERN)


class ObjectName(NamedTuple):
    """The parts of the key of an object that an entry names."""

    born: int
    """Number of an entry that the writer had folded before the upload: a lower bound."""
    uuid: str


class DeltaName(NamedTuple):
    """The parts of the key of an object of a Delta log."""

    directory: str
    version: int
    """The hint has -1."""
    is_checkpoint: bool
    has_offsets: bool = False
    """It is of the table with offsets."""


class IcebergName(NamedTuple):
    """The parts of the key of an object of an Iceberg table."""

    directory: str
    version: int
    """The version that it is, or was made for; the hint has 0."""
    snapshot: int
    """The snapshot of a manifest list; 0 for the others."""
    is_metadata: bool
    """It is the version itself."""


class ManifestName(NamedTuple):
    """The parts of the key of a manifest."""

    entry: int
    number: int
    """From 0: several publications of one entry may have different topics."""
    format: str


class Place(NamedTuple):
    """Where the bytes of an embedded file are."""

    entry: int
    """Number of the entry whose payload has them."""
    start: int
    """The first byte in the payload (inclusive)."""


def born_of(key: str) -> int:
    """Return the number in the key of an object that an entry names: it is recognised as one already."""
    start = key.rfind("/") + 1
    return int(key[start : start + 20])


def entry_key(entry: int) -> str:
    """Return the key of commit entry ``entry`` (from 0)."""
    return f"{LOG_PREFIX}{entry:020d}.json"


def parse_entry_key(key: str) -> int | None:
    """Return the entry's number, or None when the key is not an entry's."""
    match = _ENTRY.fullmatch(key)
    return int(match[1]) if match else None


def boundary_key(boundary: int) -> str:
    """Return the key that says: entries below ``boundary`` (exclusive) may be deleted."""
    return f"{BOUNDARY_PREFIX}{boundary:020d}"


def parse_boundary_key(key: str) -> int | None:
    """Return the boundary, or None when the key is not a boundary's."""
    match = _BOUNDARY.fullmatch(key)
    return int(match[1]) if match else None


def probe_key(uuid: str) -> str:
    """Return the key of an object that tries the store."""
    return f"{PROBE_PREFIX}{uuid}"


def parse_probe_key(key: str) -> str | None:
    """Return the uuid, or None when the key is not that of an object which tries the store."""
    match = _PROBE.fullmatch(key)
    return match[1] if match else None


def condemned_key(entry: int, uuid: str) -> str:
    """Return the key of a list of objects that the state after ``entry`` does not name."""
    return f"{CONDEMNED_PREFIX}{entry:020d}-{uuid}"


def parse_condemned_key(key: str) -> ObjectName | None:
    """Return the state's entry and the uuid, or None when the key is not that of such a list."""
    return _parse(_CONDEMNED, key)


def is_temporary_file(path: str) -> bool:
    """Return whether a path below the root is that of a file in which a local store makes an object."""
    return _TEMPORARY.fullmatch(path) is not None


def bundle_key(first: int, last: int) -> str:
    """Return the key of the bundle of entries ``first`` to ``last`` (both inclusive)."""
    return f"{BUNDLE_PREFIX}{first:020d}-{last:020d}"


def parse_bundle_key(key: str) -> tuple[int, int] | None:
    """Return the bundle's first and last entry (both inclusive), or None when the key is not a bundle's."""
    match = _BUNDLE.fullmatch(key)
    return (int(match[1]), int(match[2])) if match else None


def payloads_key(first: int, last: int) -> str:
    """Return the key of the payload bundle with entries ``first`` to ``last`` (both inclusive)."""
    return f"{PAYLOAD_PREFIX}{first:020d}-{last:020d}"


def parse_payloads_key(key: str) -> tuple[int, int] | None:
    """Return the payload bundle's first and last entry (both inclusive), or None when the key is not that of
    one.
    """
    match = _PAYLOADS.fullmatch(key)
    return (int(match[1]), int(match[2])) if match else None


def snapshot_key(entry: int, uuid: str) -> str:
    """Return the key of a snapshot of the state after ``entry``."""
    return f"{SNAPSHOT_PREFIX}{entry:020d}-{uuid}"


def parse_snapshot_key(key: str) -> ObjectName | None:
    """Return the snapshot's entry and uuid, or None when the key is not a snapshot's."""
    return _parse(_SNAPSHOT, key)


def table_key(born: int, uuid: str) -> str:
    """Return the key of a batch table."""
    return f"{TABLE_PREFIX}{born:020d}-{uuid}.arrow"


def parse_table_key(key: str) -> ObjectName | None:
    """Return born and uuid, or None when the key is not a batch table's."""
    return _parse(_TABLE, key)


def topic_directory(name: str, topic_id: str) -> str:
    """Return the directory of a topic: its name and the first 8 hex digits of its id."""
    # Name and suffix together stay within what file systems allow for one component (255 bytes).
    return f"{name[: NAME_CHARS_MAX - 9]}-{topic_id[:8]}"


def data_key(directory: str, born: int, uuid: str) -> str:
    """Return the key of a segment file."""
    return f"{directory}/data/{born:020d}-{uuid}.parquet"


def parse_data_key(key: str) -> ObjectName | None:
    """Return born and uuid, or None when the key is not a segment file's."""
    return _parse(_DATA, key)


def embedded_key(key: str, place: Place) -> str:
    """Return the key of a segment file that an entry's payload has.

    ``key``: of the object that it would be otherwise.
    """
    return f"{own_key(key)}@{place.entry:020d}+{place.start}"


def own_key(key: str) -> str:
    """Return the key of the object that a segment file is, or would be if no entry had its bytes."""
    return key.partition("@")[0]


def place_of(key: str) -> Place | None:
    """Return where the bytes of a segment file are, at a key that :func:`parse_any_file_key` recognises;
    None: it is an object.
    """
    place = key.partition("@")[2]
    if not place:
        return None
    entry, _, start = place.partition("+")
    return Place(int(entry), int(start))


def parse_any_file_key(key: str) -> ObjectName | None:
    """Return born and uuid, or None when the key is not a segment file's, be it an object or embedded."""
    own, at, place = key.partition("@")
    return None if at and _PLACE.fullmatch(place) is None else parse_data_key(own)


def has_own_directory_only(directory: str) -> bool:
    """Return whether a topic's name was cut in its directory's: then ``<name>-<8 hex>`` may be another
    topic's, too.
    """
    return len(directory) >= NAME_CHARS_MAX


def is_topics_file(key: str, directory: str) -> bool:
    """Return whether a segment file, at a key that :func:`parse_any_file_key` recognises, may be named for
    the topic with this directory.

    It lies there, or in a directory that the topic would have with another id: a writer that lost the
    creation of the topic to another one has uploaded there. No other topic can have such a directory.
    """
    found = key[: key.find("/")]
    return found == directory or (found[:-8] == directory[:-8] and not has_own_directory_only(directory))


def is_topics_sidecar(key: str, directory: str) -> bool:
    """Return whether a sidecar (its key recognised as one) may be named for the topic with this directory: it
    lies there.
    """
    return key[: key.find("/")] == directory


def sidecar_key(directory: str, born: int, uuid: str, kind: str) -> str:
    """Return the key of a sidecar; ``kind`` is "index", "runs", "markers" or "txnindex"."""
    return f"{directory}/segments/{born:020d}-{uuid}.{kind}"


def offsets_location(directory: str) -> str:
    """Return the directory of a topic's Delta table with offsets: that of its segment files, below the one of
    the other table.
    """
    return f"{directory}/data"


def delta_prefix(directory: str) -> str:
    """Return what the keys of a Delta log begin with.

    ``directory``: the table's; a topic's own, or :func:`offsets_location`.
    """
    return f"{directory}/_delta_log/"


def delta_version_key(directory: str, version: int) -> str:
    """Return the key of a version (from 0) of the Delta table in a directory."""
    return f"{delta_prefix(directory)}{version:020d}.json"


def delta_checkpoint_key(directory: str, version: int) -> str:
    """Return the key of the checkpoint of a version."""
    return f"{delta_prefix(directory)}{version:020d}.checkpoint.parquet"


def delta_hint_key(directory: str) -> str:
    """Return the key of the hint that names the newest checkpoint."""
    return f"{delta_prefix(directory)}_last_checkpoint"


def is_of_view(key: str) -> bool:
    """Return whether a key may be one of a view: cheaper than to take it apart, for listings of a root."""
    return "/_delta_log/" in key or "/_iceberg/" in key or key.startswith(VIEWS_PREFIX)


def delta_name(key: str) -> DeltaName | None:
    """Return what the key of an object of a Delta log says, or None when it is not one that txnlog writes."""
    match = _DELTA.fullmatch(key)
    if match is None:
        return None
    version = -1 if match[3] is None else int(match[3])
    return DeltaName(match[1], version, match[4] == "checkpoint.parquet", match[2] is not None)


def iceberg_location(directory: str) -> str:
    """Return the directory of a topic's Iceberg table: all that an engine could remove with the table is
    below it.
    """
    return f"{directory}/_iceberg"


def iceberg_prefix(directory: str) -> str:
    """Return what the keys of a topic's Iceberg table begin with."""
    return f"{iceberg_location(directory)}/metadata/"


def iceberg_version_key(directory: str, version: int) -> str:
    """Return the key of a version (from 1) of the Iceberg table of the topic with this directory."""
    return f"{iceberg_prefix(directory)}v{version}.metadata.json"


def iceberg_list_key(directory: str, snapshot: int, version: int, digest: str) -> str:
    """Return the key of the manifest list of a snapshot, made for a version; ``digest``: 32 digits of its
    bytes' hash.
    """
    return f"{iceberg_prefix(directory)}snap-{snapshot}-{version}-{digest}.avro"


def iceberg_manifest_key(directory: str, version: int, digest: str) -> str:
    """Return the key of a manifest that was made for a version."""
    return f"{iceberg_prefix(directory)}{version}-{digest}.avro"


def iceberg_hint_key(directory: str) -> str:
    """Return the key of the hint that names the newest version."""
    return f"{iceberg_prefix(directory)}version-hint.text"


def iceberg_name(key: str) -> IcebergName | None:
    """Return what the key of an object of an Iceberg table says, or None when it is not one that txnlog
    writes.
    """
    match = _ICEBERG.fullmatch(key)
    if match is None:
        return None
    version = match[2] or match[4] or match[5] or "0"
    return IcebergName(match[1], int(version), int(match[3] or 0), match[2] is not None)


def manifest_prefix(format_: str) -> str:
    """Return what the keys of the manifests of a format begin with; "delta", "delta-offsets" or "iceberg"."""
    return f"{VIEWS_PREFIX}{format_}/"


def manifest_key(entry: int, number: int = 0, format_: str = "delta") -> str:
    """Return the key of a manifest of tables at an entry; ``number``: from 0, of several at this entry."""
    return f"{manifest_prefix(format_)}{entry:020d}{f'.{number}' if number else ''}.json"


def manifest_name(key: str) -> ManifestName | None:
    """Return entry, number and format, or None when the key is not a manifest's."""
    match = _MANIFEST.fullmatch(key)
    return ManifestName(int(match[2]), int(match[3] or 0), match[1]) if match else None


def parse_index_key(key: str) -> ObjectName | None:
    """Return born and uuid, or None when the key is not that of an ``.index``, or of the ``.runs`` of a
    compacted segment.
    """
    return _parse_sidecar(key, "index") or _parse_sidecar(key, "runs")


def parse_runs_key(key: str) -> ObjectName | None:
    """Return born and uuid, or None when the key is not that of a ``.runs``."""
    return _parse_sidecar(key, "runs")


def is_runs_key(key: str) -> bool:
    """Return whether an index (its key recognised as one) is that of a compacted segment."""
    return key.endswith(".runs")


def parse_markers_key(key: str) -> ObjectName | None:
    """Return born and uuid, or None when the key is not that of a ``.markers``."""
    return _parse_sidecar(key, "markers")


def parse_txnindex_key(key: str) -> ObjectName | None:
    """Return born and uuid, or None when the key is not that of a ``.txnindex``."""
    return _parse_sidecar(key, "txnindex")


def named_after(key: str) -> ObjectName | None:
    """Return what the key of a segment file, batch table, segment list or sidecar says; None when it is that
    of none.
    """
    return _parse(_DATA, key) or _parse(_TABLE, key) or _parse(_SIDECAR, key)


def _parse_sidecar(key: str, kind: str) -> ObjectName | None:
    return _parse(_SIDECAR, key) if key.endswith(f".{kind}") else None


def _parse(pattern: re.Pattern[str], key: str) -> ObjectName | None:
    match = pattern.fullmatch(key)
    return ObjectName(int(match[1]), match[2]) if match else None


def check_key(key: str, parse: Callable[[str], ObjectName | None], *, where: str) -> str:
    """Return ``key`` if ``parse`` recognises it, the only kind of object that document ``where`` may name
    there; else raise CorruptDataError.
    """
    if parse(key) is not None:
        return key
    raise CorruptDataError(
        "an object key is not one that a txnlog writer makes",
        kind="invalid-key",
        hint="do not read this log before its origin is clear",
        where=where,
        key=repr(key),
    )


def check_topics_file(key: str, directory: str, *, where: str) -> None:
    """Raise CorruptDataError unless segment file ``key`` may be named, by the object ``where``, for the topic
    with this directory.
    """
    if not is_topics_file(key, directory):
        raise _foreign_key(key, directory, where)


def check_topics_sidecar(key: str, directory: str, *, where: str) -> None:
    """Raise CorruptDataError unless sidecar ``key`` may be named for the topic with this directory."""
    if not is_topics_sidecar(key, directory):
        raise _foreign_key(key, directory, where)


def _foreign_key(key: str, directory: str, where: str) -> CorruptDataError:
    return CorruptDataError(
        "an object is named for a topic, and is in the directory of another one",
        kind="invalid-key",
        hint="do not read this log before its origin is clear",
        where=where,
        expected=f"in {directory}/",
        key=repr(key),
    )


def check_topic_name(name: object) -> str:
    """Return ``name`` if it is a legal topic name (Kafka's rule, no leading underscore)."""
    if isinstance(name, str) and _TOPIC.fullmatch(name):
        return name
    raise InvalidInputError(
        f"{repr_of(name)} is not a valid topic name",
        kind="invalid-topic-name",
        hint="use 1 to 249 of A-Z a-z 0-9 . _ - and no leading underscore",
    )


def check_new_topic_name(name: object) -> str:
    """Return ``name`` if a topic may be created by it: legal, and its directory one that every store
    takes.
    """
    checked = check_topic_name(name)
    if not checked.startswith(TEMPORARY_PREFIX):
        return checked
    raise InvalidInputError(
        f"{repr_of(name)} is not a valid topic name: local roots keep {TEMPORARY_PREFIX}… for files that "
        "are being written",
        kind="invalid-topic-name",
        hint=f"use a name that does not begin with {TEMPORARY_PREFIX}",
    )


def check_reader_name(name: object, what: str) -> str:
    """Return ``name`` if a ``what`` ("group", "subscription") may be called so: the rule of topic names."""
    try:
        return check_topic_name(name)
    except InvalidInputError as error:
        raise InvalidInputError(
            f"{repr_of(name, 80)} is not a valid {what} name", kind=f"invalid-{what}-name", hint=error.hint
        ) from None


def check_transactional_id(value: object) -> str:
    """Return ``value`` if it is a legal transactional id: any text of 1 to 249 UTF-8 bytes."""
    if isinstance(value, str) and value:
        try:
            if len(value.encode()) <= TRANSACTIONAL_ID_BYTES_MAX:
                return value
        except UnicodeEncodeError:
            pass
    raise InvalidInputError(
        f"{repr_of(value, 80)} is not a valid transactional id",
        kind="invalid-transactional-id",
        hint=f"use a text of 1 to {TRANSACTIONAL_ID_BYTES_MAX} UTF-8 bytes that stays the same over restarts",
    )
