"""Defects for a sink, to see that the campaign finds them."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any

from pyspark import TaskContext

from spark_datasource.stream.commit import as_write
from spark_datasource.stream.messages import as_batch
from spark_datasource.stream.sink import TxnLogStreamWriter
from spark_datasource.worker.logs import log_with_id
from spark_datasource.write import task as task_writer
from txnformat.client.committer import Committer
from txnformat.core.intents import Write

__all__ = ["DEFECTS", "break_sink"]

_broken: set[str] = set()


def _forgets_versions() -> None:
    """Commit batches without the application's version: what is done again is there twice."""
    intend = Committer.intend

    def without(self: Committer, write: Any, *args: Any, **options: Any) -> Any:
        if isinstance(write, Write) and (write.app is not None or write.apps_beside):
            write = replace(write, app=None, apps_beside=())
        return intend(self, write, *args, **options)

    Committer.intend = without  # type: ignore[assignment, method-assign]


def _forgets_rows() -> None:
    """Commit batch 2 without its rows: they are lost."""
    intend = Committer.intend

    def without(self: Committer, write: Any, *args: Any, **options: Any) -> Any:
        if isinstance(write, Write) and write.app is not None and write.app.version == 2:
            write = replace(write, appends=())
        return intend(self, write, *args, **options)

    Committer.intend = without  # type: ignore[assignment, method-assign]


def _commits_in_tasks() -> None:
    """Commit what a task uploaded in the task: what is done again is there twice, and batches are there in
    part."""
    write = TxnLogStreamWriter.write

    def commits(self: TxnLogStreamWriter, iterator: Any) -> Any:
        message: Any = write(self, iterator)
        options = self._options
        log = log_with_id(options.write.path, options.write.storage, message.batch.log_id, message.batch.born)
        batch = as_batch([message], message.batch.batch_id)
        only = replace(as_write(log, batch, options, self._frame), app=None, apps_beside=())
        if only.appends:
            log.committer.commit(log.committer.intend(only))
        message.uploads = {}
        return message

    TxnLogStreamWriter.write = commits  # type: ignore[method-assign]


def _deletes_at_abort() -> None:
    """Delete what the tasks of a batch uploaded when Spark gives it up, as if that meant that it is not in
    the log."""

    def abort(self: TxnLogStreamWriter, messages: Any, batchId: int) -> None:  # Spark's name
        for message in messages:
            if message is not None:
                options = self._options.write
                log = log_with_id(options.path, options.storage, message.batch.log_id, message.batch.born)
                for uploaded in message.uploads.values():
                    for file in uploaded.files:
                        log.store.delete(file.key)

    TxnLogStreamWriter.abort = abort  # type: ignore[method-assign]


def _names_files_by_task() -> None:
    """Name files by what they are for, and not unlike any other: attempts of a task have one name."""

    class Named:
        def new(self) -> str:
            context = TaskContext.get()
            assert context is not None
            names = ("sql.streaming.queryId", "streaming.sql.batchId")
            of_batch = [context.getLocalProperty(name) for name in names]
            return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{of_batch} {context.partitionId()}"))

    vars(task_writer)["SystemIds"] = Named


DEFECTS = {
    "forgets-versions": _forgets_versions,
    "forgets-rows": _forgets_rows,
    "commits-in-tasks": _commits_in_tasks,
    "deletes-at-abort": _deletes_at_abort,
    "names-files-by-task": _names_files_by_task,
}


def break_sink(defect: str) -> None:
    """Put a defect into this process, once."""
    if defect not in _broken:
        _broken.add(defect)
        DEFECTS[defect]()
