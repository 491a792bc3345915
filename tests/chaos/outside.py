"""What is read of a log for the oracle: by somebody who knows nothing of the queries, while they run and
afterwards."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, Self

from tests.chaos.oracle import Found, Row, Seen, judge
from tests.chaos.origin import TOPIC
from txnformat import keys
from txnformat.core.entry import decode_entry
from txnformat.core.operations import AppVersion
from txnlog import Consumer, TxnLog

__all__ = ["Tail", "examine", "final_rows", "versions_of"]

COLUMNS = ["n", "query", "batch", "task", "index", "attempt", "_partition", "_offset", "_entry"]


class Tail(threading.Thread):
    """Follows a topic with a Consumer that has no group, from before the first row on. A context manager.

    It keeps what it was given. Nothing is compared before the end, when the content is known.
    """

    columns = ("n", "attempt", "_partition", "_offset")

    def __init__(
        self,
        location: str,
        partitions: int,
        storage_options: Mapping[str, str] | None = None,
        topic: str = TOPIC,
    ) -> None:
        super().__init__(name=f"tail of {topic}", daemon=True)
        self.topic = topic
        self._open: Callable[[], TxnLog] = lambda: TxnLog.open(location, storage_options=storage_options)
        self._partitions = partitions
        self._ends = threading.Event()
        self._more = threading.Condition()
        self._seen: dict[int, list[tuple[int, int, str]]] = defaultdict(list)
        self._count = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        """Poll until told to end."""
        try:
            with (
                self._open() as log,
                Consumer(log, columns=self.columns) as consumer,
            ):
                consumer.assign([(self.topic, number) for number in range(self._partitions)])
                while not self._ends.is_set():
                    rows = consumer.poll_dicts(timeout_ms=200)
                    self.took(rows)
                    with self._more:
                        for row in rows:
                            seen = (row["_offset"], row["n"], row.get("attempt", ""))
                            self._seen[row["_partition"]].append(seen)
                        self._count += len(rows)
                        self._more.notify_all()
        except BaseException as error:  # noqa: BLE001  # whoever waits for rows is told
            self.error = error
            with self._more:
                self._more.notify_all()

    def took(self, rows: list[dict[str, Any]]) -> None:
        """Is told what a poll gave."""

    @property
    def count(self) -> int:
        """How many rows it has."""
        return self._count

    def wait_count(self, count: int, seconds: float) -> bool:
        """Wait until it has that many rows; return whether it has."""
        with self._more:
            self._more.wait_for(lambda: self._count >= count or self.error is not None, seconds)
        if self.error is not None:
            raise self.error
        return self._count >= count

    def end(self) -> Seen:
        """Stop, and return what it saw."""
        self._ends.set()
        self.join()
        if self.error is not None:
            raise self.error
        return dict(self._seen)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self.join()


def final_rows(log: TxnLog) -> list[Row]:
    """Return all committed rows."""
    return [Row.of(row) for row in log.read(TOPIC, columns=COLUMNS).read_all().to_pylist()]


def versions_of(log: TxnLog) -> dict[tuple[str, str], list[int]]:
    """Return the versions of each application, in the order of entries; read from the entries themselves."""
    found: dict[tuple[str, str], list[int]] = defaultdict(list)
    for number in range(log.refresh().entry + 1):
        data = log.store.get(keys.entry_key(number))
        assert data is not None, f"entry {number} is missing"
        for operation in decode_entry(data, number).operations:
            if isinstance(operation, AppVersion):
                found[operation.namespace, operation.app_id].append(operation.version)
    return dict(found)


def examine(log: TxnLog, wanted: list[int], seen: list[Seen], application: tuple[str, str]) -> Found:
    """Compare a log with what has to be there.

    Parameters
    ----------
    wanted : list of int
        The rows of the input.
    application : tuple of (str, str)
        Namespace and id of the query.
    """
    found = judge(final_rows(log), wanted, versions_of(log).get(application, []), seen)
    report: Any = log.verify(deep=True)
    problems = tuple(f"verify: {problem}" for problem in report.problems)
    return Found(
        rows=found.rows,
        duplicates=found.duplicates,
        losses=found.losses,
        torn=found.torn,
        violations=found.violations + problems,
    )
