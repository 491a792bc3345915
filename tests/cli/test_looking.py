"""``txnlog report`` and ``txnlog ui``: the file, the server's answers, what it refuses, how it ends."""

from __future__ import annotations

import http.client
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import Message
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from tests.cli.conftest import PROGRAM, Command
from tests.cli.left_open import left_open, prepare
from tests.model.groups import ManualClock
from txnformat.keys import entry_key
from txnformat.looking.page import policy
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import READS
from txnlog import ConflictError, CorruptDataError, NotFoundError, Producer, TxnLog
from txnlog.cli.looking.service import KEPT_MAX, Service
from txnlog_testing.stores.counting import CountingStore

SCHEMA = pa.schema([("id", pa.int64())])


@pytest.fixture
def busy(log: TxnLog) -> TxnLog:
    """A log with transactions that are open or prepared, under names that a shell would act on."""
    log.create_topic("t", SCHEMA)
    left_open(log, "it's $(open)", "-dashed", "prepared")
    prepare(log, "prepared")
    return log


# --- report -------------------------------------------------------------------------------------------------


def test_a_report_is_one_file(txnlog: Command, busy: TxnLog, tmp_path: Path) -> None:
    page = tmp_path / "r.html"
    answer = txnlog("report", "--topic", "t", "-o", page)
    assert answer.code == 0, answer.err
    assert str(page) in answer.out
    text = page.read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>")
    assert '"topic":"t"' in text
    data = tmp_path / "r.json"
    counts = txnlog("report", "-o", data, "--json", "--version-as-of", 3, "--entries", 2).json
    document = json.loads(data.read_text(encoding="utf-8"))
    assert counts["bytes"] == data.stat().st_size
    assert (counts["first"], counts["entry"]) == (document["first"], document["entry"]) == (2, 3)
    assert (counts["transactions"], counts["open"]) == (len(document["transactions"]), len(document["open"]))


def test_a_report_without_a_log_or_a_place_to_write_is_refused(
    txnlog: Command, log: TxnLog, tmp_path: Path
) -> None:
    assert txnlog("report", "--topic", "none").code == 3
    assert txnlog("report", "--version-as-of", 7).code == 3
    for name in ("r.html", "r.json"):
        answer = txnlog("report", "-o", tmp_path / "none" / name, "--json")
        assert (answer.code, answer.error["kind"]) == (5, "output-failed")


def test_each_command_of_a_report_ends_its_transaction(txnlog: Command, busy: TxnLog) -> None:
    """As it is printed, read by the rules of a shell."""
    shown = busy.timeline().document.open
    assert [one.transactional_id for one in shown] == ["it's $(open)", "-dashed", "prepared"]
    for one in shown:
        words = shlex.split(one.command)
        assert words[0] == "txnlog"
        answer = txnlog(*words[1:])
        assert answer.code == 0, answer
        assert one.transactional_id not in busy.refresh().undecided
    assert busy.timeline().document.open == ()


# --- the service --------------------------------------------------------------------------------------------


def test_many_pages_cost_one_request_a_second_and_nothing_is_written() -> None:
    clock = ManualClock()
    store = MemoryStore(clock, "served")
    log = TxnLog.create(store, clock=clock)
    log.create_topic("t", SCHEMA)
    counting = CountingStore(store)
    with counting.measure() as everything:
        service = Service(TxnLog.open(counting, clock=clock), None, 100, 1_000)
        entry = log.refresh().entry
        with counting.measure() as measured:
            for _ in range(10):
                clock.sleep(0.1)
                assert json.loads(service.follow(entry)).keys() == {"entry", "now_ms", "requests"}
        assert measured.counts.count() == 1
        with Producer(log) as producer:
            producer.send("t", [{"id": 1}])
        assert json.loads(service.follow(entry))["entry"] == entry
        clock.sleep(1)
        assert json.loads(service.follow(entry))["entry"] == log.refresh().entry
        for number in (0, entry, *range(entry + 1)):
            assert json.loads(service.document(number))["entry"] == number
        assert 'data-every="1000"' in service.page()
    assert {request.operation for request in everything.counts.requests} <= READS
    for number in (-1, 10**6):
        with pytest.raises(Exception, match=r"entry|version"):
            service.document(number)


def test_a_log_that_is_gone_or_replaced_is_told_within_two_looks_and_until_it_is_back(tmp_path: Path) -> None:
    clock = ManualClock()
    log = TxnLog.create(tmp_path / "log")
    log.create_topic("t", SCHEMA)
    service = Service(TxnLog.open(tmp_path / "log", clock=clock), None, 100, 1_000)
    entry = log.state.entry

    def looks() -> list[str]:
        found = []
        for _ in range(4):
            clock.sleep(1)
            try:
                found.append(str(json.loads(service.follow(entry))["entry"]))
            except (NotFoundError, ConflictError) as error:
                found.append(error.kind)
        return found

    assert looks() == [str(entry)] * 4
    (tmp_path / "log").rename(tmp_path / "aside")
    assert looks()[1:] == ["log-gone"] * 3
    TxnLog.create(tmp_path / "log")
    assert looks() == ["log-replaced"] * 4
    shutil.rmtree(tmp_path / "log")
    (tmp_path / "aside").rename(tmp_path / "log")
    assert looks() == [str(entry)] * 4


@pytest.mark.parametrize("is_replaced", [False, True])
@pytest.mark.parametrize("is_kept", [False, True], ids=["read", "kept"])
def test_a_slider_shows_no_state_of_another_log(tmp_path: Path, is_replaced: bool, is_kept: bool) -> None:
    clock = ManualClock()
    log = TxnLog.create(tmp_path / "log")
    for name in ("a", "b", "c"):
        log.create_topic(name, SCHEMA)
    service = Service(TxnLog.open(tmp_path / "log", clock=clock), None, 100, 1_000)
    if is_kept:
        service.document(2)
    (tmp_path / "log").rename(tmp_path / "aside")
    if is_replaced:
        other = TxnLog.create(tmp_path / "log")
        for name in ("x", "y", "z"):
            other.create_topic(name, SCHEMA)
    clock.sleep(1)
    for _ in range(2):
        for entry in (2, log.state.entry, 10**6):
            with pytest.raises((NotFoundError, ConflictError)) as refused:
                service.document(entry)
            assert refused.value.kind == ("log-replaced" if is_replaced else "log-gone")
    shutil.rmtree(tmp_path / "log", ignore_errors=True)
    (tmp_path / "aside").rename(tmp_path / "log")
    assert json.loads(service.document(2))["entry"] == 2


def test_a_slider_that_moves_fast_asks_once_for_each_state_whether_the_log_is_there() -> None:
    clock = ManualClock()
    store = MemoryStore(clock, "asked")
    log = TxnLog.create(store, clock=clock)
    log.create_topic("t", SCHEMA)
    counting = CountingStore(store)
    service = Service(TxnLog.open(counting, clock=clock), None, 100, 1_000)
    service.document(0)
    with counting.measure() as measured:
        for _ in range(5):
            service.document(0)
            service.document(log.state.entry)
    assert measured.counts.count() == 0
    clock.sleep(1)
    with counting.measure() as measured:
        for _ in range(5):
            service.document(0)
    assert measured.counts.count() == 1


def test_what_follows_from_another_log_is_told_as_that(tmp_path: Path) -> None:
    """The next entry of a log that was created anew does not continue the chain."""
    clock = ManualClock()
    log = TxnLog.create(tmp_path / "log")
    log.create_topic("t", SCHEMA)
    service = Service(TxnLog.open(tmp_path / "log", clock=clock), None, 100, 1_000)
    (tmp_path / "log").rename(tmp_path / "aside")
    other = TxnLog.create(tmp_path / "log")
    for name in ("a", "b", "c"):
        other.create_topic(name, SCHEMA)
    clock.sleep(1)
    with pytest.raises(ConflictError) as refused:
        service.follow(0)
    assert refused.value.kind == "log-replaced"


def test_older_documents_are_kept_for_the_slider_and_bounded() -> None:
    store = MemoryStore(name="kept")
    log = TxnLog.create(store)
    log.create_topic("t", SCHEMA)
    with Producer(log) as producer:
        for _ in range(KEPT_MAX + 3):
            producer.send("t", [{"id": 1}])
            producer.flush()
    counting = CountingStore(store)
    service = Service(TxnLog.open(counting), None, 100, 1_000)
    service.document(1)
    with counting.measure() as measured:
        service.document(1)
    assert measured.counts.count() == 0
    for number in range(1, KEPT_MAX + 2):
        service.document(number)
    assert len(service._older) == KEPT_MAX


def test_an_older_document_says_what_is_the_newest_now() -> None:
    store = MemoryStore(name="moved")
    log = TxnLog.create(store)
    log.create_topic("t", SCHEMA)
    clock = ManualClock()
    service = Service(TxnLog.open(store, clock=clock), None, 100, 1_000)
    assert json.loads(service.document(0))["newest"] == log.state.entry
    with Producer(log) as producer:
        producer.send("t", [{"id": 1}])
    clock.sleep(1)
    service.follow(0)
    assert json.loads(service.document(0))["newest"] == log.refresh().entry


def test_what_is_wrong_with_the_log_is_told_to_every_page() -> None:
    clock = ManualClock()
    store = MemoryStore(clock, "damaged")
    log = TxnLog.create(store, clock=clock)
    service = Service(TxnLog.open(store, clock=clock), None, 100, 1_000)
    log.create_topic("t", SCHEMA)
    entry = log.state.entry
    store._objects[entry_key(entry)] = b"garbage"
    clock.sleep(1)
    for _ in range(3):
        with pytest.raises(CorruptDataError):
            service.follow(entry - 1)


# --- the server ---------------------------------------------------------------------------------------------


class Reply(NamedTuple):
    status: int
    headers: Message
    text: str


class Page(NamedTuple):
    """A running ``txnlog ui``."""

    process: subprocess.Popen[str]
    host: str
    port: int

    def ask(self, path: str = "/", method: str = "GET", **headers: str) -> Reply:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=60)
        try:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, headers=named)
            answer = connection.getresponse()
            return Reply(answer.status, answer.headers, answer.read().decode())
        finally:
            connection.close()


@contextmanager
def served(*arguments: str) -> Iterator[Page]:
    """Run ``txnlog ui`` at a free port until the block ends."""
    process = subprocess.Popen(
        [*PROGRAM, "ui", "--port", "0", "--json", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.communicate()
        url = json.loads(line)["url"]
        found = re.fullmatch(r"http://([\d.]+):(\d+)/", url)
        assert found is not None
        yield Page(process, found[1], int(found[2]))
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def test_the_server_answers_its_own_page_and_refuses_all_else(busy: TxnLog) -> None:
    keys = sorted(info.key for info in busy.store.list(""))
    with served() as page:
        whole = page.ask()
        assert whole.status == 200
        assert "it's $(open)" in whole.text
        newest = busy.refresh().entry
        cases: list[tuple[int, dict[str, Any]]] = [
            (200, {"path": f"/api/follow?entry={newest}"}),
            (200, {"path": "/api/document?entry=1"}),
            (200, {"method": "HEAD"}),
            (200, {"Host": "localhost:80"}),
            (200, {"Host": "[::1]:80"}),
            (200, {"Sec_Fetch_Site": "same-origin"}),
            (200, {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate"}),
            (403, {"Sec_Fetch_Site": "cross-site", "path": "/api/document?entry=1"}),
            (403, {"Sec_Fetch_Site": "same-site"}),
            (421, {"Host": "evil.example"}),
            (421, {"Host": "127.0.0.1.evil.example"}),
            (421, {"Host": ""}),
            (405, {"method": "POST"}),
            (405, {"method": "PUT", "path": "/api/document?entry=1"}),
            (405, {"method": "DELETE"}),
            (405, {"method": "OPTIONS"}),
            (405, {"method": "POST", "path": "/nothing"}),
            (404, {"path": "/nothing"}),
            (404, {"path": "/api/document?entry=99"}),
            (400, {"path": "/api/document?entry=-1"}),
            (400, {"path": "/api/document?entry=1e3"}),
            (400, {"path": "/api/follow"}),
        ]
        for status, request in cases:
            answer = page.ask(**request)
            assert answer.status == status, request
            assert answer.headers["content-security-policy"].startswith(policy(live=True)), request
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["cross-origin-resource-policy"] == "same-origin"
            assert answer.headers.get("access-control-allow-origin") is None
            assert answer.headers["cache-control"] == "no-store"
        assert json.loads(page.ask("/api/document?entry=1").text)["entry"] == 1
        page.process.send_signal(signal.SIGINT)
        out, err = page.process.communicate(timeout=60)
        assert (page.process.returncode, out, err) == (0, "", "")
    assert sorted(info.key for info in busy.store.list("")) == keys


def test_other_names_are_allowed_when_they_are_named(busy: TxnLog) -> None:
    with served("--allow-host", "Logs.Example") as page:
        assert page.ask(Host="logs.example:8642").status == 200
        assert page.ask(Host="other.example").status == 421
        page.process.send_signal(signal.SIGTERM)
        page.process.communicate(timeout=60)
        assert page.process.returncode == 0


def test_the_page_listens_at_this_machine_alone_unless_told(txnlog: Command, busy: TxnLog) -> None:
    url = txnlog("ui", "--port", "0", "--for", "0s", "--json").json["url"]
    assert url.startswith("http://127.0.0.1:")
    answer = txnlog("ui", "--port", "0", "--for", "0s", "--every", "500")
    assert "180 GET a minute, $0.000072 ($3.11 a month" in answer.out
    assert answer.err == ""


def test_a_port_that_is_taken_is_said(txnlog: Command, busy: TxnLog) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        answer = txnlog("ui", "--port", taken.getsockname()[1])
    assert answer.code == 2
    assert "--port 0 takes any free port" in answer.err


def test_a_timer_has_bounds(txnlog: Command, busy: TxnLog) -> None:
    for every in ("99", "86400001"):
        assert txnlog("ui", "--every", every).code == 2


@pytest.mark.parametrize("missing", ["starlette", "uvicorn"])
def test_without_the_extra_one_line_says_what_to_install(busy: TxnLog, missing: str) -> None:
    program = (
        f"import sys; sys.modules[{missing!r}] = None; from txnlog.cli.app import run; "
        "sys.exit(run(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "ui"],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ,
        timeout=300,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "txnlog: txnlog ui needs Starlette and uvicorn: pip install 'txnlog[ui]'\n" in done.stderr
    assert "Traceback" not in done.stderr


def test_no_other_command_loads_the_extra(busy: TxnLog, tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['starlette'] = sys.modules['uvicorn'] = None; "
        "from txnlog.cli.app import run; sys.exit(run(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", program, "report", "-o", str(tmp_path / "r.html")]
    subprocess.run(command, check=True, capture_output=True, timeout=300)


def test_a_topic_that_is_not_there_is_said_before_a_port_is_taken(txnlog: Command, busy: TxnLog) -> None:
    assert txnlog("ui", "--topic", "none", "--for", "0s").code == 3
    with pytest.raises(NotFoundError):
        busy.timeline("none")
