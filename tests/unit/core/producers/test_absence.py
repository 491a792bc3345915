"""Natural keys decide where the window of intent ids does not reach: never twice, and no producer is
stuck.
"""

from __future__ import annotations

import pytest

from tests.unit.core.memory_log import COMMIT, NOW_MS, ORDERS, Log, idempotent, opened, rows
from txnformat.core.decide import decide
from txnformat.core.intents import (
    Action,
    AllocateIds,
    AppRef,
    Done,
    EndTransaction,
    ExpireIdle,
    Included,
    Intent,
    LeaveGroup,
    OpenProducer,
    ProducerRef,
    Rejected,
    TakeCheckpoint,
    Undecidable,
    Verdict,
    Write,
)
from txnformat.core.operations import Cause, Checkpoint, Expire
from txnformat.core.producers.state import WINDOW_APPENDS
from txnformat.core.state import INTENT_WINDOW_ENTRIES, IntentWindow
from txnformat.errors import (
    ConflictError,
    OutOfOrderSequenceError,
    ProducerFencedError,
    ProducerIdConflictError,
    TransactionTimedOutError,
    UnknownProducerIdError,
)
from txnformat.keys import snapshot_key
from txnformat.persistent import replace
from txnformat.types import Outcome
from txnlog_testing.strategies import make_topic

LATE = INTENT_WINDOW_ENTRIES + 7


def long_after(log: Log, action: Action) -> Verdict:
    """Decide an intent that was first sent to slot 0, when the window has moved on."""
    window = IntentWindow(LATE, ())
    return decide(replace(log.state, window=window), Intent("long ago", 0, action))


def refused(verdict: Verdict) -> type[Exception]:
    assert isinstance(verdict, Rejected), verdict
    return type(verdict.error)


def test_an_idempotent_append_is_decided_by_its_sequences() -> None:
    """New numbers: it is not there, and goes in. Known numbers: it is there. Both however long ago it was
    sent."""
    log, producer = idempotent()
    first = Write(producer, rows(0))
    assert isinstance(long_after(log, first), Included)
    log.commit(first)
    entry = log.state.entry
    verdict = long_after(log, first)
    assert isinstance(verdict, Done)
    assert verdict.entry == entry
    assert isinstance(long_after(log, Write(producer, rows(2))), Included)


def test_an_append_that_is_older_than_the_remembered_ones_is_not_decided() -> None:
    """Five later appends: the log cannot tell whether it holds the one before; all others it can."""
    log, producer = idempotent()
    writes = [Write(producer, rows(2 * number, content=f"{number}")) for number in range(WINDOW_APPENDS + 1)]
    for write in writes:
        log.commit(write)
    assert long_after(log, writes[0]) == Undecidable(LATE)
    for write in writes[1:]:
        assert isinstance(long_after(log, write), Done)
    assert refused(long_after(log, Write(producer, rows(2, content="other")))) is ProducerIdConflictError
    assert refused(long_after(log, Write(producer, rows(3)))) is OutOfOrderSequenceError
    assert refused(long_after(log, Write(producer, rows(1)))) is OutOfOrderSequenceError
    assert refused(long_after(log, Write(producer, rows(99)))) is OutOfOrderSequenceError
    assert long_after(log, Write(producer, rows(0, 1))) == Undecidable(LATE)


def test_one_partition_that_lacks_an_append_decides_for_all() -> None:
    """An intent is applied whole: if one of its partitions does not know it, none does because of it. So it
    is refused, not unknown."""
    log, producer = idempotent()
    log.commit(Write(producer, rows(0)))
    verdict = long_after(log, Write(producer, rows(0, 2, "rows", 0, 1)))
    assert refused(verdict) is OutOfOrderSequenceError


def test_a_producer_that_was_forgotten_proves_nothing() -> None:
    log, producer = idempotent()
    write = Write(producer, rows(0))
    log.commit(write)
    log.commit(ExpireIdle(Expire((), (producer.producer_id,), ()), NOW_MS + 10**9, 0))
    assert producer.producer_id not in log.state.producers
    assert long_after(log, write) == Undecidable(LATE)
    assert long_after(log, Write(producer, rows(2))) == Undecidable(LATE)


def test_a_producer_that_never_appended_is_told_so() -> None:
    log, producer = idempotent()
    assert refused(long_after(log, Write(producer, rows(4)))) is UnknownProducerIdError


def test_an_append_to_a_topic_that_somebody_else_made_is_looked_for_there() -> None:
    """It landed under the other's topic id, and must not land again."""
    log, producer = idempotent()
    mine = make_topic("orders", 1)
    append = replace(rows(0)[0], topic_id=mine.topic_id)
    write = Write(producer, (append,), create=(mine,))
    assert isinstance(log.commit(write), Included)
    entry = log.state.entry
    verdict = long_after(log, write)
    assert isinstance(verdict, Done)
    assert verdict.entry == entry
    for number in range(1, WINDOW_APPENDS + 1):
        log.commit(Write(producer, rows(2 * number)))
    assert long_after(log, write) == Undecidable(LATE)


def test_an_end_of_the_current_epoch_is_not_there() -> None:
    log, producer = opened()
    one_shot = Write(producer, rows(0), end=COMMIT)
    assert isinstance(long_after(log, one_shot), Included)
    log.commit(one_shot)
    entry = log.state.entry
    assert long_after(log, one_shot) == Done(entry)
    after = log.producer()
    log.commit(Write(after, rows(0, content="later"), end=COMMIT))
    assert long_after(log, one_shot) == Undecidable(LATE), "a later end has taken the place of its answer"
    assert refused(long_after(log, Write(after, rows(0), end=Outcome.ABORT))) is not ProducerFencedError


def test_an_end_that_another_end_forestalled_is_not_there() -> None:
    """A timeout, or a newer instance, has ended the epoch: that is certain, and told."""
    log, producer = opened()
    log.commit(Write(producer, rows(0)))
    expires_ms = log.state.transactional_ids["etl"].expires_ms
    timeout = EndTransaction("etl", producer.producer_id, producer.epoch, Cause.TIMEOUT, expires_ms)
    assert isinstance(long_after(log, timeout), Included)
    log.commit(timeout)
    assert isinstance(long_after(log, timeout), Done)
    assert refused(long_after(log, Write(producer, end=COMMIT))) is TransactionTimedOutError
    log, producer = opened()
    log.commit(Write(producer, rows(0)))
    log.commit(OpenProducer("etl"))
    assert refused(long_after(log, Write(producer, rows(2), end=COMMIT))) is ProducerFencedError
    assert long_after(log, Write(producer, rows(2))) == Undecidable(LATE)


def test_what_was_to_be_done_in_an_epoch_that_was_left_without_an_end_is_not_there() -> None:
    log, producer = opened()
    log.commit(OpenProducer("etl"))
    assert refused(long_after(log, Write(producer, rows(0)))) is ProducerFencedError


def test_a_version_alone_begins_no_transaction_whose_end_could_be_missed() -> None:
    log, producer = opened()
    version = Write(producer, app=AppRef("spark-batch", "job", 0))
    log.commit(version)
    log.commit(OpenProducer("etl"))
    newer = ProducerRef(producer.producer_id, producer.epoch + 1, "etl")
    log.commit(Write(newer, app=AppRef("spark-batch", "job", 1)))
    assert long_after(log, version) == Undecidable(LATE)


def test_in_a_transaction_sequences_and_preparation_decide() -> None:
    log, producer = opened()
    flush = Write(producer, rows(0))
    assert isinstance(long_after(log, flush), Included)
    log.commit(flush)
    assert isinstance(long_after(log, flush), Done)
    prepare = Write(producer, prepare=True)
    assert isinstance(long_after(log, prepare), Included)
    log.commit(prepare)
    assert isinstance(long_after(log, prepare), Done)
    log.commit(Write(producer, end=COMMIT))
    assert long_after(log, flush) == Undecidable(LATE)
    assert long_after(log, prepare) == Undecidable(LATE)


def test_a_transactional_id_that_is_another_by_now_proves_nothing() -> None:
    log, _ = opened()
    assert long_after(log, Write(ProducerRef(99, 0, "etl"), rows(0), end=COMMIT)) == Undecidable(LATE)
    assert long_after(log, Write(ProducerRef(99, 0, "gone"), rows(0), end=COMMIT)) == Undecidable(LATE)


def test_application_versions_decide() -> None:
    log = Log(ORDERS)
    write = Write(appends=rows(-1), app=AppRef("spark-batch", "job", 3))
    assert isinstance(long_after(log, write), Included)
    log.commit(write)
    assert isinstance(long_after(log, write), Done)
    log.commit(Write(appends=rows(-1, content="next"), app=AppRef("spark-batch", "job", 4)))
    assert long_after(log, write) == Undecidable(LATE)


def test_topics_checkpoints_and_generations_decide() -> None:
    log = Log(ORDERS)
    assert long_after(log, ORDERS) == Done(log.state.topics[ORDERS.topic_id].created_entry)
    assert refused(long_after(log, make_topic("orders", 1))) is ConflictError
    assert isinstance(long_after(log, make_topic("audit")), Included)
    taken = TakeCheckpoint(Checkpoint(0, snapshot_key(0, ORDERS.topic_id), 1, "0" * 64, "0" * 64))
    assert isinstance(long_after(log, taken), Included)
    log.commit(taken)
    assert long_after(log, taken) == Undecidable(LATE)
    assert refused(long_after(log, LeaveGroup("nobody", 3))) is ConflictError


@pytest.mark.parametrize("action", [AllocateIds("process"), OpenProducer("etl"), Write(appends=rows(-1))])
def test_without_a_natural_key_the_window_decides(action: Action) -> None:
    log, _ = opened()
    assert long_after(log, action) == Undecidable(LATE)
