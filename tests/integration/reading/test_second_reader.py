"""The reader in tests/golden/second_reader, made from the specification alone, shows what ``log.read`` shows,
bit for bit."""

from __future__ import annotations

import ast
import random
import re
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from tests.golden.second_reader import reader
from tests.golden.second_reader.reader import DamagedError, read_committed
from tests.integration.reading.random_roots import RandomLog
from tests.rounds import rounds
from txnlog import TxnLog

GLUE = Path(reader.__file__)
ROOTS = GLUE.parent.parent / "roots"
METADATA = [
    "_partition",
    "_offset",
    "_timestamp",
    "_producer_id",
    "_producer_epoch",
    "_entry",
    "_commit_entry",
]
BITS = {pa.float32(): pa.int32(), pa.float64(): pa.int64()}


def bits(table: pa.Table) -> pa.Table:
    """Return the table with floats as their bits, so that NaN equals itself, and -0.0 does not equal 0.0."""
    for place, field in enumerate(table.schema):
        if field.type in BITS:
            column = table.column(place).combine_chunks().view(BITS[field.type])
            table = table.set_column(place, field.name, column)
    return table


def assert_same(root: Path, *, snapshots: tuple[bool, ...] = (True, False)) -> dict[str, int]:
    """Compare every topic; return their numbers of records."""
    with TxnLog.open(root) as log:
        wanted = {
            name: log.read(name, columns=[*METADATA, *log.read(name).schema.names]).read_all()
            for name in log.topics()
        }
    for use in snapshots:
        found = read_committed(root, snapshots=use)
        assert sorted(found) == sorted(wanted)
        for name, want in wanted.items():
            assert found[name].column_names == want.column_names
            # A duration is its whole number of microseconds in DuckDB, and texts and binaries have another
            # width in Arrow.
            assert bits(found[name].cast(want.schema)).equals(bits(want)), name
    return {name: want.num_rows for name, want in wanted.items()}


def objects(root: Path, pattern: str) -> list[Path]:
    return sorted(root.glob(pattern))


@pytest.mark.parametrize(
    "root", sorted(path for path in ROOTS.iterdir() if path.is_dir()), ids=lambda root: root.name
)
def test_golden_roots_read_the_same(root: Path) -> None:
    assert_same(root)


def test_the_glue_is_short_and_knows_nothing_of_txnlog() -> None:
    text = GLUE.read_text()
    assert len(text.splitlines()) <= 160
    imported: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None
            imported.add(node.module.partition(".")[0])
    assert imported - sys.stdlib_module_names == {"duckdb", "pyarrow"}
    assert "import_module" not in text
    assert "__import__" not in text


@pytest.mark.parametrize("seed", range(rounds(1, 20)))
def test_seeded_histories_read_the_same(tmp_path: Path, seed: int) -> None:
    """With and without a snapshot, and when the entries below it are in a bundle only."""
    root = tmp_path / "log"
    history = RandomLog(root, seed, embedding=seed % 2 == 0)
    try:
        for step in range(40):
            history.step()
            if step == 12:
                history.grow_topics()
            if step == 20:
                history.delete_brief(again=True)
            if step == 28:
                history.rename_columns()
        history.spill()
        assert_same(root, snapshots=(True,))
        history.end_held()
        assert_same(root, snapshots=(True,))
        while not objects(root, "_txnlog/latest"):
            history.step()
        history.step()
    finally:
        history.close()
    assert_same(root)


FOUND = (r"^[^_].*/data/[^@]+$", r"\.index$", r"\.runs$", r"\.txnindex$")


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def head_size(path: Path) -> int:
    """Return how many bytes an entry has before its payload."""
    content = path.read_bytes()
    if not content.endswith(b"TXNLROWS"):
        return len(content)
    return len(content) - 12 - int.from_bytes(content[-12:-8], "big")


def test_a_changed_byte_is_noticed_in_what_is_read(tmp_path: Path) -> None:
    """Of each kind of object one that was read, and entries; in what was not read any byte may be another
    one."""
    root, draw = tmp_path / "log", random.Random(4)
    history = RandomLog(root, 7, embedding=True)
    history.write_every_kind()
    history.close()
    looking = reader.Reader(root, tmp_path)
    want = looking.read(snapshots=True)
    keys = [key for (key,) in looking.ask("SELECT DISTINCT key FROM fetched ORDER BY key")]
    spills = [key for (key,) in looking.ask("SELECT DISTINCT object FROM section_partitions")]
    lists = [key for (key,) in looking.ask("SELECT DISTINCT object FROM list_rows")]
    tables = [key for (key,) in looking.ask("SELECT DISTINCT object FROM table_rows")]
    picked = [spills[0], lists[0], tables[0], "_txnlog/format.json"]
    picked += [next(key for key in keys if re.search(pattern, key)) for pattern in FOUND]
    places = [(root / key, draw.randrange((root / key).stat().st_size)) for key in picked]
    entries = objects(root, "_txnlog/log/*.json")
    places += [(path, draw.randrange(head_size(path))) for path in (draw.choice(entries), entries[-1])]
    # Rows in an entry, and the 12 bytes behind them: damage there stops a reader even if it reads no row.
    entry, _, start = next(key for key in keys if "@" in key).partition("@")[2].partition("+")
    path = root / f"_txnlog/log/{entry}.json"
    places += [(path, head_size(path) + int(start)), (path, path.stat().st_size - draw.randint(1, 12))]
    for path, place in places:
        flip(path, place)
        with pytest.raises(DamagedError):
            read_committed(root)
        flip(path, place)

    unread = [
        path
        for path in objects(root, "*/*/*")
        if str(path.relative_to(root)) not in keys and path.parent.name != "log"
    ]
    assert {path.suffix for path in unread} >= {".parquet", ".markers", ".arrow"}
    for path in unread:
        flip(path, path.stat().st_size // 2)
    found = read_committed(root)
    assert {name: bits(rows) for name, rows in found.items()} == {
        name: bits(rows) for name, rows in want.items()
    }
