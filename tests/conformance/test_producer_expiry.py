"""ProducerStateManagerTest and UnifiedLogTest: producers that were idle for long are forgotten."""

from __future__ import annotations

from tests.conformance.cases import case
from tests.conformance.chain import COMMIT, Chain
from txnformat.core.intents import AllocateIds, Done, ProducerRef, Write
from txnformat.core.lifecycle.idle import PRODUCER_RETENTION_MS, TRANSACTIONAL_ID_RETENTION_MS, expirable
from txnformat.errors import UnknownProducerIdError

IDLE, BUSY = ProducerRef(1, 0), ProducerRef(2, 0)


def idle_names(chain: Chain) -> tuple[list[int], list[str]]:
    """Return the producers and the transactional ids that can be forgotten now."""
    action = expirable(chain.state, chain.now_ms)
    return (
        ([], []) if action is None else (list(action.expire.producers), list(action.expire.transactional_ids))
    )


def expire(chain: Chain) -> tuple[list[int], list[str]]:
    """Forget what can be, and return it."""
    found = idle_names(chain)
    action = expirable(chain.state, chain.now_ms)
    assert action is not None
    chain.do(action)
    return found


def idle() -> Chain:
    """Return a log in which one producer has appended, and another one a day later."""
    chain = Chain("etl")
    chain.do(AllocateIds("process"), chain.write(BUSY, 1), chain.write(IDLE, 2))
    used_ms = chain.state.timestamp_ms
    chain.now_ms = used_ms + PRODUCER_RETENTION_MS - 1
    chain.do(chain.write(BUSY, 1))
    assert idle_names(chain)[0] == [], "a day is not over"
    chain.now_ms = used_ms + 2 * PRODUCER_RETENTION_MS
    assert idle_names(chain)[0] == [], "nor by log time: a reader's clock alone forgets nobody"
    chain.now_ms = used_ms + PRODUCER_RETENTION_MS + 1
    chain.do(chain.write(None, 1))
    return chain


@case("ProducerStateManagerTest", "testPidExpirationTimeout")
@case("UnifiedLogTest", "testPeriodicProducerIdExpiration")
def test_a_producer_that_appended_nothing_for_a_day_is_forgotten_and_refused_from_then_on() -> None:
    """Kafka takes it back as new, at any sequence: then what it repeats is there twice."""
    chain = idle()
    again = chain.write(IDLE, 2, sequence=0, content="again")
    assert expire(chain) == ([1], [])
    assert set(chain.partition().sequences) == {(2, 0)}
    assert set(chain.state.producers) == {2}
    for write in (again, chain.write(IDLE, 1, sequence=2)):
        assert isinstance(chain.refusal(write), UnknownProducerIdError)
    chain.do(chain.write(BUSY, 1))
    assert chain.offsets() == list(range(chain.partition().log_end)), "records stay"


@case("ProducerStateManagerTest", "testRemoveExpiredPidsOnReload")
def test_what_is_forgotten_is_forgotten_after_a_reload_and_nothing_else_is() -> None:
    chain = idle()
    assert expire(chain) == ([1], [])
    chain.do(chain.write(BUSY, 1))
    for entry in range(len(chain.entries)):
        partition = chain.reopened(entry).partition(next(iter(chain.state.partitions)))
        assert set(partition.sequences) == {(2, 0)}, (
            "an entry says who is forgotten, not the time of the reload"
        )
    chain.check_reopening()


@case("ProducerStateManagerTest", "testProducersWithOngoingTransactionsDontExpire")
def test_an_open_transaction_keeps_its_producer_and_its_window_however_long_it_is_idle() -> None:
    chain = Chain("etl")
    producer = chain.producer("etl")
    append = chain.write(producer, 2)
    chain.do(append)
    chain.now_ms += 2 * TRANSACTIONAL_ID_RETENTION_MS
    chain.do(chain.write(None, 1))
    assert idle_names(chain) == ([], [])
    assert chain.partition().open == {(0, 0): 0}
    assert isinstance(chain.decide(append), Done)
    chain.do(Write(producer, end=COMMIT))
    ended_ms = chain.state.timestamp_ms
    assert idle_names(chain) == ([], []), "its end was its last use"
    chain.now_ms = ended_ms + TRANSACTIONAL_ID_RETENTION_MS
    chain.do(chain.write(None, 1))
    assert expire(chain) == ([], ["etl"])
    assert chain.state.transactional_ids == {}
