"""The log that a streaming query follows, for as long as it runs: one request for each look."""

from __future__ import annotations

from spark_datasource.options.declared import ReadOptions
from spark_datasource.worker.logs import has_entry, is_truncated
from txnformat.clock import Clock, SystemClock, steady_ms, waited_ms
from txnformat.consumers.looks import Looks
from txnformat.core.state import LogState
from txnformat.errors import ConflictError, CorruptDataError
from txnformat.log import TxnLog
from txnformat.store.base import ObjectStore
from txnformat.store.patient import PatientStore

__all__ = ["IDENTITY_MS", "FollowedLog"]

IDENTITY_MS = 60_000
"""How often a log without news is asked whether it is still the same."""


class FollowedLog:
    """A log that a query follows; it waits while the store fails for now.

    ``store``: the log's store, if it is open.
    """

    def __init__(
        self, options: ReadOptions, clock: Clock | None = None, store: ObjectStore | None = None
    ) -> None:
        self._clock = clock or SystemClock()
        self._end_expired = options.end_expired
        self._interval_ms = options.look_interval_ms
        store = PatientStore(store or options.storage.open(options.path), self._clock)
        self.log = TxnLog.open(store, clock=self._clock)
        self._looks = Looks(options.look_interval_ms, is_free=store.reads_in_flight == 1)
        self._looked = self._recognized = self._clock.now()
        self._asked_ms = steady_ms(self._looked)
        """When the last look began."""

    @property
    def state(self) -> LogState:
        """The state as last seen."""
        return self.log.state

    def follow(self, *, is_idle: bool = False) -> LogState:
        """Return the newest state.

        ``is_idle``: the last look saw nothing to read. Then looks follow each other, with waits
        (:mod:`txnformat.consumers.looks`), until one sees a new entry, or for the interval. Raises
        ConflictError of kind ``log-replaced``: the log was removed, recreated, or restored to an older state.
        """
        if not is_idle:
            self._looks.news(self.state.timestamp_ms, self._asked_ms)
            return self._look()
        before, waited = self.state.entry, 0
        while True:
            self._looks.nothing()
            passed = waited_ms(self._looked, self._clock.now())
            wait_ms = self._looks.wait_ms(steady_ms(self._looked))
            if 0 <= passed < wait_ms:
                self._clock.sleep((wait_ms - passed) / 1_000)
            state = self._look()
            waited += wait_ms
            if state.entry > before or waited >= self._interval_ms:
                return state

    def _look(self) -> LogState:
        before = self.log.state.entry
        self._asked_ms = steady_ms(self._clock.now())
        try:
            state = (
                self.log.transactions.end_expired_if_permitted() if self._end_expired else self.log.refresh()
            )
        except CorruptDataError:
            # An entry that does not chain is the next one of another log, when the last one has been
            # replaced.
            self._recognize(self.log.state)
            raise
        self._looked = self._clock.now()
        if state.entry > before:
            self._recognized = self._looked  # each entry chains to all before it
        elif waited_ms(self._recognized, self._looked) >= IDENTITY_MS:
            self._recognize(state)
        return state

    def _recognize(self, state: LogState) -> None:
        """Look whether the last entry is still there: in a log that is gone no next one would ever come.

        A query that was paused for days may find that a truncation has deleted it; the next look then begins
        with a snapshot.
        """
        store = self.log.store
        found = has_entry(store, state.entry, state.entry_sha256)
        if found is None and is_truncated(store, state.log_id, state.entry):
            return
        if not found:
            raise ConflictError(
                "the log that the query follows no longer exists: it was removed, recreated, or restored",
                kind="log-replaced",
                hint="nothing was lost from the query's checkpoint; restart it once the log is back",
                path=self.log.url,
                expected=state.log_id,
                entry=state.entry,
            )
        self._recognized = self._looked
