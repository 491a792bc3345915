"""S3 passes the suite of all stores on two servers, and real races have one winner."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from txnformat.keys import entry_key
from txnformat.store.base import ObjectStore
from txnformat.store.open import open_store
from txnlog_testing.stores.conformance import StoreConformance
from txnlog_testing.stores.create_race import slot_bytes
from txnlog_testing.stores.s3_server import S3Server, moto_server, seaweedfs_server

ROOT = Path(__file__).resolve().parents[2]
RACERS = 8

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
    # It waits for its lock of the object in steps of a second: fewer races here, the process race has the many.
    races = 5
    # It keeps keys in directories and sorts a directory by its name without the slash. So a listing that starts at that
    # name, or at one between it and the slash ("b-" < "b/"), passes over all keys below. The log lists flat directories
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


def test_two_hundred_slots_have_one_winner_each_of_eight_processes_on_seaweedfs(seaweedfs: S3Server) -> None:
    _race(seaweedfs, 200)


def test_forty_slots_have_one_winner_each_of_eight_processes_on_moto(moto: S3Server) -> None:
    _race(moto, 40)


def _race(server: S3Server, slots: int) -> None:
    """Let many processes create the same slots, each with its own connection, and read all of them back."""
    environment = {
        **os.environ,
        "AWS_ACCESS_KEY_ID": server.key,
        "AWS_SECRET_ACCESS_KEY": server.secret,
        "AWS_ENDPOINT_URL_S3": server.endpoint_url,
        "AWS_REGION": "us-east-1",
    }
    url = server.url("race")
    racers = [
        subprocess.Popen(
            [sys.executable, "-m", "txnlog_testing.stores.create_race", url, str(number), str(slots)],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(RACERS)
    ]
    try:
        for racer in racers:
            assert racer.stdout is not None
            assert racer.stdout.readline() == "ready\n"
        for racer in racers:
            assert racer.stdin is not None
            racer.stdin.write("go\n")
            racer.stdin.flush()
        answers = [racer.communicate(timeout=300)[0].strip() for racer in racers]
    finally:
        for racer in racers:
            racer.kill()
            racer.communicate()

    store = open_store(url, storage_options=server.storage_options)
    assert [len(answer) for answer in answers] == [slots] * RACERS
    for slot in range(slots):
        letters = [answer[slot] for answer in answers]
        # A store may also say that another creator was in the way (409): nobody then knows before reading it back.
        assert letters.count("C") == 1, (slot, Counter(letters))
        assert set(letters) <= {"C", "E", "A"}, (slot, Counter(letters))
        assert store.get(entry_key(slot)) == slot_bytes(letters.index("C"), slot), slot
    assert len(store.list("")) == slots
