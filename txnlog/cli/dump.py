"""``txnlog dump``: what is stored, decoded: commit entries, batches of a partition, single objects."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec import structs

from txnformat.errors import CorruptDataError, InvalidInputError, NotFoundError, TxnLogError
from txnlog.cli.options import TOPIC, Commands, IntegerRange, Place, with_optional_place, with_place
from txnlog.cli.output import instant, plain_values, print_exact, print_json, say

if TYPE_CHECKING:
    from txnformat.log import TxnLog
    from txnformat.store.base import ObjectStore
    from txnformat.types import OffsetRange, SegmentRecord

__all__ = ["dump"]

ROWS_AT_ONCE = 10_000
"""Rows of an Arrow file that are made into Python's values together."""
INDENT_MAX = 20
"""Lists that stand deeper are JSON on one line."""


@click.group(cls=Commands)
def dump() -> None:
    """Show what is stored, decoded."""


# --- entries ------------------------------------------------------------------------------------------------


@dump.command("entries")
@with_place
@click.option(
    "--entry",
    "-e",
    "chosen",
    type=IntegerRange(min=0),
    multiple=True,
    help="Only this entry; repeat the option.",
)
@click.option("--from", "start", type=IntegerRange(min=0), help="First entry. Default: the oldest.")
@click.option("--to", "end", type=IntegerRange(min=0), help="Last entry, inclusive. Default: the newest.")
@click.option("--raw", is_flag=True, help="Print the JSON as stored (decompressed), without any check.")
def entries(
    place: Place, chosen: tuple[int, ...], start: int | None, end: int | None, raw: bool, as_json: bool
) -> None:
    """Show commit entries, oldest first.

    With --json one line per entry.
    """
    from txnformat import keys
    from txnformat.core.entry import decode_entry, sha256_hex
    from txnformat.core.operation_codec import encode_operation
    from txnformat.core.wire.document import decompressed
    from txnformat.core.wire.entry_bytes import has_checksum
    from txnformat.segments.payload import entry_bytes

    if chosen and (start is not None or end is not None):
        raise click.UsageError("give either --entry, or --from and --to")
    store = place.store()
    # A log that cannot be opened does not say which entry is its newest; some entry follows the greatest
    # that is asked for.
    numbers, newest = (iter(chosen), max(chosen) + 1) if chosen else _numbers(place, start, end)
    read = _reader(store, newest)
    for number in numbers:
        data = read(number)
        if raw:
            print_exact(decompressed(data, name=keys.entry_key(number)).decode("utf-8", "backslashreplace"))
            continue
        entry = decode_entry(data, number)
        document = {
            "entry": entry.entry,
            "timestamp": instant(entry.timestamp_ms),
            "timestamp_ms": entry.timestamp_ms,
            "engine": entry.engine,
            "log_id": entry.log_id,
            "write_id": entry.write_id,
            "previous": entry.previous,
            "sha256": sha256_hex(data),
            "checksum": has_checksum(data),
            "size": entry_bytes(data, entry.payload),
            **({} if entry.payload is None else {"payload": structs.asdict(entry.payload)}),
            "intents": list(entry.intents),
            "operations": [_in_order_of_offsets(encode_operation(one)) for one in entry.operations],
        }
        if as_json:
            print_json(document, indent=None)
        else:
            _show_entry(document)


def _in_order_of_offsets(operation: dict[str, Any]) -> dict[str, Any]:
    """Return an operation; the partitions of an append begin with their offsets, as batches do."""
    if operation["operation"] != "append":
        return operation
    first = ("partition", "base_offset", "records")
    parts = [{**{name: part[name] for name in first}, **part} for part in operation["partitions"]]
    return {**operation, "partitions": parts}


def _numbers(place: Place, start: int | None, end: int | None) -> tuple[Iterator[int], int]:
    """Return the entries to show, and the newest one; the oldest may have been deleted."""
    from txnformat.protocol.old_entries import history_start
    from txnformat.protocol.reads import read_boundary

    with place.open() as log:
        newest = log.state.entry
        if start is None:
            start = log.committer.read(history_start(log.committer.read(read_boundary())))
    if start > newest or (end is not None and end > newest):
        raise NotFoundError("there is no such entry", kind="unknown-entry", newest=newest)
    return iter(range(start, (newest if end is None else end) + 1)), newest


def _reader(store: ObjectStore, newest: int) -> Callable[[int], bytes]:
    """Return a function that reads the bytes of an entry by its number, also out of a bundle, unchecked."""
    from txnformat import keys
    from txnformat.client.driver import Driver
    from txnformat.clock import SystemClock, SystemIds
    from txnformat.protocol.old_entries import HISTORY_GONE, OldEntries

    driver = Driver(store, SystemClock(), SystemIds())
    old = OldEntries(newest)

    def read(number: int) -> bytes:
        try:
            return driver.run(old.stored(number))
        except TxnLogError as error:
            if error.kind not in (HISTORY_GONE, "missing-entry"):
                raise
            raise NotFoundError(
                "there is no such entry", kind="unknown-entry", entry=number, object=keys.entry_key(number)
            ) from None

    return read


def _show_entry(document: dict[str, Any]) -> None:
    operations = document.pop("operations")
    head = {name: document.pop(name) for name in ("entry", "timestamp", "engine", "size")}
    say(_pairs(head))
    for name, value in document.items():
        say(f"  {_pairs({name: len(value) if name == 'intents' else value})}")
    for operation in operations:
        say(f"  {operation.pop('operation')}")
        _show_fields(operation, 4)


def _show_document(document: dict[str, Any]) -> None:
    """Print each value of a document on a line of its own, and lists of objects as those of an operation."""
    lists = _lists_of_objects(document)
    for name, value in document.items():
        if name not in lists:
            say(_pairs({name: value}))
    _show_lists(lists, "")


def _lists_of_objects(values: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value
        for name, value in values.items()
        if isinstance(value, list) and isinstance((*value, None)[0], dict)
    }


def _show_fields(values: dict[str, Any], indent: int) -> None:
    """Print simple values on one line, and each item of a list of objects on a line of its own below its
    name.
    """
    lists = _lists_of_objects(values) if indent < INDENT_MAX else {}
    margin = " " * indent
    if plain := {name: value for name, value in values.items() if name not in lists}:
        say(margin + _pairs(plain))
    _show_lists(lists, margin)


def _show_lists(lists: dict[str, Any], margin: str) -> None:
    for name, items in lists.items():
        say(f"{margin}{name}:")
        for one in items:
            if isinstance(one, dict):
                _show_fields(one, len(margin) + 2)
            else:
                say(f"{margin}  {json.dumps(one, ensure_ascii=False)}")


def _pairs(values: dict[str, Any]) -> str:
    """Return ``name: value`` pairs, as Kafka's tools print them."""
    return " ".join(
        f"{name}: {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
        for name, value in values.items()
    )


# --- batches ------------------------------------------------------------------------------------------------


@dump.command("batches")
@click.argument("topic", type=TOPIC)
@with_place
@click.option(
    "--partition",
    "-p",
    type=IntegerRange(min=0),
    default=0,
    show_default=True,
    help="Number of the partition.",
)
@click.option("--from", "start", type=IntegerRange(min=0), help="First offset.")
@click.option("--to", "end", type=IntegerRange(min=0), help="End offset, exclusive.")
def batches(
    topic: str, place: Place, partition: int, start: int | None, end: int | None, as_json: bool
) -> None:
    """Show the batches and markers of a partition, as kafka-dump-log does.

    Also open and aborted ones. With --json one line per batch.
    """
    with place.open() as log:
        for document in _batches(log, topic, partition, start, end):
            if as_json:
                print_json(document, indent=None)
            else:
                say(_pairs(document))


def _batches(
    log: TxnLog, topic: str, number: int, start: int | None, end: int | None
) -> Iterator[dict[str, Any]]:
    """Yield batches as kafka-dump-log does, sealed ones first. Requests: 2 GETs for each sealed segment in
    range, and 1 for each spill.
    """
    from txnformat.core.records.scan import check_range, extents_in
    from txnformat.types import IsolationLevel, TopicPartition

    state = log.refresh()
    found = state.topic(topic)
    if number >= found.partitions:
        raise NotFoundError(
            "no such partition",
            kind="unknown-partition",
            hint=f"the topic has partitions 0 to {found.partitions - 1}",
            topic=topic,
            partitions=[number],
        )
    key = TopicPartition(found.topic_id, number)
    partition = state.partition(key)
    wanted = check_range(partition, IsolationLevel.READ_UNCOMMITTED, start, end, topic=topic, number=number)
    for part in log.sidecars.segments(state, key, wanted):
        yield from _in_order(_sealed(log, part.record, number, part.range), wanted)
    state = log.sidecars.whole(state, key, wanted)
    partition = state.partition(key)
    lines = [_marker(row) for row in partition.markers.array()]
    for row in extents_in(partition, wanted):
        file = state.files[int(row["file"])].key if row["file"] >= 0 else None
        table = state.tables[int(row["table"])].key if row["table"] >= 0 else None
        lines.append(_batch(row, file, table))
    yield from _in_order(lines, wanted)


def _sealed(log: TxnLog, record: SegmentRecord, number: int, within: OffsetRange) -> list[dict[str, Any]]:
    """Return the batches and markers that a sealed segment holds of a partition."""
    from txnformat.core.sealing.sidecar import BatchOutcome, decode_markers

    index = log.sidecars.index(record.index)
    if index.is_compacted:
        return [
            _run(row, index.files[int(row["file"])].key, record.index.key)
            for row in index.runs_of(number, within)
        ]
    lines = [
        {
            **_batch(row, index.files[int(row["file"])].key, None),
            "outcome": BatchOutcome(int(row["outcome"])).name,
            "sealedIn": record.index.key,
        }
        for row in index.partition(number)
    ]
    if record.markers is not None:
        markers = decode_markers(log.store.get(record.markers.key), record.markers)
        lines += [
            {**_marker(row), "sealedIn": record.markers.key}
            for row in markers[markers["partition"] == number]
        ]
    # A batch at the edge is in two segments, whole.
    return [line for line in lines if within.start <= line["baseOffset"] < within.end]


def _run(row: Any, file: str, sealed_in: str) -> dict[str, Any]:
    """Return a run of row groups of a compacted file: committed records of many batches."""
    return {
        "baseOffset": int(row["start_offset"]),
        "lastOffset": int(row["end_offset"]) - 1,
        "count": int(row["records"]),
        "isControl": False,
        "isCompacted": True,
        "CreateTime": int(row["max_timestamp_ms"]),
        "size": int(row["size"]),
        "firstEntry": int(row["min_entry"]),
        "lastEntry": int(row["max_entry"]),
        "firstCommitEntry": int(row["min_commit_entry"]),
        "lastCommitEntry": int(row["max_commit_entry"]),
        "file": file,
        "sealedIn": sealed_in,
    }


def _in_order(lines: list[dict[str, Any]], wanted: OffsetRange) -> Iterator[dict[str, Any]]:
    """Yield the lines that overlap a range, by offset."""
    for line in sorted(lines, key=lambda line: int(line["baseOffset"])):
        if line["baseOffset"] < wanted.end and line["lastOffset"] >= wanted.start:
            yield line


def _batch(row: Any, file: str | None, table: str | None) -> dict[str, Any]:
    records = int(row["records"])
    base, sequence = int(row["base_offset"]), int(row["base_sequence"])
    document = {
        "baseOffset": base,
        "lastOffset": base + records - 1,
        "count": records,
        "baseSequence": sequence,
        "lastSequence": sequence + records - 1 if sequence >= 0 else -1,
        "producerId": int(row["producer_id"]),
        "producerEpoch": int(row["epoch"]),
        "isTransactional": bool(row["transactional"]),
        "isControl": False,
        "CreateTime": int(row["max_timestamp_ms"]),
        "size": int(row["size"]),
        "entry": int(row["entry"]),
    }
    if table is not None:  # an extent that stands for many batches
        return {**document, "batches": int(row["batch_count"]), "table": table}
    return {
        **document,
        "file": file,
        "rowGroup": int(row["row_group"]),
        "rowGroups": int(row["row_group_count"]),
    }


def _marker(row: Any) -> dict[str, Any]:
    offset = int(row["offset"])
    return {
        "baseOffset": offset,
        "lastOffset": offset,
        "count": 1,
        "baseSequence": -1,
        "lastSequence": -1,
        "producerId": int(row["producer_id"]),
        "producerEpoch": int(row["epoch"]),
        "isTransactional": True,
        "isControl": True,
        "CreateTime": int(row["timestamp_ms"]),
        "entry": int(row["entry"]),
        "endTxnMarker": "COMMIT" if row["commit"] else "ABORT",
    }


# --- objects ------------------------------------------------------------------------------------------------


@dump.command("object")
@click.argument("key", metavar="KEY|FILE")
@with_optional_place
def object_(key: str, place: Place | None, as_json: bool) -> None:
    """Show one object of the log, or a copy of one as a local file, for which no log is needed.

    By its name: .txnindex (aborted transactions), .index, .runs, .markers and .arrow (Arrow tables), .parquet
    (row groups), anything else as JSON; a commit entry is checked first (dump entries --raw does not). With
    --json one line per row.
    """
    path = Path(key)
    try:
        if path.is_file():
            data: bytes | None = path.read_bytes()
        elif place is None:
            raise NotFoundError(
                "there is no such file", kind="no-file", hint="for an object of a log add --root", file=key
            )
        else:
            data = place.store().get(key)
    except OSError as error:
        raise InvalidInputError(
            f"the file cannot be read: {error.strerror}", kind="invalid-file", file=key
        ) from None
    if data is None:
        raise NotFoundError("there is no such object", kind="no-object", object=key)
    decode = _DECODERS.get(path.suffix, _json_object)
    for row in decode(data, key):
        if as_json:
            print_json(row, indent=None)
        elif decode is _json_object:
            _show_document(plain_values(row))
        else:
            say(_pairs(plain_values(row)))


def _abort_index(data: bytes, key: str) -> Iterator[dict[str, Any]]:
    from txnformat.core.transactions.abort_index import ENTRY_BYTES, VERSION, decode

    # Entry by entry: a segment of several partitions holds those of one after those of the other.
    for position in range(0, len(data), ENTRY_BYTES):
        (entry,) = decode(data[position : position + ENTRY_BYTES], name=key)
        yield {
            "version": VERSION,
            "producerId": entry.producer_id,
            "firstOffset": entry.first_offset,
            "lastOffset": entry.last_offset,
            "lastStableOffset": entry.last_stable_offset,
        }


def _arrow_table(data: bytes, key: str) -> Iterator[dict[str, Any]]:
    from txnformat.columns.arrow_messages import ArrowFileError, read_arrow_file
    from txnformat.core.records.batch_table import BATCH_TABLE_SCHEMA
    from txnformat.core.sealing.segment_list import ROOT_SCHEMA, SCHEMA
    from txnformat.core.sealing.sidecar import INDEX_SCHEMA, MARKERS_SCHEMA, RUNS_SCHEMA

    schemas = {".index": [INDEX_SCHEMA], ".runs": [RUNS_SCHEMA], ".markers": [MARKERS_SCHEMA]}
    problem = ""
    for schema in schemas.get(Path(key).suffix, [BATCH_TABLE_SCHEMA, SCHEMA, ROOT_SCHEMA]):
        try:
            rows, columns = read_arrow_file(data, schema)
        except ArrowFileError as error:
            problem = str(error)
            continue
        for start in range(0, rows, ROWS_AT_ONCE):  # a few kilobytes may hold very many
            parts = [column.slice(start, ROWS_AT_ONCE).to_pylist() for column in columns.values()]
            for values in zip(*parts, strict=True):
                yield dict(zip(columns, values, strict=True))
        return
    if Path(key).suffix == ".arrow" and not data.startswith(b"ARROW1"):
        yield from _spill(data, key)
        return
    raise CorruptDataError(f"this is not an Arrow file: {problem}", object=key)


def _spill(data: bytes, key: str) -> Iterator[dict[str, Any]]:
    from txnformat.core.snapshot.spilled import sections_of

    for section, table in sections_of(data, key).items():
        for start in range(0, table.num_rows, ROWS_AT_ONCE):
            for row in table.slice(start, ROWS_AT_ONCE).to_pylist():
                yield {"kind": section, **row}


def _parquet(data: bytes, key: str) -> Iterator[dict[str, Any]]:
    from txnformat.segments.footer import TAIL_BYTES, FooterError, decode_footer
    from txnformat.segments.footer_schema import decode_schema
    from txnformat.segments.footer_shape import shape_of

    end = len(data) - TAIL_BYTES - int.from_bytes(data[-TAIL_BYTES:-4], "little")
    try:
        if end < 4 or not data.endswith(b"PAR1"):
            raise FooterError("it has no footer", "PAR1", data[-4:])
        shape = shape_of(decode_schema(data[end:]))
        footer = decode_footer(data[end:], shape, end)
        for index, group in enumerate(footer.groups):
            chunks = [footer.chunk(index, leaf) for leaf in range(len(shape.leaves))]
            yield {
                "rowGroup": index,
                "rows": group.rows,
                "bytes": sum(chunk.uncompressed for chunk in chunks),
                "compressedBytes": sum(chunk.length for chunk in chunks),
                "columns": len(chunks),
            }
    except FooterError as error:
        raise CorruptDataError(
            f"this is not a Parquet file of a log: {error.what} (expected {error.expected!s:.80}, got "
            f"{error.got!s:.80})",
            object=key,
        ) from None


def _json_object(data: bytes, key: str) -> Iterator[dict[str, Any]]:
    from txnformat import keys
    from txnformat.core.entry import decode_entry
    from txnformat.core.wire.document import check_cost, decompressed
    from txnformat.segments.payload import head_of

    number = keys.parse_entry_key("/".join(Path(key).parts[-3:]))
    if number is not None:
        data = head_of(data)
        decode_entry(data, number)
    try:
        text = decompressed(data, name=key)
        check_cost(text, len(data), name=key)
        is_lines = any(keys.delta_name("/".join(Path(key).parts[-parts:])) for parts in (3, 4))
        values = [json.loads(line) for line in (text.splitlines() if is_lines else [text])]
    except (ValueError, RecursionError) as error:
        raise CorruptDataError(f"this is not JSON: {error}", object=key) from None
    for value in values:
        yield value if isinstance(value, dict) else {"value": value}


_DECODERS = {
    ".txnindex": _abort_index,
    ".index": _arrow_table,
    ".runs": _arrow_table,
    ".markers": _arrow_table,
    ".arrow": _arrow_table,
    ".parquet": _parquet,
}
