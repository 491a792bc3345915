"""The jobs of a SparkTransaction, and how its calls wait for them.

A job runs in its user's thread, with no lock held: an interrupt could lose it. So before the job the
transaction notes that it is written; calls of other threads wait for the end of that, and if the job's thread
goes on without it, the job was interrupted: the transaction can only be aborted.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, TypeVar

from spark_datasource.failures import error_in
from spark_datasource.write.sessions import activate, is_classic
from txnformat.errors import InvalidInputError
from txnformat.shield import POLL_SECONDS
from writers.calls import Calls
from writers.job import Delegation
from writers.ownership import OwnLock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["ENTER", "EXIT", "FORSAKE", "JobCalls", "Writing", "check_frame", "run_job"]

T = TypeVar("T")

ENTER, EXIT, FORSAKE = "enter", "exit", "forsake"


class Writing:
    """A job that runs in a thread of the user's.

    ``block``: lets the job stage, and learns what it has staged.
    """

    def __init__(self, owner: threading.Thread, block: AbstractContextManager[Delegation]) -> None:
        self.owner = owner
        self.block = block
        self._is_over = False
        self._ended = threading.Lock()
        self._ended.acquire()

    @property
    def is_running(self) -> bool:
        """Whether the job may still run, for all that threads other than its owner know."""
        return not self._is_over and self.owner.is_alive()

    def end(self) -> None:
        """Release the waiting calls."""
        if not self._is_over:
            self._is_over = True
            self._ended.release()

    def wait(self) -> None:
        """Wait for the end."""
        while self.is_running:
            self._ended.acquire(timeout=POLL_SECONDS)  # never given back: the others see that it is over


class _Elsewhere:
    """The answer of a call that came while another thread's job ran."""


_ELSEWHERE = _Elsewhere()


class JobCalls:
    """The calls of one transaction: one after the other, each where no signal reaches it."""

    def __init__(self) -> None:
        self.writing: Writing | None = None
        """The job that is under way; of calls that run here only."""
        self.cut: str | None = None
        """The call that was interrupted."""
        self._lock = OwnLock("Spark transaction")
        self._calls = Calls(self._lock)

    @property
    def is_foreign(self) -> bool:
        """Whether this process was forked since the transaction was made."""
        return self._lock.is_foreign

    def run(self, call: str, body: Callable[[], T]) -> T:
        """Do a call whatever job is under way."""
        return self._calls.run(call, body)

    def in_turn(self, call: str, body: Callable[[], T]) -> T:
        """Do a call when no other thread's job is under way."""
        owner = threading.current_thread()

        def alone() -> T | _Elsewhere:
            writing = self.writing
            if writing is not None and writing.owner is not owner and writing.is_running:
                return _ELSEWHERE
            if writing is not None:  # its thread has gone on, or ended, without its end
                self.cut = self.cut or "write"
                self.writing = None
                writing.end()
            return body()

        while True:
            writing = self.writing
            if writing is not None and writing.owner is not owner:
                writing.wait()
            answer = self._calls.run(call, alone)
            if not isinstance(answer, _Elsewhere):
                return answer

    def note_interrupted(self) -> None:
        """Take note of the call in which this thread was interrupted, once it has come to its end."""
        self._lock.check_own()
        earlier = self._calls.interrupted()
        if earlier is None:
            return
        if earlier.has_run and earlier.name not in (ENTER, EXIT, FORSAKE):
            self.cut = self.cut or earlier.name
        self._calls.forget()


def check_frame(df: object) -> None:
    """Refuse what cannot be written: InvalidInputError of kinds ``not-a-dataframe`` and
    ``streaming-dataframe``.
    """
    from pyspark.sql import DataFrame

    if not isinstance(df, DataFrame):
        name = f"{type(df).__module__}.{type(df).__qualname__}".removeprefix("builtins.")
        raise InvalidInputError(
            f"the data is a {name}, not a DataFrame of Spark",
            kind="not-a-dataframe",
            hint="txn.send(topic, data) takes Arrow, pandas, polars and dicts; spark.createDataFrame "
            "makes a DataFrame",
        )
    if df.isStreaming:
        raise InvalidInputError(
            "a streaming DataFrame cannot be written in a transaction of its own",
            kind="streaming-dataframe",
            hint="write its batches: df.writeStream.foreachBatch(function), with a SparkTransaction in "
            "the function",
        )


def run_job(df: DataFrame, options: Mapping[str, str], path: str) -> None:
    """Run the job of a write, and raise what it fails with: an error of txnlog without what Spark tells
    around it.
    """
    if is_classic(df.sparkSession):
        activate(df.sparkSession)  # this may be any thread, and the format need not be registered
    try:
        df.write.format("txnlog").mode("append").options(**options).save(path)
    except Exception as error:
        known = error_in(str(error))
        if known is not None:
            raise known from None
        raise
