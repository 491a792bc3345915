"""Producer ids for producers without a transactional id: one block of them serves a whole process."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from txnformat.client.committer import operation_of
from txnformat.core.intents import AllocateIds, Intent
from txnformat.core.operations import AllocateProducerIds
from txnformat.errors import CommitStateUnknownError
from txnformat.forking import run_after_fork
from txnformat.log import TxnLog
from txnformat.store.base import place_of

__all__ = ["next_producer_id"]


@dataclass(slots=True)
class _Block:
    """The ids of one log that this process may still hand out."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    ids: range = range(0)
    asked: Intent | None = None
    """A request for a block whose outcome is unknown: only this one is repeated."""


_blocks_lock = threading.Lock()
_blocks: dict[tuple[str, str], _Block] = {}
"""Blocks by log and place: a copy of a log has its own."""


def _forget() -> None:
    """Drop the blocks in a forked child, which must not hand out its parent's ids."""
    global _blocks_lock
    _blocks_lock = threading.Lock()
    _blocks.clear()


run_after_fork(_forget)


def next_producer_id(log: TxnLog) -> int:
    """Return an unused producer id: 1 entry per process and 1,000 ids.

    After CommitStateUnknownError, call again.
    """
    place = (log.log_id, place_of(log.store))
    with _blocks_lock:
        block = _blocks.setdefault(place, _Block())
    with block.lock:
        # The process with a later block may have expired meanwhile: ids below its own append nothing any
        # more, used or not.
        first = max(block.ids.start, log.state.retired_below)
        block.ids = range(min(first, block.ids.stop), block.ids.stop)
        if not block.ids:
            block.ids = _allocate(log, block)
        number, block.ids = block.ids[0], block.ids[1:]
        return number


def _allocate(log: TxnLog, block: _Block) -> range:
    intent = block.asked or log.committer.intend(AllocateIds(owner=log.committer.ids.new()))
    block.asked = intent
    try:
        result = log.committer.commit(intent)
    except CommitStateUnknownError as error:
        if error.kind == "commit-too-old":
            block.asked = None  # a lost block costs numbers and nothing else
        raise
    block.asked = None
    allocated = operation_of(result, AllocateProducerIds)
    return range(allocated.first, allocated.last + 1)
