"""What is attacked: every decoder of txnlog's own, every parser of outside text, and every form in which rows
come in."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from spark_datasource.options.read import parse_read_options
from spark_datasource.options.write import parse_stream_write_options, parse_write_options
from spark_datasource.stream.messages import BatchStamp, StreamUpload, TopicStamp, as_batch
from spark_datasource.stream.offsets import parse_stream_offset
from spark_datasource.write.messages import TaskUpload
from tests.fuzz import rows
from tests.fuzz.mutate import Mutate, changed_bytes, changed_json, changed_text, only_seed
from tests.property.cut_histories import CutHistory
from txnformat import keys
from txnformat.admin.prepared import PreparedTransaction
from txnformat.arguments import is_utf8
from txnformat.columns.arrow_types import canonical_schema, check_readable, fields_from_json, fields_to_json
from txnformat.columns.conform import conform
from txnformat.columns.json_values import Binary
from txnformat.columns.multiset import multiset_of
from txnformat.columns.spark_json import from_spark_json
from txnformat.core.entry import decode_entry, sha256_hex
from txnformat.core.groups.resets import read_target
from txnformat.core.operations import Checkpoint
from txnformat.core.producers.ids import IdBlock
from txnformat.core.records.chunks import Chunk
from txnformat.core.snapshot.codec import decode_snapshot, encode_snapshot, state_digest
from txnformat.core.transactions import abort_index
from txnformat.core.wire.bundle import decode_bundle, decode_payloads, encode_bundle, encode_payloads
from txnformat.core.wire.document import plain_json
from txnformat.core.wire.entry_bytes import check_stored
from txnformat.errors import TxnLogError
from txnformat.moments import as_moment_us
from txnformat.predicates.sql import compile_where
from txnformat.protocol.follow import empty_state, parse_hint
from txnformat.store.memory import MemoryStore
from txnformat.store.s3.options import S3Options
from txnlog import TxnLog
from txnlog.cli.records.columns import parse_column
from txnlog.cli.records.file_formats import Format
from txnlog.cli.records.sources import _reader
from txnlog_testing.entries import without_checksum
from writers.rows import RowFormat

__all__ = ["CORPUS", "Target", "targets"]

CORPUS = Path(__file__).parent / "corpus"
UUID = "12345678-1234-4234-8234-123456789abc"
SLOW = 0.3
"""Weight of targets whose inputs take milliseconds."""
TIMES = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True, slots=True)
class Target:
    """Something that takes bytes, and either returns or raises an error of txnlog."""

    name: str
    seeds: Sequence[bytes]
    mutate: Mutate
    use: Callable[[bytes], object]
    weight: float = 1.0
    """Its share of the inputs, compared with others: less where an input starts a process."""

    @property
    def is_guided(self) -> bool:
        """Whether it is code of txnlog's own that takes the bytes: what an input reaches there can be
        seen.
        """
        return self.mutate is not only_seed and self.name not in {"csv", "parquet-input"}

    def inputs(self, seed: int, count: int) -> list[bytes]:
        """Return changed inputs: the same for one seed."""
        rng = Random(f"{self.name} {seed}")
        corpus = [*self.seeds, *self.corpus()]
        return [self.mutate(rng.choice(corpus), rng) for _ in range(count)]

    def corpus(self) -> list[bytes]:
        """Return the kept inputs."""
        return [path.read_bytes() for path in sorted((CORPUS / self.name).glob("*"))]


@cache
def _history() -> tuple[dict[str, bytes], Any]:
    """Return the objects of a log that real producers wrote, and its state."""
    store = MemoryStore()
    log = TxnLog.create(store)
    history = CutHistory(Random(7), log, grows=True)
    for _ in range(60):
        history.step()
    history.close()
    log.refresh()
    return {info.key: store.get(info.key) or b"" for info in store.list("")}, log.state


def _entries() -> list[bytes]:
    objects, _ = _history()
    return [data for key, data in sorted(objects.items()) if keys.parse_entry_key(key) is not None]


def _plain_entries() -> list[bytes]:
    return [plain_json(json.loads(decode_stored_json(without_checksum(data)))) for data in _entries()]


def decode_stored_json(data: bytes) -> bytes:
    """Return the text of an entry that may be compressed."""
    return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data


def _number(data: bytes) -> int:
    try:
        found = json.loads(data)["entry"]
    except (ValueError, KeyError, TypeError):
        return 0
    return found if type(found) is int else 0


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass" if is_pairs(data) else "replace")


def is_pairs(data: bytes) -> bool:
    """Return whether bytes are a text, halves of surrogate pairs included."""
    try:
        data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return False
    return True


def _json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _snapshot(data: bytes) -> None:
    key = keys.snapshot_key(5, UUID)
    state = _history()[1]
    checkpoint = Checkpoint(state.entry, key, len(data), sha256_hex(data), state_digest(state))
    decode_snapshot(data, checkpoint, state.log_id)


def _keys(data: bytes) -> None:
    text = _text(data)
    parsers: Sequence[Callable[[str], object]] = (
        *(keys.parse_entry_key, keys.parse_boundary_key, keys.parse_bundle_key, keys.parse_payloads_key),
        keys.parse_snapshot_key,
        *(
            keys.parse_table_key,
            keys.parse_data_key,
            keys.parse_index_key,
            keys.parse_runs_key,
            keys.parse_markers_key,
            keys.parse_txnindex_key,
        ),
    )
    for parse in parsers:
        if parse(text) is not None:
            assert text.isascii()
            assert ".." not in text.split("/")
    for check in (
        keys.check_new_topic_name,
        keys.check_transactional_id,
        lambda name: keys.check_reader_name(name, "group"),
    ):
        try:
            assert is_utf8(check(text))
        except TxnLogError:
            continue


COLUMNS = {
    "id": pa.int64(), "name": pa.string(), "b": pa.binary(), "at": TIMES, "d": pa.date32(), "f": pa.float32(),
    "ok": pa.bool_(), "price": pa.decimal128(10, 2), "_offset": pa.int64(),
}  # fmt: skip
WHERE = (
    (b"id > 5 AND name = "
    b"'a'"), b"at >= TIMESTAMP '2026-01-31T12:00:00Z' OR d < DATE '2026-01-31'", b"NOT (f IN (1, 2.5, NULL))",
    (b"name LIKE 'a%' AND b IS NOT "
    b"NULL"), b"price BETWEEN 1.25 AND 99999999.99", b"`id` <> -9223372036854775808 AND NOT ok",
)  # fmt: skip


def _schema(data: bytes) -> None:
    schema = fields_from_json(_json(data))
    assert fields_to_json(schema) == _json(data)
    check_readable(schema)


def _spark_schema(data: bytes) -> None:
    value = _json(data)
    check_readable(canonical_schema(from_spark_json(value if isinstance(value, dict) else {"type": value})))


def _options(data: bytes) -> None:
    value = _json(data)
    if isinstance(value, dict):
        options = {name: one if isinstance(one, str) else json.dumps(one) for name, one in value.items()}
        for parse in (parse_read_options, parse_write_options, parse_stream_write_options, S3Options.parse):
            try:
                parse(options)
            except TxnLogError:
                continue


def _moment(data: bytes) -> None:
    for use in (lambda text: as_moment_us(text, "at"), lambda text: read_target(text, "t"), parse_column):
        try:
            use(_text(data))
        except TxnLogError:
            continue


def _messages(data: bytes) -> None:
    rng = Random(data)
    stamp = BatchStamp("q", "r", 3, UUID, UUID, 5)
    tasks: list[Any] = []
    for number in range(rng.randrange(1, 4)):
        batch = replace(stamp, **{rng.choice(("query_id", "batch_id", "seed", "born")): rows.odd(rng)})
        topic: Any = TopicStamp(UUID, "t-12345678", 0, 3)
        if rng.randrange(3) == 0:
            topic = rng.choice((rows.odd(rng), replace(topic, directory=rows.odd(rng))))
        uploads: Any = {} if rng.randrange(3) else rows.odd(rng)
        tasks.append(
            StreamUpload(
                number,
                uploads,
                rng.choice((None, rows.odd(rng))),
                rng.choice((stamp, stamp, batch)),
                {"t": topic},
            )
        )
        if rng.randrange(5) == 0:
            tasks.append(rng.choice((rows.odd(rng), TaskUpload(rows.odd(rng), rows.odd(rng), None))))
    as_batch(tasks, 3)


def _sent(draw: Callable[[Random, pa.Schema], Any], data: bytes) -> None:
    rng = Random(data)
    schema = rows.schema_of(rng)
    try:
        given = draw(rng, schema)
    except pa.ArrowInvalid:  # Arrow itself does not make it
        return
    packer = RowFormat(schema)
    plain = packer.pack(given[0]) if type(given) is list and given else None
    table = packer.table([plain.values]) if plain is not None else conform(given, schema)
    table.validate(full=True)
    assert table.schema.equals(schema)
    multiset_of(table)
    pq.write_table(table, pa.BufferOutputStream())


SOURCE = pa.schema(
    [
        *(
            pa.field("i", pa.int64()),
            pa.field("s", pa.string()),
            pa.field("b", pa.binary()),
            pa.field("t", TIMES),
        ),
        *(pa.field("d", pa.decimal128(10, 2)), pa.field("f", pa.float64()), pa.field("y", pa.date32())),
    ]
)
LINE = {"i": 5, "s": "a", "b": "x", "t": "2026-01-31T12:00:00Z", "d": "1.25", "f": 1.5, "y": "2026-01-31"}


def _source(format_: Format, data: bytes) -> None:
    file: Any = io.BufferedReader(io.BytesIO(data))
    for piece in islice(_reader(format_, file, len(data), SOURCE, Binary.UTF8, {}, ",").pieces, 50):
        conform(piece.table, SOURCE).validate(full=True)


def _parquet() -> bytes:
    schema = pa.schema([field.with_type(field.type) for field in SOURCE])
    sink = io.BytesIO()
    pq.write_table(pa.table({field.name: pa.nulls(3, field.type) for field in schema}), sink)
    return sink.getvalue()


def _checkpoint() -> bytes:
    topic = {"name": "t", "offsets": [5, 7]}
    return json.dumps(
        {"version": 2, "log_id": UUID, "order": "offset", "entry": 9, "topics": {UUID: topic}}
    ).encode()


@cache
def targets() -> tuple[Target, ...]:
    """Return all targets: decoders of objects, parsers of texts, rows."""
    objects, state = _history()
    entries, plain = _entries(), _plain_entries()
    bundle = encode_bundle([entries[0]] * 100) or b""
    payloads = encode_payloads([entries[0]] * 10) or b""
    aborted = abort_index.encode(abort_index.AbortedTransaction(1, at, at + 5, at) for at in (5, 20, 90))
    hint = json.dumps({"entry": 5, "key": keys.snapshot_key(5, UUID)}).encode()
    block = json.dumps({"version": 1, "broker": 1, "block_start": "0", "block_end": "999"}).encode()
    chunk = json.dumps({"value": UUID, "index": 2, "count": 3, "size": 9}).encode()
    fields = json.dumps([
        {"name": "a", "type": {"list": {"map": ["string", {"struct": [{"name": "x", "type": "int64"}]}]}}},
        {"name": "b", "type": {"decimal": [10, 2]}}, {"name": "c", "type": "variant"},
    ]).encode()  # fmt: skip
    spark = json.dumps({"type": "struct", "fields": [
        {"name": "a", "type": {"type": "array", "elementType": "decimal(10,2)", "containsNull": True}, "nullable": True},
        {"name": "b", "type": {"type": "map", "keyType": "string", "valueType": "timestamp"}}, {"name": "c", "type": "time(6)"},
    ]}).encode()  # fmt: skip
    options = json.dumps(
        {"path": "/tmp/x", "topic": "t", "startingOffsets": '{"t":{"0":5}}', "where": "id > 5"}
    ).encode()
    odd_options = json.dumps(
        {"topic": "a,b", "endpoint_url": "http://127.0.0.1:1", "region": "eu-1", "txnVersion": "5"}
    ).encode()
    keyed = [keys.entry_key(5).encode(), keys.data_key("t-12345678", 5, UUID).encode(), b".tmp-x", b"orders"]
    token = f"txnlog-prepared:{UUID}:5:7:my id".encode()
    texts = [
        b"2026-01-31T12:00:00+02:00",
        b"1700000000000",
        b"shift:-5",
        b"a:decimal(10,2)",
        b"b:struct<x:list<int64>>",
    ]
    return (
        Target("entry", plain, changed_json, lambda data: decode_entry(data, _number(data))),
        Target("entry-bytes", entries, changed_bytes, lambda data: decode_entry(data, 0)),
        Target("stored", entries, changed_bytes, lambda data: check_stored(data, name="x")),
        Target("format", [objects[keys.FORMAT_KEY]], changed_json, empty_state),
        Target("latest", [hint], changed_json, parse_hint),
        Target("snapshot", [encode_snapshot(state)], changed_bytes, _snapshot, SLOW),
        Target("bundle", [bundle], changed_bytes, lambda data: decode_bundle(data, "x")),
        Target("payloads", [payloads], changed_bytes, lambda data: decode_payloads(data, "x", 10)),
        Target("aborted", [aborted], changed_bytes, lambda data: abort_index.decode(data)),
        Target("producer-ids", [block], changed_json, IdBlock.decode),
        Target("chunk", [chunk], changed_json, lambda data: Chunk.decode(data, name="x")),
        Target("schema", [fields], changed_json, _schema),
        Target("spark-schema", [spark], changed_json, _spark_schema),
        Target("checkpoint", [_checkpoint()], changed_json, lambda data: parse_stream_offset(_json(data))),
        Target("options", [options, odd_options], changed_json, _options, SLOW),
        Target("keys", keyed, changed_text, _keys),
        Target("token", [token], changed_text, lambda data: PreparedTransaction.parse(_text(data))),
        Target("texts", texts, changed_text, _moment),
        Target("where", WHERE, changed_text, lambda data: compile_where(_text(data), COLUMNS), SLOW),
        Target("messages", [b""], only_seed, _messages, SLOW),
        Target("rows", [b""], only_seed, lambda data: _sent(rows.rows_of, data), SLOW),
        Target("pandas", [b""], only_seed, lambda data: _sent(rows.frame, data), SLOW),
        Target("polars", [b""], only_seed, lambda data: _sent(rows.polars_frame, data), SLOW),
        Target("arrow", [b""], only_seed, lambda data: _sent(rows.arrow_data, data), SLOW),
        Target(
            "json-lines", [json.dumps(LINE).encode()], changed_json, lambda data: _source(Format.JSON, data)
        ),
        Target(
            "json-text", [json.dumps(LINE).encode()], changed_text, lambda data: _source(Format.JSON, data)
        ),
        Target(
            "csv",
            [b'i,s,b,t,d,f,y\n5,a,"x",2026-01-31T12:00:00Z,1.25,1.5,2026-01-31\n'],
            changed_text,
            lambda data: _source(Format.CSV, data),
        ),
        Target(
            "parquet-input", [_parquet()], changed_bytes, lambda data: _source(Format.PARQUET, data), 0.002
        ),
    )
