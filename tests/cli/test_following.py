"""consume --follow and consume --group: a consumer on the command line."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.cli.conftest import PROGRAM, Command
from txnlog import Consumer, Producer, TxnLog

SCHEMA = pa.schema([("id", pa.int64()), ("note", pa.string())])


@pytest.fixture
def topic(log: TxnLog) -> TxnLog:
    """A log with a topic of two partitions and two records."""
    log.create_topic("t", SCHEMA, partitions=2)
    send(log, 1, 2)
    return log


def send(log: TxnLog, *ids: int, partition: int = 0) -> None:
    with Producer(log) as producer:
        producer.send("t", [{"id": one, "note": f"n{one}"} for one in ids], partition=partition)


@contextmanager
def consuming(*options: object) -> Iterator[subprocess.Popen[bytes]]:
    """Give a process that consumes, and kill it at the end."""
    command = [*PROGRAM, "consume", "t", *map(str, options)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def line(process: subprocess.Popen[bytes]) -> Any:
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


def committed(log: TxnLog, group: str, partition: int = 0) -> int | None:
    with Consumer(log, group) as consumer:
        consumer.assign([("t", partition)])
        return consumer.committed("t", partition)


def test_following_prints_what_comes_until_it_is_interrupted(topic: TxnLog) -> None:
    with consuming("--follow") as process:
        assert [line(process), line(process)] == [{"id": 1, "note": "n1"}, {"id": 2, "note": "n2"}]
        send(topic, 3, partition=1)
        assert line(process) == {"id": 3, "note": "n3"}
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=300)
    assert (process.returncode, out, err) == (0, b"", b"")


@pytest.mark.parametrize(
    ("is_replaced", "code", "kind"), [(False, 3, b"log-gone"), (True, 4, b"log-replaced")]
)
def test_a_log_that_is_gone_or_replaced_ends_the_following(
    topic: TxnLog, root: Path, is_replaced: bool, code: int, kind: bytes
) -> None:
    with consuming("--follow") as process:
        assert [line(process)["id"], line(process)["id"]] == [1, 2]
        root.rename(root.with_name("aside"))
        if is_replaced:
            TxnLog.create(root)
        out, err = process.communicate(timeout=300)
    assert (process.returncode, out) == (code, b"")
    assert err.count(b"txnlog: ") == 1
    assert b"kind: " + kind in err


def test_a_topic_that_is_deleted_ends_the_following(topic: TxnLog) -> None:
    topic.upgrade()
    with consuming("--follow") as process:
        assert [line(process)["id"], line(process)["id"]] == [1, 2]
        topic.delete_topic("t")
        out, err = process.communicate(timeout=300)
    assert (process.returncode, out) == (3, b"")
    assert b"the topic of the consumer was deleted" in err
    assert b"subscription" not in err


def test_an_open_transaction_holds_back_what_is_followed(topic: TxnLog) -> None:
    with Producer(topic, transactional_id="slow", buffer="inline") as slow:
        slow.begin()
        slow.send("t", [{"id": 7, "note": None}], partition=0)
        slow.flush()
        send(topic, 8)
        with consuming("-f", "--columns", "id", "--where", "id > 2") as process:
            with consuming("-f", "--isolation", "read_uncommitted", "--columns", "id,_offset") as dirty:
                assert [line(dirty)["id"] for _ in range(4)] == [1, 2, 7, 8]
            slow.abort()
            assert line(process) == {"id": 8}


def test_columns_that_a_topic_gets_are_followed(topic: TxnLog) -> None:
    with consuming("-f", "--from", "0:1") as process:
        assert line(process) == {"id": 2, "note": "n2"}
        topic.alter_topic("t", add_columns=[pa.field("more", pa.float64())])
        with Producer(topic) as producer:
            producer.send("t", [{"id": 3, "note": None, "more": 0.5}], partition=0)
        assert line(process) == {"id": 3, "note": None, "more": 0.5}


def test_a_group_goes_on_where_it_has_committed(topic: TxnLog, txnlog: Command) -> None:
    assert [row["id"] for row in txnlog("consume", "t", "--group", "g").lines] == [1, 2]
    assert txnlog("consume", "t", "--group", "g").out == ""
    send(topic, 3, 4, 5)
    cut = txnlog("consume", "t", "-g", "g", "--limit", 1, "--where", "id > 3", "--metadata")
    assert [(row["id"], row["_offset"]) for row in cut.lines] == [(4, 3)]
    assert committed(topic, "g") == 4, "records behind the limit are for the next reader"
    answer = txnlog("consume", "t", "-g", "g", "--format", "csv")
    assert answer.out == '"id","note"\n5,"n5"\n'
    assert txnlog("consume", "t", "-g", "h", "-p", 1).out == ""


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_commits_what_is_printed(topic: TxnLog, ending: signal.Signals) -> None:
    with consuming("--follow", "--group", "g") as process:
        assert [line(process)["id"], line(process)["id"]] == [1, 2]
        send(topic, 3)
        assert line(process)["id"] == 3
        process.send_signal(ending)
        assert process.wait(300) == 0
    # The interrupt may come between the output and the note that it is written: then the record is printed
    # again.
    assert committed(topic, "g") in (2, 3)


def test_a_killed_reader_loses_nothing(topic: TxnLog, txnlog: Command) -> None:
    with consuming("--follow", "--group", "g") as process:
        assert [line(process)["id"], line(process)["id"]] == [1, 2]
        process.send_signal(signal.SIGKILL)
        process.wait(300)
    assert [row["id"] for row in txnlog("consume", "t", "--group", "g").lines] in ([1, 2], [])


def test_output_that_nobody_takes_is_not_committed(topic: TxnLog, txnlog: Command) -> None:
    send(topic, *range(3, 50_000))
    with consuming("--group", "g") as process:
        assert line(process)["id"] == 1
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(300) == 141
    again = txnlog("consume", "t", "--group", "g", "--limit", 1).lines
    assert again[0]["id"] <= 10_001, "at most whole batches that were written are committed"


def test_a_newer_reader_of_the_group_fences_the_older(topic: TxnLog, txnlog: Command) -> None:
    with consuming("--follow", "--group", "g", "--json") as process:
        assert [line(process)["id"], line(process)["id"]] == [1, 2]
        assert txnlog("consume", "t", "--group", "g").code == 0
        send(topic, 3)
        _, err = process.communicate(timeout=300)
    assert json.loads(err)["error"]["kind"] == "member-fenced"
    assert process.returncode not in (0, 130)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--follow", "--to", 3], "--to"),
        (["--follow", "--version-as-of", 3], "--version-as-of"),
        (["--group", "g", "--timestamp-as-of", "2026-01-01"], "--timestamp-as-of"),
        (["--follow", "--format", "table"], "--format table"),
        (["--group", "g", "-o", "x.json"], "--output"),
        (["--follow", "--isolation", "snapshot"], "--isolation snapshot"),
        (["--group", "g", "--from", 3], "reset-offsets"),
    ],
)
def test_what_a_consumer_does_not_do(
    topic: TxnLog, txnlog: Command, options: list[object], named: str
) -> None:
    entry = topic.refresh().entry
    answer = txnlog("consume", "t", *options, "--json")
    assert (answer.code, answer.error["kind"]) == (2, "usage")
    assert named in answer.error["message"]
    assert topic.refresh().entry == entry


def test_bad_names_say_so(topic: TxnLog, txnlog: Command, root: Path) -> None:
    assert txnlog("consume", "t", "--group", "a/b", "--json").error["kind"] == "invalid-settings"
    assert txnlog("consume", "t", "-f", "--columns", "nope", "--json").error["kind"] == "unknown-column"
    assert txnlog("consume", "t", "-f", "-p", 9, "--json").error["class"] == "NotFoundError"
    assert txnlog("consume", "t", "-f", "--where", "nope = 1", "--json").error["kind"] == "invalid-where"
