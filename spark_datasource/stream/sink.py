"""The sink of streams: every batch is one entry of the log, and is there once, whatever Spark repeats.

Spark makes two writers for a batch, in two processes: one is pickled to the tasks, the other commits what
these report. Nothing but messages goes from one to the other.

1. The driver pins topics, schemas and partition counts (:func:`~spark_datasource.write.plan.plan_write`).
2. Tasks upload, and report what, with the ids of query, run and batch that Spark tells only them.
3. The driver holds that against the log, and commits one entry: the files of the tasks in the order of their
   numbers, and the number of the batch as the query's version, also without any rows.

A batch that the log holds already was committed before Spark could note it. If its repetition has the same
rows, it is done, and no entry names the files of the repetition. Otherwise the query gives different rows
each time, or another run has written different rows as this batch, from a copy of the checkpoint: the query
stops, unless its user lets it continue (:mod:`spark_datasource.write.repeats`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from spark_datasource.failures import clean_errors
from spark_datasource.options.declared import StreamWriteOptions
from spark_datasource.options.write import STREAM_NAMESPACE
from spark_datasource.stream.commit import as_write
from spark_datasource.stream.messages import PROPERTIES, Batch, StreamUpload, as_batch, stamp_of
from spark_datasource.worker.logs import COMMIT_TRIES_MAX, forget_log, log_with_id
from spark_datasource.write.commit import commit_intent
from spark_datasource.write.plan import WritePlan, plan_write
from spark_datasource.write.repeats import Repetition, rows_of
from spark_datasource.write.routing import OneTopic
from spark_datasource.write.task import upload_task
from txnformat.core.intents import AppRef, CommitResult, Write
from txnformat.core.operations import AppVersion
from txnformat.errors import (
    CommitStateUnknownError,
    ConflictError,
    StaleAppVersionError,
    StorageError,
    TxnLogError,
)
from txnformat.log import TxnLog

__all__ = ["TxnLogStreamWriter"]


class TxnLogStreamWriter(DataSourceStreamArrowWriter):
    """Writes one batch of a stream. ``frame``: of the stream's rows."""

    trace: str | None = None

    def __init__(self, options: StreamWriteOptions, frame: StructType) -> None:
        self._options = options
        self._frame = frame
        self._plan: WritePlan | None = None

    def make_plan(self) -> WritePlan:
        """Return what the tasks need, fixed at the first call; errors as :func:`plan_write`."""
        if self._plan is None:
            self._plan = self._plan_on_known() or plan_write(self._options.write, self._frame)
            if self._plan.trace is not None:
                self.trace = self._plan.trace
        return self._plan

    def _plan_on_known(self) -> WritePlan | None:
        """Return a plan on what is nearly the newest state, which costs less where others commit much; None:
        it needs the newest.

        The commit is judged by the newest state, which may be another than that of any plan.
        """
        if self._options.write.topic is None:
            return None
        try:
            plan = plan_write(self._options.write, self._frame, newest=False)
        except TxnLogError:
            return None
        return plan if isinstance(plan.routes, OneTopic) and plan.routes.only.create is None else None

    def __getstate__(self) -> dict[str, object]:
        self.make_plan()  # whatever is sent to a task has it
        return self.__dict__

    @clean_errors
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Upload the records of one task. Requests: 1 PUT for each topic that it has rows of."""
        plan, context = self.make_plan(), TaskContext.get()
        properties = {} if context is None else {name: context.getLocalProperty(name) for name in PROPERTIES}
        stamp = stamp_of(plan, properties)
        task = 0 if context is None else context.partitionId()
        return StreamUpload.of(upload_task(iterator, plan, task, compared=True), stamp, plan)

    @clean_errors
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # Spark's name
        """Commit what the tasks uploaded.

        Requests: 1 GET and 1 entry (+ 1 batch table above 1,000 batches), and those of a look where others
        commit, too.

        The log stays open for the next batch: a snapshot being written ends while that is computed.
        """
        batch = as_batch(messages, batchId)
        write = self._options.write
        log = log_with_id(write.path, write.storage, batch.stamp.log_id, batch.stamp.born)
        try:
            result = self._commit(log, batch)
        except StaleAppVersionError as error:
            raise _advised(error, batch, self._options.app_id) from None
        except CommitStateUnknownError as error:
            forget_log(write.path, write.storage)
            raise _unclear(error, batch) from None
        except StorageError:
            # A store that cannot be written to any more is opened anew, when its disk or network is well
            # again.
            forget_log(write.path, write.storage)
            raise
        if result.repeated:
            _check_first(result, batch)
            _compare(result, batch, log, allowed=write.allow_different)
        _note(batch)

    def _commit(self, log: TxnLog, batch: Batch) -> CommitResult:
        for _ in range(COMMIT_TRIES_MAX - 1):
            write = self._as_write(log, batch)
            try:
                return commit_intent(log, log.committer.intend(write))
            except ConflictError as error:
                # A topic has grown since the state that the write was made on: nothing was committed.
                if error.kind != "partition-count-changed":
                    raise
        return commit_intent(log, log.committer.intend(self._as_write(log, batch)))

    def _as_write(self, log: TxnLog, batch: Batch) -> Write:
        try:
            return as_write(log, batch, self._options, self._frame)
        except TxnLogError:
            # This process may not have seen yet what the tasks' plan was made on.
            log.refresh()
            return as_write(log, batch, self._options, self._frame)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # Spark's name
        """Do nothing: tasks may still be running, and a commit whose answer was lost may have landed."""


_RUNS_MAX = 1_000
_runs: dict[tuple[str, str, str], int] = {}
"""The last batch that this process committed, by log id, query id and run id. Spark keeps the process between
batches."""


def _note(batch: Batch) -> None:
    """Remember that a batch was committed for its run."""
    stamp = batch.stamp
    _runs.pop(key := (stamp.log_id, stamp.query_id, stamp.run_id), None)
    _runs[key] = stamp.batch_id
    if len(_runs) > _RUNS_MAX:
        del _runs[next(iter(_runs))]


def _check_first(result: CommitResult, batch: Batch) -> None:
    """Refuse a batch that another run has written although this one has written others: only its first is a
    repetition.

    The log alone notices this when the other run's turn comes: it does not know a run whose batches all come
    second. Raises StaleAppVersionError of kind ``stale-instance``.
    """
    stamp = batch.stamp
    before = _runs.get((stamp.log_id, stamp.query_id, stamp.run_id), stamp.batch_id)
    writers = {op.instance for op in result.operations if isinstance(op, AppVersion)} - {None, stamp.run_id}
    if writers and before < stamp.batch_id:
        raise StaleAppVersionError(
            "another run of this query has written this batch",
            kind="stale-instance",
            hint="two drivers write from one checkpoint, or from a checkpoint and its copy: stop one of "
            "them, and "
            "check whether rows of the other are missing, because their batches may differ",
            query_id=stamp.query_id,
            batch_id=stamp.batch_id,
            run_id=stamp.run_id,
        )


_DIFFERENT = (
    "nothing was written; if another run of this query has written it, from a copy of the checkpoint or "
    "beside this "
    "run, continue from the checkpoint of that run. If the source or the query gives different rows each "
    "time, or "
    "you do not need the rows of this attempt, set option allowDifferentRepeat"
)


def _compare(result: CommitResult, batch: Batch, log: TxnLog, *, allowed: bool) -> None:
    """Compare a batch that is done with the log's rows.

    Raises StaleAppVersionError of kind ``different-repeat``.
    """
    stamp = batch.stamp
    Repetition(
        what=f"batch {stamp.batch_id} of query {stamp.query_id}",
        rows=rows_of(batch.tasks),
        allowed=allowed,
        hint=_DIFFERENT,
        run_id=stamp.run_id,
        values={"query_id": stamp.query_id, "batch_id": stamp.batch_id},
    ).check(
        log.state,
        AppRef(STREAM_NAMESPACE, stamp.query_id, stamp.batch_id),
        result.operations,
        result.entry,
    )


def _unclear(error: CommitStateUnknownError, batch: Batch) -> CommitStateUnknownError:
    """Return the error of a batch whose outcome is unknown."""
    return CommitStateUnknownError(
        "the batch may or may not be in the log: the store gave no clear answer",
        kind=error.kind,
        hint="start the query again when the store answers: it finds out whether the batch is there, and "
        "writes it "
        "once",
        query_id=batch.stamp.query_id,
        batch_id=batch.stamp.batch_id,
        **error.values,
    )


def _advised(error: StaleAppVersionError, batch: Batch, app_id: str | None) -> StaleAppVersionError:
    """Return a refusal of the log in the words of a stream."""
    if error.kind == "missing-versions":
        what = "the log lacks earlier batches of this query"
        hint = (
            "nothing was written; the query wrote to another log before, or the log was recreated or "
            "restored, or "
            "the checkpoint was used with another sink: to continue without the earlier batches, set option "
            "allowMissingBatches"
        )
    elif error.kind == "stale-instance":
        what = "another run of this query has taken over from this one"
        hint = "nothing was written; two drivers write from one checkpoint or from its copy: stop one of them"
    elif app_id is not None and error.values.get("app_id") == app_id:
        what = "the log holds this batch of the application, or a later one, from another query"
        hint = (
            "nothing was written; txnAppId was used with another checkpoint: continue with that "
            "checkpoint, or "
            "choose another txnAppId for a new stream"
        )
    else:
        what = "the log holds a later batch of this query"
        hint = (
            "nothing was written; the checkpoint is an older state or a copy: continue with the newest "
            "checkpoint, "
            "or begin a new one, which reads the source again from its start"
        )
    values = {name: value for name, value in error.values.items() if name not in ("app_id", "version", "got")}
    values = {"query_id": batch.stamp.query_id, "batch_id": batch.stamp.batch_id, **values}
    return StaleAppVersionError(what, kind=error.kind, hint=hint, **values)
