"""Everything about a random log but its producers: time, operators, maintenance, the network, and readers."""

from __future__ import annotations

from datetime import timedelta
from itertools import count
from typing import Any

import pytest
from hypothesis import event
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from tests.integration.clients.failing import Plan
from tests.model.groups import OPEN, TIMEOUT_MS, Client, DrawnIds, Group, Readers, WhenAsked
from txnformat.admin.garbage import Fate
from txnformat.core.state import LIFECYCLE
from txnformat.core.transactions.state import TransactionStatus
from txnformat.protocol.commit import CommitSettings
from txnformat.store.base import ObjectStore
from txnlog import (
    InvalidTransactionStateError,
    Producer,
    ProducerStatus,
    TxnLog,
)
from txnlog_testing.stores.faulty import FaultyStore

__all__ = ["LogWorld"]

PARTITIONS_MAX = 4
GRACE = timedelta(hours=2)
HOURS = 3 * 3_600
"""More than the grace: so a vacuum deletes things."""


class LogWorld(RuleBasedStateMachine):
    """A log, those who look after it, and what its readers must see."""

    has_faults = False

    def __init__(self) -> None:
        super().__init__()
        self.clock: Any = None
        self.ids: DrawnIds
        self.store: ObjectStore
        self.reader: TxnLog
        self.plan = Plan()
        self.clients: list[Client] = []
        self.gone: list[FaultyStore] = []
        self.groups: list[Group] = []
        self.numbers = count(1)
        self.readers = Readers()
        self.was_vacuumed = False

    def make_store(self) -> ObjectStore:
        """Return a fresh store, and set the clock."""
        raise NotImplementedError

    def now_ms(self) -> int:
        """Return the time by the clock that cannot be wrong."""
        boot_ms = self.clock.now().boot_ms
        assert boot_ms is not None
        return int(boot_ms)

    def process(self) -> tuple[ObjectStore, TxnLog]:
        """Return what a new process has."""
        if not self.has_faults:
            return self.store, self.open(self.store)
        store = FaultyStore(self.store, self.plan)
        return store, self.open(store, settings=CommitSettings(deadline_ms=2_000))

    def open(self, store: ObjectStore, **components: Any) -> TxnLog:
        """Open the log; what comes of it follows from what was drawn and nothing else."""
        log = TxnLog.open(store, clock=self.clock, ids=self.ids, **components)
        log.committer._background = WhenAsked()
        return log

    def is_late(self, group: Group | None, *, strictly: bool = False) -> bool:
        """Return whether a group's time is over; not strictly: whether it may be, by the longest
        reckoning.
        """
        if group is None or group.first_ms is None or group.last_ms is None:
            return False
        since = group.first_ms
        return self.now_ms() - since >= TIMEOUT_MS - (0 if strictly else 1_000)

    def fence(self, group: Group) -> None:
        """Know that nothing more comes of a group."""
        if group.state in OPEN:
            group.state = "aborted"
        elif group.state == "doubt":
            group.is_settled = True

    # Everything else.

    @precondition(lambda self: self.has_faults)
    @rule()
    def late_requests_arrive(self) -> None:
        """Let everything arrive that is still on its way."""
        for store in [*self.gone, *(one.store for one in self.clients)]:
            if isinstance(store, FaultyStore):
                store.release()

    @rule(seconds=st.sampled_from([0, 20, 61, HOURS]), enforces=st.booleans())
    def time_passes(self, seconds: int, enforces: bool) -> None:
        """Let time pass in which nobody does anything; then perhaps, somebody ends what is open for too
        long.
        """
        self.reader.refresh()  # who watches has seen what is open
        self.clock.ms += 1_000 * seconds
        if enforces:
            self.end_expired()

    def end_expired(self) -> None:
        """Let somebody who watches end what is open for too long."""
        ended = self.reader.transactions.end_expired()
        names = {one.transactional_id for one in ended}
        for name in sorted(names):
            mine = [one for one in self.groups if one.name == name and one.state in (*OPEN, "doubt")]
            late = [one for one in mine if self.is_late(one, strictly=True) and one.state != "prepared"]
            assert late, f"{name} ended before its time"
            if len(late) == 1:
                self.fence(late[0])
            for client in self.clients:
                client.may_fail |= client.name == name
        if names:
            event("ended by timeout")

    @precondition(lambda self: self.reader.refresh().undecided)
    @rule(which=st.integers(0, 1))
    def operator_aborts(self, which: int) -> None:
        """Let an operator abort an id's transaction, which is refused when it is prepared."""
        _, log = self.process()
        names = sorted(log.state.undecided)
        name = names[which % len(names)]
        if log.state.transactional_ids[name].status is TransactionStatus.PREPARED:
            with pytest.raises(InvalidTransactionStateError) as caught:
                log.transactions.abort(name)
            assert caught.value.kind == "transaction-prepared"
            return
        log.transactions.abort(name)
        assert not any(one.name == name and one.state == "prepared" for one in self.groups)
        event("aborted by operator")
        for client in self.clients:
            client.may_fail |= client.name == name
        for group in self.groups:
            if group.name == name:
                current = any(client.group is group for client in self.clients)
                if group.state in ("open", "aborting") and not current:
                    group.state = "aborted"

    @rule()
    def seal(self) -> None:
        """Seal what can be sealed."""
        self.process()[1].maintain("seal")

    @rule(target_bytes=st.sampled_from([1, 10**6]))
    def compact(self, target_bytes: int) -> None:
        """Compact what is sealed: only readers of uncommitted records may notice, who lose what was
        aborted.
        """
        done = self.process_that_removes().compact(target_bytes=target_bytes, min_lag_ms=0)
        event("compacted" if any(one.segments for one in done) else "nothing to compact")

    @rule()
    def vacuum(self) -> None:
        """Delete what nothing names: who has uploaded something and does not know whether it landed may have
        to send it again."""
        self.process_that_removes().vacuum(GRACE)
        self.time_passes(HOURS, enforces=False)
        report = self.process_that_removes().vacuum(GRACE)
        self.was_vacuumed = True
        event(f"vacuum deleted: {report.count(Fate.DELETED) > 0}")

    def process_that_removes(self, *, faults: bool = True) -> TxnLog:
        """Return a new process's log; one of an older version is upgraded."""
        log = self.process()[1] if faults else self.open(self.store)
        if LIFECYCLE not in log.refresh().features.reader:
            log.upgrade()
        return log

    @rule()
    def alter_topic(self) -> None:
        """Let the topic have one partition more."""
        _, log = self.process()
        partitions = log.state.topic("t").partitions
        if partitions < PARTITIONS_MAX:
            log.alter_topic("t", partitions=partitions + 1)

    @rule()
    def read(self) -> None:
        """Compare what everybody sees with what there must be."""
        self.readers.check(self.open(self.store), self.reader, self.groups)
        self.check_keyed()

    def check_keyed(self) -> None:
        """Compare what was removed on purpose; see :mod:`tests.model.removals`."""

    def finish_erasures(self) -> None:
        """Bring all erasures to an end."""

    def teardown(self) -> None:
        """End everything, and read it all."""
        if not hasattr(self, "reader"):
            return
        self.late_requests_arrive_at_last()
        for group in [one for one in self.groups if one.state == "prepared"]:
            assert group.token is not None
            self.reader.commit_prepared(group.token)
            group.state = "committed"
        for name in ("p0", "p1"):
            producer = Producer(self.reader, name)
            producer.init()
            if producer.status is ProducerStatus.PREPARED:  # nobody was told that it is
                producer.abort()
            for group in self.groups:
                if group.name == name:
                    self.fence(group)
        self.read()
        for one in self.reader.offsets("t"):
            assert one.last_stable_offset == one.log_end, "something holds readers back for ever"
        self.finish_erasures()
        report = self.reader.verify(deep=True)
        assert report.ok, report.problems
        self.reader.close()

    def late_requests_arrive_at_last(self) -> None:
        """Let the network come to rest."""
        for store in [*self.gone, *(one.store for one in self.clients)]:
            if isinstance(store, FaultyStore):
                store.release()
