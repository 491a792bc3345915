"""Pulsar's case about deleting the log of finished transactions."""

from __future__ import annotations

from tests.conformance.cases import case
from tests.integration.clients.failing import rows
from tests.integration.upkeep.truncation_world import TruncationWorld, entries_in
from txnlog import Producer


@case("MLTransactionMetadataStoreTest", "testDeleteLog")
def test_the_entries_of_finished_transactions_go_and_those_of_a_prepared_one_too_but_not_what_it_is() -> None:
    """The state has what is not decided; Pulsar keeps its log from the oldest open transaction on."""
    world = TruncationWorld()
    log = world.opened()
    producer = Producer(log, "prepared", buffer="inline")
    producer.init()
    producer.begin()
    producer.send("t", rows(5_000), partition=0)
    token = producer.prepare()
    began = log.state.entry
    world.grow(log, range(6_000, 6_300))
    world.age()
    world.truncate()
    world.truncate()
    assert entries_in(world.store)[0] > began
    again = world.opened()
    assert {name: one.status.value for name, one in again.state.transactional_ids.items()} == {
        "etl": "CompleteCommit",
        "prepared": "Prepared",
    }
    again.commit_prepared(token)
    numbers = again.read("t").read_all()["n"].to_pylist()
    assert numbers.count(5_000) == 1
    assert set(range(6_000, 6_300)) <= set(numbers)
