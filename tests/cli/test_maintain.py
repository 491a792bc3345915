"""maintain: every task by its policy, once or as a service; and the settings of topics that it follows."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pyarrow as pa
import pytest

from tests.cli.conftest import PROGRAM, Command
from tests.maintenance.future import FEATURE, ask_for_more
from txnlog import Producer, TxnLog

SCHEMA = pa.schema([("id", pa.int64())])


@pytest.fixture
def orders(log: TxnLog) -> TxnLog:
    log.create_topic("orders", SCHEMA)
    append(log)
    return log


def append(log: TxnLog) -> None:
    with Producer(log, embed_bytes=0) as producer:
        producer.send("orders", pa.table({"id": [1, 2, 3]}), partition=0)


def test_settings_are_set_shown_and_taken_back(txnlog: Command, orders: TxnLog) -> None:
    shown = txnlog(
        "alter-topic", "orders", "--set", "retention.bytes=0", "--set", "retention.time=record"
    ).out
    assert "Settings: retention.bytes=0, retention.time=record\n" in shown
    left = txnlog("alter-topic", "orders", "--unset", "retention.time", "--json").json["settings"]
    assert left == {"retention.bytes": 0}
    made = txnlog("create-topic", "new", "-c", "id:int64", "--set", "retention.ms=604800000", "--json").json
    assert made["settings"] == {"retention.ms": 604_800_000}
    bad = txnlog("alter-topic", "orders", "--set", "retention.ms=5", "--json")
    assert (bad.code, bad.error["kind"]) == (2, "invalid-setting")


@pytest.mark.parametrize("given", [["x"], ["=1"], [""], ["retention.ms=1", "retention.ms=2"]])
def test_what_is_no_setting_is_a_usage_error(txnlog: Command, orders: TxnLog, given: list[str]) -> None:
    options = [word for text in given for word in ("--set", text)]
    answer = txnlog("alter-topic", "orders", *options, "--json")
    assert (answer.code, answer.error["kind"]) == (2, "usage")


def test_the_age_at_which_entries_go_is_a_setting_of_the_log(txnlog: Command, orders: TxnLog) -> None:
    answer = txnlog("alter-log", "--truncate-older-than", "6d", "--json")
    assert (answer.code, answer.error["kind"]) == (2, "invalid-age")
    assert txnlog("alter-log", "--truncate-older-than", "30d").out == "TruncateOlderThan: 30 days\n"
    assert "TruncateOlderThan: 30 days" in txnlog("describe").out
    assert "0 entries deleted" in txnlog("maintain", "all").out
    assert txnlog("alter-log", "--truncate-older-than", "off", "--json").json == {
        "truncate_older_than_ms": -1
    }
    assert "no age is set" in txnlog("maintain", "all").out


def test_everything_is_done_once_and_told_as_a_table(txnlog: Command, orders: TxnLog) -> None:
    lines = txnlog("maintain", "all").out.splitlines()
    assert [line.split()[0] for line in lines] == [
        "Task",
        "timeouts",
        "seal",
        "expire",
        "subscriptions",
        "retention",
        "publish",
        "compact",
        "vacuum",
        "erasures",
        "truncate",
    ]
    assert lines[-2].split(maxsplit=1)[1].startswith("0 erasures completed")
    assert "no age is set" in lines[-1]
    aged = txnlog("maintain", "all", "--truncate-older-than", "30d").out.splitlines()
    assert "0 entries deleted" in aged[-1]
    txnlog("alter-topic", "orders", "--set", "retention.bytes=0")
    lines = txnlog("maintain", "all").out.splitlines()
    assert lines[5].split(maxsplit=1)[1] == "removed records of 1 partition"
    assert lines[-1].split() == ["orders", "0", "0", "3"]
    assert txnlog("maintain", "all", "--json").json["removed"] == []


def test_retention_alone(txnlog: Command, orders: TxnLog) -> None:
    assert txnlog("maintain", "retention").out == "nothing to remove\n"
    txnlog("alter-topic", "orders", "--set", "retention.bytes=0")
    txnlog("maintain", "seal")
    assert txnlog("maintain", "retention").out.splitlines()[1].split() == ["orders", "0", "0", "3"]


def test_a_service_goes_on_until_it_is_told_to_stop(root: Path, orders: TxnLog, tmp_path: Path) -> None:
    orders.alter_topic("orders", settings={"retention.bytes": 0})
    metrics = tmp_path / "maintain.prom"
    words = ["maintain", "all", "--watch", "1", "--metrics-file", str(metrics), "--json"]
    with subprocess.Popen([*PROGRAM, *words], stdout=subprocess.PIPE, text=True, env=os.environ) as service:
        assert service.stdout is not None
        try:
            first = json.loads(service.stdout.readline())
            append(orders)
            rounds = [first]
            while sum(len(one["removed"]) for one in rounds) < 2:
                rounds.append(json.loads(service.stdout.readline()))
            assert first["rested"] == []
            assert rounds[1]["rested"] == ["subscriptions", "compact", "vacuum", "erasures"]
        finally:
            service.send_signal(signal.SIGTERM)
        service.communicate(timeout=300)
        assert service.returncode == 0
    assert orders.offsets("orders")[0].earliest == 6
    text = metrics.read_text()
    assert f'txnlog_maintain_done_total{{log="{orders.url}",what="trimmed_partitions"}} 2' in text
    assert "txnlog_maintain_failures_total" in text


@pytest.mark.parametrize(("is_replaced", "code", "kind"), [(False, 3, "log-gone"), (True, 4, "log-replaced")])
def test_a_watch_ends_when_its_log_is_gone_or_replaced(
    orders: TxnLog, root: Path, is_replaced: bool, code: int, kind: str
) -> None:
    words = ["maintain", "all", "--watch", "1", "--json"]
    with subprocess.Popen(
        [*PROGRAM, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ
    ) as service:
        try:
            assert service.stdout is not None
            service.stdout.readline()
            root.rename(root.with_name("aside"))
            if is_replaced:
                TxnLog.create(root)
            _, err = service.communicate(timeout=300)
        finally:
            service.kill()
    assert (service.returncode, json.loads(err.splitlines()[-1])["error"]["kind"]) == (code, kind)
    assert not (root / "_txnlog" / "log").exists() or not any((root / "_txnlog" / "log").iterdir())


def test_a_damaged_topic_is_shown_and_the_exit_code_says_it(
    txnlog: Command, orders: TxnLog, root: Path
) -> None:
    append(orders)
    orders.create_topic("sound", SCHEMA)
    for _ in range(2):
        with Producer(orders, embed_bytes=0) as producer:
            producer.send("sound", pa.table({"id": [1]}), partition=0)
    for file in root.glob("orders-*/data/*.parquet"):
        file.write_bytes(b"")
    answer = txnlog("maintain", "all")
    assert answer.code == 6
    lines = answer.out.splitlines()
    assert lines[7].split(maxsplit=1)[1] == "wrote 2 files together as 1 file"
    assert lines[-1].split()[0] == "orders"
    orders.maintain("seal")
    assert txnlog("maintain", "all", "--json").json["damaged"][0]["topic"] == "orders"


def test_a_metrics_file_without_a_directory_is_told_before_anything_is_done(
    txnlog: Command, orders: TxnLog, tmp_path: Path
) -> None:
    before = orders.refresh().entry
    answer = txnlog("maintain", "all", "--metrics-file", tmp_path / "none" / "x.prom", "--json")
    assert (answer.code, answer.error["kind"]) == (5, "output-failed")
    assert "x.prom" in answer.err
    assert orders.refresh().entry == before


def test_a_watch_takes_at_least_a_second(txnlog: Command, orders: TxnLog) -> None:
    answer = txnlog("maintain", "all", "--watch", "0", "--json")
    assert (answer.code, answer.error["kind"]) == (2, "usage")


@pytest.mark.parametrize(
    "command",
    [
        "maintain all",
        "maintain all --watch 1",
        "maintain timeouts",
        "maintain seal",
        "maintain expire",
        "maintain retention",
        "maintain erasures",
        "compact",
        "vacuum",
        "truncate",
        "delete-records orders --before latest",
        "delete-topic orders --yes",
        "erase orders --where id=1 --requested-by x",
    ],
)
def test_a_log_whose_maintenance_needs_more_is_refused(txnlog: Command, orders: TxnLog, command: str) -> None:
    entry = ask_for_more(orders.store)
    answer = txnlog(*command.split(), "--json")
    assert (answer.code, answer.error["kind"]) == (6, "unsupported-feature")
    assert answer.error["values"] == {"features": [FEATURE]}
    assert orders.refresh().entry == entry
    assert orders.read("orders").read_all().num_rows == 3
