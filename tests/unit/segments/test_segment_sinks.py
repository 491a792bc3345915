"""A file that is encoded in memory is the same, byte for byte, as one that goes to the store as it is
made.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from txnformat.errors import InternalError, StorageError
from txnformat.segments.reader import SegmentFileReader
from txnformat.segments.writer import SMALL_BYTES, SegmentFileWriter
from txnformat.store.memory import MemoryStore
from txnformat.store.uploads import Writer
from txnlog import Producer, TxnLog

KEY = "rows-00000000/data/00000000000000000002-00000000-0000-4000-8000-000000000000.parquet"
TABLES = [
    pa.table({"n": [1, None, 3], "s": ["a", None, "\N{SNOWMAN}"], "l": [[1], None, []]}),
    pa.table({"n": [4], "s": ["?" * 40], "l": [[2, 3]]}),
]


def written(*, is_small: bool, **options: Any) -> tuple[Any, ...]:
    """Return the bytes of a file, its record, and those of its batches."""
    store = MemoryStore()
    writer = SegmentFileWriter(store.open_write(KEY), KEY, TABLES[0].schema, is_small=is_small, **options)
    batches = [writer.write_batch(0, table) for table in TABLES]
    assert writer.size == 4 + sum(batch.size for batch in batches)
    assert store.get(KEY) is None
    return writer.close(), batches, store.get(KEY)


@pytest.mark.parametrize("options", [{}, {"row_group_bytes_max": 40}, {"is_compressed": False}], ids=str)
def test_the_file_and_its_records_are_the_same(options: dict[str, Any]) -> None:
    small, streamed = written(is_small=True, **options), written(is_small=False, **options)
    assert small == streamed
    store = MemoryStore()
    store.put(KEY, small[2])
    groups = sum(batch.row_group_count for batch in small[1])
    reader = SegmentFileReader(store, small[0], TABLES[0].schema)
    read = pa.Table.from_batches(reader.read(range(groups), TABLES[0].schema.names, 100))
    assert read.equals(pa.concat_tables(TABLES))


class Out(Writer):
    """An upload that remembers its pieces, or fails in them."""

    def __init__(self, error: StorageError | None = None) -> None:
        self.pieces: list[bytes] = []
        self.ends: list[str] = []
        self._error = error

    def write(self, data: bytes | memoryview) -> int:
        if self._error is not None:
            raise self._error
        self.pieces.append(bytes(data))
        return len(data)

    def close(self) -> None:
        self.ends.append("close")

    def abort(self) -> None:
        self.ends.append("abort")


def test_the_store_gets_it_in_one_piece_when_it_is_closed() -> None:
    out = Out()
    writer = SegmentFileWriter(out, KEY, TABLES[0].schema, is_small=True)
    writer.write_batch(0, TABLES[0])
    assert (out.pieces, out.ends) == ([], [])
    record = writer.close()
    assert ([len(piece) for piece in out.pieces], out.ends) == ([record.size], ["close"])


def test_an_error_of_the_store_is_told_by_close_and_ends_the_writer() -> None:
    out = Out(StorageError("no space left", kind="disk-full"))
    writer = SegmentFileWriter(out, KEY, TABLES[0].schema, is_small=True)
    writer.write_batch(0, TABLES[0])
    with pytest.raises(StorageError, match="no space left"):
        writer.close()
    assert out.ends == ["abort"]
    with pytest.raises(InternalError):
        writer.close()


@pytest.mark.parametrize("steps", range(3))
def test_a_forked_child_ends_the_writer_at_any_step_and_leaves_the_upload_alone(steps: int) -> None:
    out = Out()
    writer = SegmentFileWriter(out, KEY, TABLES[0].schema, is_small=True)
    if steps > 0:
        writer.write_batch(0, TABLES[0])
    if steps > 1:
        writer.close()
    before = (list(out.pieces), list(out.ends))
    writer.renew()
    writer.abort()
    assert (out.pieces, out.ends) == before


@pytest.mark.parametrize("rows", [10, 2 * SMALL_BYTES // 8])
def test_a_producers_small_commit_goes_to_the_store_in_one_piece(
    rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces: list[int] = []
    store = MemoryStore()
    with TxnLog.create(store) as log, Producer(log, "p", embed_bytes=0) as producer:
        log.create_topic("t", pa.schema([("n", pa.int64())]))
        open_write = store.open_write

        def noting(key: str) -> Writer:
            out = open_write(key)
            write = out.write

            def noted(data: bytes | memoryview) -> int:
                pieces.append(len(data))
                return write(data)

            monkeypatch.setattr(out, "write", noted)
            return out

        monkeypatch.setattr(store, "open_write", noting)
        producer.begin()
        producer.send("t", pa.table({"n": np.random.default_rng(7).integers(0, 2**62, rows)}))
        producer.commit()
        ((_, file),) = log.plan("t").files.items()
        assert sum(pieces) == file.size
        assert (len(pieces) == 1) == (rows == 10)
