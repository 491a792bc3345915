"""``txnlog import kafka`` and ``txnlog export kafka`` with a real broker: what they print, and their exit
codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.kafka.broker import Broker
from txnlog import Producer, TxnLog
from txnlog.cli.app import run

Name = Callable[[], str]


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    capsys.readouterr()
    code = run(arguments)
    return (code, *capsys.readouterr())


def test_a_topic_comes_in_and_goes_out(
    broker: Broker,
    log: TxnLog,
    name: Name,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TXNLOG_ROOT", log.url.removeprefix("file://"))
    monkeypatch.setenv("TXNLOG_KAFKA_SERVERS", broker.bootstrap)
    topic = broker.create_topic(name())
    producer = broker.producer()
    for number in range(3):
        producer.produce(topic, f"v{number}".encode())
    producer.flush(60)
    code, out, err = answer(capsys, "import", "kafka", f"{topic}=here")
    assert (code, "imported 3 records in 1 commit" in out + err) == (0, True), (out, err)
    code, out, err = answer(capsys, "import", "kafka", f"{topic}=here", "--json")
    document = json.loads(out)
    assert (code, document["records"], document["positions"]) == (0, 0, {topic: {"0": 3}})
    code, out, err = answer(capsys, "export", "kafka", f"here={topic}-out", "--group", topic)
    assert (code, "kind: unknown-kafka-topic" in err) == (3, True)
    code, out, err = answer(capsys, "export", "kafka", f"here={topic}-out", "--group", topic, "--create")
    assert (code, "exported 3 records in 1 transaction of Kafka" in out + err) == (0, True), (out, err)
    code, out, err = answer(capsys, "export", "kafka", f"here={topic}-out", "--group", topic, "--json")
    assert (code, json.loads(out)["records"]) == (0, 0)
    assert [one.value() for one in broker.records(f"{topic}-out")] == [b"v0", b"v1", b"v2"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["import", "kafka"],
        ["import", "kafka", "=x"],
        ["import", "kafka", "a", "a"],
        ["import", "kafka", "a", "--partitions", "0-1"],
        ["export", "kafka", "a", "--partitions", "0:1,0:2"],
        ["export", "kafka", "a", "--start", "middle"],
        ["import", "kafka", "a", "--records-per-second", "0"],
        ["import", "kafka", "a"],
    ],
)
def test_what_cannot_be_meant_is_bad_input(
    log: TxnLog, capsys: pytest.CaptureFixture[str], arguments: Sequence[str]
) -> None:
    code, _, err = answer(capsys, *arguments, "--root", log.url.removeprefix("file://"))
    assert code == 2, err
    assert "Traceback" not in err


def test_ctrl_c_ends_an_import_that_follows_and_keeps_what_is_committed(
    broker: Broker, log: TxnLog, name: Name
) -> None:
    topic = broker.create_topic(name())
    producer = broker.producer()
    producer.produce(topic, b"v")
    producer.flush(60)
    root = log.url.removeprefix("file://")
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "txnlog",
            "import",
            "kafka",
            topic,
            "--follow",
            "-r",
            root,
            "-b",
            broker.bootstrap,
            "--commit-interval-ms",
            "1",
        ],
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        while process.poll() is None and "kafka-import" not in log.refresh().groups:
            pass
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=120)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130, out
    assert "run the same command again to continue" in out
    assert log.read(topic).read_all().num_rows == 1


def test_an_export_needs_the_topic(log: TxnLog, capsys: pytest.CaptureFixture[str]) -> None:
    with Producer(log):
        code, _, err = answer(
            capsys, "export", "kafka", "none", "-b", "127.0.0.1:1", "-r", log.url.removeprefix("file://")
        )
    assert (code, "kind: unknown-topic" in err) == (3, True)
