"""Imports and exports that are killed, and a broker: nothing is lost, nothing doubled. ``make kafka-kills``
kills 100 times."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kafka.broker import Broker
from tests.kafka.kills import (
    PARTITIONS,
    PATIENCE_MS,
    Story,
    export_story,
    fill_broker,
    fill_log,
    import_story,
    rows,
)
from tests.kafka.workers import Job, Nursery
from tests.rounds import rounds
from txnlog import TxnLog

Name = Callable[[], str]


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as found:
        yield found


@pytest.mark.parametrize("story", [import_story, export_story], ids=["import", "export"])
def test_workers_are_killed(
    story: Callable[..., Story], broker: Broker, nursery: Nursery, tmp_path: Path, name: Name
) -> None:
    found = story(broker, nursery, tmp_path, name(), 7, rounds(2, 50))
    assert found.problems == []
    assert found.records > 0


def test_the_broker_is_killed_beneath_both(
    broker: Broker, nursery: Nursery, tmp_path: Path, name: Name
) -> None:
    topic, log, rng = (
        broker.create_topic(name(), PARTITIONS),
        TxnLog.create(tmp_path / "log"),
        random.Random(3),
    )
    out = name()
    fill_broker(broker, topic, 0, rng)
    log.create_topic(out, "kafka", partitions=PARTITIONS)
    fill_log(log, out, 0, rng)
    import_settings = {"records_per_second": 100, "commit_interval_ms": 100, "patience_ms": PATIENCE_MS}
    bring = Job("import", log.url, broker.bootstrap, {topic: topic}, settings=import_settings)
    send = Job(
        "export",
        log.url,
        broker.bootstrap,
        {out: out},
        settings={"batch_records": 2, "create": True, "patience_ms": PATIENCE_MS},
    )
    with Nursery() as second:
        nursery.start(bring)
        second.start(send)
        deadline = time.monotonic() + 120
        while not {"kafka-import", "kafka-export"} <= log.refresh().groups.keys():  # both have begun
            assert time.monotonic() < deadline
            time.sleep(0.01)
        broker.kill()
        broker.start()
        assert (nursery.end(), second.end()) == (0, 0)
    assert [(one.partition(), one.value()) for one in broker.records(topic)] == rows(log, topic)
    assert [(one.partition(), one.value()) for one in broker.records(out)] == rows(log, out)
