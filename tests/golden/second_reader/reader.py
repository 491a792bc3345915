"""A second reader of ``read_committed``, written from docs/spec.md alone: SQL for DuckDB, and the glue that DuckDB needs.

The SQL files beside this one are the reader, in the order of their numbers; their comments name the sections of the specification. The
glue does what DuckDB cannot: zstd, Arrow IPC, CRC-32, the digest of a snapshot, and names of columns. It imports nothing of txnlog.
The reader does not bound memory, as section 3 asks of one that meets hostile logs, and looks only at what read_committed needs.
"""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

HERE = Path(__file__).parent
TABLES = {"list": "list_rows", "root": "root_rows", "index": "index_rows", "runs": "runs_rows", "table": "table_rows"}
TYPES = {
    "bool": "BOOLEAN", "int8": "TINYINT", "int16": "SMALLINT", "int32": "INTEGER", "int64": "BIGINT", "float32": "FLOAT", "float64": "DOUBLE",
    "string": "VARCHAR", "binary": "BLOB", "date32": "DATE", "timestamp": "TIMESTAMPTZ", "timestamp_ntz": "TIMESTAMP", "time": "TIME",
    "duration": "BIGINT", "variant": "STRUCT(metadata BLOB, value BLOB)",
}  # fmt: skip
METADATA = {
    "_partition": "INTEGER", "_offset": "BIGINT", "_timestamp": "TIMESTAMPTZ", "_producer_id": "BIGINT", "_producer_epoch": "BIGINT",
    "_entry": "BIGINT", "_commit_entry": "BIGINT",
}  # fmt: skip


class DamagedError(Exception):
    """The log breaks a rule of the specification."""


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def sql_type(kind: Any) -> str:
    """Return the type of DuckDB for a type of section 6.2."""
    if isinstance(kind, str):
        return TYPES[kind]
    ((name, of),) = kind.items()
    if name == "decimal":
        return f"DECIMAL({of[0]}, {of[1]})"
    if name == "list":
        return f"{sql_type(of)}[]"
    if name == "map":
        return f"MAP({sql_type(of[0])}, {sql_type(of[1])})"
    return "STRUCT(" + ", ".join(f"{quoted(field['name'])} {sql_type(field['type'])}" for field in of) + ")"


def plain(stored: bytes) -> bytes:
    if stored[:4] != b"\x28\xb5\x2f\xfd":
        return stored
    return bytes(pa.input_stream(pa.BufferReader(stored), compression="zstd").read())


class Reader:
    def __init__(self, root: Path, folder: Path, snapshots: bool) -> None:
        self.db = duckdb.connect(config={"threads": 1})
        self.root = root
        self.folder = folder
        self.snapshots = snapshots
        self.db.execute(f"SET TimeZone = 'UTC'; SET VARIABLE root = '{root}'; SET VARIABLE folder = '{folder}'")

    def run(self, name: str) -> None:
        self.db.execute((HERE / name).read_text())
        if problems := self.db.execute("SELECT DISTINCT rule, place FROM problems").fetchall():
            raise DamagedError("; ".join(f"{rule} ({place})" for rule, place in problems))

    def insert(self, table: str, key: str, rows: pa.Table) -> None:
        count = len(rows)
        named = rows.append_column("object", pa.array([key] * count, pa.string()))
        self.db.register("incoming", named.append_column("ordinal", pa.array(range(count), pa.int64())))
        self.db.execute(f"INSERT INTO {table} BY NAME SELECT * FROM incoming")

    def sections(self, key: str, content: bytes) -> str:
        """Insert the sections of a snapshot or spill; return the digest of section 10."""
        outer, digest = pa.ipc.open_stream(content).read_all(), hashlib.sha256()
        for section, data in zip(outer["section"].to_pylist(), outer["data"].to_pylist(), strict=True):
            if section == "state":
                digest.update(plain(data))
                self.db.execute("INSERT INTO snapshot VALUES (?)", [plain(data).decode()])
                continue
            table = pa.ipc.open_stream(data).read_all()
            self.insert(f"section_{section}", key, table)
            form = "<" + "".join("i" if field.type == pa.int32() else "q" for field in table.schema)
            for row in zip(*(column.to_pylist() for column in table.columns), strict=True):
                if section in ("files", "tables"):
                    digest.update((" ".join(map(str, row[:7] if row[7:] == (0,) else row)) + "\n").encode())
                else:
                    digest.update(struct.pack(form, *row))
        return digest.hexdigest()

    def take_snapshot(self) -> None:
        for _, key, size, sha256, digest in self.db.execute("FROM checkpoints").fetchall():
            path = self.root / key
            content = path.read_bytes() if path.exists() else b""
            if len(content) == size and hashlib.sha256(content).hexdigest() == sha256:
                if self.sections("", content) != digest:
                    raise DamagedError(f"10: digest ({key})")
                return

    def fetch(self) -> None:
        while True:
            self.run("wanted.sql")
            if not (found := self.db.execute("SELECT key, kind FROM next").fetchall()):
                return
            self.run("fetched.sql")
            for key, kind in found:
                content = self.db.execute("SELECT content FROM fetched WHERE key = ?", [key]).fetchall()[0][0]
                if kind == "spill":
                    self.sections(key, content)
                elif kind in TABLES:
                    self.insert(TABLES[kind], key, pa.ipc.open_file(content).read_all())

    def check_chunks(self) -> None:
        for path, start, size, crc in self.db.execute("SELECT path, start, size, crc FROM chunk_sums").fetchall():
            if f"{zlib.crc32(Path(path).read_bytes()[start : start + size]):08x}" != crc:
                raise DamagedError(f"6.1: checksum of a chunk ({path})")

    def rows(self, topic_id: str, fields: list[Any], timestamp_column: str | None) -> pa.Table:
        newest = {field["name"]: sql_type(field["type"]) for field in fields}
        parts = ["SELECT " + ", ".join(f"NULL::{kind} AS {quoted(name)}" for name, kind in {**METADATA, **newest}.items()) + " WHERE false"]
        forms = self.db.execute("SELECT is_compacted, file_schema_id, list(DISTINCT path) FROM reads JOIN file_checks USING (file_key) WHERE topic_id = ? GROUP BY ALL", [topic_id]).fetchall()
        for is_compacted, schema_id, paths in forms:
            version = self.db.execute("SELECT fields FROM schemas WHERE topic_id = ? AND schema_id = ?", [topic_id, schema_id]).fetchall()
            have = {field["name"] for field in json.loads(version[0][0])}
            moment = f"f.{quoted(timestamp_column)}::TIMESTAMPTZ" if timestamp_column else "make_timestamptz(r.timestamp_ms * 1000)"
            places = {"offset": "(r.base_offset + f.file_row_number - r.first_row)::BIGINT", "timestamp": moment, "producer_id": "r.producer_id",
                      "producer_epoch": "r.epoch", "entry": "r.entry", "commit_entry": "r.commit_entry"}  # fmt: skip
            parts.append(
                (HERE / "8_rows.sql").read_text().format(
                    **({name: f"f._{name}" for name in places} if is_compacted else places), topic=f"'{topic_id}'", paths=paths,
                    columns=", ".join(f"CAST(f.{quoted(name)} AS {kind}) AS {quoted(name)}" for name, kind in newest.items() if name in have),
                )
            )  # fmt: skip
        return self.db.execute(f"FROM ({' UNION ALL BY NAME '.join(parts)}) ORDER BY _partition, _offset").to_arrow_table()

    def read(self) -> dict[str, pa.Table]:
        self.run("1_chain.sql")
        for entry, body in self.db.execute("SELECT entry, body FROM heads WHERE is_compressed").fetchall():
            self.db.execute("INSERT INTO plain VALUES (?, ?)", [entry, plain(body)])
        self.run("2_operations.sql")
        if self.snapshots:
            self.take_snapshot()
        self.run("3_state.sql")
        self.fetch()
        self.run("4_extents.sql")
        self.fetch()
        self.run("5_batches.sql")
        self.fetch()
        self.run("6_files.sql")
        for path, content in (files := self.db.execute("SELECT path, content FROM file_checks").fetchall()):
            Path(path).write_bytes(content)
        if files:
            self.run("7_chunks.sql")
            self.check_chunks()
        topics = self.db.execute("SELECT topic_id, name, arg_max(s.fields, schema_id), any_value(timestamp_column) FROM topics JOIN schemas s USING (topic_id) GROUP BY ALL").fetchall()
        return {name: self.rows(topic_id, json.loads(fields), column) for topic_id, name, fields, column in topics}


def read_committed(root: Path, *, snapshots: bool = True) -> dict[str, pa.Table]:
    """Return what read_committed shows of each topic, by partition and offset; raise an error for a log that breaks a rule."""
    with TemporaryDirectory() as folder:
        return Reader(root, Path(folder), snapshots).read()
