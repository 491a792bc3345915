"""S3 passes the suite of all stores on two servers, and real races have one winner."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.conformance.store_races import race
from tests.rounds import rounds
from txnformat.store.base import ObjectStore
from txnformat.store.open import open_store
from txnlog_testing.stores.conformance import StoreConformance
from txnlog_testing.stores.s3_server import S3Server, moto_server, seaweedfs_server

_numbers = itertools.count()


@pytest.fixture(scope="module")
def seaweedfs() -> Iterator[S3Server]:
    with seaweedfs_server() as server:
        yield server


@pytest.fixture(scope="module")
def moto() -> Iterator[S3Server]:
    with moto_server() as server:
        yield server


class TestSeaweedFS(StoreConformance):
    # It waits for its lock of the object in steps of a second: fewer races here, the process race has the
    # many.
    races = 5
    # It keeps keys in directories and sorts a directory by its name without the slash. So a listing that
    # starts at that
    # name, or at one between it and the slash ("b-" < "b/"), passes over all keys below. The log lists flat
    # directories
    # after one of their objects.
    skipped_marks = frozenset({"t/b", "t/b-"})

    @pytest.fixture
    def store(self, seaweedfs: S3Server) -> ObjectStore:
        return _store(seaweedfs)


class TestMoto(StoreConformance):
    @pytest.fixture
    def store(self, moto: S3Server) -> ObjectStore:
        return _store(moto)


def _store(server: S3Server) -> ObjectStore:
    root = server.url(f"root-{next(_numbers)}/below")
    return open_store(root, storage_options=server.storage_options)


def test_slots_have_one_winner_each_of_many_processes_on_seaweedfs(seaweedfs: S3Server) -> None:
    """16 processes and 1,000 slots with all rounds."""
    _race(seaweedfs, racers=rounds(8, 16), slots=rounds(200, 1_000))


def test_slots_have_one_winner_each_of_many_processes_on_moto(moto: S3Server) -> None:
    _race(moto, racers=8, slots=40)


def _race(server: S3Server, *, racers: int, slots: int) -> None:
    environment = {
        "AWS_ACCESS_KEY_ID": server.key,
        "AWS_SECRET_ACCESS_KEY": server.secret,
        "AWS_ENDPOINT_URL_S3": server.endpoint_url,
        "AWS_REGION": "us-east-1",
    }
    store = open_store(server.url("race"), storage_options=server.storage_options)
    race(store, environment, racers=racers, slots=slots)
