"""Operators and a sensor of Apache Airflow 3 for logs of txnlog.

Copy this file beside your DAGs; ``pip install 'txnlog[s3]'`` in Airflow's environment.

A task of Airflow may be killed, and is tried again. :class:`TxnLogProcessOperator` takes no record twice and
leaves none out over all of these tries: the positions of its group and what it writes are one commit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from airflow.sdk import BaseOperator, BaseSensorOperator

from txnlog import Consumer, Producer, TxnLog

__all__ = ["TxnLogMaintenanceOperator", "TxnLogProcessOperator", "TxnLogSensor"]

Transform = Callable[[pa.Table], pa.Table | Sequence[Mapping[str, Any]]]


class TxnLogSensor(BaseSensorOperator):
    """Waits until topics have committed records that a group has not read.

    Parameters
    ----------
    root : str
        Path or URL of the log.
    topics : sequence of str
        Topics of the log.
    group : str
        A consumer group; one that is not there yet has read nothing.
    storage_options : mapping of str to str, optional
        Those of ``TxnLog.open``; by default credentials come from the environment.
    """

    template_fields = ("root", "topics", "group")

    def __init__(
        self,
        *,
        root: str,
        topics: Sequence[str],
        group: str,
        storage_options: Mapping[str, str] | None = None,
        **common: Any,
    ) -> None:
        super().__init__(**common)
        self.root, self.topics, self.group = root, list(topics), group
        self.storage_options = storage_options

    def poke(self, context: Any) -> bool:
        """Look at the log, without a write: about 3 requests."""
        with TxnLog.open(self.root, storage_options=self.storage_options) as log:
            measured = log.metrics()
        read = {
            (part.topic, part.partition): part.lag_records
            for group in measured.groups
            if group.group == self.group
            for part in group.partitions
        }
        return any(
            read.get((part.topic, part.partition), part.last_stable_offset - part.log_start) > 0
            for part in measured.partitions
            if part.topic in self.topics
        )


class TxnLogProcessOperator(BaseOperator):
    """Reads what a group has not read, and writes what ``transform`` makes of it to another topic, exactly
    once.

    Parameters
    ----------
    transform : callable
        A table of one topic's records to the records of ``target``; None or an empty result writes nothing.
    max_records : int
        Records of a call of ``transform``, and of a transaction, at most.

    Returns
    -------
    int
        Records that were read, by ``execute``.
    """

    template_fields = ("root", "topics", "target", "group")

    def __init__(
        self,
        *,
        root: str,
        topics: Sequence[str],
        target: str,
        group: str,
        transform: Transform,
        max_records: int = 100_000,
        storage_options: Mapping[str, str] | None = None,
        **common: Any,
    ) -> None:
        super().__init__(**common)
        self.root, self.topics, self.target, self.group = root, list(topics), target, group
        self.transform, self.max_records = transform, max_records
        self.storage_options = storage_options

    def execute(self, context: Any) -> int:
        """Read up to the end, in transactions; the producer's name is the group's, so that a new try ends
        what an old one left open.
        """
        done = 0
        with (
            TxnLog.open(self.root, storage_options=self.storage_options) as log,
            Producer(log, f"airflow-{self.group}") as producer,
            Consumer(log, self.group) as consumer,
        ):
            consumer.subscribe(self.topics)
            while (batch := consumer.poll(timeout_ms=0, max_records=self.max_records)) is not None:
                made = self.transform(pa.Table.from_batches([batch]))
                with producer.transaction() as transaction:
                    if made is not None and len(made):
                        transaction.send(self.target, made)
                    transaction.send_offsets(consumer)
                done += batch.num_rows
        return done


class TxnLogMaintenanceOperator(BaseOperator):
    """Does one round of ``txnlog maintain all``, or one of its tasks.

    A try that was killed leaves nothing to repair.
    """

    template_fields = ("root",)

    def __init__(
        self,
        *,
        root: str,
        task: str | None = None,
        storage_options: Mapping[str, str] | None = None,
        **common: Any,
    ) -> None:
        super().__init__(**common)
        self.root, self.maintenance_task, self.storage_options = root, task, storage_options

    def execute(self, context: Any) -> None:
        """Do it."""
        with TxnLog.open(self.root, storage_options=self.storage_options) as log:
            log.maintain() if self.maintenance_task is None else log.maintain(self.maintenance_task)
