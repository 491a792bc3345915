"""A Parquet file that ends its reader is an error of one line; the command goes on to tell it."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from txnformat.errors import InvalidInputError
from txnlog.foreign_files import open_foreign


def written(rows: int = 3) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"x": list(range(rows))}), sink)
    return sink.getvalue()


def test_rows_come_from_the_other_process() -> None:
    with open_foreign(io.BytesIO(written(200_000))) as found:
        assert found.rows == 200_000
        assert found.schema.names == ["x"]
        assert sum(batch.num_rows for batch in found.batches) == 200_000


def test_a_file_that_is_none_is_an_error() -> None:
    with (
        pytest.raises(InvalidInputError, match="Parquet") as caught,
        open_foreign(io.BytesIO(b"PAR1 no PAR1")),
    ):
        pass
    assert caught.value.kind == "invalid-file"


def test_a_reader_that_is_ended_by_a_signal_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\nkill -ABRT $$\n", encoding="ascii")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    with pytest.raises(InvalidInputError, match="ended by SIGABRT"), open_foreign(io.BytesIO(written())):
        pass
