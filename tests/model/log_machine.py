"""Any users of a log, as a Hypothesis state machine over the public API, held against groups of numbers.

Every record is a number that is sent once. Numbers that must become visible together are a :class:`Group`;
the model knows of a group only what callers were told, and what readers may conclude from it:

* a committed group is there, whole, once, below the last stable offset; nobody sees a record of any other;
* a group whose outcome nobody knows is there whole or not at all, and stays as it was first seen;
* a call fails only for a reason that the model knows of: a fault, a newer instance, an operator, time.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any, ClassVar

from hypothesis import event, note
from hypothesis import strategies as st
from hypothesis.core import TestFunc
from hypothesis.stateful import initialize, precondition, rule

from tests.integration.clients.failing import ENTRY, NUMBERS, rows
from tests.model.groups import (
    FAULTS,
    KINDS,
    OPEN,
    TIMEOUT_MS,
    Client,
    DrawnIds,
    Group,
    JumpingClock,
    ManualClock,
)
from tests.model.removals import Removals
from tests.older_logs import older_log
from txnformat.clock import SystemClock
from txnformat.core.state import EMBEDDING
from txnformat.store.base import ObjectStore
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import KeyClass, RequestKind
from txnlog import (
    CommitStateUnknownError,
    ConflictError,
    InvalidTransactionStateError,
    Producer,
    ProducerFencedError,
    ProducerStatus,
    StorageError,
    TransactionTimedOutError,
    TxnLog,
    UploadExpiredError,
)
from txnlog_testing.stores.faulty import Fault, FaultKind, FaultyStore

__all__ = ["LogMachine", "MemoryMachine", "RealMachine"]

WHICH = st.integers(0, 99)


def some(*states: ProducerStatus, transactional: bool | None = None) -> Callable[[TestFunc], TestFunc]:
    """Return the precondition that there is such a client."""
    return precondition(lambda self: self.pick(0, *states, transactional=transactional) is not None)


class LogMachine(Removals):
    """Producers of every kind, crashes, restarts, fences, timeouts, operators, maintenance, and readers."""

    @initialize(
        partitions=st.integers(1, 2),
        kinds=st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 1)), min_size=1, max_size=3),
        seed=st.integers(0, 2**16),
        is_older=st.booleans(),
        embeds=st.booleans(),
    )
    def create(
        self, partitions: int, kinds: list[tuple[str, int]], seed: int, *, is_older: bool, embeds: bool
    ) -> None:
        """Make the log, of this version or an older one, and its topic, and start some processes."""
        self.store, self.ids = self.make_store(), DrawnIds(seed)
        if is_older:
            features = (EMBEDDING,) * embeds
            log = older_log(self.store, *features, clock=self.clock, ids=self.ids)
        else:
            log = TxnLog.create(self.store, clock=self.clock, ids=self.ids, embedding=embeds)
        log.create_topic("t", NUMBERS, partitions=partitions)
        self.reader = self.open(self.store)
        for kind, which in kinds:
            self.start_one(kind, which, None)

    # What happens to calls.

    def call(self, client: Client, fault: Fault | None, act: Callable[[], Any]) -> str:
        """Make a call under a fault, and return what the caller was told."""
        if fault is not None and self.has_faults:
            self.plan.next(*ENTRY, fault)
            self.plan.always(RequestKind.GET, KeyClass.ENTRY, Fault(FaultKind.FAIL_BEFORE))
        try:
            act()
            told = "ok"
        except CommitStateUnknownError:
            told = "unknown"
        except TransactionTimedOutError:
            told = "timed-out"
        except ProducerFencedError:
            told = "fenced"
        except InvalidTransactionStateError as error:
            told = error.kind
        except UploadExpiredError:
            told = "expired"
        except (StorageError, ConflictError):
            told = "failed"
        finally:
            client.log.close()  # what a commit leaves to the background happens now, and meets the same faults
            self.plan.clear()
        note(f"{client.kind} {client.name} -> {told}, {client.status}")
        event(f"{client.kind}: {told}")
        if told == "expired":
            assert self.was_vacuumed, "expired without a vacuum"
        elif fault is None and not client.may_fail and not self.is_late(client.group):
            assert told == "ok", f"{told} for no reason"
        if told == "timed-out":
            assert self.is_late(client.group, strictly=True), "timed out before its time"
        if told in ("fenced", "aborted-by-operator"):
            assert client.may_fail, "fenced by nobody"
        return told

    def pick(self, which: int, *states: ProducerStatus, transactional: bool | None = None) -> Client | None:
        """Return one of the clients in one of these states."""
        fit = [
            one
            for one in self.clients
            if one.status in states and transactional in (None, one.is_transactional)
        ]
        return fit[which % len(fit)] if fit else None

    def writable(self, which: int) -> Client | None:
        """Return a client that can send now; one that has to begin first does."""
        client = self.pick(which, ProducerStatus.IN_TRANSACTION, ProducerStatus.READY)
        if client is not None and client.is_transactional and client.status is ProducerStatus.READY:
            client.producer.begin()
            client.group = None
        return client

    # Producers.

    @precondition(lambda self: len(self.clients) < 5)
    @rule(kind=st.sampled_from(KINDS), which=st.integers(0, 1), fault=FAULTS)
    def start(self, kind: str, which: int, fault: Fault | None) -> None:
        """Start a process; with an id that others have had, it fences them."""
        self.start_one(kind, which, fault)

    def start_one(self, kind: str, which: int, fault: Fault | None) -> None:
        """Start a process."""
        store, log = self.process()
        name = None if kind in ("plain", "idempotent") else f"p{which}"
        more: dict[str, Any] = {"linger_ms": 3_600_000}
        if name is None:
            more["enable_idempotence"] = kind != "plain"
        else:
            more |= {"buffer": kind, "transaction_timeout_ms": TIMEOUT_MS, "deferred_timeout_ms": TIMEOUT_MS}
        client = Client(kind, name, store, log, Producer(log, name, **more))
        older = [one for one in self.clients if name is not None and one.name == name]
        for one in older:
            one.may_fail = True
        if self.call(client, fault, client.producer.init) != "ok":
            self.drop(client)
            return
        if client.status is ProducerStatus.PREPARED:
            self.adopt(client)
        self.clients.append(client)
        if client.group is not None:
            return
        for group in self.groups:
            if name is not None and group.name == name:
                assert group.state != "prepared", "an init ended a prepared transaction"
                self.fence(group)

    def adopt(self, client: Client) -> None:
        """Go on with what an earlier instance has prepared."""
        token = str(client.producer.prepared)
        found = [one for one in self.groups if one.name == client.name and one.state in (*OPEN, "doubt")]
        known = [one for one in found if one.token == token]
        (group,) = known or found[-1:]
        if group.state == "open":
            group.state, group.token = "prepared", token
        # An older instance that lives holds it as well, and so does an end of it that is on its way: either
        # may be first.
        client.may_fail = group.state != "prepared" or any(one.group is group for one in self.clients)
        client.group = group
        event("prepared transaction found by the next instance")

    @some(ProducerStatus.READY, transactional=True)
    @rule(which=WHICH)
    def begin(self, which: int) -> None:
        """Begin a transaction."""
        client = self.pick(which, ProducerStatus.READY, transactional=True)
        if client is not None:
            client.producer.begin()
            client.group = None

    @some(ProducerStatus.IN_TRANSACTION, ProducerStatus.READY)
    @rule(which=WHICH, numbers=st.integers(1, 3), partition=st.none() | st.integers(0, 1), fault=FAULTS)
    def send(self, which: int, numbers: int, partition: int | None, fault: Fault | None) -> None:
        """Send some numbers, to one partition or to any; often flush them."""
        client = self.writable(which)
        if client is None or (client.group is not None and client.group.state == "aborted"):
            return
        if client.group is None:
            client.group = Group(client.name)
            self.groups.append(client.group)
        sent = [next(self.numbers) for _ in range(numbers)]
        if partition is not None and partition >= client.log.refresh().topic("t").partitions:
            partition = None
        client.group.numbers += sent
        # After an hour it flushes what is buffered first.
        told = self.call(client, None, lambda: client.producer.send("t", rows(*sent), partition=partition))
        if told != "ok":
            self.refused(client, client.group, told)
        elif numbers > 1:
            self.write(client, fault, client.producer.flush, ends=not client.is_transactional)

    @some(ProducerStatus.IN_TRANSACTION, ProducerStatus.READY)
    @rule(which=WHICH, fault=FAULTS)
    def flush(self, which: int, fault: Fault | None) -> None:
        """Flush: outside of transactions that is the commit."""
        client = self.writable(which)
        if client is not None:
            self.write(client, fault, client.producer.flush, ends=not client.is_transactional)

    @some(ProducerStatus.IN_TRANSACTION, ProducerStatus.PREPARED, transactional=True)
    @rule(which=WHICH, fault=FAULTS)
    def commit(self, which: int, fault: Fault | None) -> None:
        """Commit what is open, prepared, or in doubt since a commit."""
        client = self.pick(which, ProducerStatus.IN_TRANSACTION, ProducerStatus.PREPARED, transactional=True)
        if client is not None:
            self.write(client, fault, client.producer.commit, ends=True)

    def write(self, client: Client, fault: Fault | None, act: Callable[[], Any], *, ends: bool) -> None:
        """Make a call that writes, and draw the conclusions."""
        group = client.group
        before = self.now_ms()
        told = self.call(client, fault, act)
        client.unsettled = client.unsettled or act.__name__ if told == "unknown" else ""
        if told == "failed" and client.status is ProducerStatus.UNKNOWN_OUTCOME:
            client.unsettled = act.__name__
        if group is None:
            return
        if group.first_ms is None:
            group.first_ms = before
        group.last_ms = before
        if told == "ok" and ends:
            # What readers saw before the call was repeated is committed already.
            assert group.state != "aborted", "committed what was aborted"
            group.state, client.group = "committed", None
        elif told == "unknown" and ends:
            group.state = "doubt" if group.state in OPEN else group.state
        elif (
            told == "failed"
            and group.state == "doubt"
            and client.status is not ProducerStatus.UNKNOWN_OUTCOME
        ):
            group.state = "prepared" if client.status is ProducerStatus.PREPARED else "open"
        else:
            self.refused(client, group, told)

    def refused(self, client: Client, group: Group, told: str) -> None:
        """Draw the conclusions from a refusal."""
        if told in ("timed-out", "fenced", "transaction-aborted"):
            self.is_ended(client, group)
        elif told == "expired" and not client.is_transactional:
            # It forgets what the vacuum may have deleted.
            self.fence(group)
            client.group, client.unsettled = None, ""

    def is_ended(self, client: Client, group: Group) -> None:
        """Know that somebody has ended a client's transaction."""
        self.fence(group)
        client.may_fail = True

    @some(ProducerStatus.UNKNOWN_OUTCOME)
    @rule(which=WHICH, fault=FAULTS)
    def repeat(self, which: int, fault: Fault | None) -> None:
        """Repeat a call whose outcome is unknown: the one that is repeated is the only one allowed but an
        abort."""
        client = self.pick(which, ProducerStatus.UNKNOWN_OUTCOME)
        if client is None:
            return
        client.may_fail |= (
            client.is_transactional
        )  # an unknown prepare that has landed cannot be flushed, and so on
        match client.unsettled:
            case "flush":
                self.write(client, fault, client.producer.flush, ends=not client.is_transactional)
            case "commit":
                self.write(client, fault, client.producer.commit, ends=True)
            case "prepare":
                self.prepare_one(client, fault)
            case _:
                self.abort_one(client, fault)

    @some(
        ProducerStatus.IN_TRANSACTION,
        ProducerStatus.ABORT_REQUIRED,
        ProducerStatus.UNKNOWN_OUTCOME,
        ProducerStatus.PREPARED,
        transactional=True,
    )
    @rule(which=WHICH, fault=FAULTS)
    def abort(self, which: int, fault: Fault | None) -> None:
        """Abort what is open, prepared, in doubt or beyond repair."""
        client = self.pick(
            which,
            ProducerStatus.IN_TRANSACTION,
            ProducerStatus.ABORT_REQUIRED,
            ProducerStatus.UNKNOWN_OUTCOME,
            ProducerStatus.PREPARED,
            transactional=True,
        )
        if client is not None:
            self.abort_one(client, fault)

    def abort_one(self, client: Client, fault: Fault | None) -> None:
        """Abort a client's transaction."""
        group = client.group
        if group is not None and group.state in ("doubt", "committed"):
            client.may_fail = True  # it may have been committed
        told = self.call(client, fault, client.producer.abort)
        if client.status is ProducerStatus.UNKNOWN_OUTCOME:
            client.unsettled = client.unsettled or "abort"
        if group is not None and group.state in OPEN and told == "unknown":
            group.state = "aborting"
        self.aborted(client, group, told)

    def aborted(self, client: Client, group: Group | None, told: str) -> None:
        """Draw the conclusions from an abort."""
        if group is None:
            return
        if told == "ok":
            assert group.state != "committed", "aborted what was committed"
            group.state, client.group, client.unsettled = "aborted", None, ""
        elif told == "transaction-committed":
            assert group.state in ("doubt", "committed"), f"committed what was {group.state}"
            group.state, client.group = "committed", None
        elif told == "fenced":
            self.is_ended(client, group)

    @some(ProducerStatus.IN_TRANSACTION, transactional=True)
    @rule(which=WHICH, fault=FAULTS)
    def prepare(self, which: int, fault: Fault | None) -> None:
        """Prepare an open transaction."""
        client = self.pick(which, ProducerStatus.IN_TRANSACTION, transactional=True)
        if client is None or client.group is None or client.group.state != "open":
            return
        self.prepare_one(client, fault)

    def prepare_one(self, client: Client, fault: Fault | None) -> None:
        """Prepare a client's transaction, and keep the token where it survives."""
        tokens: list[str] = []

        def prepare() -> None:
            tokens.append(str(client.producer.prepare()))

        self.write(client, fault, prepare, ends=False)
        # Repeated, it may have been ended since by another instance that found it.
        if tokens and client.group is not None and client.group.state in OPEN:
            client.group.state, client.group.token = "prepared", tokens[0]

    @precondition(lambda self: any(one.state == "prepared" for one in self.groups))
    @rule(which=WHICH, commits=st.booleans())
    def end_prepared(self, which: int, commits: bool) -> None:
        """Let another process end a prepared transaction by its token."""
        found = [one for one in self.groups if one.state == "prepared"]
        if not found:
            return
        group = found[which % len(found)]
        assert group.token is not None
        _, log = self.process()
        (log.commit_prepared if commits else log.abort_prepared)(group.token)
        group.state = "committed" if commits else "aborted"
        for client in self.clients:
            if client.name == group.name:
                client.may_fail = True
                client.group = None if client.group is group else client.group
        self.drop_named(group.name)
        event("prepared transaction ended by its token")

    def drop_named(self, name: str | None) -> None:
        """Let the processes of an id end, as they do whose transaction was ended elsewhere."""
        for client in [one for one in self.clients if one.name == name]:
            self.clients.remove(client)
            self.drop(client)

    @precondition(lambda self: len(self.clients) > 2)
    @rule(which=WHICH)
    def close(self, which: int) -> None:
        """Close a producer: aborts what is open, flushes what is not transactional; prepared ones stay."""
        if not self.clients:
            return
        client = self.clients[which % len(self.clients)]
        group, status = client.group, client.status
        if status is ProducerStatus.UNKNOWN_OUTCOME:
            client.may_fail = True
        told = self.call(client, None, client.producer.close)
        if client.status is not ProducerStatus.CLOSED:
            if group is not None:
                self.refused(client, group, told)
            return
        self.clients.remove(client)
        if group is None or status is ProducerStatus.PREPARED:
            return
        if client.is_transactional:
            if status is not ProducerStatus.FENCED and group.state != "aborted":
                if group.state == "doubt" and told == "ok":
                    group.is_settled = True  # aborted, or its abort was fenced
                else:
                    self.aborted(client, group, told)
        elif told == "ok":
            group.state = "committed"

    @precondition(lambda self: len(self.clients) > 2)
    @rule(which=WHICH)
    def crash(self, which: int) -> None:
        """End a process without a word; what it sent may still arrive."""
        if self.clients:
            self.drop(self.clients.pop(which % len(self.clients)))

    def drop(self, client: Client) -> None:
        """Forget a process."""
        if isinstance(client.store, FaultyStore):
            self.gone.append(client.store)
        group = client.group
        if group is not None and not client.is_transactional and group.state == "open":
            group.state = "aborted"  # it was never sent


class MemoryMachine(LogMachine):
    """On memory, with faults, and with time as the test says."""

    has_faults = True
    histories = count()

    def make_store(self) -> ObjectStore:
        self.clock = ManualClock()
        # A name of its own: the block of producer ids that a process holds is kept by log and place, and
        # drawn ids repeat.
        return MemoryStore(self.clock, f"history-{next(self.histories)}")


class RealMachine(LogMachine):
    """On a real store, with its own time: only watching can prove a timeout, since no clock of a store
    jumps.
    """

    location: ClassVar[Callable[[str], ObjectStore]]
    """Returns a store for a name that no other history has; set by the test."""
    histories = count()

    def make_store(self) -> ObjectStore:
        self.clock = JumpingClock(SystemClock())
        return type(self).location(f"history-{next(self.histories)}")
