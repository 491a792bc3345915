"""No history of writers, whatever goes wrong, leaves a transaction that nobody can end."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.property.random_writer import Writer
from tests.rounds import rounds
from txnformat.core.transactions.hanging import find_hanging
from txnformat.core.transactions.listing import describe_producers, describe_transaction, list_transactions
from txnformat.types import TopicPartition
from txnlog_testing.strategies import HISTORY_GROUPS_MAX, OPENING, Command, groups


@settings(
    max_examples=rounds(10, 50), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(groups, st.lists(st.integers(0, 200_000), min_size=HISTORY_GROUPS_MAX, max_size=HISTORY_GROUPS_MAX))
def test_nothing_hangs_and_the_views_agree_with_each_other(
    history: list[list[Command]], steps: list[int]
) -> None:
    writer = Writer()
    for group in OPENING:
        writer.commit(group, 1)
    for group, step in zip(history, steps, strict=False):
        writer.commit(group, step)
        state = writer.state
        now_ms = state.timestamp_ms + 365 * 24 * 3_600_000
        report = find_hanging(state, now_ms, max_transaction_timeout_ms=0)
        assert report.hanging == ()
        held = {(one.topic, one.partition, one.start_offset): one for one in report.held}
        is_open = {
            (topic.name, number, start): transaction
            for topic in state.topics.values()
            for number in range(topic.partitions)
            for transaction, start in state.partition(TopicPartition(topic.topic_id, number)).open.items()
        }
        assert held.keys() == is_open.keys(), "a year later every open transaction is late"
        for name in state.undecided:
            for part in describe_transaction(state, name, now_ms).partitions:
                if part.start_offset is not None:
                    one = held[part.topic, part.partition, part.start_offset]
                    assert (one.transactional_id, one.holds_back) == (name, part.holds_back)
        assert {one.transactional_id for one in list_transactions(state, now_ms, min_duration_ms=0)} == (
            state.undecided
        )
        for topic, number, start in held:
            producers = describe_producers(state, topic, number)
            assert start in [one.current_transaction_start_offset for one in producers]
            assert all(one.last_timestamp_ms is not None for one in producers)
