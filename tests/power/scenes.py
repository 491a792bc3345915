"""What processes do on a machine whose power is cut: every public call that writes, and readers beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tests.power.facts import (
    Aborted,
    Acknowledged,
    AppVersion,
    Committed,
    Ended,
    Ends,
    Exists,
    GroupAt,
    HasTopic,
    Prepared,
    Seen,
    rows_of,
)
from tests.power.world import NUMBERS, Machine, numbers
from txnformat.core.intents import AppRef, Write
from txnformat.errors import NotFoundError
from txnformat.types import Outcome
from txnlog import Consumer, Producer, Subscription, TxnLog
from txnlog_testing.power_cut import ProcessDied
from writers.bulk import BulkAppend

__all__ = ["BUFFERS", "KILLED", "SCENES", "kill_everywhere"]

BUFFERS = ("auto", "deferred", "inline")
LEVELS = ("read_committed", "read_uncommitted", "snapshot")
APP = AppRef("power", "job", 1)


def look(machine: Machine, log: TxnLog) -> None:
    """Read all there is, in every way."""
    for topic in log.topics():
        for level in LEVELS:
            machine.told(Seen(topic, level, tuple(rows_of(log, topic, level))))
        ends = tuple((one.last_stable_offset, one.log_end) for one in log.offsets(topic))
        machine.told(Ends(topic, ends))


def make_topic(machine: Machine, log: TxnLog, name: str = "t") -> None:
    topic = log.create_topic(name, NUMBERS, exist_ok=True)
    machine.told(Exists(log.log_id), HasTopic(name, topic.topic_id, 1))


def commit(machine: Machine, producer: Producer, values: tuple[int, ...], flush: bool = False) -> None:
    """Commit values in a transaction, and take note of it."""
    producer.begin()
    epoch = producer.epoch
    assert epoch is not None
    producer.send("t", numbers(*values[:-1]), partition=0)
    if flush:
        producer.flush()
    producer.send("t", numbers(values[-1]), partition=0)
    producer.commit()
    machine.told(Committed("t", values), Ended("p", epoch, Outcome.COMMIT))


# -- one process at work, readers beside it ------------------------------------------------------------------


def creating(machine: Machine) -> None:
    with machine.watched():
        log = machine.open()
        machine.told(Exists(log.log_id))
        make_topic(machine, log)
        topic = log.alter_topic("t", partitions=3)
        machine.told(HasTopic("t", topic.topic_id, 3))
        look(machine, machine.open())


def _transactions(buffer: str) -> Callable[[Machine], None]:
    def scene(machine: Machine) -> None:
        log, reader = machine.open(), machine.open()
        make_topic(machine, log)
        with machine.watched():
            producer = Producer(log, "p", buffer=buffer)
            producer.init()
            commit(machine, producer, (1, 2, 3), flush=True)
            look(machine, reader)
            producer.begin()
            producer.send("t", numbers(4), partition=0)
            producer.flush()
            look(machine, reader)
            producer.abort()
            machine.told(Aborted("t", (4,)))
            for value, ends in ((5, producer.commit), (6, producer.abort)):
                producer.begin()
                producer.send("t", numbers(value), partition=0)
                waits = Prepared(str(producer.prepare()), "t", (value,))
                machine.told(waits)
                look(machine, reader)
                machine.asked_otherwise(waits)
                ends()
                machine.told(Committed("t", (5,)) if value == 5 else Aborted("t", (6,)))
            look(machine, reader)
            producer.close()

    return scene


def idempotent(machine: Machine) -> None:
    log, reader = machine.open(), machine.open()
    make_topic(machine, log)
    with machine.watched():
        producer = Producer(log)
        producer.init()
        for value in (1, 2):
            producer.send("t", numbers(value), partition=0)
            producer.flush()
            machine.told(Committed("t", (value,)))
        producer.send("t", numbers(3), partition=0)
        producer.close()
        machine.told(Committed("t", (3,)))
        with BulkAppend(log) as bulk:
            bulk.send("t", numbers(4, 5), partition=0)
            bulk.commit()
        machine.told(Committed("t", (4, 5)))
        look(machine, reader)


def sealing(machine: Machine) -> None:
    log, reader = machine.open(), machine.open()
    make_topic(machine, log)
    with Producer(log, "p", buffer="inline") as producer:
        commit(machine, producer, (1, 2), flush=True)
        producer.begin()
        producer.send("t", numbers(3), partition=0)
        producer.flush()
        producer.abort()
        machine.told(Aborted("t", (3,)))
        commit(machine, producer, (4, 5))
    with machine.watched():
        look(machine, reader)
        log.maintain()
        look(machine, reader)
        look(machine, machine.open())


def hundred(machine: Machine) -> None:
    """The entry that is the hundredth, and the one after which a snapshot is due."""
    log, reader = machine.open(), machine.open()
    make_topic(machine, log)
    with Producer(log, "p") as producer:
        commit(machine, producer, (1, 2))
        while log.state.entry < 98:
            log.committer.commit(log.committer.intend(Write(app=AppRef("power", "other", log.state.entry))))
        with machine.watched():
            for value in (10, 20, 30, 40):
                commit(machine, producer, (value, value + 1))
                log.close()  # waits for what the background does
            look(machine, reader)
            look(machine, machine.open())


def groups(machine: Machine) -> None:
    log, reader = machine.open(), machine.open()
    make_topic(machine, log)
    make_topic(machine, log, "out")
    with Producer(log, "p") as producer:
        commit(machine, producer, (1, 2, 3))
        with machine.watched():
            consumer = Consumer(reader, group="g")
            consumer.subscribe(["t"])
            consumer.poll(timeout_ms=0, max_records=1)
            consumer.commit()
            machine.told(GroupAt("g", "t", 1))
            consumer.poll(timeout_ms=0, max_records=2)
            with producer.transaction() as transaction:
                transaction.send("out", numbers(7), partition=0)
                transaction.send_offsets(consumer)
            machine.told(Committed("out", (7,)), GroupAt("g", "t", 3))
            consumer.close()
            log.subscriptions.create("t", "s")
            machine.told(Acknowledged("t", "s", 0))
            subscription = Subscription(log, "t", "s")
            batch = subscription.receive(2, timeout_ms=0)
            assert batch is not None
            subscription.acknowledge(batch)
            machine.told(Acknowledged("t", "s", 2))
            look(machine, reader)


SCENES: dict[str, Callable[[Machine], None]] = {
    "creating": creating,
    **{f"transactions, {buffer}": _transactions(buffer) for buffer in BUFFERS},
    "idempotent": idempotent,
    "sealing": sealing,
    "hundred": hundred,
    "groups": groups,
}


# -- one process that dies, and the next one -----------------------------------------------------------------


class Victim:
    """A process that is at work when it dies."""

    def __init__(self, machine: Machine, calls: int, buffer: str) -> None:
        self.machine = machine
        self.log = machine.open()
        make_topic(machine, self.log)
        self.producer = Producer(self.log, "p", buffer=buffer)
        self.producer.init()
        commit(machine, self.producer, (1, 2))
        self._calls = calls

    def begin(self, value: int) -> None:
        self.producer.begin()
        self.producer.send("t", numbers(value), partition=0)
        self.producer.flush()

    def dies(self) -> None:
        """From now on the calls count."""
        self.machine.arm(self.log.store, self._calls)


def _commits(victim: Victim) -> None:
    victim.begin(3)
    victim.dies()
    victim.producer.commit()


def _flushes(victim: Victim) -> None:
    victim.producer.begin()
    victim.producer.send("t", numbers(3), partition=0)
    victim.dies()
    victim.producer.flush()


def _aborts(victim: Victim) -> None:
    victim.begin(3)
    victim.dies()
    victim.producer.abort()


def _prepares(victim: Victim) -> None:
    victim.begin(3)
    victim.dies()
    victim.producer.prepare()


def _commits_prepared(victim: Victim) -> None:
    victim.begin(3)
    victim.producer.prepare()
    victim.dies()
    victim.producer.commit()


def _takes_a_version(victim: Victim) -> None:
    victim.dies()
    victim.log.committer.commit(victim.log.committer.intend(Write(app=APP)))


def _alters(victim: Victim) -> None:
    victim.dies()
    victim.log.alter_topic("t", partitions=2)


def _seals(victim: Victim) -> None:
    victim.dies()
    victim.log.maintain("seal")


KILLED: dict[str, tuple[Callable[[Victim], None], tuple[str, ...]]] = {
    "commits": (_commits, BUFFERS),
    "flushes": (_flushes, BUFFERS),
    "aborts": (_aborts, BUFFERS),
    "prepares": (_prepares, BUFFERS),
    "commits what is prepared": (_commits_prepared, BUFFERS),
    "takes a version": (_takes_a_version, ("auto",)),
    "alters": (_alters, ("auto",)),
    "seals": (_seals, ("auto",)),
}


def kill_everywhere(
    name: str, buffer: str, new_machine: Callable[[str], Machine], every: int = 1
) -> Iterator[int]:
    """Kill a process before each ``every``-th system call of what it does; then the next one answers, and the
    power is cut.

    Yields the number of the call after each history.
    """
    calls = 1
    while True:
        machine = new_machine(f"{name} ({buffer}), killed before call {calls}")
        try:
            if name == "creates":
                has_died = _creates(machine, calls)
            else:
                has_died = _dies(machine, KILLED[name][0], buffer, calls)
            if not has_died:
                return
            with machine.watched():
                _answer(machine)
        finally:
            machine.close()
        yield calls
        calls += every


def _creates(machine: Machine, calls: int) -> bool:
    store = machine.store()
    machine.arm(store, calls)
    try:
        machine.open(store).create_topic("t", NUMBERS)
    except ProcessDied:
        return True
    machine.arm(store, None)
    return False


def _dies(machine: Machine, does: Callable[[Victim], None], buffer: str, calls: int) -> bool:
    victim = Victim(machine, calls, buffer)
    try:
        does(victim)
    except ProcessDied:
        return True
    machine.arm(victim.log.store, None)
    return False


def _answer(machine: Machine) -> None:
    """Answer, in a new process, everything that can be asked; then go on with the work."""
    log = machine.open()
    machine.told(Exists(log.log_id))
    look(machine, log)
    make_topic(machine, log)
    for epoch in range(4):
        try:
            outcome = log.outcome("p", epoch).outcome
        except NotFoundError:
            continue
        if outcome is not None:
            machine.told(Ended("p", epoch, outcome))
    log.committer.commit(log.committer.intend(Write(app=APP)))
    machine.told(AppVersion(APP))
    producer = Producer(log, "p")
    producer.init()
    if producer.prepared is not None:
        producer.commit()
        machine.told(Committed("t", (3,)))
    commit(machine, producer, (8, 9))
    look(machine, log)
    producer.close()
