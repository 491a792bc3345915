"""Programs that are started without standard input, output or errors; and text that is not UTF-8."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli.conftest import PROGRAM, Command
from txnlog import Producer, TxnLog

SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string())])


@pytest.fixture
def log(root: Path) -> TxnLog:
    log = TxnLog.create(root)
    log.create_topic("t", SCHEMA)
    return log


def shell(arguments: str, redirected: str) -> subprocess.CompletedProcess[bytes]:
    """Run the program as a shell does that was given ``redirected``."""
    program = " ".join(map(shlex.quote, PROGRAM))
    return subprocess.run(
        ["/bin/sh", "-c", f"exec {program} {arguments} {redirected}"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=300,
        check=False,
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("produce t", b"standard input is closed"),
        ("produce t --format csv -", b"standard input is closed"),
        ("groups reset-offsets g --from-file -", b"standard input is closed"),
    ],
)
def test_what_reads_stdin_says_that_it_is_closed(log: TxnLog, arguments: str, words: bytes) -> None:
    done = shell(arguments, "<&-")
    assert (done.returncode, done.stdout) == (2, b"")
    assert words in done.stderr
    assert b"Traceback" not in done.stderr


def test_what_asks_takes_a_closed_stdin_for_no_terminal(log: TxnLog) -> None:
    producer = Producer(log, "p", buffer="inline")
    producer.init()
    producer.begin()
    producer.send("t", [{"n": 1, "text": "a"}])
    producer.flush()
    done = shell("transactions abort --prefix p", "<&-")
    assert (done.returncode, b"Traceback" in done.stderr) == (2, False)
    assert b"add --yes" in done.stderr


@pytest.mark.parametrize("arguments", ["produce t", "consume t", "verify", "topics", "--json describe"])
def test_a_closed_stdout_is_told_before_anything_is_done(log: TxnLog, tmp_path: Path, arguments: str) -> None:
    records = tmp_path / "records"
    records.write_text('{"n": 1}\n')
    done = shell(arguments, f">&- < {shlex.quote(str(records))}")
    assert (done.returncode, done.stdout) == (5, b"")
    assert b"standard output is closed; the command did nothing" in done.stderr
    assert log.read("t").read_all().num_rows == 0


def test_without_stderr_the_code_tells_and_nothing_else_is_where_it_should_not_be(log: TxnLog) -> None:
    done = shell("consume nosuch", "2>&-")
    assert (done.returncode, done.stdout, done.stderr) == (3, b"", b"")


def test_no_data_file_gets_the_number_of_a_closed_standard_file() -> None:
    code = (
        "import os, sys; from txnlog.cli import app; end = os._exit; sys.argv[1:] = ['topics'];"
        "app.os._exit = lambda code: end(os.open('/dev/null', os.O_RDONLY)); app.main()"
    )
    done = subprocess.run(
        ["/bin/sh", "-c", f'exec {shlex.quote(PROGRAM[0])} -c "{code}" <&- >&- 2>&-'],
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
        timeout=300,
        check=False,
    )
    assert done.returncode > 2


@pytest.mark.parametrize("form", ["json", "csv", "parquet"])
def test_produce_takes_no_text_that_is_not_utf8(
    txnlog: Command, log: TxnLog, tmp_path: Path, form: str
) -> None:
    path = tmp_path / f"records.{form}"
    match form:
        case "json":
            path.write_bytes(b'{"n": 1, "text": "a"}\n{"n": 2, "text": "\xff"}\n')
        case "csv":
            path.write_bytes(b"n,text\n1,a\n2,\xff\n")
        case _:
            text = pa.array([b"a", b"\xff"], pa.binary()).view(pa.string())
            pq.write_table(pa.table({"n": [1, 2], "text": text}), path)
    answer = txnlog("produce", "t", path)
    assert answer.code == 2
    assert "Traceback" not in answer.err
    assert ("line 2" if form == "json" else "row 1" if form == "parquet" else "row 3") in answer.err
    assert log.refresh().topic("t").partitions == 1
    assert log.read("t").read_all().num_rows == 0


def test_half_a_surrogate_pair_in_json_is_refused(txnlog: Command, log: TxnLog) -> None:
    answer = txnlog("produce", "t", stdin=r'{"n": 1, "text": "\ud800"}')
    assert (answer.code, "half a surrogate pair" in answer.err) == (2, True)


def test_names_on_the_command_line_that_are_not_utf8(txnlog: Command, log: TxnLog) -> None:
    name = os.fsdecode(b"\xff")
    for arguments in (
        ("create-topic", name, "-c", "n:int64"),
        ("create-topic", "u", "-c", f"{name}:int64"),
        ("consume", "t", "--columns", name),
        ("consume", name),
        ("produce", "t", "--transactional-id", name),
    ):
        answer = txnlog(*arguments)
        assert answer.code in (2, 3), answer.err
        assert r"\udcff" in answer.err


@pytest.mark.parametrize(("words", "code"), [("topics", 0), ("consume none", 3), ("upgrade --nonsense", 2)])
def test_a_standard_error_that_takes_nothing_does_not_change_the_exit_code(
    log: TxnLog, words: str, code: int
) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([*PROGRAM, *words.split()], stdout=subprocess.DEVNULL, stderr=full, check=False)
    assert done.returncode == code
