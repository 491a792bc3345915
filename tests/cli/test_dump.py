"""dump: entries, batches, objects. history is in test_transactions.py."""

from __future__ import annotations

import hashlib
import itertools
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc
import pytest

from tests.cli.conftest import Command
from txnformat import errors
from txnformat.columns.arrow_file import encode_arrow_file
from txnformat.core.sealing.sidecar import MARKERS_SCHEMA
from txnformat.core.transactions.abort_index import AbortedTransaction, encode
from txnformat.keys import entry_key
from txnlog import Producer, TxnLog, __version__
from txnlog.cli.dump import ROWS_AT_ONCE, _arrow_table


@pytest.fixture
def orders(log: TxnLog) -> TxnLog:
    """Partition 0: a committed transaction of two flushes, an aborted one, a bulk append."""
    log.create_topic("orders", pa.schema([("id", pa.int64())]), partitions=2)
    with Producer(log, "p", buffer="inline", embed_bytes=0) as producer:
        producer.begin()
        producer.send("orders", [{"id": 1}, {"id": 2}], partition=0)
        producer.flush()
        producer.send("orders", [{"id": 3}], partition=0)
        producer.commit()
        producer.begin()
        producer.send("orders", [{"id": 4}], partition=0)
        producer.flush()
        producer.abort()
    return log


def test_partitions_of_an_append_begin_with_their_offsets(txnlog: Command, orders: TxnLog) -> None:
    found = [op for line in txnlog("dump", "entries", "--json").lines for op in line["operations"]]
    parts = [part for op in found if op["operation"] == "append" for part in op["partitions"]]
    assert [list(part)[:3] for part in parts] == [["partition", "base_offset", "records"]] * 3
    assert "base_sequence" in parts[0]


def test_batches_have_the_fields_of_kafka_dump_log(txnlog: Command, orders: TxnLog) -> None:
    found = txnlog("dump", "batches", "orders", "--json").lines
    fields = (
        "baseOffset",
        "lastOffset",
        "count",
        "baseSequence",
        "lastSequence",
        "producerId",
        "producerEpoch",
    )
    assert [tuple(line[name] for name in fields) for line in found] == [
        (0, 1, 2, 0, 1, 0, 0),
        (2, 2, 1, 2, 2, 0, 0),
        (3, 3, 1, -1, -1, 0, 0),
        (4, 4, 1, 0, 0, 0, 1),
        (5, 5, 1, -1, -1, 0, 1),
    ]
    assert [(line["isTransactional"], line["isControl"], line.get("endTxnMarker")) for line in found] == [
        (True, False, None),
        (True, False, None),
        (True, True, "COMMIT"),
        (True, False, None),
        (True, True, "ABORT"),
    ]
    text = txnlog("dump", "batches", "orders").out.splitlines()
    assert text[0].startswith(
        "baseOffset: 0 lastOffset: 1 count: 2 baseSequence: 0 lastSequence: 1 producerId: 0 producerEpoch: 0 "
        "isTransactional: true isControl: false CreateTime: "
    )
    assert text[4].endswith("endTxnMarker: ABORT")


def test_sealed_batches_are_shown_as_the_others(txnlog: Command, orders: TxnLog, root: Path) -> None:
    before = txnlog("dump", "batches", "orders", "--json").lines
    sealed = txnlog("maintain", "seal", "--json")
    assert sealed.code == 0
    assert (sealed.json["segments"], sealed.json["batches"]) == (1, 3)
    with Producer(orders) as producer:
        producer.send("orders", [{"id": 9}], partition=0)
    *after, last = txnlog("dump", "batches", "orders", "--json").lines
    assert [line.pop("outcome", None) for line in after] == ["COMMITTED", "COMMITTED", None, "ABORTED", None]
    assert all(line.pop("sealedIn") for line in after)
    assert after == before
    assert (last["baseOffset"], "sealedIn" in last) == (6, False)
    found = txnlog("dump", "batches", "orders", "--from", 2, "--to", 4, "--json").lines
    assert [line["baseOffset"] for line in found] == [2, 3]
    (index,) = [str(path.relative_to(root)) for path in root.rglob("*.txnindex")]
    assert txnlog("dump", "object", index).out == (
        "version: 0 producerId: 0 firstOffset: 4 lastOffset: 5 lastStableOffset: 6\n"
    )
    (rows,) = [str(path.relative_to(root)) for path in root.rglob("*.index")]
    assert [line["base_offset"] for line in txnlog("dump", "object", rows, "--json").lines] == [0, 2, 4]
    assert txnlog("maintain", "seal", "--json").json["segments"] == 1
    assert txnlog("maintain", "seal").out == "nothing to seal\n"
    assert [row["id"] for row in txnlog("consume", "orders").lines] == [1, 2, 3, 9]


def test_batches_of_a_range(txnlog: Command, orders: TxnLog) -> None:
    found = txnlog("dump", "batches", "orders", "--from", 1, "--to", 4, "--json").lines
    assert [line["baseOffset"] for line in found] == [0, 2, 3]
    assert txnlog("dump", "batches", "orders", "-p", 1).out == ""
    beyond = txnlog("dump", "batches", "orders", "--from", 99, "--json")
    assert (beyond.code, beyond.error["kind"]) == (2, "offset-out-of-range")
    partition = txnlog("dump", "batches", "orders", "-p", 2, "--json")
    assert (partition.code, partition.error["kind"]) == (3, "unknown-partition")


def test_a_damaged_entry_is_shown_raw_only(txnlog: Command, orders: TxnLog, root: Path) -> None:
    """The newest one, which no other entry covers; from the log, and as a copy of its file."""
    newest = orders.state.entry
    assert txnlog("dump", "entries", "-e", newest, "--json").lines[0]["checksum"] is True
    key = entry_key(newest)
    assert txnlog("dump", "object", key, "--json").lines[0]["entry"] == newest
    data = (root / key).read_bytes()
    damaged = data.replace(b'"partition":0', b'"partition":1')
    assert damaged != data
    (root / key).chmod(0o644)
    (root / key).write_bytes(damaged)
    for arguments in (("entries", "-e", newest), ("object", key), ("object", root / key)):
        answer = txnlog("dump", *arguments, "--json")
        assert answer.error["kind"] == "wrong-checksum"
        assert answer.code != 0
    assert b'"partition":1' in txnlog("dump", "entries", "-e", newest, "--raw").out.encode()


def test_entries_are_shown_oldest_first_with_their_hashes(
    txnlog: Command, orders: TxnLog, root: Path
) -> None:
    found = txnlog("dump", "entries", "--json").lines
    assert [line["entry"] for line in found] == list(range(orders.state.entry + 1))
    for before, line in itertools.pairwise(found):
        assert line["previous"] == before["sha256"]
    stored = (root / "_txnlog" / "log" / f"{2:020d}.json").read_bytes()
    assert found[2]["sha256"] == hashlib.sha256(stored).hexdigest()
    assert found[2]["size"] == len(stored)
    assert txnlog("dump", "entries", "-e", 2, "--raw").out == stored.decode() + "\n"
    assert [line["entry"] for line in txnlog("dump", "entries", "--from", 1, "--to", 2, "--json").lines] == [
        1,
        2,
    ]
    assert found[1]["operations"][0]["operation"] == "create_topic"
    text = txnlog("dump", "entries", "-e", 1).out.splitlines()
    assert text[0].startswith("entry: 1 timestamp: ")
    at = text.index("  create_topic")
    assert text[at + 1].startswith("    intent: 0 topic_id: ")
    assert text[at + 2 :] == ["    fields:", "      name: id type: int64"]


def test_a_local_file_needs_no_log(
    txnlog: Command, orders: TxnLog, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "copy.json"
    copy.write_bytes((root / "_txnlog" / "log" / f"{1:020d}.json").read_bytes())
    wanted = txnlog("dump", "object", copy, "--json").out
    monkeypatch.delenv("TXNLOG_ROOT")
    assert txnlog("dump", "object", copy, "--json").out == wanted != ""
    answer = txnlog("dump", "object", tmp_path / "none.json", "--json")
    assert (answer.code, answer.error["kind"]) == (3, "no-file")
    assert "--root" in answer.error["hint"]


def test_a_damaged_entry_is_named_and_can_be_looked_at_raw(
    txnlog: Command, orders: TxnLog, root: Path
) -> None:
    path = root / "_txnlog" / "log" / f"{2:020d}.json"
    path.chmod(0o644)
    path.write_bytes(b'{"entry":2}')
    damaged = txnlog("dump", "entries", "-e", 2, "--json")
    assert (damaged.code, damaged.error["class"]) == (6, "CorruptDataError")
    assert txnlog("dump", "entries", "-e", 2, "--raw").out == '{"entry":2}\n'


def test_entries_that_are_not_there(txnlog: Command, orders: TxnLog) -> None:
    for options in (["-e", "99"], ["--from", "99"], ["--to", "99"]):
        answer = txnlog("dump", "entries", *options, "--json")
        assert (answer.code, answer.error["kind"], answer.out) == (3, "unknown-entry", ""), options
    assert txnlog("dump", "entries", "-e", 1, "--from", 1).code == 2


def test_objects_are_decoded_by_their_name(
    txnlog: Command, orders: TxnLog, root: Path, tmp_path: Path
) -> None:
    index = tmp_path / "some.txnindex"
    index.write_bytes(
        encode([AbortedTransaction(5, 5, 15, 13)]) + encode([AbortedTransaction(23, 0, 10, 11)])
    )
    assert txnlog("dump", "object", index).out == (
        "version: 0 producerId: 5 firstOffset: 5 lastOffset: 15 lastStableOffset: 13\n"
        "version: 0 producerId: 23 firstOffset: 0 lastOffset: 10 lastStableOffset: 11\n"
    )
    rows = [dict.fromkeys(MARKERS_SCHEMA.names, number) for number in (1, 2)]
    batch = pa.RecordBatch.from_pylist(rows, MARKERS_SCHEMA)
    (tmp_path / "some.markers").write_bytes(encode_arrow_file(batch))
    assert txnlog("dump", "object", tmp_path / "some.markers", "--json").lines == rows
    (key, *_) = [str(path.relative_to(root)) for path in sorted(root.glob("orders-*/data/*.parquet"))]
    (group,) = txnlog("dump", "object", key, "--json").lines
    assert (group["rowGroup"], group["rows"]) == (0, 2)
    document = txnlog("dump", "object", "_txnlog/format.json", "--json").lines
    assert document == [json.loads((root / "_txnlog" / "format.json").read_text())]


class _Column:
    """A column of very many rows."""

    def __init__(self, count: int) -> None:
        self._count = count

    def slice(self, start: int, count: int) -> _Column:
        return _Column(min(count, self._count - start))

    def to_pylist(self) -> list[int]:
        assert self._count <= ROWS_AT_ONCE
        return [7] * self._count


def test_rows_of_an_arrow_file_are_made_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few kilobytes may hold hundreds of thousands of them."""
    count = 2 * ROWS_AT_ONCE + 1
    read = "txnformat.columns.arrow_messages.read_arrow_file"
    monkeypatch.setattr(read, lambda data, schema: (count, {"n": _Column(count), "m": _Column(count)}))
    assert sum(row == {"n": 7, "m": 7} for row in _arrow_table(b"", "some.arrow")) == count


@pytest.mark.parametrize(
    ("text", "shown"),
    [("1e999", "Infinity"), ("-1e999", "-Infinity"), ("NaN", "NaN"), ("[Infinity, 1.5]", ["Infinity", 1.5])],
)
def test_numbers_that_json_has_not_are_texts(
    txnlog: Command, orders: TxnLog, tmp_path: Path, text: str, shown: object
) -> None:
    """A document of another writer may have them; the output stays JSON."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    (tmp_path / "some.json").write_text(f'{{"n": {text}}}')
    (line,) = txnlog("dump", "object", tmp_path / "some.json", "--json").out.splitlines()
    assert json.loads(line, parse_constant=refuse) == {"n": shown}


def test_a_document_is_shown_a_value_a_line_and_its_operations_below(
    txnlog: Command, orders: TxnLog, tmp_path: Path
) -> None:
    found = txnlog("dump", "entries", "--json").lines
    number = next(
        one["entry"] for one in found if "append" in [each["operation"] for each in one["operations"]]
    )
    lines = txnlog("dump", "object", entry_key(number)).out.splitlines()
    assert lines[0] == f"engine: txnlog-py/{__version__}"
    assert f"entry: {number}" in lines
    below = lines[lines.index("operations:") + 1 :]
    assert any("operation: append" in line for line in below)
    assert "  partitions:" in below
    (tmp_path / "some.json").write_text('{"a": [{"b": 1}, 2, {"c": [{"d": null}]}], "e": "f"}')
    assert txnlog("dump", "object", tmp_path / "some.json").out.splitlines() == [
        "e: f",
        "a:",
        "  b: 1",
        "  2",
        "  c:",
        "    d: null",
    ]


@pytest.mark.parametrize("name", ["some.index", "some.parquet", "some.json", "some.txnindex"])
def test_objects_that_are_not_what_they_are_called(
    txnlog: Command, orders: TxnLog, tmp_path: Path, name: str
) -> None:
    for content in (b"nonsense", b"[" * 100_000):
        (tmp_path / name).write_bytes(content)
        answer = txnlog("dump", "object", tmp_path / name, "--json")
        assert answer.code in (2, 6)
        assert answer.out == ""
    missing = txnlog("dump", "object", f"nowhere/{name}", "--json")
    assert (missing.code, missing.error["kind"]) == (3, "no-object")


@pytest.mark.parametrize(
    "suffix", ["json", "txt", "arrow", "index", "runs", "markers", "txnindex", "parquet", "json.gz"]
)
@pytest.mark.parametrize(
    "data", [b"garbage \xff" * 10, b"", b"ARROW1 and nothing", b"PAR1 and PAR1"], ids=range(4)
)
def test_what_cannot_be_decoded_has_one_exit_code(
    txnlog: Command, tmp_path: Path, suffix: str, data: bytes
) -> None:
    path = tmp_path / f"some.{suffix}"
    path.write_bytes(data)
    answer = txnlog("dump", "object", path, "--json")
    if (suffix, data) == ("txnindex", b""):  # a segment without aborted transactions
        assert (answer.code, answer.out) == (0, "")
        return
    assert answer.code == 6
    assert issubclass(getattr(errors, answer.error["class"]), errors.FormatError)
