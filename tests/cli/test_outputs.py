"""Files that commands write: what is at a path stays what it is, and an output that cannot be written is told
in one way."""

from __future__ import annotations

import os
import stat
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli.conftest import PROGRAM, Command
from txnformat.errors import StorageError
from txnlog import Producer, TxnLog
from txnlog.cli.app import application
from txnlog.cli.options import FilePath
from txnlog.cli.records.outputs import check_output, writing


@pytest.fixture
def filled(log: TxnLog) -> TxnLog:
    log.create_topic("t", pa.schema([("id", pa.int64())]))
    with Producer(log) as producer:
        producer.send("t", [{"id": 1}, {"id": 2}])
    return log


OUTPUTS: dict[str, tuple[str, ...]] = {
    "consume": ("consume", "t", "--format", "csv", "-o"),
    "report": ("report", "-o"),
    "schema": ("schema", "t", "-o"),
    "maintain": ("maintain", "all", "--metrics-file"),
}
"""Each command line that writes a file, up to the file's path."""
BEGINS = {
    "consume": b'"id"\n1\n2\n',
    "report": b"<!doctype html>",
    "schema": b"`id` BIGINT",
    "maintain": b"# HELP",
}


def names(folder: Path) -> set[str]:
    return {one.name for one in folder.iterdir()}


every_output = pytest.mark.parametrize("name", OUTPUTS)


def test_each_option_for_a_file_is_known_here() -> None:
    found = set()

    def walk(command: click.Command, path: tuple[str, ...]) -> None:
        if isinstance(command, click.Group):
            for name, inner in command.commands.items():
                walk(inner, (*path, name))
        for one in command.params:
            if isinstance(one.type, click.Path):
                assert isinstance(one.type, FilePath), (path, one.name)
                found.add((path, one.name))

    walk(application, ())
    read = {(("import", "kafka"), "key_schema"), (("import", "kafka"), "value_schema")}
    written = {(("maintain", "all"), "metrics_file")} | {
        ((name,), "output") for name in ("consume", "report", "schema")
    }
    assert found == read | written


@every_output
def test_a_file_is_written(txnlog: Command, filled: TxnLog, tmp_path: Path, name: str) -> None:
    path = tmp_path / "out.csv"
    old = os.umask(0o027)
    try:
        assert txnlog(*OUTPUTS[name], path).code == 0
    finally:
        os.umask(old)
    assert path.read_bytes().startswith(BEGINS[name])
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert names(tmp_path) - {"log"} == {"out.csv"}


@every_output
def test_a_file_keeps_its_mode(txnlog: Command, filled: TxnLog, tmp_path: Path, name: str) -> None:
    path = tmp_path / "out.csv"
    path.write_text("before")
    path.chmod(0o600)
    assert txnlog(*OUTPUTS[name], path).code == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_bytes().startswith(BEGINS[name])


@every_output
@pytest.mark.parametrize("is_there", [True, False])
def test_a_link_stays_one(txnlog: Command, filled: TxnLog, tmp_path: Path, name: str, is_there: bool) -> None:
    real = tmp_path / "elsewhere" / "real.csv"
    real.parent.mkdir()
    if is_there:
        real.write_text("before")
    links = [tmp_path / "out.csv", tmp_path / "second.csv"]
    links[0].symlink_to("second.csv")
    links[1].symlink_to("elsewhere/real.csv")
    assert txnlog(*OUTPUTS[name], links[0]).code == 0
    assert all(one.is_symlink() for one in links)
    assert real.read_bytes().startswith(BEGINS[name])


@every_output
def test_a_fifo_is_written_through(txnlog: Command, filled: TxnLog, tmp_path: Path, name: str) -> None:
    path = tmp_path / "pipe.csv"
    os.mkfifo(path)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(path.read_bytes()), daemon=True)
    reader.start()
    assert txnlog(*OUTPUTS[name], path).code == 0
    reader.join(30)
    assert stat.S_ISFIFO(path.stat().st_mode)
    assert read[0].startswith(BEGINS[name])


@every_output
def test_a_device_stays_one(txnlog: Command, filled: TxnLog, tmp_path: Path, name: str) -> None:
    path = tmp_path / "null"
    try:
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        path.open("wb").close()
    except PermissionError:
        pytest.skip("this user makes no devices, or the file system has none")
    assert txnlog(*OUTPUTS[name], path).code == 0
    assert stat.S_ISCHR(path.stat().st_mode)


@every_output
@pytest.mark.parametrize("spelled", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_the_standard_output_goes_on_behind_what_it_has(
    filled: TxnLog, tmp_path: Path, name: str, spelled: str
) -> None:
    """A regular file behind it is the one that the shell has opened: neither cut nor replaced."""
    path = tmp_path / "all.txt"
    path.write_bytes(b"before\n")
    node = path.stat().st_ino
    with path.open("ab") as file:
        subprocess.run([*PROGRAM, *OUTPUTS[name], spelled], stdout=file, check=True, timeout=300)
    assert path.stat().st_ino == node
    found = path.read_bytes()
    assert found.startswith(b"before\n")
    assert BEGINS[name] in found
    piped = subprocess.run(
        [*PROGRAM, *OUTPUTS[name], spelled], stdout=subprocess.PIPE, check=True, timeout=300
    )
    assert BEGINS[name] in piped.stdout


def test_parquet_goes_into_a_pipe(filled: TxnLog) -> None:
    words = ["consume", "t", "--format", "parquet", "-o", "/dev/stdout"]
    done = subprocess.run([*PROGRAM, *words], stdout=subprocess.PIPE, check=True, timeout=300)
    assert pq.read_table(pa.BufferReader(done.stdout)).num_rows == 2


@every_output
def test_what_cannot_be_written_is_told_in_one_way(
    txnlog: Command, filled: TxnLog, tmp_path: Path, name: str
) -> None:
    before = filled.refresh().entry
    file = tmp_path / "file"
    file.write_text("")
    (tmp_path / "loop").symlink_to("loop")
    words = [word for word in OUTPUTS[name] if word not in ("--format", "csv")]
    for path in (tmp_path / "none" / "x.json", file / "x.json", tmp_path / "loop", tmp_path / ("x" * 256)):
        answer = txnlog(*words, path, "--json")
        assert (answer.code, answer.error["kind"]) == (5, "output-failed"), path
        assert answer.error["values"] == {"path": str(path)}
    for wrong in ("", tmp_path):
        answer = txnlog(*words, wrong, "--json")
        assert (answer.code, answer.error["kind"]) == (2, "usage"), wrong
    assert filled.refresh().entry == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
@every_output
def test_a_file_that_is_protected_stays(txnlog: Command, filled: TxnLog, tmp_path: Path, name: str) -> None:
    path = tmp_path / "out.csv"
    path.write_text("before")
    path.chmod(0o400)
    assert txnlog(*OUTPUTS[name], path).code == 5
    assert path.read_text() == "before"


def test_files_of_the_user_stay_as_they_are(txnlog: Command, filled: TxnLog, tmp_path: Path) -> None:
    for name in ("a.csv.partial", "a.csv.new"):
        (tmp_path / name).write_text("mine")
    assert txnlog("consume", "t", "-o", tmp_path / "a.csv").code == 0
    assert txnlog("maintain", "all", "--metrics-file", tmp_path / "a.csv").code == 0
    for name in ("a.csv.partial", "a.csv.new"):
        assert (tmp_path / name).read_text() == "mine"


def test_two_at_the_same_time_share_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with writing(path) as first, writing(path) as second:
        first.write(b"first")
        second.write(b"second")
    assert path.read_bytes() == b"first"
    assert names(tmp_path) == {"a"}


def test_a_failure_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("before")

    def fail(error: BaseException) -> None:
        with writing(path) as file:
            file.write(b"half")
            raise error

    for error in (ValueError(), KeyboardInterrupt()):
        with pytest.raises(type(error)):
            fail(error)
        assert path.read_text() == "before"
        assert names(tmp_path) == {"a"}
    with pytest.raises(StorageError) as caught:
        fail(OSError(28, "No space left on device"))
    assert caught.value.values == {"path": str(path)}
    assert caught.value.kind == "output-failed"
    with pytest.raises(BrokenPipeError):
        fail(BrokenPipeError())


def test_the_owner_is_kept_where_that_is_permitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    path.write_text("before")
    asked: list[Any] = []

    def refuse(descriptor: int, user: int, group: int) -> None:
        asked.append((user, group))
        raise PermissionError

    real: Callable[..., os.stat_result] = os.fstat

    def of_another(descriptor: int) -> os.stat_result:
        found = list(real(descriptor))
        found[4] += 1
        return os.stat_result(found)

    monkeypatch.setattr(os, "fchown", refuse)
    monkeypatch.setattr(os, "fstat", of_another)
    with writing(path) as file:
        file.write(b"after")
    assert asked == [(path.stat().st_uid, path.stat().st_gid)]
    assert path.read_text() == "after"


def test_a_check_makes_nothing(tmp_path: Path) -> None:
    check_output(tmp_path / "a")
    os.mkfifo(tmp_path / "pipe")
    check_output(tmp_path / "pipe")  # there is no reader
    assert names(tmp_path) == {"pipe"}


# --- empty texts --------------------------------------------------------------------------------------------

REQUIRED = {"topic": "t", "file": "-", "root": "", "table": "/nowhere", "path": "/nowhere"}
SERVED: dict[tuple[str, ...], tuple[str, ...]] = {
    ("ui",): ("--for", "1ms", "--port", "0"),
    ("completion",): (),
}
REFUSED = {
    "--host", "--metrics-file", "--output", "--key-schema", "--value-schema", "PATH", "TABLE", "FILE", "--schema",
    "--root", "OBJECT",
}  # fmt: skip
"""What names a place: an empty text, as of a variable of a shell that is not set, is none."""


def _texts(command: click.Command, path: tuple[str, ...]) -> list[tuple[tuple[str, ...], str]]:
    if isinstance(command, click.Group):
        return [found for name, inner in command.commands.items() for found in _texts(inner, (*path, name))]
    return [
        (path, one.name or "")
        for one in command.params
        if not isinstance(one.type, click.types.IntParamType | click.types.FloatParamType | click.Choice)
        and not (isinstance(one, click.Option) and one.is_flag)
    ]


def _called(path: tuple[str, ...], tried: str) -> tuple[str, list[str]]:
    command: Any = application
    for name in path:
        command = command.commands[name]
    words = [*path, *SERVED.get(path, ())]
    shown = tried
    for one in command.params:
        is_argument = isinstance(one, click.Argument)
        value = (
            ""
            if one.name == tried
            else REQUIRED.get(one.name, "1")
            if one.required and one.name != "root"
            else None
        )
        if one.name == tried:
            shown = one.name.upper() if is_argument else one.opts[0]
        if value is not None:
            words += [value] if is_argument else [one.opts[0], value]
    return shown, words


@pytest.mark.parametrize(("path", "tried"), _texts(application, ()), ids=str)
def test_an_empty_text_is_no_defect(
    txnlog: Command,
    filled: TxnLog,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    path: tuple[str, ...],
    tried: str,
) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    shown, words = _called(path, tried)
    if "kafka" in path and tried not in ("key_schema", "value_schema"):
        pytest.skip("this would ask a broker")
    answer = txnlog(*words)
    assert answer.code != 70, answer.err
    assert "Traceback" not in answer.err
    if shown in REFUSED and path != ("doctor",):  # which tells it among its findings
        assert answer.code == 2, answer
