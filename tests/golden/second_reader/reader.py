"""A second reader of ``read_committed``, made from docs/internals/spec.md alone: SQL for DuckDB, and the glue
that DuckDB needs.

The SQL files beside this one are the reader, in the order of their numbers. The glue does what DuckDB cannot:
zstd, Arrow IPC, CRC-32, the digest of a snapshot, names of columns and types. It imports nothing of txnlog,
and does not bound memory as section 3 asks.
"""

import hashlib
import json
import struct
import zlib
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import pyarrow as pa

HERE = Path(__file__).parent


class DamagedError(Exception):
    """The log breaks a rule of the specification."""


def plain(stored: bytes) -> bytes:
    if stored[:4] != b"\x28\xb5\x2f\xfd":
        return stored
    return bytes(pa.input_stream(pa.BufferReader(stored), compression="zstd").read())


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


class Reader:
    def __init__(self, root: Path, folder: Path) -> None:
        self.root, self.db = root, duckdb.connect()
        self.db.execute(f"SET VARIABLE root = '{root}'; SET VARIABLE folder = '{folder}'")

    def ask(self, query: str, *values: Any) -> list[Any]:
        return self.db.execute(query, values).fetchall()

    def run(self, name: str) -> None:
        self.db.execute((HERE / name).read_text())
        if problems := self.ask("SELECT DISTINCT rule, place FROM problems"):
            raise DamagedError("; ".join(f"{rule} ({place})" for rule, place in problems))

    def insert(self, table: str, key: str, rows: pa.Table) -> None:
        named = rows.append_column("object", pa.array([key] * len(rows), pa.string()))
        self.db.register("incoming", named.append_column("ordinal", pa.array(range(len(rows)), pa.int64())))
        self.db.execute(f"INSERT INTO {table} BY NAME SELECT * FROM incoming")

    def sections(self, key: str, content: bytes, expected: str | None = None) -> bool:
        """Insert the sections of a spill, or of a snapshot (its key is empty) that has the expected digest
        (10)."""
        outer, digest, tables = pa.ipc.open_stream(content).read_all(), hashlib.sha256(), {}
        for section, data in zip(outer["section"].to_pylist(), outer["data"].to_pylist(), strict=True):
            if section == "state":
                digest.update(plain(data))
                tables["snapshot"] = pa.table({"state": [plain(data).decode()]})
                continue
            tables[f"section_{section}"] = table = pa.ipc.open_stream(data).read_all()
            form = "<" + "".join("i" if field.type == pa.int32() else "q" for field in table.schema)
            for row in zip(*(column.to_pylist() for column in table.columns), strict=True):
                if section in ("files", "tables"):
                    row = row[:7] if row[7:] == (0,) else row  # schema_id 0 is left out
                    digest.update(" ".join(map(str, row)).encode() + b"\n")
                elif section != "partitions":
                    digest.update(struct.pack(form, *row))
        for name, table in tables.items() if expected in (None, digest.hexdigest()) else ():
            self.insert(name, key, table)
        return expected in (None, digest.hexdigest())

    def take_snapshot(self) -> None:
        for _, key, size, sha256, digest in self.ask("FROM checkpoints"):
            content = (self.root / key).read_bytes() if (self.root / key).exists() else b""
            is_named = len(content) == size and hashlib.sha256(content).hexdigest() == sha256
            if is_named and self.sections("", content, digest):
                return
        self.db.execute(
            "INSERT INTO problems SELECT '6.5', 'entry 0' FROM documents WHERE entry = 0 AND NOT in_slot"
        )

    def fetch(self) -> None:
        self.run("wanted.sql")
        while self.ask("FROM next"):
            self.run("fetched.sql")
            for key, kind, content in self.ask("FROM arrived"):
                if kind == "spill":
                    self.sections(key, content)
                elif kind not in ("file", "txnindex"):
                    self.insert(f"{kind}_rows", key, pa.ipc.open_file(content).read_all())
            self.run("wanted.sql")

    def check_files(self) -> None:
        files = dict(self.ask("SELECT path, content FROM file_checks"))
        for path, content in files.items():
            Path(path).write_bytes(content)
        if files:
            self.run("7_chunks.sql")
        for path, start, size, crc in self.ask("FROM sums"):
            if f"{zlib.crc32(files[path][start : start + size]):08x}" != crc:
                raise DamagedError(f"6.1: checksum of a chunk ({path}, {start})")

    def sql_type(self, kind: Any) -> str:
        """Return the type of DuckDB for a type of section 6.2."""
        if isinstance(kind, str):
            return str(self.ask("SELECT type FROM types WHERE name = ?", kind)[0][0])
        ((name, of),) = kind.items()
        if name == "decimal":
            return f"DECIMAL({of[0]}, {of[1]})"
        if name == "struct":
            fields = (quoted(field["name"]) + " " + self.sql_type(field["type"]) for field in of)
            return f"STRUCT({', '.join(fields)})"
        return f"{self.sql_type(of)}[]" if name == "list" else f"MAP({', '.join(map(self.sql_type, of))})"

    def rows(self, topic_id: str, empty: str) -> pa.Table:
        forms = self.ask("SELECT template, values FROM forms WHERE topic_id = ?", topic_id)
        parts = [empty, *((HERE / file).read_text().format(**names) for file, names in forms)]
        query = f"FROM ({' UNION ALL BY NAME '.join(parts)}) ORDER BY _partition, _offset"
        return self.db.sql(query).to_arrow_table()

    def read(self, *, snapshots: bool) -> dict[str, pa.Table]:
        self.run("1_chain.sql")
        for entry, body in self.ask("SELECT entry, body FROM heads WHERE is_compressed"):
            with suppress(OSError):  # what does not decompress is no document
                self.db.execute("INSERT INTO plain VALUES (?, ?)", [entry, plain(body)])
        self.run("2_operations.sql")
        if snapshots:
            self.take_snapshot()
        for name in ("3_state.sql", "4_extents.sql", "5_batches.sql"):
            self.run(name)
            self.fetch()
        self.run("6_files.sql")
        self.check_files()
        for topic_id, number, name, kind in self.ask("FROM newest_fields"):
            field = [topic_id, number, quoted(name), self.sql_type(json.loads(kind))]
            self.db.execute("INSERT INTO columns VALUES (?, ?, ?, ?)", field)
        self.run("8_forms.sql")
        return {name: self.rows(topic_id, empty) for name, topic_id, empty in self.ask("FROM empties")}


def read_committed(root: Path, *, snapshots: bool = True) -> dict[str, pa.Table]:
    """Return what read_committed shows, by partition and offset; without snapshots from the whole history."""
    with TemporaryDirectory() as folder:
        try:
            return Reader(root, Path(folder)).read(snapshots=snapshots)
        except (duckdb.Error, pa.ArrowException, ValueError) as error:
            raise DamagedError(str(error)) from error
