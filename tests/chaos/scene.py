"""What the fault cases share: a log, a feed, a query, and a look at all of it afterwards."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.chaos.drivers import Cluster, Driver
from tests.chaos.inputs import feed
from tests.chaos.jobs import Job
from tests.chaos.oracle import Found
from tests.chaos.origin import TOPIC, TOPIC_SCHEMA
from tests.chaos.outside import Tail, examine, versions_of
from txnformat import keys
from txnformat.core.entry import decode_entry
from txnformat.core.operations import Append
from txnformat.persistent import replace
from txnlog import TxnLog

__all__ = ["ROWS", "Scene", "data_files", "named_files"]

PARTITIONS = 2

ROWS = 60
"""Of a file: two tasks, each with several Arrow batches."""

SECONDS_MAX = 240.0
"""How long a batch may take to be seen. Generous: a loaded machine is no defect."""


class Scene:
    """A log with one topic, and a query that writes to it, in one driver after another.

    Every file is a micro-batch of its own, so files are counted like batches: from 0.
    """

    def __init__(self, folder: Path, place: Cluster, **job: Any) -> None:
        self.folder = folder
        # Its tasks upload: some of the points at which they are killed are around the request of a file.
        self.log = TxnLog.create(folder / "log", embedding=False)
        self.log.create_topic(TOPIC, TOPIC_SCHEMA, partitions=PARTITIONS, key_columns=["key"])
        self.checkpoint = folder / "checkpoint"
        (folder / "input").mkdir()  # a query cannot begin without
        self.job = Job(
            log=str(folder / "log"),
            input=str(folder / "input"),
            checkpoint=str(self.checkpoint),
            control="",
            waits=True,
            **job,
        )
        self.batches = 0
        self._place = place
        self._query: str | None = None

    # --- what happens ---------------------------------------------------------------------------------------

    def start(self, **change: Any) -> Driver:
        """Start a driver; it begins when it is told."""
        return self._place.start(replace(self.job, **change))

    def begin(self, driver: Driver) -> None:
        """Let a driver begin; its query is the one that there was before."""
        driver.begin()
        found = driver.wait_started()["query"]
        assert self._query in (None, found), "not the query of this checkpoint"
        self._query = found

    def feed(self) -> int:
        """Hand in a file; return the number of its batch."""
        batch = self.batches
        feed(self.folder / "input", f"{batch:04}", range(batch * ROWS, (batch + 1) * ROWS))
        self.batches += 1
        return batch

    @contextlib.contextmanager
    def tail(self) -> Iterator[Tail]:
        """Follow the topic from its beginning."""
        with Tail(self.job.log, PARTITIONS) as tail:
            yield tail

    def wait_all(self, tail: Tail, driver: Driver) -> None:
        """Wait until a reader has as many rows as were handed in, while a driver is there to write them."""
        for _ in range(int(SECONDS_MAX)):
            if tail.wait_count(self.batches * ROWS, 1):
                return
            driver.check_alive()
        raise TimeoutError(f"a reader saw {tail.count} of {self.batches * ROWS} rows in {SECONDS_MAX:.0f} s")

    # --- what is there afterwards ---------------------------------------------------------------------------

    def holds(self, batch: int) -> bool:
        """Tell whether the log has a batch."""
        return self._query is not None and batch in versions_of(self.log).get(self.application, [])

    def noted(self, batch: int) -> bool:
        """Tell whether Spark knows that a batch is done."""
        return (self.checkpoint / "commits" / str(batch)).exists()

    def begun(self, batch: int) -> bool:
        """Tell whether Spark has planned a batch, and will repeat it."""
        return (self.checkpoint / "offsets" / str(batch)).exists()

    @property
    def application(self) -> tuple[str, str]:
        """Namespace and id under which the log knows the query."""
        assert self._query is not None, "it has not begun"
        return "spark-stream", self._query

    def examine(self, *tails: Tail) -> Found:
        """Apply the oracle to all that was handed in so far; readers end."""
        wanted = list(range(self.batches * ROWS))
        return examine(self.log, wanted, [tail.end() for tail in tails], self.application)

    def orphans(self) -> set[str]:
        """Return the keys of data files that the log does not name."""
        return data_files(self.log) - named_files(self.log)


def data_files(log: TxnLog) -> set[str]:
    """Return the keys of all data files in the store."""
    return {one.key for one in log.store.list("") if one.key.endswith(".parquet")}


def named_files(log: TxnLog) -> set[str]:
    """Return the keys of the data files that entries name."""
    found: set[str] = set()
    for number in range(log.refresh().entry + 1):
        data = log.store.get(keys.entry_key(number))
        assert data is not None, f"entry {number} is missing"
        for operation in decode_entry(data, number).operations:
            if isinstance(operation, Append):
                found |= {file.key for file in operation.files}
    return found
