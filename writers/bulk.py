"""One append without a producer, of any size, in one entry: all of it is in the log, or none.

Records go to segment files as they arrive, which no reader sees; the entry that names them is the only step
that does.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, TypeVar

from txnformat.core.intents import Intent, Write
from txnformat.errors import (
    CommitStateUnknownError,
    InvalidInputError,
    InvalidTransactionStateError,
    TxnLogError,
    repr_of,
)
from txnformat.log import TxnLog, check_log
from txnformat.lookup import topic_named
from writers.calls import Calls
from writers.ownership import OwnLock
from writers.settings import ProducerSettings
from writers.staging import Staging
from writers.transaction import CommitInfo

__all__ = ["BulkAppend"]

T = TypeVar("T")


class BulkAppend:
    """Collects records of any number of topics, and appends them at once. One call at a time, in one process.

    Not idempotent over processes: a program that runs again appends again. To append
    once, open a :class:`~writers.producer.Producer` with a transactional id. ``settings``: only the sizes
    count.
    """

    def __init__(self, log: TxnLog, settings: ProducerSettings | None = None) -> None:
        check_log(log, "BulkAppend")
        if not isinstance(settings, ProducerSettings | None):
            raise InvalidInputError(
                f"settings is {repr_of(settings, 80)}, not ProducerSettings", kind="invalid-settings"
            )
        self._log = log
        committer = log.committer
        self._staging = Staging(
            log.store,
            committer.ids,
            settings or ProducerSettings(),
            committer.born,
            committer.clock,
            lambda: log.embeds,
        )
        self._lock = OwnLock("bulk append")
        self._calls = Calls(self._lock, unrepeatable=("send",))
        self._intent: Intent | None = None
        self._is_cut = False  # whether a call ended with an unexpected error, perhaps in the middle
        self._is_closed = False

    def send(self, topic: str, data: Any, partition: int | None = None) -> None:
        """Take in records; as :meth:`writers.producer.Producer.send`, of which this takes ``data``.

        Raises NotFoundError, InvalidInputError, StorageError: nothing of this send was kept;
        InvalidTransactionStateError of kind ``abort-required``: records were lost with a file that failed, or
        a send was interrupted. Kind ``producer-closed``. Kind ``commit-undecided``: the outcome of the last
        commit is unknown.
        """
        self._do("send", lambda: self._send(topic, data, partition))

    def _do(self, name: str, body: Callable[[], T]) -> T:
        """Do a call where no signal reaches it; a commit that was interrupted answers its repeat."""
        earlier = self._calls.interrupted()
        if earlier is not None and earlier.has_run and not self._calls.is_repeat(earlier, name):
            # It is not known whether a send was taken in; a commit's outcome is told by the next commit.
            raise _cut() if earlier.name == "send" else _undecided()
        return self._calls.run_or_repeat(name, lambda: self._whole(body))

    def _whole(self, body: Callable[[], T]) -> T:
        try:
            return body()
        except TxnLogError:
            raise
        except BaseException:
            self._is_cut = self._intent is None  # else it may be repeated, and lands once
            raise

    def _send(self, topic: str, data: Any, partition: int | None) -> None:
        self._check()
        if self._intent is not None:  # it names what it was made of, and is all that another commit commits
            raise _undecided()
        prepared = self._staging.buffered.prepare(topic_named(self._log, topic, partition), data, partition)
        if self._staging.is_over(prepared.size):
            self._staging.stream(prepared.size)
        self._staging.buffered.accept(prepared)

    def commit(self) -> CommitInfo:
        """Append everything. Requests: 1 PUT per file and 1 entry; none when nothing was sent.

        Raises StorageError, ConflictError: nothing was appended; commit again, or close; UploadExpiredError:
        nothing was appended, and the records have to be sent to another bulk append; CommitStateUnknownError:
        commit again: it is never appended twice. So may be one that was interrupted.
        """
        return self._do("commit", self._commit)

    def _commit(self) -> CommitInfo:
        self._check()
        if not self._staging:
            return CommitInfo()
        if self._intent is None:
            topics = self._log.state.topics  # a topic may have grown since
            self._staging.adopt(topics)
            self._staging.finish()
            self._staging.redistribute(topics)
            self._intent = self._log.committer.intend(Write(None, self._staging.appends(numbered=False)))
        try:
            result = self._log.committer.commit(self._intent)
        except CommitStateUnknownError:
            raise
        except TxnLogError:
            self._intent = None
            raise
        info = CommitInfo.of(self._log, result)
        self._close()
        return info

    def close(self) -> None:
        """Forget what is not committed. Idempotent; in a forked child without effect on the parent."""
        if self._lock.is_foreign:
            self._close()
        else:
            self._calls.run("close", self._close)

    def _close(self) -> None:
        self._staging.discard()
        self._is_closed = True

    def _check(self) -> None:
        if self._is_closed:
            raise InvalidTransactionStateError(
                "this append has ended", kind="producer-closed", hint="make a new one"
            )
        if self._is_cut:
            raise _cut()
        if self._staging.is_broken:
            raise InvalidTransactionStateError(
                "records of this append could not be uploaded and are lost",
                kind="abort-required",
                hint="close it and send everything again",
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _undecided() -> InvalidTransactionStateError:
    return InvalidTransactionStateError(
        "the outcome of the last commit is not known yet",
        kind="commit-undecided",
        hint="commit again before sending more, or close this append",
    )


def _cut() -> InvalidTransactionStateError:
    return InvalidTransactionStateError(
        "a call of this append was interrupted, so its records may be missing",
        kind="abort-required",
        hint="close it and send everything again",
    )
