"""Azure passes the suite of all stores on Azurite, and real races have one winner."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.conformance.store_races import race
from tests.rounds import rounds
from txnformat.store.base import ObjectStore
from txnformat.store.open import open_store
from txnlog_testing.stores.azurite import AzureServer, azurite_program, azurite_server
from txnlog_testing.stores.conformance import StoreConformance

if azurite_program() is None:
    pytest.skip("Azurite is not here: see scripts/find-azurite", allow_module_level=True)

_numbers = itertools.count()


@pytest.fixture(scope="module")
def azurite() -> Iterator[AzureServer]:
    with azurite_server() as server:
        yield server


class TestAzurite(StoreConformance):
    # It answers one request at a time, in some milliseconds each: the race of processes has the many.
    races = 5

    @pytest.fixture
    def store(self, azurite: AzureServer) -> ObjectStore:
        return open_store(
            azurite.url(f"root-{next(_numbers)}/below"), storage_options=azurite.storage_options
        )


class TestAzuriteByHadoopsName(StoreConformance):
    races = 1

    @pytest.fixture
    def store(self, azurite: AzureServer) -> ObjectStore:
        url = azurite.url(f"root-{next(_numbers)}/below", "abfss")
        return open_store(url, storage_options=azurite.storage_options)


def test_slots_have_one_winner_each_of_many_processes(azurite: AzureServer) -> None:
    """16 processes and 1,000 slots with all rounds."""
    store = open_store(azurite.url("race"), storage_options=azurite.storage_options)
    race(store, azurite.environment, racers=rounds(4, 16), slots=rounds(30, 1_000))
