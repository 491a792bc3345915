"""One broker for all tests of Kafka, which are one piece for one worker; and a log for each test."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kafka.broker import Broker
from txnlog import TxnLog


@pytest.fixture(scope="session")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Runs as long as the tests. A machine without Java, or without the jars, fails them: none is skipped."""
    with Broker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


@pytest.fixture
def broker(shared_broker: Broker) -> Broker:
    """The broker, running whatever the test before did to it."""
    if not shared_broker.is_running:
        shared_broker.start()
    return shared_broker


@pytest.fixture
def log(tmp_path: Path) -> TxnLog:
    return TxnLog.create(tmp_path / "log")


_numbers = itertools.count()


@pytest.fixture
def name() -> Callable[[], str]:
    """Gives names of topics that no other test has."""
    return lambda: f"topic-{next(_numbers)}"
