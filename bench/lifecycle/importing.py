"""The import of a Delta table whose files are taken as they are, beside the same import that encodes all rows
anew.
"""

from __future__ import annotations

import itertools
import shutil
import statistics
from collections.abc import Callable, Sequence

import deltalake
import pyarrow as pa

from bench import shapes
from bench.table import Benchmark, Context, Measurement, Row, ratio, take_turns
from txnlog import TxnLog
from txnlog.tables import import_delta

__all__ = ["BENCHMARKS"]

ROWS = 5_000_000
FILES = 10


def _measure(context: Context) -> Sequence[Measurement]:
    context.tick("writing the table")
    table = context.folder / "table"
    blocks = list(shapes.flights(ROWS))
    of_a_file = len(blocks) // FILES
    for first in range(0, len(blocks), of_a_file):
        part = pa.concat_tables(blocks[first : first + of_a_file])
        deltalake.write_deltalake(str(table), part, mode="append")
    numbers = itertools.count()

    def imported(*, rewrite: bool) -> Callable[[], None]:
        def run() -> None:
            root = context.folder / f"log-{next(numbers)}"
            with TxnLog.create(root) as log:
                report = import_delta(log, str(table), "rows", rewrite=rewrite)
            if (report.rows, report.as_they_are) != (ROWS, 0 if rewrite else FILES):
                raise RuntimeError(
                    f"{report.rows} rows were imported, {report.as_they_are} files as they are"
                )
            shutil.rmtree(root)

        return run

    calls = {"whole": imported(rewrite=False), "encoded": imported(rewrite=True)}
    seconds = take_turns(calls, context, sync=True)
    details = {f"{name}_s": round(statistics.median(taken), 2) for name, taken in seconds.items()}
    return [ratio("import-whole", seconds["encoded"], seconds["whole"], **details)]


BENCHMARKS = (
    Benchmark(
        name="import-delta",
        how=(
            f"A Delta table of {ROWS:,} rows, flights shape, in {FILES} files of deltalake, into a new "
            "log on the same disk by `import_delta`: its files as they are, and with `rewrite=True`. "
            "Files that are taken "
            "are decoded once, to check them; the log is synced."
        ),
        rows=(
            Row(
                key="import-whole",
                work=f"import of a Delta table of {ROWS:,} rows, files as they are",
                against="the same import, all rows encoded anew",
                figure="times its speed",
            ),
        ),
        measure=_measure,
        minutes=2,
    ),
)
