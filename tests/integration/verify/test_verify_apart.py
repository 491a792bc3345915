"""``verify(deep=True)`` decodes data files in another process: a file that ends it is a finding, and the rest
is checked."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

import pyarrow as pa
import pytest

from tests.integration.clients.failing import QuickClock
from tests.integration.store.hostile_server import Got, HostileServer
from tests.integration.transactions.ending_child import HOSTILE, program
from txnformat import keys
from txnformat.clock import SystemClock
from txnformat.store.base import ObjectStore
from txnformat.store.local import LocalStore
from txnformat.store.memory import MemoryStore
from txnformat.store.open import open_store, reopening
from txnformat.store.s3.store import S3Store
from txnformat.verify.deep_child import AT_ONCE, Asked, Limits
from txnformat.verify.deep_files import NoProcessError, check_apart
from txnformat.verify.log import verify_log
from txnformat.verify.references import FileUse
from txnformat.verify.report import ProblemKind, VerifyProgress
from txnlog import Producer, TxnLog, VerifyReport
from txnlog_testing.stores.counting import CountingStore

NUMBERS = pa.schema([("n", pa.int64()), ("text", pa.string())])
FILES = 2 * AT_ONCE + 3
MIB = 1024 * 1024


def build(store: ObjectStore | str) -> None:
    """Make a log with a file for each of many sends."""
    with TxnLog.create(store, embedding=False) as log:
        log.create_topic("t", NUMBERS)
        with Producer(log) as producer:
            for number in range(FILES):
                producer.send("t", pa.table({"n": range(number, number + 9), "text": ["a"] * 9}, NUMBERS))
                producer.flush()


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("log") / "root"
    build(str(made))
    return made


@pytest.fixture
def store(root: Path, tmp_path: Path) -> LocalStore:
    """A copy that a test may damage."""
    subprocess.run(["cp", "-r", str(root), str(tmp_path / "root")], check=True)
    return LocalStore(tmp_path / "root")


def data_files(store: ObjectStore) -> list[str]:
    return [info.key for info in store.list("") if keys.parse_data_key(info.key)]


def asked_of(store: LocalStore) -> list[Asked]:
    with TxnLog.open(store.url) as log:
        records = {file.key: file for file in log.state.files}
    sizes = {info.key: info.size for info in store.list("")}
    return [
        Asked(number, FileUse(record, None), sizes.get(key), None)
        for number, (key, record) in enumerate(sorted(records.items()))
    ]


def opening(store: ObjectStore) -> Callable[[], ObjectStore]:
    found = reopening(store)
    assert found is not None
    return found


def found(report: VerifyReport) -> set[tuple[str, str]]:
    return {(problem.kind.value, problem.object) for problem in report.problems}


def children() -> list[int]:
    """Return the processes of this one that decode data files."""
    lines = subprocess.run(["ps", "-A", "-ww", "-o", "pid=,ppid=,args="], capture_output=True, check=True)
    rows = [line.split(None, 2) for line in lines.stdout.decode().splitlines()]
    return [int(row[0]) for row in rows if int(row[1]) == os.getpid() and "deep_child" in row[2]]


# --- the same answers ---------------------------------------------------------------------------------------


def test_the_report_is_that_of_a_check_in_this_process(store: LocalStore) -> None:
    first, second, third, fourth, *_ = data_files(store)
    folder = Path(store.url.removeprefix("file://"))
    data = bytearray((folder / first).read_bytes())
    data[20] ^= 1
    (folder / first).write_bytes(data)
    (folder / second).unlink()
    (folder / third).write_bytes(b"PAR1")
    data = bytearray((folder / fourth).read_bytes())
    data[-9] ^= 1
    (folder / fourth).write_bytes(data)
    progress: list[VerifyProgress] = []
    apart = verify_log(store, deep=True, progress=progress.append)
    here = verify_log(LocalStore(folder, QuickClock()), deep=True, clock=QuickClock())
    assert apart.to_dict() == here.to_dict()
    assert len(apart.problems) >= 4
    assert [at.done for at in progress if at.stage == "files"] == list(range(1, FILES + 1))
    assert children() == []


def test_what_is_part_of_this_process_is_checked_in_it() -> None:
    assert reopening(MemoryStore()) is None
    assert reopening(open_store("memory://here")) is None
    assert reopening(CountingStore(LocalStore("/tmp"))) is None
    assert reopening(LocalStore("/tmp", QuickClock())) is None
    options = {"key": "k", "secret": "s", "region": "us-east-1"}
    assert reopening(S3Store("s3://bucket/log", options, SystemClock())) is None
    again = opening(S3Store("s3://bucket/log", options))()
    assert isinstance(again, S3Store)
    assert (again.url, again.options.secret) == ("s3://bucket/log", "s")


def test_links_are_followed_there_as_they_are_here(tmp_path: Path) -> None:
    build(str(tmp_path / "root"))
    (key, *_) = data_files(LocalStore(tmp_path / "root"))
    (tmp_path / "root" / key).rename(tmp_path / "elsewhere")
    (tmp_path / "root" / key).symlink_to(tmp_path / "elsewhere")
    assert verify_log(LocalStore(tmp_path / "root", follow_symlinks=True), deep=True).ok
    (problem,) = verify_log(LocalStore(tmp_path / "root"), deep=True).problems
    assert (problem.kind, problem.object) == ("unreadable", key)
    assert "follow_symlinks" in str(problem), "nothing is lost, and nothing to restore"


# --- a process that ends ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("way", "said"),
    [
        ("SIGSEGV", "reading it ended the process that reads: SIGSEGV"),
        ("SIGABRT", "SIGABRT"),
        ("SIGKILL", "SIGKILL"),
        ("exit", "exit status 7"),
        ("raise", "KeyError: 'a defect'"),
        ("memory", "more than 2,048 MiB of memory"),
        ("time", "more than 1 s of the processor"),
        ("nonsense", "it answered nonsense"),
    ],
)
def test_a_file_that_ends_the_process_is_a_finding(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, way: str, said: str
) -> None:
    first, hostile, *_ = asked_of(store)
    monkeypatch.setenv(HOSTILE, hostile.use.record.key)
    limits = Limits(memory_bytes=2048 * MIB, cpu_s=1)
    records = list(check_apart(opening(store), [first, hostile], program=program(way), limits=limits))
    assert records[0].problems == []
    assert records[0].checked["records"] == 9
    (problem,) = records[1].problems
    assert (problem.kind, problem.object) == (ProblemKind.READER_ENDED, hostile.use.record.key)
    assert said in problem.what
    assert records[1].checked["files"] == 1


@pytest.mark.parametrize("place", [0, FILES // 2, FILES - 1])
def test_the_file_at_fault_is_told_from_the_others(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    asked = asked_of(store)
    monkeypatch.setenv(HOSTILE, asked[place].use.record.key)
    records = list(check_apart(opening(store), asked, program=program("SIGSEGV")))
    assert [number for number, record in enumerate(records) if record.problems] == [place]
    assert sum(record.checked["records"] for record in records) == 9 * (FILES - 1)
    assert children() == []


def test_the_only_file_is_found_too(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    (only, *_) = asked_of(store)
    monkeypatch.setenv(HOSTILE, only.use.record.key)
    (record,) = check_apart(opening(store), [only], program=program("SIGSEGV"))
    assert [problem.kind for problem in record.problems] == [ProblemKind.READER_ENDED]
    assert record.checked["files"] == 1


def test_what_is_printed_there_is_no_answer(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = asked_of(store)
    monkeypatch.setenv(HOSTILE, asked[3].use.record.key)
    assert all(
        record.problems == [] for record in check_apart(opening(store), asked, program=program("print"))
    )


def test_where_no_process_starts_the_caller_learns_it(store: LocalStore) -> None:
    failing = "from tests.integration.transactions.ending_child import fail_to_start; fail_to_start()"
    with pytest.raises(NoProcessError, match="no such thing here"):
        next(check_apart(opening(store), asked_of(store), program=failing))
    assert children() == []


def test_an_iterator_that_is_closed_ends_the_process(store: LocalStore) -> None:
    records = check_apart(opening(store), asked_of(store))
    assert next(records).problems == []
    assert len(children()) == 1
    records.close()
    assert children() == []


# --- a store that answers as it likes -----------------------------------------------------------------------


class Bucket:
    """Answers as S3 does, from what a store holds."""

    def __init__(self, store: ObjectStore, hostile: str, trap: Callable[[], Iterable[bytes]]) -> None:
        self._store = store
        self._hostile = hostile
        self._trap = trap

    def __call__(self, got: Got) -> Iterator[bytes]:
        parts = urlsplit(got.target)
        if "list-type" in parse_qs(parts.query):
            yield from self._listed(parse_qs(parts.query)["prefix"][0].removeprefix("log/"))
            return
        key = unquote(parts.path).removeprefix("/bucket/log/")
        data = self._store.get(key)
        wanted = re.fullmatch(r"bytes=([0-9]+)-([0-9]+)", got.headers.get("range", ""))
        if data is None:
            yield _answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
        elif key == self._hostile and not wanted:
            yield from self._trap()
        elif wanted:
            yield _answer(206, data[int(wanted[1]) : int(wanted[2]) + 1])
        else:
            yield _answer(200, data)

    def _listed(self, prefix: str) -> Iterator[bytes]:
        items = "".join(
            f"<Contents><Key>log/{escape(info.key)}</Key><Size>{info.size}</Size></Contents>"
            for info in self._store.list(prefix)
        )
        yield _answer(
            200,
            f"<ListBucketResult><IsTruncated>false</IsTruncated>{items}</ListBucketResult>".encode(),
        )


def _answer(status: int, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\nDate: Mon, 05 Jan 2026 00:00:00 GMT\r\n"
    return f'{head}ETag: "0"\r\n\r\n'.encode() + body


SECRET = "CanaryOfTheChild/x+y"


def options(server: HostileServer) -> dict[str, str]:
    return {"key": "CanaryKey", "secret": SECRET, "region": "us-east-1", "endpoint_url": server.url}


def test_a_process_that_is_killed_on_a_file_is_a_finding_and_shows_no_secret() -> None:
    inner = MemoryStore()
    build(inner)
    hostile = data_files(inner)[4]
    shown = []

    def kill() -> Iterator[bytes]:
        for child in children():
            lines = subprocess.run(
                ["ps", "-ww", "-p", str(child), "-o", "args="], capture_output=True, check=False
            )
            shown.append(lines.stdout.decode())
            os.kill(child, signal.SIGKILL)
        return iter(())

    with HostileServer(Bucket(inner, hostile, kill)) as server:
        report = verify_log(S3Store("s3://bucket/log", options(server)), deep=True)
    (problem,) = report.problems
    assert (problem.kind, problem.object) == (ProblemKind.READER_ENDED, hostile)
    assert "SIGKILL" in problem.what
    assert report.checked["files"] == FILES
    assert report.checked["records"] == 9 * (FILES - 1)
    assert 2 <= len(shown) <= 3  # among others; perhaps after others; alone
    assert "Canary" not in "".join(shown)


def test_a_process_that_is_killed_once_from_outside_is_held_against_no_file() -> None:
    inner = MemoryStore()
    build(inner)
    hostile = data_files(inner)[4]
    left = [1]

    def kill() -> Iterator[bytes]:
        while left:
            left.pop()
            for child in children():
                os.kill(child, signal.SIGKILL)
        yield _answer(200, inner.get(hostile) or b"")

    with HostileServer(Bucket(inner, hostile, kill)) as server:
        report = verify_log(S3Store("s3://bucket/log", options(server)), deep=True)
    assert left == []
    assert report.problems == ()
    assert report.checked["records"] == 9 * FILES


@contextlib.contextmanager
def hanging_command(*program: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Give a ``txnlog verify --deep``, or a program, whose other process waits for a file, and that process's
    id."""
    inner = MemoryStore()
    build(inner)
    is_asked = threading.Event()

    def hang() -> Iterator[bytes]:
        is_asked.set()
        yield b"HTTP/1.1 200 X\r\nContent-Length: 300\r\n\r\n"  # no more than the file has
        yield from server.drip(b"x", 1.0)

    with HostileServer(Bucket(inner, data_files(inner)[0], hang)) as server:
        storage = [f"--storage={name}={value}" for name, value in options(server).items()]
        arguments = ["-m", "txnlog", "verify", "--deep", "--root", "s3://bucket/log", *storage]
        if program:
            arguments = [*program, json.dumps(options(server))]
        command = subprocess.Popen(
            [sys.executable, *arguments],
            start_new_session=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        try:
            is_asked.wait()
            lines = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, check=True)
            pairs = [line.split() for line in lines.stdout.decode().splitlines()]
            (child,) = [int(pid) for pid, parent in pairs if int(parent) == command.pid]
            yield command, child
        finally:
            command.kill()
            command.communicate()


def is_there(process: int) -> bool:
    done = subprocess.run(["ps", "-p", str(process), "-o", "stat="], capture_output=True, check=False)
    return done.stdout.strip()[:1] not in (b"", b"Z")


def test_an_interrupt_ends_both_processes() -> None:
    with hanging_command() as (command, child):
        os.killpg(command.pid, signal.SIGINT)  # as a terminal does
        assert command.wait() in (130, -signal.SIGINT)
        assert not is_there(child)


def test_the_other_process_ends_with_the_one_that_asked() -> None:
    with hanging_command() as (command, child):
        command.kill()
        while is_there(child):
            pass


FORKING = """
import json, os, sys, threading, time, warnings
warnings.simplefilter("ignore")
from txnformat.store.s3.store import S3Store
from txnformat.verify.log import verify_log
store = S3Store("s3://bucket/log", json.loads(sys.argv[1]))
threading.Thread(target=verify_log, args=(store,), kwargs={"deep": True}, daemon=True).start()
sys.stdin.readline()
fork = os.fork()
if fork:
    print(fork, flush=True)
while True:
    time.sleep(100)
"""


def test_a_fork_that_holds_the_pipe_open_does_not_keep_the_other_process() -> None:
    with hanging_command("-c", FORKING) as (program, child):
        assert program.stdin is not None
        assert program.stdout is not None
        program.stdin.write(b"\n")
        program.stdin.flush()
        fork = int(program.stdout.readline())
        try:
            program.kill()
            program.wait()
            while is_there(child):
                pass
            assert is_there(fork)
        finally:
            os.kill(fork, signal.SIGKILL)


# --- any main program ---------------------------------------------------------------------------------------

SCRIPT = """
from txnlog import TxnLog
with TxnLog.open({root!r}) as log:
    report = log.verify(deep=True)
    print(report.ok, report.checked["records"])
"""


@pytest.mark.parametrize("way", ["-c", "stdin", "file"])
def test_the_main_program_is_not_imported_again(root: Path, tmp_path: Path, way: str) -> None:
    text = SCRIPT.format(
        root=str(root)
    )  # without ``if __name__ == "__main__"``: imported again, it would start another
    (tmp_path / "main.py").write_text(text)
    rest = {"-c": ["-c", text], "stdin": ["-"], "file": [str(tmp_path / "main.py")]}[way]
    (tmp_path / "json.py").write_text("raise SystemExit('the module of a stranger')")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(
        [sys.executable, "-P", *rest],
        input=text if way == "stdin" else "",
        capture_output=True,
        text=True,
        env=environment,
        cwd=tmp_path,
        check=False,
    )
    assert (done.stdout.split(), done.stderr) == (["True", str(9 * FILES)], "")
