"""SparkTransaction: any number of DataFrames, topics, positions and acknowledgements in one atomic commit.

    with SparkTransaction(spark, root, "nightly", 20261121) as txn:    opens a producer: fences older
    instances    1 entry
        txn.write(orders, "orders")                                    a Spark job, whose driver stages
        1 entry txn.write(lines, "lines")
        1 entry
                                                                       end, positions, application version
                                                                       1 entry

The process that runs the user's code opens the log and decides the transaction; Spark's processes only stage
in it, under the producer's identity. Whichever process dies, no reader sees anything of the transaction
before its last entry, and every reader sees all of it afterwards. pyspark is imported by the first write:
``from txnlog import *`` works without it.
"""

from __future__ import annotations

import logging
import operator
import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import Enum, auto
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, SupportsIndex

from spark_datasource.options.delegation import TRANSACTION, transaction_option
from spark_datasource.options.storage import hadoop_settings, storage_for
from spark_datasource.worker.logs import COMMIT_TRIES_MAX, absolute, held_entry
from spark_datasource.write.transaction_jobs import (
    ENTER,
    EXIT,
    FORSAKE,
    JobCalls,
    Writing,
    check_frame,
    run_job,
)
from spark_datasource.write.transaction_settings import ID_PREFIX, problems_of, write_options
from txnformat.consumers.group_offsets import GroupMetadata, Offsets, OffsetSource
from txnformat.consumers.record_ids import Records
from txnformat.core.intents import AppRef
from txnformat.core.operations import DEFERRED_TIMEOUT_MS
from txnformat.core.state import LogState
from txnformat.errors import (
    CommitStateUnknownError,
    InternalError,
    InvalidInputError,
    InvalidTransactionStateError,
    TxnLogError,
)
from txnformat.log import TxnLog
from txnformat.store.open import check_options, is_remote
from writers.inputs import AckSource
from writers.job import Delegation, JobProducer
from writers.transaction import ABORTABLE, CommitInfo, ProducerStatus, abort_after

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["NAMESPACE", "SparkTransaction", "transactional_id_of"]

NAMESPACE = "spark-transaction"
"""Namespace of the application ids of Spark transactions."""


logger = logging.getLogger("txnlog")


class _Phase(Enum):
    NEW = auto()
    OPEN = auto()
    OVER = auto()


class SparkTransaction:
    """One transaction of a Spark job: commits on a normal exit, aborts on an exception.

    Used in one ``with`` statement.

    Entering fences older instances of the same ``app_id`` (their next write or commit fails) and aborts what
    they left open. With a ``version`` the whole is idempotent: what the log holds already is skipped, and
    :attr:`is_done` says so.

    Parameters
    ----------
    spark : SparkSession
        Classic or Connect. In ``foreachBatch``: the batch's own, ``batch.sparkSession``.
    root : str or path
        Of the log. This process opens it, too, and needs access to the store.
    app_id : str
        Stable name of the job, 1 to 243 bytes: two instances that run at the same time need two.
    version : int, optional
        Which run of the job this is, 0 to 2^63 - 1, of any integer type; must grow. In ``foreachBatch``: the
        batch's number.
    storage_options : mapping of str to str, optional
        Credentials, endpoint, … of a remote store; by default Spark's own settings of its connector, and the
        environment. The Spark jobs get them.
    deferred_timeout_ms : int
        How long the transaction may stay open after its last write before any client may abort it; 1 to 7
        days.

    Attributes
    ----------
    is_done : bool
        Whether the log held this version already: on entering, and then nothing runs; or when the commit
        came.
    info : CommitInfo or None
        What the commit did, after the exit; of what was done already, its entry.

    Raises
    ------
    InvalidInputError
        Every problem of the arguments.

    Notes
    -----
    Safe for use by many threads: calls wait for each other. The constructor does no input or output. After a
    call that was interrupted (Ctrl-C, or whatever a signal handler raises) the transaction can only be
    aborted.
    """

    def __init__(
        self,
        spark: Any,
        root: str | os.PathLike[str],
        app_id: str,
        version: SupportsIndex | None = None,
        *,
        storage_options: Mapping[str, str] | None = None,
        deferred_timeout_ms: int = DEFERRED_TIMEOUT_MS,
    ) -> None:
        problems = problems_of(spark, root, app_id, version)
        if problems:
            raise InvalidInputError(problems, kind="invalid-spark-transaction")
        check_options(storage_options)
        self._path = absolute(os.fspath(root))
        hadoop = hadoop_settings(spark) if is_remote(self._path) else None
        self._storage = storage_for(self._path, storage_options or {}, hadoop)
        self._id = transactional_id_of(app_id)
        self._app = None if version is None else AppRef(NAMESPACE, app_id, operator.index(version))
        self._timeout_ms = deferred_timeout_ms
        self._phase = _Phase.NEW
        self._calls = JobCalls()
        self._end: BaseException | None = None  # what the exit has raised
        self._log: TxnLog | None = None
        self._producer: JobProducer | None = None
        self._failure: BaseException | None = None
        self.is_done = False
        self.info: CommitInfo | None = None

    def __repr__(self) -> str:
        version = "" if self._app is None else f", version={self._app.version}"
        return f"{type(self).__name__}({self._path!r}, {self._id.removeprefix(ID_PREFIX)!r}{version})"

    def __reduce__(self) -> Any:
        raise InvalidInputError(
            f"{self!r:.200} cannot be pickled or copied: it works only in the process that made it",
            kind="not-picklable",
            hint="make a new one from the path of the log, inside the function that Spark calls",
        )

    # --- the calls ------------------------------------------------------------------------------------------

    def write(self, df: DataFrame, topic: str | None = None, **options: str | SupportsIndex | None) -> None:
        """Write a DataFrame to a topic, as part of the transaction: one Spark job. Skipped when ``is_done``.

        Requests: as for ``df.write``: 1 data PUT per task and topic, and on the driver 1 batch table and 1
        entry; neither when there are no rows, but for an entry that makes a missing topic. Records that were
        sent before and still wait are staged first, in an entry of their own.

        Parameters
        ----------
        topic : str, optional
            Without one, column ``topic`` names the topic of each row.
        **options
            ``partitions``, ``keyColumns``, ``timestampColumn`` of a topic that is missing. It is created with
            the stage, and stays, empty, if the transaction is aborted; ``createTopics=False`` refuses it.

        Raises
        ------
        InvalidInputError
            Kinds ``not-a-dataframe``, ``streaming-dataframe``, ``invalid-option``: nothing was done, and the
            transaction stays usable. Other kinds, and all other errors: the transaction can only be aborted.
        ProducerFencedError
            A newer instance of this job has begun: stop.
        TransactionTimedOutError
            It was open for too long, and another client has aborted it.
        PySparkException
            Whatever fails the job that is not of txnlog, as Spark tells it.
        """
        self._calls.note_interrupted()
        producer = self._usable("write")
        check_frame(df)
        if producer is None:
            return
        given = write_options(df, topic, options, self._storage.pairs, self._path)
        owner = threading.current_thread()
        begun = self._calls.in_turn("write", lambda: self._begin_write(owner))
        if begun is None:
            return
        writing, delegation = begun
        try:
            run_job(df, {**given, TRANSACTION: transaction_option(delegation)}, self._path)
        except BaseException as error:
            failure = error
            self._calls.run("write", lambda: self._write_failed(writing, failure))
            raise
        self._calls.run("write", lambda: self._written(writing))

    def send(self, topic: str, data: Any = None, partition: int | None = None, **record: Any) -> None:
        """Send records from this process; see :meth:`writers.producer.Producer.send`.

        The topic has to exist.
        """
        self._do("send", lambda producer: producer.send(topic, data, partition, **record))

    def send_offsets(
        self,
        group: str | GroupMetadata | OffsetSource,
        offsets: Offsets | None = None,
        *,
        expected: Mapping[tuple[str, int], int | None] | None = None,
        positions: Mapping[str, str] | None = None,
        expected_positions: Mapping[str, str | None] | None = None,
    ) -> None:
        """Let a group's positions be committed with the transaction; see
        :meth:`writers.producer.Producer.send_offsets`.
        """
        self._do(
            "send_offsets",
            lambda producer: producer.send_offsets(
                group, offsets, expected=expected, positions=positions, expected_positions=expected_positions
            ),
        )

    def acknowledge(self, subscription: AckSource, records: Records) -> None:
        """Acknowledge records with the transaction; see :meth:`writers.producer.Producer.acknowledge`."""
        self._do("acknowledge", lambda producer: producer.acknowledge(subscription, records))

    def acknowledge_cumulative(self, subscription: AckSource, record: Records) -> None:
        """Acknowledge everything up to a record; see
        :meth:`writers.producer.Producer.acknowledge_cumulative`.
        """
        self._do(
            "acknowledge_cumulative", lambda producer: producer.acknowledge_cumulative(subscription, record)
        )

    # --- begin and end --------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        """Begin. Requests: those of opening the log, and 1 entry; no entry when the version is done.

        Raises
        ------
        StaleAppVersionError
            The log holds a later version. No instance was fenced.
        NotFoundError
            Kind ``no-log``.
        TxnLogError
            As for :meth:`writers.producer.Producer.init`.
        """
        self._calls.note_interrupted()
        is_new = self._phase is _Phase.NEW
        try:
            self._calls.run(ENTER, self._enter)
        except BaseException:
            if not is_new:
                raise
            # A transaction that was not entered is not left: if it has begun although the caller was
            # interrupted, it ends here.
            self._calls.note_interrupted()
            self._calls.run(FORSAKE, self._forsake)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Commit, in 1 entry; none when nothing was written and there is no version. On an exception: abort.

        Raises
        ------
        StaleAppVersionError, ProducerFencedError, TransactionTimedOutError, ConflictError, StorageError
            Nothing was committed.
        InvalidTransactionStateError
            Kind ``abort-required``: a write had failed. Nothing was committed.
        CommitStateUnknownError
            It may be committed. Run it again: with the same version, it is done once.

        Notes
        -----
        An exit that is interrupted comes to its end without you. Leaving again waits for that, and tells how
        it ended: an error says that nothing is committed, none says what :attr:`info` and :attr:`is_done`
        tell.
        """
        if self._calls.is_foreign and error is not None:
            return
        self._calls.note_interrupted()
        self._calls.in_turn(EXIT, lambda: self._leave(error))

    # --- how they are done ----------------------------------------------------------------------------------

    def _do(self, call: str, body: Callable[[JobProducer], None]) -> None:
        """Do a call of the producer where no signal reaches it; nothing when the version is done."""

        def usable() -> None:
            producer = self._usable(call)
            if producer is not None:
                body(producer)

        self._calls.note_interrupted()
        self._calls.in_turn(call, usable)

    def _begin_write(self, owner: threading.Thread) -> tuple[Writing, Delegation] | None:
        """Let a job stage; from here on the transaction can only be aborted, until it is known what the job
        has done.
        """
        producer = self._usable("write")
        if producer is None:
            return None
        block = producer.delegated()
        try:
            delegation = block.__enter__()
        except BaseException as error:
            self._failure = self._failure or error
            raise
        self._calls.writing = Writing(owner, block)
        return self._calls.writing, delegation

    def _written(self, writing: Writing) -> None:
        try:
            writing.block.__exit__(None, None, None)
        except BaseException as error:
            self._failure = self._failure or error
            raise
        finally:
            self._calls.writing = None
            writing.end()

    def _write_failed(self, writing: Writing, error: BaseException) -> None:
        self._failure = self._failure or error
        self._calls.writing = None
        writing.end()
        with suppress(TxnLogError):  # the caller sees what the job has failed with
            writing.block.__exit__(type(error), error, error.__traceback__)

    def _enter(self) -> None:
        if self._phase is not _Phase.NEW:
            raise InvalidTransactionStateError(
                "this transaction was already entered once",
                kind="transaction-open" if self._phase is _Phase.OPEN else "no-transaction",
                hint="make a new SparkTransaction for each with statement",
            )
        self._phase = _Phase.OVER  # until it has begun
        self._log = self._open_log()
        try:
            # Before any instance is fenced, and again as of the entry that fences: another one may have
            # committed between.
            if not self._check_version(self._log.state):
                self._producer = JobProducer(self._log, self._id, deferred_timeout_ms=self._timeout_ms)
                self._producer.init()
                if not self._check_version(self._log.state):
                    self._producer.begin()
        except BaseException:
            self._log.close()
            raise
        self._phase = _Phase.OPEN

    def _forsake(self) -> None:
        """End a transaction that has begun but was not entered."""
        if self._phase is not _Phase.OPEN or self._log is None:
            return
        self._phase = _Phase.OVER
        try:
            if self._producer is not None and not self.is_done:
                self._producer.abort()
        except TxnLogError as error:
            logger.warning(
                "a transaction that began but was never entered stays open until the next instance "
                "aborts it: %s",
                error,
            )
        finally:
            self._log.close()

    def _leave(self, error: BaseException | None) -> None:
        """End the transaction; leaving it again gives the same answer."""
        log, producer = self._log, self._producer
        if log is None:
            raise InternalError("a transaction was left before it was entered")
        if self._phase is _Phase.OVER:
            if self._end is not None:
                raise self._end
            return
        self._phase = _Phase.OVER
        try:
            if self.is_done or producer is None:
                return
            if error is not None:
                abort_after(producer, error)
                return
            try:
                self._refuse_after_failure("commit")
                self.info, is_own = self._commit(producer)
            except TxnLogError as refused:
                if not isinstance(refused, CommitStateUnknownError):
                    abort_after(producer, refused)
                if self._failure is not None:
                    raise refused from self._failure
                raise
            self.is_done = not is_own
        except BaseException as failure:
            self._end = failure
            raise
        finally:
            log.close()

    def _open_log(self) -> TxnLog:
        return TxnLog.open(self._path, storage_options=self._storage.options())

    def _check_version(self, state: LogState) -> bool:
        """Return whether the log holds the version, and take note of it; raise when it holds a later one."""
        held = held_entry(
            state,
            self._app,
            "the log holds a later version of this job",
            hint="do not repeat old runs with new data; use a new app_id for a new history",
        )
        if held is not None:
            self.is_done, self.info = True, CommitInfo(held)
        return held is not None

    def _usable(self, call: str) -> JobProducer | None:
        """Return the producer; None when the version is done."""
        if self._phase is not _Phase.OPEN:
            over = self._phase is _Phase.OVER
            raise InvalidTransactionStateError(
                f"{call}() is not possible now: this transaction {'is over' if over else 'was not entered'}",
                kind="no-transaction",
                hint="use it in its own with block: with SparkTransaction(…) as txn",
            )
        if self.is_done:
            return None
        self._refuse_after_failure(call)
        return self._producer

    def _refuse_after_failure(self, call: str) -> None:
        """Raise after a failed write, with its error as the cause; a producer that was fenced since says so
        itself.
        """
        producer = self._producer
        if self._calls.cut is not None and producer and producer.status in ABORTABLE:
            raise InvalidTransactionStateError(
                f"{call}() is not possible now: {self._calls.cut}() of this transaction was interrupted, "
                "and the program continued",
                kind="abort-required",
                hint="nothing of it is committed: let the error leave the with block, and run the job again",
            )
        if self._failure is not None and producer and producer.status is ProducerStatus.ABORT_REQUIRED:
            raise InvalidTransactionStateError(
                f"{call}() is not possible now: a write of this transaction has failed, and the program "
                "continued",
                kind="abort-required",
                hint="nothing of it is committed: let the error leave the with block, and run the job again",
            ) from self._failure

    def _commit(self, producer: JobProducer) -> tuple[CommitInfo, bool]:
        """Commit, and return also whether this transaction did it; repeat a commit whose outcome is
        unknown.
        """
        for tries_left in reversed(range(COMMIT_TRIES_MAX)):
            try:
                if self._app is None:
                    return producer.commit(), True
                return producer.commit_version(self._app)
            except CommitStateUnknownError as error:
                if not tries_left:
                    raise _unknown(error, has_version=self._app is not None) from None
        raise InternalError("a commit has neither a result nor a refusal")


def transactional_id_of(app_id: str) -> str:
    """Return the transactional id of the producer behind a job's transactions: what fences its older
    instances.
    """
    return ID_PREFIX + app_id


def _unknown(error: CommitStateUnknownError, *, has_version: bool) -> CommitStateUnknownError:
    return CommitStateUnknownError(
        "the transaction may or may not be committed: the store gave no clear answer",
        kind=error.kind,
        hint="run it again with the same version: the version commits only once"
        if has_version
        else "check what is committed (the positions of its group, the topics) before you run it again",
        cause=str(error),
    )
