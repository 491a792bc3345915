"""Operations to JSON and back.

Their fields are declared in :mod:`txnformat.core.operations`; here is what no declaration says.

That is: which fields writers leave out, and the rules between fields. An operation that this version does not
know is a feature that it does not have: UnsupportedFeatureError.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple, get_args

import msgspec
from msgspec import inspect

from txnformat import keys
from txnformat.core.app_versions.state import CONTENT_SCHEME, Content, TopicContent
from txnformat.core.groups.operations import CommitOffsets, JoinGroup
from txnformat.core.lifecycle.operations import CompleteErasure, Replace, RequestErasure
from txnformat.core.operations import (
    AllocateProducerIds,
    AlterTopic,
    Append,
    AppVersion,
    Cause,
    Checkpoint,
    CreateTopic,
    EndTxn,
    Operation,
    Seal,
    Spill,
    Stage,
    TopicSetting,
)
from txnformat.core.subscriptions.operations import Ack, AckMode
from txnformat.core.wire.typed import Typed, fail
from txnformat.errors import UnsupportedFeatureError
from txnformat.field_types import Count, Text
from txnformat.persistent import replace
from txnformat.types import FileRecord, ObjectRecord, SegmentRecord

__all__ = [
    "OPERATIONS",
    "OperationHead",
    "check_operation",
    "check_segment_keys",
    "check_settings_order",
    "check_table_key",
    "content_hook",
    "decode_operation",
    "encode_operation",
    "operation_name",
    "stored_operation",
    "unknown_operation",
]

Json = dict[str, Any]

# --- what is declared ---------------------------------------------------------------------------------------


class _Form(NamedTuple):
    """How the fields of an operation stand in JSON."""

    name: str
    always: tuple[str, ...]
    """Fields that are always written."""
    left_out: tuple[tuple[str, object], ...]
    """The fields that writers leave out when they have this value."""
    required: tuple[str, ...]
    """The fields that a reader must find although Python has a default."""


def _form(cls: type[msgspec.Struct]) -> _Form:
    described = inspect.type_info(cls)
    assert isinstance(described, inspect.StructType)
    extra = {one.name: _extra(one.type) for one in described.fields}
    return _Form(
        str(described.tag),
        tuple(one.name for one in described.fields if "left_out" not in extra[one.name]),
        tuple((one.name, one.default) for one in described.fields if "left_out" in extra[one.name]),
        tuple(
            one.name
            for one in described.fields
            if not one.required and one.default is not None and "may_lack" not in extra[one.name]
        ),
    )


def _extra(described: inspect.Type) -> dict[str, Any]:
    return (described.extra or {}) if isinstance(described, inspect.Metadata) else {}


OPERATIONS: dict[str, type[msgspec.Struct]] = {
    str(cls.__struct_config__.tag): cls for cls in get_args(Operation)
}
"""Every operation by its name in an entry."""
_FORMS = {cls: _form(cls) for cls in OPERATIONS.values()}

OperationHead: Any = msgspec.defstruct(
    "OperationHead",
    [
        ("operation", Text),
        *(
            (name, msgspec.Raw | msgspec.UnsetType, msgspec.UNSET)
            for name in dict.fromkeys(
                ["batches", *(name for form in _FORMS.values() for name in form.required)]
            )
        ),
    ],
    frozen=True,
)
"""The name of an operation, and which of the fields are there that a reader must find."""


def operation_name(operation: Operation) -> str:
    """Return what an operation is called in an entry."""
    return _FORMS[type(operation)].name


# --- encoding -----------------------------------------------------------------------------------------------


def stored_operation(operation: Operation) -> Json:
    """Return the fields of an operation that are written, as values that the encoder of documents takes."""
    form = _FORMS[type(operation)]
    stored: Json = {"operation": form.name, "intent": operation.intent}
    for name in form.always:
        stored[name] = getattr(operation, name)
    for name, default in form.left_out:
        if (value := getattr(operation, name)) != default:
            stored[name] = value
    if isinstance(operation, Append):
        # Its batches, or the place of them, even when that is empty or 0.
        name = "batches" if operation.table is None else "section"
        stored[name] = getattr(operation, name)
    elif isinstance(operation, AppVersion) and operation.content is not None:
        stored["content"] = {"scheme": CONTENT_SCHEME, "topics": operation.content}
    return stored


def encode_operation(operation: Operation) -> Json:
    """Return the JSON object of an operation."""
    encoded: Json = msgspec.json.decode(msgspec.json.encode(stored_operation(operation)))
    return encoded


# --- decoding -----------------------------------------------------------------------------------------------


class _Scheme(msgspec.Struct):
    scheme: Count


class _Topics(msgspec.Struct):
    topics: tuple[TopicContent, ...]


_LATER = Content()
"""Stands for a content of a later version, which compares in another way."""


def content_hook(kind: type, value: Any) -> Content:
    """Return the content of a version (``dec_hook`` of msgspec)."""
    if kind is not Content:
        raise NotImplementedError(kind)
    try:
        if msgspec.convert(value, _Scheme).scheme != CONTENT_SCHEME:
            return _LATER
        found = Content(msgspec.convert(value, _Topics).topics)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from error
    if len({one.topic_id for one in found}) != len(found):
        raise ValueError("list of topics, each once")
    return found


_OPERATION: Typed[Any] = Typed(Operation, content_hook)


def decode_operation(value: Any, intent_count: int, *, path: str) -> Operation:
    """Return the operation that a parsed JSON object says, checked.

    Raises UnsupportedFeatureError (an operation that this version does not know) and CorruptDataError (a
    field that is missing or wrong).
    """
    if isinstance(value, dict) and isinstance(name := value.get("operation"), str) and name not in OPERATIONS:
        raise unknown_operation(name, path)
    operation = _OPERATION.convert(value, path=path)
    there = OperationHead(**{name: value[name] for name in OperationHead.__struct_fields__ if name in value})
    return check_operation(operation, there, intent_count, path=path)


def unknown_operation(name: str, path: str) -> UnsupportedFeatureError:
    """Return the error about an operation that this version does not know."""
    return UnsupportedFeatureError(
        "the log contains an operation that this version does not know",
        hint="upgrade txnlog",
        object=path,
        operation=name,
    )


def check_operation(operation: Operation, there: Any, intent_count: int, *, path: str) -> Operation:
    """Return an operation of which every field is as declared, once what no declaration says is right, too;
    ``there`` is its head.
    """
    form = _FORMS[type(operation)]
    required = form.required
    if isinstance(operation, Append):
        required = (*required, "batches" if operation.table is None else "section")
    for name in required:
        if getattr(there, name) is msgspec.UNSET:
            fail(path, name, "a value", msgspec.UNSET)
    if operation.intent >= max(1, intent_count):
        fail(path, "intent", f"integer from 0 to {max(0, intent_count - 1)}", operation.intent)
    if isinstance(operation, AppVersion) and operation.content is _LATER:
        return replace(operation, content=None)
    if rule := _RULES.get(type(operation)):
        rule(operation, path)
    return operation


# --- rules between fields -----------------------------------------------------------------------------------


def _create_topic(op: CreateTopic, path: str) -> None:
    directory = keys.topic_directory(op.name, op.topic_id)
    if op.directory != directory:
        fail(path, "directory", directory, op.directory)
    check_settings_order(op.settings, path)


def _alter_topic(op: AlterTopic, path: str) -> None:
    check_settings_order(op.settings or (), path)


def check_settings_order(settings: tuple[TopicSetting, ...], path: str) -> None:
    """Raise CorruptDataError unless the names of settings ascend."""
    names = [one.name for one in settings]
    if any(later <= earlier for earlier, later in pairwise(names)):
        fail(path, "settings", "names that ascend", names)


def _allocate(op: AllocateProducerIds, path: str) -> None:
    if op.last < op.first:
        fail(path, "last", f"at least first, {op.first}", op.last)


def _append(op: Append, path: str) -> None:
    if (op.producer_id < 0) != (op.epoch < 0):
        fail(path, "epoch", "-1 exactly when producer_id is -1", op.epoch)
    _files(op.files, path, keys.parse_any_file_key)
    check_table_key(op.table, path)
    if op.table is not None and any(file.place is not None for file in op.files):
        fail(path, "files", "objects beside a table", [file.key for file in op.files])
    if op.table is not None and op.batches:
        fail(path, "batches", "nothing beside a table", op.batches)
    if op.table is None and op.section:
        fail(path, "section", "nothing without a table", op.section)
    if op.batches and max(batch.file for batch in op.batches) >= len(op.files):
        fail(path, "batches", f"files below {len(op.files)}", max(batch.file for batch in op.batches))


def _stage(op: Stage, path: str) -> None:
    _files(op.files, path, keys.parse_data_key)
    check_table_key(op.table, path)


def _files(files: tuple[FileRecord, ...], path: str, parse: Callable[[str], keys.ObjectName | None]) -> None:
    for index, file in enumerate(files):
        keys.check_key(file.key, parse, where=path)
        if file.footer_bytes > file.size:
            fail(f"{path}.files[{index}]", "footer_bytes", f"at most size, {file.size}", file.footer_bytes)


def check_table_key(table: ObjectRecord | None, path: str) -> None:
    """Raise CorruptDataError unless an object is at the place of batch tables and segment lists."""
    if table is not None:
        keys.check_key(table.key, keys.parse_table_key, where=path)


def check_segment_keys(segment: SegmentRecord, path: str) -> None:
    """Raise CorruptDataError unless the sidecars of a segment are at places of their kinds."""
    for named, parse in (
        (segment.index, keys.parse_index_key),
        (segment.markers, keys.parse_markers_key),
        (segment.txnindex, keys.parse_txnindex_key),
    ):
        if named is not None:
            keys.check_key(named.key, parse, where=path)


def _end_txn(op: EndTxn, path: str) -> None:
    if op.cause is Cause.INIT:  # what an init aborts is in the init itself
        raise UnsupportedFeatureError(
            "cause is unknown to this version",
            hint="upgrade txnlog",
            object=path,
            cause=op.cause.value,
        )


def _checkpoint(op: Checkpoint, path: str) -> None:
    name = keys.parse_snapshot_key(keys.check_key(op.key, keys.parse_snapshot_key, where=path))
    if name is None or name.born != op.entry:
        fail(path, "key", f"key of a snapshot of entry {op.entry}", op.key)


def _seal(op: Seal, path: str) -> None:
    for index, segment in enumerate(op.segments):
        check_segment_keys(segment, f"{path}.segments[{index}]")
        if keys.is_runs_key(segment.index.key):  # what was appended has batches
            fail(f"{path}.segments[{index}]", "index", "key of an .index", segment.index.key)
    check_table_key(op.segment_list, path)


def _spill(op: Spill, path: str) -> None:
    check_table_key(op.table, path)
    if len({part.topic_partition for part in op.partitions}) < len(op.partitions):
        fail(path, "partitions", "each partition once", [part.topic_partition for part in op.partitions])
    for part in op.partitions:
        for key in part.replaced:
            keys.check_key(key, keys.parse_table_key, where=path)


def _replace(op: Replace, path: str) -> None:
    for index, segment in enumerate(op.segments):
        keys.check_key(segment.index.key, keys.parse_runs_key, where=f"{path}.segments[{index}]")
    for one in op.lists:
        check_table_key(one.segment_list, path)


def _erasure_columns(op: RequestErasure | CompleteErasure, path: str) -> None:
    if any(later <= earlier for earlier, later in pairwise(op.columns)):
        fail(path, "columns", "names that ascend", op.columns)


def _join_group(op: JoinGroup, path: str) -> None:
    if (op.session_timeout_ms > 0) != (op.member is not None):
        fail(path, "session_timeout_ms", "at least 1 with a member, 0 without", op.session_timeout_ms)


def _identity(op: CommitOffsets | Ack, path: str) -> None:
    if not (op.producer_id < 0) == (op.epoch < 0) == (op.transactional_id is None):
        fail(path, "producer_id", "-1, as epoch, exactly when transactional_id is null", op.producer_id)


def _ack(op: Ack, path: str) -> None:
    _identity(op, path)
    if op.mode is AckMode.SEEK and op.transactional_id is not None:
        fail(path, "transactional_id", "null of a seek", op.transactional_id)
    for index, part in enumerate(op.partitions):
        where = f"{path}.partitions[{index}]"
        if op.mode is not AckMode.INDIVIDUAL:
            if part.position is None or part.ranges:
                fail(where, "position", "integer, and no ranges", part.position)
        elif not part.ranges or part.position is not None:
            fail(where, "ranges", "list of [start, end], and no position", part.ranges)
        else:
            check_ranges(part.ranges, "ranges", where)


def check_ranges(ranges: tuple[tuple[int, int], ...], field: str, path: str) -> None:
    """Raise CorruptDataError unless ranges ascend, are not empty, and no two of them overlap or touch."""
    bounds = [bound for pair in ranges for bound in pair]
    if any(later <= earlier for earlier, later in pairwise(bounds)):
        fail(path, field, "ranges that ascend, of which no two overlap or touch", ranges)


_RULES: dict[type, Callable[[Any, str], None]] = {
    CreateTopic: _create_topic,
    AlterTopic: _alter_topic,
    AllocateProducerIds: _allocate,
    Append: _append,
    Stage: _stage,
    EndTxn: _end_txn,
    Checkpoint: _checkpoint,
    Seal: _seal,
    Spill: _spill,
    Replace: _replace,
    RequestErasure: _erasure_columns,
    CompleteErasure: _erasure_columns,
    JoinGroup: _join_group,
    CommitOffsets: _identity,
    Ack: _ack,
}
