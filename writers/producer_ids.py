"""Producer ids for producers without a transactional id: one entry per process and 1,000 ids."""

from __future__ import annotations

import os
import platform
import threading

from txnformat.errors import InternalError
from txnformat.intents import AllocateIds
from txnformat.log import TxnLog
from txnformat.operations import AllocateProducerIds

__all__ = ["allocate_producer_id"]

_lock = threading.Lock()
# (log id, process id) -> the ids left. By process: a forked child must never hand out its parent's.
_blocks: dict[tuple[str, int], range] = {}


def allocate_producer_id(log: TxnLog) -> int:
    """Return a producer id that nobody has had and nobody will have.

    Requests: 1 entry for the first id of a process on a log, and for every 1,000th after it.
    """
    key = (log.log_id, os.getpid())
    with _lock:
        left = _blocks.get(key, range(0))
        if not left:
            left = _allocate(log)
        _blocks[key] = left[1:]
        return left[0]


def _allocate(log: TxnLog) -> range:
    committer = log.committer
    result = committer.commit(committer.intend(AllocateIds(f"{platform.node()}:{os.getpid()}")))
    for operation in result.operations:
        if isinstance(operation, AllocateProducerIds):
            return range(operation.first, operation.last + 1)
    raise InternalError("an allocation of producer ids gave none", entry=result.entry)
