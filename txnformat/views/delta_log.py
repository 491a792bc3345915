"""The Delta log of a topic in the store: read it, create its next version, write checkpoints, remove old
versions.

Steps without IO of their own.

A version is created once, by one conditional request. It is read back only if the answer is not a plain
success.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from txnformat import keys
from txnformat.clock import waited_ms
from txnformat.errors import ConflictError, CorruptDataError, StorageError
from txnformat.protocol.effects import CreateObject, DrawUniform, PutObject, ReadClock, Sleep, Steps, Times
from txnformat.protocol.reads import get_object, list_keys, make_durable
from txnformat.store.base import CreateOutcome
from txnformat.views.delta_actions import READ_ONLY, Line, decode_version, encode_version, is_ours
from txnformat.views.delta_checkpoint import decode_checkpoint, encode_checkpoint, encode_hint
from txnformat.views.delta_table import DeltaTable, folded

__all__ = [
    "Found",
    "create_once",
    "create_version",
    "follow_table",
    "old_keys",
    "write_checkpoint",
]

PATIENCE_MS = 60_000
"""How long an unclear answer is looked into."""
BACKOFF_MS, BACKOFF_MS_MAX = 50, 5_000


class Found(NamedTuple):
    """A table as it was found in the store."""

    table: DeltaTable
    foreign: int | None = None
    """The first version that another program wrote, of those that were read; None: there is none."""
    undecoded: CorruptDataError | None = None
    """About the first version that cannot be decoded, so that the table lacks what it says; None: there is
    none."""


def follow_table(known: DeltaTable, directory: str, topic_id: str, *, strict: bool = True) -> Steps[Found]:
    """Return a table as it is now. ``known``: as this process saw it last; ``DeltaTable()`` at first.

    ``strict``: raise about a version that another program wrote, ConflictError of kind ``view-changed``;
    False: take it as it is, and pass over what cannot be decoded. Raises CorruptDataError of kind
    ``corrupt-view``. Requests: 1 LIST, and 1 GET for each version that is new since the known one or the last
    checkpoint.
    """
    prefix = keys.delta_prefix(directory)
    after = None if known.version < 0 else keys.delta_version_key(directory, known.version)
    names = yield from _names(prefix, after)
    numbers = [name.version for name in names if not name.is_checkpoint and name.version > known.version]
    if after is not None and numbers != list(range(known.version + 1, known.version + 1 + len(numbers))):
        # Others have published so often meanwhile that versions are gone, or the log was made anew.
        return (yield from follow_table(DeltaTable(), directory, topic_id, strict=strict))
    table, foreign, undecoded = known, None, None
    if after is None:
        table = yield from _from_checkpoint(directory, topic_id, names)
        numbers = [number for number in numbers if number > table.version]
        if numbers != list(range(table.version + 1, table.version + 1 + len(numbers))):
            raise _changed(directory, topic_id, "versions are missing", numbers[0])
    versions: list[tuple[int, Sequence[Line]]] = []
    for number in numbers:
        key = keys.delta_version_key(directory, number)
        data = yield from get_object(key)
        if data is None:
            raise _changed(directory, topic_id, "a version is gone", number)
        lines: Sequence[Line]
        try:
            lines = decode_version(data, key)
        except CorruptDataError as error:
            if strict:
                raise
            lines, undecoded = [], undecoded or error
        if not is_ours(lines):
            if strict:
                raise _changed(directory, topic_id, "another program wrote a version", number)
            foreign = number if foreign is None else foreign
        versions.append((number, lines))
    table = folded(table, topic_id, versions)
    if strict and table.version >= 0:
        _check(table, directory, topic_id)
    checkpoints = [name.version for name in names if name.is_checkpoint and name.version <= table.version]
    return Found(replace(table, checkpoint=max([table.checkpoint, *checkpoints])), foreign, undecoded)


def _names(prefix: str, after: str | None) -> Steps[list[keys.DeltaName]]:
    found = yield from list_keys(prefix, after)
    names = (keys.delta_name(key) for key in found)
    return [name for name in names if name is not None and name.version >= 0]


def _from_checkpoint(directory: str, topic_id: str, names: Sequence[keys.DeltaName]) -> Steps[DeltaTable]:
    """Return the table of the newest checkpoint that can be read; an empty one if versions begin with 0."""
    for version in sorted((name.version for name in names if name.is_checkpoint), reverse=True):
        key = keys.delta_checkpoint_key(directory, version)
        data = yield from get_object(key)
        if data is not None:
            return decode_checkpoint(data, key, version, topic_id)
    return DeltaTable()


def _check(table: DeltaTable, directory: str, topic_id: str) -> None:
    features = () if table.protocol is None else table.protocol.writerFeatures or ()
    is_same = table.metadata is not None and table.metadata.id == topic_id
    if READ_ONLY not in features or not is_same or table.entry < 0:
        raise _changed(directory, topic_id, "the table is not one that txnlog published", table.version)


def _changed(directory: str, topic_id: str, got: str, version: int) -> ConflictError:
    return ConflictError(
        "the published view was changed by another program",
        kind="view-changed",
        hint="the log is not affected; publish with rebuild=True (--rebuild) to rebuild the whole table",
        object=keys.delta_version_key(directory, version),
        topic_id=topic_id,
        got=got,
    )


def create_version(directory: str, version: int, lines: Sequence[Line]) -> Steps[bool]:
    """Create a version of a table; return False if another process was faster.

    Requests: 1 conditional PUT.
    """
    data = encode_version(lines)
    return (yield from create_once(keys.delta_version_key(directory, version), data)) == data


def create_once(key: str, data: bytes) -> Steps[bytes]:
    """Create an object if there is none, and return what is there then.

    Requests: 1 conditional PUT; more if the answer is unclear.

    Raises StorageError: the store refuses it, or nothing says what became of it.
    """
    begun: Times = yield ReadClock()
    wait_ms: float = BACKOFF_MS
    while True:
        result = yield CreateObject(key, data)
        if result.outcome is CreateOutcome.CREATED:
            return data
        error: StorageError | None = result.error
        if result.outcome is CreateOutcome.REFUSED and error is not None:
            raise error
        try:
            found = yield from get_object(key)
            if found is not None:
                yield from make_durable(key)
                return found
        except StorageError as failed:
            error = failed
        now: Times = yield ReadClock()
        left_ms = PATIENCE_MS - waited_ms(begun, now)
        if error is not None and not error.transient:
            raise error
        if left_ms <= 0:
            raise StorageError(
                "an object of a view could not be written, or nothing says whether it was",
                hint="publish again: that is harmless, whatever became of it",
                object=key,
                cause=str(error),
            ) from error
        spread = yield DrawUniform()
        yield Sleep(min(wait_ms * (0.5 + spread / 2), left_ms))
        wait_ms = min(2 * wait_ms, BACKOFF_MS_MAX)


def write_checkpoint(directory: str, topic_id: str, table: DeltaTable) -> Steps[DeltaTable]:
    """Write the checkpoint of a table, and let the hint name it. Requests: 2 PUTs."""
    data = encode_checkpoint(table, topic_id)
    yield from create_once(keys.delta_checkpoint_key(directory, table.version), data)
    yield PutObject(keys.delta_hint_key(directory), encode_hint(table, len(data)))
    return replace(table, checkpoint=table.version)


def old_keys(directory: str, before_ms: int) -> Steps[list[str]]:
    """Return the objects of versions that no reader needs: those below the newest checkpoint that was made
    before a time.

    Versions from that one on can be read. Ascending: versions first, then checkpoints. Requests: 1 LIST, 1
    GET for each checkpoint from the newest on, until one is old enough.
    """
    names = yield from _names(keys.delta_prefix(directory), None)
    checkpoints = sorted((name.version for name in names if name.is_checkpoint), reverse=True)
    for version in checkpoints:
        data = yield from get_object(keys.delta_version_key(directory, version))
        times = [
            line.commitInfo.timestamp
            for line in (() if data is None else decode_version(data, directory))
            if line.commitInfo is not None and line.commitInfo.timestamp is not None
        ]
        if times and max(times) < before_ms:
            gone = sorted(name.version for name in names if not name.is_checkpoint and name.version < version)
            old = sorted(one for one in checkpoints if one < version)
            return [
                *(keys.delta_version_key(directory, one) for one in gone),
                *(keys.delta_checkpoint_key(directory, one) for one in old),
            ]
    return []
