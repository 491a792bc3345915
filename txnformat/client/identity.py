"""Whether the log that was opened is still the one at its place.

A look for new entries cannot detect it: it asks for the next entry alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from txnformat.client.committer import Committer
from txnformat.errors import TxnLogError
from txnformat.protocol.follow import check_identity

__all__ = ["check_still_there", "explaining"]


def check_still_there(committer: Committer) -> None:
    """Raise NotFoundError of kind ``log-gone`` or ConflictError of kind ``log-replaced`` if the log is not
    there any more.

    Requests: 1 GET.
    """
    committer.read(check_identity(committer.state.log_id))


@contextmanager
def explaining(committer: Committer) -> Iterator[None]:
    """Raise the error of a log that is gone or replaced in place of its consequences, such as a broken
    chain.
    """
    try:
        yield
    except TxnLogError:
        check_still_there(committer)
        raise
