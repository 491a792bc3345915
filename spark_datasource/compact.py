"""Compaction by a Spark job: tasks write the new files, the driver puts them into the place of the old
ones.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa

from spark_datasource.failures import clean_iterator, error_in
from spark_datasource.options.storage import Storage, hadoop_settings, storage_for
from spark_datasource.worker.logs import absolute, log_with_id, open_log
from spark_datasource.write.transaction_settings import place_problems
from txnformat.admin import compaction
from txnformat.admin.compaction import CompactedTopic, CompactionProgress, CompactionWriter, Groups
from txnformat.admin.compaction.call import Compacted, run_key_passes
from txnformat.admin.compaction.cleaning import KeyPasses
from txnformat.core.sealing.sidecar import RUN_ROW
from txnformat.core.state import LogState, TopicState
from txnformat.errors import InvalidInputError
from txnformat.reading.compacting import Source, Written, write_together
from txnformat.store.open import check_options, is_remote
from txnformat.types import FileRecord

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["compact"]

WAVE = 64
"""Files that one Spark job writes: what a job that fails has written is garbage, and what came before it
stays."""
WRITTEN = pa.schema([("place", pa.int64()), ("runs", pa.list_(pa.binary())), ("files", pa.binary())])
"""The answer of a task: the group's place, rows of RUN_ROW of each source, and the records of the files as
JSON, in the order of their numbers."""
DDL = "place bigint, runs array<binary>, files binary"
CLEANED = pa.schema([("compacted", pa.binary())])
"""The answer of a task that has compacted the keys of a partition: Compacted as JSON."""
CLEANED_DDL = "compacted binary"


def compact(
    spark: SparkSession,
    root: str | os.PathLike[str],
    topic: str | None = None,
    partitions: Sequence[int] | None = None,
    *,
    target_bytes: int | None = None,
    min_lag_ms: int | None = None,
    storage_options: Mapping[str, str] | None = None,
    progress: Callable[[CompactionProgress], None] | None = None,
) -> list[CompactedTopic]:
    """Compact a log as :meth:`txnformat.log.TxnLog.compact` does; tasks of Spark read and write the records.

    Parameters
    ----------
    spark : SparkSession
        Classic or Connect.
    root : str or path
        Of the log. This process opens it, too, and needs access to the store.
    topic, partitions, target_bytes, min_lag_ms, progress
        As there.
    storage_options : mapping of str to str, optional
        Credentials, endpoint, … of a remote store; by default Spark's own settings of its connector, and the
        environment. The Spark jobs get them.

    Returns
    -------
    list of CompactedTopic
        By topic, also those in which nothing was to be done.

    Raises
    ------
    TxnLogError
        As there. A Spark job that fails raises Spark's error; what was compacted before stays so.

    Notes
    -----
    Each file is written by one task; a job writes up to 64 of them. Of a topic whose keys are compacted, each
    partition is a task, which also commits: it reads the keys of the partition into a map of at most 128 MiB.
    """
    problems = place_problems(spark, root)
    if problems:
        raise InvalidInputError(problems, kind="invalid-compaction")
    check_options(storage_options)
    path = absolute(os.fspath(root))
    hadoop = hadoop_settings(spark) if is_remote(path) else None
    storage = storage_for(path, storage_options or {}, hadoop)
    log = open_log(path, storage)
    return compaction.compact(
        log.committer,
        log.sidecars,
        topic,
        partitions,
        target_bytes=target_bytes,
        min_lag_ms=min_lag_ms,
        progress=progress,
        writer=CompactionWriter(
            partial(_write, spark, path, storage), WAVE, partial(_clean, spark, path, storage)
        ),
    )


def _write(
    spark: SparkSession, path: str, storage: Storage, state: LogState, topic: TopicState, groups: Groups
) -> Iterator[Written]:
    task = partial(_task, path, storage, state.log_id, state.entry, topic.topic_id, groups)
    frame = spark.range(0, len(groups), 1, numPartitions=len(groups)).mapInArrow(task, DDL)
    found = {row["place"]: row for row in frame.collect()}
    for place, sources in enumerate(groups):
        yield _written(found[place], len(sources))


def _clean(
    spark: SparkSession, path: str, storage: Storage, state: LogState, passes: KeyPasses
) -> Iterator[Compacted]:
    """Run key passes, each partition's in a task. Raises the error of txnlog that a task tells of."""
    numbers = list(passes.numbers)
    for first in range(0, len(numbers), WAVE):
        wave = numbers[first : first + WAVE]
        each = [replace(passes, numbers=[number]) for number in wave]
        task = partial(_clean_task, path, storage, state.log_id, state.entry, each)
        frame = spark.range(0, len(wave), 1, numPartitions=len(wave)).mapInArrow(task, CLEANED_DDL)
        try:
            answers = frame.collect()
        except Exception as error:
            known = error_in(str(error))
            if known is None:
                raise
            raise known from None
        for row in answers:
            yield msgspec.json.decode(bytes(row["compacted"]), type=Compacted)


@clean_iterator
def _clean_task(
    path: str,
    storage: Storage,
    log_id: str,
    entry: int,
    each: Sequence[KeyPasses],
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Run the passes whose places a task gets."""
    for batch in batches:
        for place in batch.column("id").to_pylist():
            log = log_with_id(path, storage, log_id, entry)
            found = run_key_passes(log.committer, log.sidecars, each[place])
            log.close()  # this worker may be stopped at any time: a seal being written ends first
            yield pa.RecordBatch.from_arrays([pa.array([msgspec.json.encode(found)])], schema=CLEANED)


def _written(row: Any, sources: int) -> Written:
    """Return what a task tells. Raises ValueError, msgspec.ValidationError: it is not that of its sources."""
    runs = [np.frombuffer(data, RUN_ROW) for data in row["runs"]]
    files = msgspec.json.decode(bytes(row["files"]), type=list[FileRecord])
    if len(runs) != sources or any(not 0 <= one["file"] < len(files) for rows in runs for one in rows):
        raise ValueError(f"a task wrote {len(runs)} sources and {len(files)} files, not {sources} sources")
    return Written(runs, dict(enumerate(files)))


def _task(
    path: str,
    storage: Storage,
    log_id: str,
    entry: int,
    topic_id: str,
    groups: Groups,
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Write the groups whose places a task gets."""
    for batch in batches:
        for place in batch.column("id").to_pylist():
            log = log_with_id(path, storage, log_id, entry)
            state = log.state
            topic = state.topic_of(topic_id, "a compaction")
            sources: Sequence[Source] = groups[place]
            written = write_together(log.sidecars, state, topic, sources, log.committer.ids.new)
            files = msgspec.json.encode([written.files[number] for number in range(len(written.files))])
            rows = [[rows.tobytes() for rows in written.runs]]
            yield pa.RecordBatch.from_arrays(
                [pa.array([place]), pa.array(rows, pa.list_(pa.binary())), pa.array([files])], schema=WRITTEN
            )
