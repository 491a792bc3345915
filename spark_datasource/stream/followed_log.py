"""The log that a streaming query follows, for as long as it runs: one request for each look, no more than one a second."""

from __future__ import annotations

from spark_datasource.options.declared import ReadOptions
from spark_datasource.worker.logs import has_entry
from txnformat.clock import Clock, SystemClock, waited_ms
from txnformat.core.state import LogState
from txnformat.errors import ConflictError, CorruptDataError
from txnformat.log import TxnLog
from txnformat.store.base import ObjectStore
from txnformat.store.patient import PatientStore

__all__ = ["IDENTITY_MS", "IDLE_MS", "FollowedLog"]

IDLE_MS = 1_000
"""Between two looks at a log of which the first one saw nothing new."""

IDENTITY_MS = 60_000
"""How often a log without news is asked whether it is still the same."""


class FollowedLog:
    """A log that a query follows; it waits while the store fails for now. ``store``: the log's store, if it is open."""

    def __init__(
        self, options: ReadOptions, clock: Clock | None = None, store: ObjectStore | None = None
    ) -> None:
        self._clock = clock or SystemClock()
        self._end_expired = options.end_expired
        store = PatientStore(store or options.storage.open(options.path), self._clock)
        self.log = TxnLog.open(store, clock=self._clock)
        self._looked = self._recognized = self._clock.now()

    @property
    def state(self) -> LogState:
        """The state as last seen."""
        return self.log.state

    def follow(self, *, is_idle: bool = False) -> LogState:
        """Return the newest state.

        ``is_idle``: the last look saw nothing to read; this one then comes at least a second after it. Raises
        ConflictError of kind ``log-replaced``: the log was removed, recreated, or restored to an older state.
        """
        if is_idle:
            passed = waited_ms(self._looked, self._clock.now())
            if 0 <= passed < IDLE_MS:
                self._clock.sleep((IDLE_MS - passed) / 1_000)
        before = self.log.state.entry
        try:
            state = (
                self.log.transactions.end_expired_if_permitted() if self._end_expired else self.log.refresh()
            )
        except CorruptDataError:
            # An entry that does not chain is the next one of another log, when the last one has been replaced.
            self._recognize(self.log.state)
            raise
        self._looked = self._clock.now()
        if state.entry > before:
            self._recognized = self._looked  # each entry chains to all before it
        elif waited_ms(self._recognized, self._looked) >= IDENTITY_MS:
            self._recognize(state)
        return state

    def _recognize(self, state: LogState) -> None:
        """Look whether the last entry is still there: in a log that is gone no next one would ever come."""
        if not has_entry(self.log.store, state.entry, state.entry_sha256):
            raise ConflictError(
                "the log that the query follows no longer exists: it was removed, recreated, or restored",
                kind="log-replaced",
                hint="nothing was lost from the query's checkpoint; restart it once the log is back",
                path=self.log.url,
                expected=state.log_id,
                entry=state.entry,
            )
        self._recognized = self._looked
