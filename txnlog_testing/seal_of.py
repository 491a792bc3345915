"""Sealing a state outside of any log: the real steps, on a store in memory."""

from __future__ import annotations

from collections.abc import Mapping

from txnformat.client.driver import Driver
from txnformat.clock import SystemClock
from txnformat.core.operations import Seal
from txnformat.core.state import LogState
from txnformat.protocol.sealing import write_segments
from txnformat.store.memory import MemoryStore

__all__ = ["CountedIds", "seal_of"]


class CountedIds:
    """Ids that are the same in every run."""

    def __init__(self) -> None:
        self._next = 0

    def new(self) -> str:
        """Return the next id."""
        self._next += 1
        return f"00000000-0000-4000-8000-{self._next:012x}"

    def uniform(self) -> float:
        """Return one half."""
        return 0.5


def seal_of(state: LogState, objects: Mapping[str, bytes] | None = None) -> Seal:
    """Return the seal of everything in ``state`` that can be sealed.

    Parameters
    ----------
    objects : mapping of str to bytes, optional
        The batch tables of the state, by key.
    """
    store = MemoryStore()
    for key, data in (objects or {}).items():
        store.put(key, data)
    seal = Driver(store, SystemClock(), CountedIds()).run(write_segments(state))
    if seal is None:
        raise ValueError("there is nothing to seal")
    return seal
