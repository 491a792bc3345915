"""Parquet and Arrow files of others, read by another process: a file that is made for it, or damaged, ends
only that one.

Run as ``python -m txnlog.foreign_files parquet`` it reads the file on stdin and answers on stdout: the number
of rows in a line, then the rows as an Arrow stream; with ``arrow`` only the schema. An error is told on
stderr, with exit status 3.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any, NamedTuple

import pyarrow as pa

from txnformat.errors import InvalidInputError

__all__ = ["ForeignFile", "foreign_arrow_schema", "open_foreign"]

ROWS_PER_PIECE = 65_536
REFUSED = 3
HINT = "no record was written"
_ARROW_MAGIC = b"ARROW1"


class ForeignFile(NamedTuple):
    """A file that is open in another process."""

    rows: int
    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]


_FORMS = {"parquet": "Parquet file", "arrow": "Arrow file or stream"}


def foreign_arrow_schema(file: IO[bytes]) -> pa.Schema:
    """Return the schema of an Arrow IPC file or stream. ``file`` and errors: as of :func:`open_foreign`."""
    with _opened(file, "arrow", None) as found:
        return found.schema


@contextmanager
def open_foreign(file: IO[bytes], hint: str | None = HINT) -> Iterator[ForeignFile]:
    """Give a Parquet file's rows, batch by batch.

    ``file``: at its beginning; what has no place to seek is copied to a temporary file first. ``hint``: of
    the error. Raises InvalidInputError of kind ``invalid-file``: also while rows are taken.
    """
    with _opened(file, "parquet", hint) as found:
        yield found


@contextmanager
def _opened(file: IO[bytes], form: str, hint: str | None) -> Iterator[ForeignFile]:
    with _on_disk(file) as source:
        command = [sys.executable, "-m", "txnlog.foreign_files", form]
        path = os.pathsep.join(part for part in sys.path if part)
        environment = {**os.environ, "PYTHONPATH": path}
        with (
            tempfile.TemporaryFile() as told,
            subprocess.Popen(
                command, stdin=source, stdout=subprocess.PIPE, stderr=told, env=environment
            ) as reader,
        ):
            assert reader.stdout is not None

            def problem() -> InvalidInputError:
                return _problem(reader, told, _FORMS[form], hint)

            try:
                first = reader.stdout.readline()
                if not first.strip():
                    raise problem()
                try:
                    stream = pa.ipc.open_stream(reader.stdout)
                except (pa.ArrowException, OSError):
                    raise problem() from None
                yield ForeignFile(int(first), stream.schema, _batches(stream, reader, problem))
            finally:
                reader.kill()


def _batches(
    stream: Any, reader: subprocess.Popen[bytes], problem: Callable[[], InvalidInputError]
) -> Iterator[pa.RecordBatch]:
    while True:
        try:
            batch = stream.read_next_batch()
        except StopIteration:
            break
        except (pa.ArrowException, OSError):
            raise problem() from None
        yield batch
    if reader.wait():
        raise problem()


def _problem(
    reader: subprocess.Popen[bytes], told: IO[bytes], form: str, hint: str | None
) -> InvalidInputError:
    """Return why the other process ended."""
    status = reader.wait()
    told.seek(0)
    text = told.read(2_000).decode("utf-8", "replace").strip()
    article = "an" if form[0] in "AEIOU" else "a"
    if status == REFUSED:
        what = f"this is not {article} {form} that can be read: {text:.300}"
    elif status < 0:
        what = f"this is not a sound {form}: its reader was ended by {signal.Signals(-status).name}"
    else:
        what = f"the {form} cannot be read: its reader ended with status {status}"
    return InvalidInputError(what, kind="invalid-file", hint=hint)


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


def _main(form: str) -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that asked decides
    try:
        if form == "arrow":
            _tell_schema()
        else:
            _tell_rows()
    except BrokenPipeError:
        return 1
    except Exception as error:  # noqa: BLE001 - all of them are the file's
        sys.stderr.write(f"{error!s:.300}")
        return REFUSED
    return 0


def _tell_rows() -> None:
    import pyarrow.parquet as pq

    file = pq.ParquetFile(sys.stdin.buffer)
    out = sys.stdout.buffer
    out.write(b"%d\n" % file.metadata.num_rows)
    with pa.ipc.new_stream(out, file.schema_arrow) as stream:
        for batch in file.iter_batches(batch_size=ROWS_PER_PIECE):
            stream.write_batch(batch)
    out.flush()


def _tell_schema() -> None:
    file = sys.stdin.buffer
    file.seek(0)  # the buffer of the process that asked may have gone further
    is_file = file.read(len(_ARROW_MAGIC)) == _ARROW_MAGIC
    file.seek(0)
    schema = (pa.ipc.open_file(file) if is_file else pa.ipc.open_stream(file)).schema
    out = sys.stdout.buffer
    out.write(b"0\n")
    pa.ipc.new_stream(out, schema).close()
    out.flush()


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1]))
