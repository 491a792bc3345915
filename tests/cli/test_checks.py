"""verify, metrics, doctor: answers that are no have exit code 1."""

from __future__ import annotations

import configparser
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from tests.cli.conftest import Command
from tests.cli.left_open import left_open, prepare
from txnformat.clock import Instant, SystemClock, SystemIds
from txnformat.store.base import CreateOutcome, CreateResult
from txnformat.store.memory import MemoryStore
from txnlog import Producer, TxnLog
from txnlog.cli.doctor.diagnosis import Status
from txnlog.cli.doctor.environment import UI_MIN, check_java, check_packages, check_python, check_spark_python
from txnlog.cli.doctor.log import check_log
from txnlog.cli.doctor.store import check_clock, check_promises


@pytest.fixture
def orders(log: TxnLog) -> TxnLog:
    log.create_topic("orders", pa.schema([("id", pa.int64())]))
    with Producer(log) as producer:
        producer.send("orders", [{"id": 1}, {"id": 2}])
    return log


# --- verify -------------------------------------------------------------------------------------------------


def test_verify_of_a_sound_log(txnlog: Command, orders: TxnLog) -> None:
    answer = txnlog("verify", "--deep")
    assert answer.code == 0
    assert answer.out.startswith(f"ok: entries 0 to {orders.state.entry} of {orders.url}; checked ")
    report = txnlog("verify", "--json").json
    assert report["ok"] is True
    assert report["checked"]["files"] == 1


def test_verify_names_what_is_wrong_even_where_the_log_cannot_be_opened(
    txnlog: Command, orders: TxnLog, root: Path
) -> None:
    path = root / "_txnlog" / "log" / f"{1:020d}.json"
    path.chmod(0o644)
    path.write_bytes(path.read_bytes().replace(b'"orders"', b'"ordres"'))
    answer = txnlog("verify", "--json")
    assert (answer.code, answer.err) == (1, "")
    assert answer.json["ok"] is False
    assert any(problem["object"].endswith(path.name) for problem in answer.json["problems"])
    text = txnlog("verify").out
    assert text.startswith("problem  ")
    assert path.name in text


def test_verify_where_there_is_no_log(txnlog: Command, root: Path) -> None:
    assert txnlog("verify", "--json").error["kind"] == "no-log"
    assert txnlog("verify").code == 3


# --- metrics ------------------------------------------------------------------------------------------------


def test_metrics_for_people_programs_and_prometheus(txnlog: Command, orders: TxnLog) -> None:
    header, row, foot = txnlog("metrics").out.splitlines()
    assert header.split()[:6] == [
        "Topic",
        "Partition",
        "LogStartOffset",
        "LogEndOffset",
        "LastStableOffset",
        "Lag",
    ]
    assert row.split() == ["orders", "0", "0", "2", "2", "0", "0", "0", "0", "-", "2", "0.0%"]
    assert foot.startswith(f"{orders.state.entry + 1} entries, ")
    assert txnlog("metrics", "--json").json["partitions"][0]["records"] == 2
    text = txnlog("metrics", "--prometheus").out
    assert f'txnlog_partition_log_end_offset{{log="{orders.url}",topic="orders",partition="0"}} 2\n' in text
    assert txnlog("metrics", "--prometheus", "--json").code == 2


# --- doctor -------------------------------------------------------------------------------------------------


def test_a_healthy_place_has_no_problem(txnlog: Command, orders: TxnLog) -> None:
    before = orders.refresh().entry
    answer = txnlog("doctor", "--json")
    by_name = {check["name"]: check for check in answer.json["checks"]}
    assert {
        "python",
        "pyarrow",
        "pyspark",
        "s3fs",
        "obstore",
        "reachable",
        "clock",
        "open",
        "features",
    } <= by_name.keys()
    for check in by_name.values():
        assert check.keys() == {"area", "name", "status", "found", "fix"}
        if check["area"] != "environment":
            assert check["status"] == "ok", check
    assert orders.refresh().entry == before


def test_doctor_leaves_no_directory_that_was_not_there(txnlog: Command, tmp_path: Path) -> None:
    for place in (tmp_path / "new" / "root", tmp_path / "empty"):
        (tmp_path / "empty").mkdir(exist_ok=True)
        answer = txnlog("doctor", "--root", str(place), "--json")
        assert "one-winner" in {check["name"] for check in answer.json["checks"]}
        assert list((tmp_path / "empty").iterdir()) == []
        assert not (tmp_path / "new").exists()


def test_doctor_imports_no_spark(process: Command, orders: TxnLog) -> None:
    code = "import sys; from txnlog.cli.app import run; run(['doctor']); print('pyspark' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300
    )
    assert done.stdout.splitlines()[-1] == "False"


def test_without_a_root_only_the_environment_is_checked(
    txnlog: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TXNLOG_ROOT")
    areas = {check["area"] for check in txnlog("doctor", "--json").json["checks"]}
    assert areas == {"environment"}


def test_a_place_without_a_log_is_a_warning_and_stays_empty(txnlog: Command, root: Path) -> None:
    (found,) = [check for check in txnlog("doctor", "--json").json["checks"] if check["area"] == "log"]
    assert (found["status"], found["fix"]) == ("warning", "txnlog create makes one")
    assert not (root / "_txnlog" / "format.json").exists()


def test_a_corrupt_log_is_a_problem(txnlog: Command, orders: TxnLog, root: Path) -> None:
    path = root / "_txnlog" / "log" / f"{1:020d}.json"
    path.chmod(0o644)
    path.write_bytes(b"{}")
    answer = txnlog("doctor", "--json")
    assert answer.code == 1
    (found,) = [check for check in answer.json["checks"] if check["area"] == "log"]
    assert found["status"] == "problem"
    assert "problem" in txnlog("doctor").out


def test_a_store_that_cannot_be_used_is_a_problem_and_nothing_more_is_asked(txnlog: Command) -> None:
    answer = txnlog("doctor", "--root", "gopher://x/y", "--json")
    assert answer.code == 1
    assert [check["status"] for check in answer.json["checks"] if check["area"] != "environment"] == [
        "problem"
    ]


def test_the_store_is_tried_out_and_left_as_it_was(txnlog: Command, orders: TxnLog, root: Path) -> None:
    before = sorted(path for path in root.rglob("*") if path.is_file())
    checks = {
        check["name"] for check in txnlog("doctor", "--json").json["checks"] if check["area"] == "store"
    }
    assert checks == {
        *("reachable", "clock", "one-winner", "read-after-write", "refused-overwrite", "list-after-write"),
        *("delete", "latency"),
    }
    assert sorted(path for path in root.rglob("*") if path.is_file()) == before
    spared = {check["name"] for check in txnlog("doctor", "--no-write", "--json").json["checks"]}
    assert {"reachable", "clock"} <= spared
    assert not spared & {"one-winner", "delete", "latency"}


class _Overwriting(MemoryStore):
    """A store that ignores the condition."""

    def create(self, key: str, data: bytes) -> CreateResult:
        self.put(key, data)
        return CreateResult(CreateOutcome.CREATED)


def test_a_store_that_ignores_the_condition_is_a_problem() -> None:
    clock = SystemClock()
    checks = check_promises(_Overwriting(clock), clock, SystemIds())
    assert Status.PROBLEM in {check.status for check in checks}
    assert all(check.fix for check in checks if check.status is Status.PROBLEM)


@pytest.mark.parametrize(("delay_ms", "status"), [(40, Status.OK), (300, Status.WARNING)])
def test_a_slow_store_is_told(delay_ms: int, status: Status) -> None:
    clock = _Clock(1_800_000_000_000)

    class Slow(MemoryStore):
        def create(self, key: str, data: bytes) -> CreateResult:
            clock.wall_ms += delay_ms
            return super().create(key, data)

    store = Slow(clock)
    latency = check_promises(store, clock, SystemIds())[-1]
    assert (latency.name, latency.status) == ("latency", status)
    assert f"{delay_ms} ms" in latency.found
    assert store.list("") == []


@pytest.mark.parametrize(
    ("versions", "root", "problems", "warnings"),
    [
        ({"pyarrow": "26.0.1"}, None, set(), set()),
        ({"pyarrow": "23.0.1"}, None, {"pyarrow"}, set()),
        ({}, None, {"pyarrow"}, set()),
        ({"pyarrow": "26.0", "pyspark": "4.0.2"}, None, {"pyspark"}, set()),
        ({"pyarrow": "26.0", "pyspark": "4.1.0", "pandas": "2.3.3"}, None, set(), set()),
        ({"pyarrow": "26.0", "pyspark": "4.3.0", "pandas": "3.1.1"}, None, set(), {"pandas"}),
        ({"pyarrow": "26.0", "pandas": "3.1.1"}, None, set(), set()),
        ({"pyarrow": "26.0"}, "s3://bucket/log", {"s3fs"}, set()),
        ({"pyarrow": "26.0"}, "s3a://bucket/log", {"s3fs"}, set()),
        ({"pyarrow": "26.0"}, "gs://bucket/log", {"obstore"}, set()),
        ({"pyarrow": "26.0"}, "abfss://c@a.dfs.core.windows.net/log", {"obstore"}, set()),
        ({"pyarrow": "26.0"}, "az://c/log", {"obstore"}, set()),
        ({"pyarrow": "26.0"}, "/data/log", set(), set()),
        ({"pyarrow": "26.0", "starlette": "0.39.2", "uvicorn": "0.54.0"}, None, set(), {"ui"}),
        ({"pyarrow": "26.0", "starlette": "1.10.0", "uvicorn": "0.30.0"}, None, set(), set()),
    ],
)
def test_packages(versions: dict[str, str], root: str | None, problems: set[str], warnings: set[str]) -> None:
    checks = check_packages(versions.get, root)
    assert {check.name for check in checks if check.status is Status.PROBLEM} == problems
    assert {check.name for check in checks if check.status is Status.WARNING} == warnings
    assert all(check.fix for check in checks if check.status is not Status.OK)


@pytest.mark.parametrize(
    ("versions", "found"),
    [
        ({"starlette": "1.10.0", "uvicorn": "0.54.0"}, "txnlog ui runs: starlette 1.10.0, uvicorn 0.54.0"),
        ({"starlette": "1.10.0"}, "not installed; txnlog ui needs it: pip install 'txnlog[ui]'"),
        ({}, "not installed; txnlog ui needs it: pip install 'txnlog[ui]'"),
    ],
)
def test_whether_the_page_can_be_served_is_said(versions: dict[str, str], found: str) -> None:
    (check,) = (each for each in check_packages(versions.get, None) if each.name == "ui")
    assert (check.found, check.fix) == (found, None)


def test_the_oldest_versions_that_doctor_asks_for_are_those_of_the_package() -> None:
    config = configparser.ConfigParser()
    config.read(Path(__file__).resolve().parents[2] / "setup.cfg", encoding="utf-8")
    bounds = [line for line in config["options.extras_require"]["ui"].splitlines() if line]
    assert bounds == [f"{name}>={'.'.join(map(str, oldest))}" for name, oldest in UI_MIN.items()]


def test_python() -> None:
    assert check_python((3, 10, 9)).status is Status.PROBLEM
    assert check_python((3, 11, 0)).status is Status.OK


@pytest.mark.parametrize(
    ("version", "status"),
    [("17", Status.OK), ("21", Status.OK), ("11", Status.PROBLEM), ("1.8", Status.PROBLEM)],
)
def test_java_is_asked_for_its_version(tmp_path: Path, version: str, status: Status) -> None:
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho '    java.specification.version = {version}' >&2\n")
    program.chmod(0o755)
    assert check_java({"JAVA_HOME": str(tmp_path)}).status is status
    assert check_java({"PATH": str(program.parent)}).status is status


def test_the_python_that_spark_starts_has_to_have_the_package(tmp_path: Path) -> None:
    """In an environment that is not activated Spark starts the system's, and does not find the format."""
    other = tmp_path / "python3"
    other.write_text("#!/bin/sh\nexit 1\n")
    other.chmod(0o755)
    found = check_spark_python({"PATH": str(tmp_path)})
    assert (found.status, found.found) == (
        Status.WARNING,
        f"Spark starts {other}, which does not have txnlog",
    )
    assert found.fix is not None
    assert sys.executable in found.fix
    ours = {"PATH": str(tmp_path), "PYSPARK_PYTHON": sys.executable}
    assert check_spark_python(ours).status is Status.OK
    assert "is not there" in check_spark_python({"PATH": str(tmp_path / "none")}).found
    other.write_text("#!/nonexistent/program\n")
    assert "does not run" in check_spark_python({"PATH": str(tmp_path)}).found


def test_java_that_is_missing_or_does_not_run(tmp_path: Path) -> None:
    for environment in ({"PATH": str(tmp_path)}, {"JAVA_HOME": str(tmp_path)}):
        found = check_java(environment)
        assert found.status is Status.PROBLEM
        assert "JAVA_HOME" in str(found.fix)


class _Clock:
    """A clock that stands."""

    def __init__(self, wall_ms: int) -> None:
        self.wall_ms = wall_ms

    def now(self) -> Instant:
        return Instant(self.wall_ms, self.wall_ms)

    def sleep(self, seconds: float, wake: object = None) -> None:
        self.wall_ms += int(1000 * seconds)


@pytest.mark.parametrize(
    ("offset_ms", "status"),
    [
        (0, Status.OK),
        (9_000, Status.OK),
        (11_000, Status.WARNING),
        (-31_000, Status.PROBLEM),
        (31_000, Status.PROBLEM),
    ],
)
def test_a_clock_that_is_off_is_told(offset_ms: int, status: Status) -> None:
    store = MemoryStore(_Clock(1_800_000_000_000))
    assert check_clock(store, _Clock(1_800_000_000_000 + offset_ms)).status is status


def test_a_transaction_that_is_open_for_long_is_a_warning() -> None:
    clock = _Clock(1_800_000_000_000)
    store = MemoryStore(clock)
    log = TxnLog.create(store, clock=clock)
    log.create_topic("t", pa.schema([("id", pa.int64())]))
    producer = Producer(log, "dead", buffer="inline")
    producer.init()
    producer.begin()
    producer.send("t", [{"id": 1}])
    producer.flush()
    by_name = {check.name: check for check in check_log(store)}
    assert by_name["transactions"].status is Status.OK
    assert "'dead'" in by_name["transactions"].found
    clock.wall_ms += 61_000
    by_name = {check.name: check for check in check_log(store)}
    assert by_name["transactions"].status is Status.WARNING
    assert "'dead'" in str(by_name["transactions"].fix)


def test_a_transaction_that_is_prepared_for_long_is_a_warning() -> None:
    clock = _Clock(1_800_000_000_000)
    store = MemoryStore(clock)
    log = TxnLog.create(store, clock=clock)
    log.create_topic("t", pa.schema([("id", pa.int64())]))
    left_open(log, "bank")
    prepare(log, "bank")
    (check,) = [check for check in check_log(store) if check.name == "transactions"]
    assert check.status is Status.OK
    assert "1 prepared" in check.found
    clock.wall_ms += 16 * 60_000
    (check,) = [check for check in check_log(store) if check.name == "transactions"]
    assert check.status is Status.WARNING
    assert "force-terminate 'bank'" in str(check.fix)
