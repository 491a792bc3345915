"""Parquet files of others, read by another process: a file that is made for it, or damaged, ends only that one.

Run as ``python -m txnlog.cli.records.foreign_parquet`` it reads the file on stdin and answers on stdout: the number of rows in a line, then
the rows as an Arrow stream. An error is told on stderr, with exit status 3.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, NamedTuple

import pyarrow as pa

from txnformat.errors import InvalidInputError

__all__ = ["ForeignFile", "open_foreign"]

ROWS_PER_PIECE = 65_536
REFUSED = 3
HINT = "no record was written"


class ForeignFile(NamedTuple):
    """A file that is open in another process."""

    rows: int
    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]


@contextmanager
def open_foreign(file: IO[bytes]) -> Iterator[ForeignFile]:
    """Give a Parquet file's rows, batch by batch.

    ``file``: at its beginning; what has no place to seek is copied to a temporary file first. Raises
    InvalidInputError of kind ``invalid-file``: also while rows are taken.
    """
    with _on_disk(file) as source:
        command = [sys.executable, "-m", "txnlog.cli.records.foreign_parquet"]
        path = os.pathsep.join(part for part in sys.path if part)
        environment = {**os.environ, "PYTHONPATH": path}
        with (
            tempfile.TemporaryFile() as told,
            subprocess.Popen(
                command, stdin=source, stdout=subprocess.PIPE, stderr=told, env=environment
            ) as reader,
        ):
            assert reader.stdout is not None
            try:
                first = reader.stdout.readline()
                if not first.strip():
                    raise _problem(reader, told)
                try:
                    stream = pa.ipc.open_stream(reader.stdout)
                except (pa.ArrowException, OSError):
                    raise _problem(reader, told) from None
                yield ForeignFile(int(first), stream.schema, _batches(stream, reader, told))
            finally:
                reader.kill()


def _batches(stream: Any, reader: subprocess.Popen[bytes], told: IO[bytes]) -> Iterator[pa.RecordBatch]:
    while True:
        try:
            batch = stream.read_next_batch()
        except StopIteration:
            break
        except (pa.ArrowException, OSError):
            raise _problem(reader, told) from None
        yield batch
    if reader.wait():
        raise _problem(reader, told)


def _problem(reader: subprocess.Popen[bytes], told: IO[bytes]) -> InvalidInputError:
    """Return why the other process ended."""
    status = reader.wait()
    told.seek(0)
    text = told.read(2_000).decode("utf-8", "replace").strip()
    if status == REFUSED:
        what = f"this is not a Parquet file that can be read: {text:.300}"
    elif status < 0:
        what = f"this is not a sound Parquet file: its reader was ended by {signal.Signals(-status).name}"
    else:
        what = f"the Parquet file cannot be read: its reader ended with status {status}"
    return InvalidInputError(what, kind="invalid-file", hint=HINT)


@contextmanager
def _on_disk(file: IO[bytes]) -> Iterator[IO[bytes]]:
    try:
        is_disk = file.seekable() and file.fileno() >= 0
    except OSError:
        is_disk = False
    if is_disk:
        yield file
        return
    with tempfile.TemporaryFile() as copy:
        shutil.copyfileobj(file, copy)
        copy.seek(0)
        yield copy


def _main() -> int:
    import pyarrow.parquet as pq

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that asked decides
    try:
        file = pq.ParquetFile(sys.stdin.buffer)
        out = sys.stdout.buffer
        out.write(b"%d\n" % file.metadata.num_rows)
        with pa.ipc.new_stream(out, file.schema_arrow) as stream:
            for batch in file.iter_batches(batch_size=ROWS_PER_PIECE):
                stream.write_batch(batch)
        out.flush()
    except BrokenPipeError:
        return 1
    except Exception as error:  # noqa: BLE001 - all of them are the file's
        sys.stderr.write(f"{error!s:.300}")
        return REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(_main())
