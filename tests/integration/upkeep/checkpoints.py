"""Snapshots at a time that a test chooses."""

from __future__ import annotations

from txnformat.core.intents import TakeCheckpoint
from txnformat.protocol.snapshots import write_hint, write_snapshot
from txnformat.protocol.view import View
from txnlog import TxnLog

__all__ = ["take_snapshot"]


def take_snapshot(log: TxnLog) -> None:
    """Write a snapshot of the log as it is now, name it, and hint at it."""
    committer = log.committer
    checkpoint = committer.read(write_snapshot(View(log.refresh())))
    committer.commit(committer.intend(TakeCheckpoint(checkpoint)))
    committer.read(write_hint(checkpoint))
