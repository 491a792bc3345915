"""A transaction as a ``with`` block."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from txnformat.errors import TxnLogError

if TYPE_CHECKING:
    from writers.producer import CommitInfo, Producer

__all__ = ["Transaction"]


class Transaction:
    """Begins on entry, commits on a normal exit, aborts on an exception.

    Attributes
    ----------
    info : CommitInfo or None
        What was committed, after a normal exit.
    """

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self.info: CommitInfo | None = None

    def send(self, topic: str, data: Any, partition: int | None = None) -> None:
        """Hand over records; see :meth:`writers.producer.Producer.send`."""
        self._producer.send(topic, data, partition)

    def flush(self) -> CommitInfo:
        """Write what is buffered; see :meth:`writers.producer.Producer.flush`."""
        return self._producer.flush()

    def __enter__(self) -> Self:
        """Begin."""
        self._producer.begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Commit, or abort and let the exception pass."""
        if error is None:
            self.info = self._producer.commit()
            return
        try:
            self._producer.abort()
        except TxnLogError as second:
            error.add_note(f"aborting the transaction failed too: {second}")
