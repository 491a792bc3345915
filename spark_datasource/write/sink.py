"""The batch writer: tasks upload files, the driver commits all of them in one entry of the log.

The write of a :class:`~spark_datasource.write.transaction.SparkTransaction` is the same, but that the entry stages what it names
in the open transaction, in place of appending it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from spark_datasource.failures import clean_errors
from spark_datasource.options.write import ROUTED, topic_app_id
from spark_datasource.worker.logs import COMMIT_TRIES_MAX, check_same, open_log
from spark_datasource.write.messages import TaskUpload, check_messages, of_tasks
from spark_datasource.write.plan import WritePlan, plan_write
from spark_datasource.write.repeats import Repetition, content_of, rows_of
from spark_datasource.write.routing import ROUTED_TOPICS_MAX, OneTopic, Route
from spark_datasource.write.task import compare_task, upload_task
from txnformat.columns.multiset import Multiset
from txnformat.core.app_versions.state import Content
from txnformat.core.drafts import replace
from txnformat.core.intents import AppRef, CommitResult, Intent, Write
from txnformat.core.operations import AppVersion, Operation
from txnformat.core.records.batch_table import BATCHES_IN_ENTRY_MAX
from txnformat.core.state import LogState
from txnformat.errors import CommitStateUnknownError, InvalidInputError, StorageError
from txnformat.log import TxnLog
from txnformat.protocol.reads import read_entry
from txnformat.types import TopicPartition
from writers.job import Delegation
from writers.upload import Uploaded, combine, topic_append, with_batch_table

__all__ = ["COMMIT_TRIES_MAX", "TxnLogBatchWriter", "commit_intent", "plan_write"]


_DIFFERENT = (
    "nothing was written; give other rows another txnVersion. If the job does not give the same rows each time, or you do without "
    "those of this run, set option allowDifferentRepeat"
)


class TxnLogBatchWriter(DataSourceArrowWriter):
    """One atomic append: every row of the DataFrame, or none.

    1. The driver pins topic, schema and partition count (:func:`plan_write`).
    2. Tasks upload. Failed and repeated tasks leave objects that nothing names.
    3. The driver commits one entry: the topic if it was missing, the files of the tasks in the order of their
       numbers, the application version.
    """

    def __init__(self, plan: WritePlan) -> None:
        self._plan = plan

    @clean_errors
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Upload the records of one task."""
        plan = self._plan
        context = TaskContext.get()
        task = context.partitionId() if context is not None else 0
        if plan.repeats is not None:
            return compare_task(iterator, plan, task)
        if plan.done:
            for _ in iterator:
                pass  # Spark wants its rows taken
            return TaskUpload(task, {}, {})
        return upload_task(iterator, plan, task, compared=plan.compared)

    @clean_errors
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit what the tasks uploaded. Requests: 1 entry (+ 1 batch table above 1,000 batches).

        Of a version that the log holds: 1 GET of the entry that does, to compare its rows.
        """
        plan = self._plan
        if plan.repeats is not None:
            self._compare(of_tasks(messages, TaskUpload), plan.repeats)
        if plan.done:
            return
        uploads = check_messages(messages, plan)
        log = open_log(plan.path, plan.storage)
        check_same(log, plan.path, plan.log_id, plan.born)
        write = self._write(log, uploads, rows_of(of_tasks(messages, TaskUpload)) or {})
        if write is None:
            return
        try:
            result = commit_intent(log, log.committer.intend(write))
            if result.repeated:  # somebody else has written the version since the plan
                self._check(log, rows_of(of_tasks(messages, TaskUpload)), result.operations, result.entry)
        except InvalidInputError as error:
            # No rows, and somebody else has created the same topic meanwhile.
            if error.kind != "empty-write":
                raise
        finally:
            log.close()  # this process may be stopped at any time: a snapshot being written ends first

    def _compare(self, tasks: list[TaskUpload], entry: int) -> None:
        """Compare the rows of a version that the log held already when the write was planned with those in its entry."""
        plan = self._plan
        log = open_log(plan.path, plan.storage)
        check_same(log, plan.path, plan.log_id, plan.born)
        found = log.committer.read(read_entry(entry))
        if found is not None:
            self._check(log, rows_of(tasks), found.operations, entry)

    def _check(
        self, log: TxnLog, rows: dict[str, Multiset] | None, operations: Sequence[Operation], entry: int
    ) -> None:
        """Compare rows with those that an entry says of the version; see :class:`~spark_datasource.write.repeats.Repetition`."""
        plan = self._plan
        for op in operations:
            if isinstance(op, AppVersion) and plan.app is not None and plan.app.is_held_by(op):
                if op.content is None:
                    return  # written by a version that did not say what
                Repetition(
                    what=f"version {plan.app.version} of {plan.app.app_id}",
                    rows=rows,
                    is_own=False,  # runs of a batch job have no names
                    allowed=plan.allow_different,
                    hint=_DIFFERENT,
                    values={"app_id": plan.app.app_id, "version": plan.app.version},
                ).check(log.state, op.content, entry)

    def _write(
        self, log: TxnLog, uploads: list[tuple[Route, list[Uploaded]]], rows: dict[str, Multiset]
    ) -> Write | None:
        """Return what to commit; None when there is nothing."""
        plan = self._plan
        if len(uploads) > ROUTED_TOPICS_MAX:
            raise InvalidInputError(
                f"the rows name {len(uploads):,} topics; one write may go to {ROUTED_TOPICS_MAX:,} at most",
                kind="unroutable-rows",
                hint="nothing was written; write them in several steps",
            )
        filled = [(route, combine(found)) for route, found in uploads if any(one.batches for one in found)]
        appends = with_batch_table(
            log.store,
            log.committer.ids,
            plan.born,
            [
                topic_append(
                    route.topic_id,
                    route.layout.partition_count,
                    found,
                    _sequences(log.state, plan.delegation, route.topic_id, found),
                )
                for route, found in filled
            ],
            # A stage has its batches in a table, however few.
            BATCHES_IN_ENTRY_MAX if plan.delegation is None else 0,
        )
        routes = [route for route, _ in filled]
        if isinstance(plan.routes, OneTopic):
            routes = [plan.routes.only]  # it is made even without rows
        create = tuple(route.create for route in routes if route.create is not None)
        if not appends and not create and plan.app is None:
            return None
        ids = {route.topic: route.topic_id for route in routes}
        content = content_of(rows, ids)
        app = plan.app and replace(plan.app, content=content)
        write = Write(appends=appends, app=app, apps_beside=self._apps_beside(routes, content), create=create)
        if plan.delegation is None:
            return write
        return replace(
            write, producer=plan.delegation.producer, follows=plan.delegation.follows, deferred=True
        )

    def _apps_beside(self, routes: list[Route], content: Content) -> tuple[AppRef, ...]:
        """Return the versions of a routed write's topics: a later write of one of them alone has to be above."""
        app = self._plan.app
        if app is None or isinstance(self._plan.routes, OneTopic):
            return ()
        of_topics = {one.topic_id: (one,) for one in content}
        app_id = app.app_id.removeprefix(topic_app_id(ROUTED, ""))
        return tuple(
            replace(
                app,
                app_id=topic_app_id(route.topic, app_id),
                content=of_topics.get(route.topic_id, ()),
            )
            for route in routes
        )

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Do nothing: tasks may still be running, and a commit whose answer was lost may have landed."""


def _sequences(
    state: LogState, delegation: Delegation | None, topic_id: str, uploaded: Uploaded
) -> dict[int, int] | None:
    """Return the sequence of the first record of each partition: behind what the transaction has staged so far."""
    if delegation is None:
        return None
    owner = state.transactional_ids.get(delegation.producer.transactional_id or "")
    # Of another epoch, or staged already: the commit tells, whatever the numbers are.
    staged = {} if owner is None else owner.staged_sequences
    bases = {}
    for partition in {batch.partition for batch in uploaded.batches}:
        window = staged.get(TopicPartition(topic_id, partition))
        bases[partition] = window[-1].last_sequence + 1 if window else 0
    return bases


def commit_intent(log: TxnLog, intent: Intent) -> CommitResult:
    """Commit an intent; while the outcome is unknown hand the same one in again, which never applies it twice."""
    unknown: CommitStateUnknownError | None = None
    for _ in range(COMMIT_TRIES_MAX):
        try:
            return log.committer.commit(intent)
        except CommitStateUnknownError as error:
            unknown = error
        except StorageError as error:
            # A refusal is about this try: what was sent before may have landed, or still land.
            raise unknown or error from None
    assert unknown is not None
    raise unknown
