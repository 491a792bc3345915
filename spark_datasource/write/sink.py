"""The batch writer: tasks upload files, the driver commits all of them in one entry of the log.

The write of a :class:`~spark_datasource.write.transaction.SparkTransaction` is the same, but that the entry
stages what it names in the open transaction, in place of appending it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from spark_datasource.failures import clean_errors
from spark_datasource.options.write import ROUTED, topic_app_id
from spark_datasource.worker.logs import check_planned, open_log
from spark_datasource.write.commit import Target, commit_intent, write_of
from spark_datasource.write.messages import Destination, TaskUpload, invalid_message, of_tasks
from spark_datasource.write.plan import WritePlan, plan_write
from spark_datasource.write.repeats import Repetition, rows_of
from spark_datasource.write.routing import OneTopic
from spark_datasource.write.task import compare_task, upload_task
from txnformat.columns.multiset import Multiset
from txnformat.core.intents import Write
from txnformat.core.operations import Operation
from txnformat.errors import InvalidInputError, NotFoundError
from txnformat.log import TxnLog
from txnformat.persistent import replace
from txnformat.protocol.old_entries import HISTORY_GONE, OldEntries

__all__ = ["TxnLogBatchWriter", "plan_write", "targets_of"]


_DIFFERENT = (
    "nothing was written; write different rows with a new txnVersion. If the job gives different rows "
    "each time, or "
    "you do not need the rows of this run, set option allowDifferentRepeat"
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

    @property
    def trace(self) -> str | None:
        """The span that the write was planned in."""
        return self._plan.trace

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
        tasks = of_tasks(messages, TaskUpload)
        log = open_log(plan.options.path, plan.options.storage)
        check_planned(log, plan.log_id, plan.born)
        write = self._write(log, tasks)
        if not write.appends and not write.create and plan.options.app is None:
            return
        try:
            result = commit_intent(log, log.committer.intend(write))
            if result.repeated:  # another run has written the version since the plan
                self._check(log, rows_of(tasks), result.operations, result.entry)
        except InvalidInputError as error:
            # No rows, and another write has created the same topic meanwhile.
            if error.kind != "empty-write":
                raise
        finally:
            log.close()  # this process may be stopped at any time: a snapshot being written ends first

    def _compare(self, tasks: list[TaskUpload], entry: int) -> None:
        """Compare the rows of a version that the log held already when the write was planned with those in
        its entry.
        """
        plan = self._plan
        log = open_log(plan.options.path, plan.options.storage)
        check_planned(log, plan.log_id, plan.born)
        try:
            found = log.committer.read(OldEntries(log.state.entry).read(entry))
        except NotFoundError as error:
            if error.kind != HISTORY_GONE:
                raise
            return  # deleted, with its bundle: nothing is left to compare with
        self._check(log, rows_of(tasks), found.operations, entry)

    def _check(
        self, log: TxnLog, rows: dict[str, Multiset] | None, operations: Sequence[Operation], entry: int
    ) -> None:
        """Compare rows with those that an entry says of the version."""
        app = self._plan.options.app
        if app is not None:
            Repetition(
                what=f"version {app.version} of {app.app_id}",
                rows=rows,
                allowed=self._plan.options.allow_different,
                hint=_DIFFERENT,
                values={"app_id": app.app_id, "version": app.version},
            ).check(log.state, app, operations, entry)

    def _write(self, log: TxnLog, tasks: list[TaskUpload]) -> Write:
        """Return what to commit."""
        plan = self._plan
        targets = targets_of(tasks, plan)
        advice, options = "write them in several steps", plan.options
        write = write_of(log, tasks, plan.born, targets, options.app, advice, options.delegation)
        if write.app is None or isinstance(plan.routes, OneTopic):
            return write
        # A later write of one of the topics alone has to be above.
        of_topics = {one.topic_id: (one,) for one in write.app.content or ()}
        app_id = write.app.app_id.removeprefix(topic_app_id(ROUTED, ""))
        beside = tuple(
            replace(write.app, app_id=topic_app_id(topic, app_id), content=of_topics.get(target.topic_id, ()))
            for topic, target in targets.items()
        )
        return replace(write, apps_beside=beside)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Do nothing: tasks may still be running, and a commit whose answer was lost may have landed."""


def targets_of(tasks: Sequence[TaskUpload], plan: WritePlan) -> dict[str, Target]:
    """Return the topics of a write, by name: those of the uploads, and the only one even without rows.

    Raises InternalError of kind ``invalid-commit-message``: one is none of the plan.
    """
    names = {topic for task in tasks for topic in task.uploads}
    if isinstance(plan.routes, OneTopic):
        names.add(plan.routes.only.topic)
    return {name: _target(plan, name) for name in sorted(names)}


def _target(plan: WritePlan, topic: str) -> Target:
    try:
        route = plan.routes.route(topic)
    except InvalidInputError:
        raise invalid_message("a topic that this write does not have", topic=topic) from None
    layout = route.layout
    destination = Destination(route.directory, layout.schema.schema_id, layout.partition_count)
    return Target(route.topic_id, destination, layout.partition_count, route.create)
