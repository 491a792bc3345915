"""The program as a whole: help, exit codes, errors, pipes, signals, completion."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
from pathlib import Path

import click
import pyarrow as pa
import pytest

from tests.cli.conftest import PROGRAM, Command
from tests.meta.cli_reference import commands
from txnformat import errors
from txnlog import Producer, TxnLog, __version__
from txnlog.cli.app import application
from txnlog.cli.failures import EXIT_CODES, exit_code, report
from txnlog.cli.options import TOPIC

GROUPS = [name for name, command in application.commands.items() if isinstance(command, click.Group)]
HEAVY = ("pyarrow", "numpy", "pyspark", "rich", "fsspec", "s3fs")


def test_help_needs_nothing_heavy(root: Path) -> None:
    """It has to answer at once, and a shell asks for completions at every key."""
    code = (
        "import sys; from txnlog.cli.app import run; run(['--help']); run(['produce', '--help']); "
        "run(['nix']);"
        f"print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([PROGRAM[0], "-c", code], capture_output=True, text=True, check=True, timeout=300)
    assert done.stderr.splitlines()[-1] == "[]"


@pytest.mark.parametrize("module", ["txnlog", "txnlog.cli.app"])
def test_a_module_that_python_can_run_is_the_program(root: Path, module: str) -> None:
    done = subprocess.run(
        [PROGRAM[0], "-m", module, "topcis"], capture_output=True, text=True, check=False, timeout=300
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "Did you mean 'topics'?" in done.stderr


def test_version_and_help(txnlog: Command) -> None:
    assert txnlog("--version").out == f"txnlog, version {__version__}\n"
    for name in application.commands:
        answer = txnlog(name, "--help")
        assert (answer.code, answer.err) == (0, "")
        assert answer.out.startswith(f"Usage: txnlog {name}")


def _every_command() -> list[tuple[str, click.Command]]:
    found = []
    for name, command in application.commands.items():
        if isinstance(command, click.Group):
            found += [(f"{name} {sub}", inner) for sub, inner in command.commands.items()]
        else:
            found.append((name, command))
    return found


@pytest.mark.parametrize(("name", "command"), _every_command(), ids=lambda value: str(value)[:30])
def test_every_command_has_json_and_says_what_each_option_does(name: str, command: click.Command) -> None:
    options = {option for parameter in command.params for option in parameter.opts}
    if name != "completion":
        assert {"--json", "--root"} <= options
    for parameter in command.params:
        assert not isinstance(parameter, click.Option) or parameter.help, parameter.name


def test_every_class_of_errors_has_its_exit_code() -> None:
    for name in errors.__all__:
        cls = getattr(errors, name)
        if cls is not errors.TxnLogError:
            assert any(base in EXIT_CODES for base in cls.__mro__), name
    assert exit_code(errors.UnsupportedStoreError("x")) == 5
    assert exit_code(errors.CorruptDataError("x")) == 6
    assert exit_code(errors.CommitStateUnknownError("x")) == 7
    assert exit_code(errors.ProducerIdConflictError("x")) == 4


def test_an_error_for_people_lists_everything_and_steers_no_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    error = errors.InvalidInputError(["one\x1b[2J", "two"], kind="some-kind", hint="do that", value="a\nb")
    error.add_note("and this")
    assert report(error, as_json=False) == 2
    assert capsys.readouterr().err == (
        "txnlog: the input is not valid\n"
        "  - one\\x1b[2J\n"
        "  - two\n"
        "  value: a\\nb\n"
        "  note: and this\n"
        "  hint: do that\n"
        "  kind: some-kind\n"
    )


def test_a_defect_is_no_negative_result(
    txnlog: Command, log: TxnLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(TxnLog, "topics", broken)
    answer = txnlog("topics")
    assert answer.code == 70
    assert "RuntimeError: a defect" in answer.err


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("topcis", "topics"),
        ("maintain sael", "seal"),
        ("groups lits", "list"),
        ("transactions abrot", "abort"),
    ],
)
def test_a_mistyped_command_is_answered_with_the_nearest(txnlog: Command, words: str, meant: str) -> None:
    answer = txnlog(*words.split())
    assert answer.code == 2
    assert f"Did you mean {meant!r}?" in answer.err


@pytest.mark.parametrize("group", ["", *GROUPS])
def test_a_list_of_commands_has_whole_sentences(txnlog: Command, group: str) -> None:
    shown = txnlog(*group.split(), "--help").out
    listed = shown[shown.index("Commands:") :]
    assert "..." not in listed
    command = application.commands[group] if group else application
    assert isinstance(command, click.Group)
    for name, one in command.commands.items():
        assert f"  {name} " in listed
        first = (one.help or "").split("\n\n")[0].split()[:12]
        assert " ".join(first).split(". ")[0].rstrip(".") in " ".join(listed.split())


@pytest.mark.parametrize("words", [(), ("dump",), ("maintain",)], ids=" ".join)
def test_without_a_command_the_help_is_the_answer(txnlog: Command, words: tuple[str, ...]) -> None:
    answer = txnlog(*words)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err == txnlog(*words, "--help").out


@pytest.mark.parametrize("option", ["--root", "-r", "--storage", "--json"])
def test_an_option_before_the_command_is_sent_behind_it(txnlog: Command, option: str) -> None:
    answer = txnlog(option, "./shop", "topics")
    assert answer.code == 2
    assert f"txnlog COMMAND {option}" in answer.err
    assert "COMMAND" not in txnlog("--rot", "./shop", "topics").err


def test_hints_name_what_is_done_on_a_command_line(txnlog: Command, log: TxnLog, tmp_path: Path) -> None:
    assert "txnlog create" in txnlog("topics", "--root", tmp_path / "none", "--json").error["hint"]
    assert "--exist-ok" in txnlog("create", "--json").error["hint"]
    assert "txnlog create-topic" in txnlog("consume", "none", "--json").error["hint"]


def test_without_a_root_the_variable_is_named(process: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TXNLOG_ROOT")
    answer = process("topics")
    assert answer.code == 2
    assert "--root" in answer.err
    assert "TXNLOG_ROOT" in answer.err


def test_the_root_option_wins_over_the_variable(process: Command, log: TxnLog, tmp_path: Path) -> None:
    other = TxnLog.create(tmp_path / "other")
    assert process("describe", "--json", "--root", tmp_path / "other").json["log_id"] == other.log_id
    assert process("describe", "--json").json["log_id"] == log.log_id


def test_storage_options_reach_the_store_and_stay_secret(txnlog: Command, log: TxnLog) -> None:
    answer = txnlog("topics", "--storage", "secret=hush-hush", "--json")
    assert (answer.code, answer.error["kind"]) == (2, "invalid-storage-option")
    assert "hush" not in answer.err
    for options in (
        ["--storage", "hush-hush"],
        ["--storage", "=hush"],
        ["--storage", "a=hush", "--storage", "a=b"],
    ):
        answer = txnlog("topics", *options)
        assert answer.code == 2
        assert "hush" not in answer.err


def test_a_store_without_an_adapter(txnlog: Command) -> None:
    answer = txnlog("topics", "--root", "gopher://x/y", "--json")
    assert (answer.code, answer.error["class"]) == (5, "UnsupportedStoreError")


# --- pipes and signals --------------------------------------------------------------------------------------


@pytest.fixture
def long_topic(log: TxnLog, txnlog: Command, tmp_path: Path) -> TxnLog:
    """More than a pipe holds."""
    log.create_topic("long", pa.schema([("id", pa.int64())]))
    lines = "".join(f'{{"id":{number}}}\n' for number in range(50_000))
    assert txnlog("produce", "long", stdin=lines).code == 0
    return log


def test_a_reader_that_goes_away_is_no_error(long_topic: TxnLog) -> None:
    consume = subprocess.Popen([*PROGRAM, "consume", "long"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert consume.stdout is not None
    assert consume.stderr is not None
    assert consume.stdout.readline() == b'{"id":0}\n'
    consume.stdout.close()
    assert consume.stderr.read() == b""
    consume.stderr.close()
    assert consume.wait(300) == 141


@pytest.mark.parametrize(("ending", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_while_producing_writes_nothing(log: TxnLog, ending: signal.Signals, code: int) -> None:
    log.create_topic("t", pa.schema([("id", pa.int64())]))
    before = log.refresh().entry
    produce = subprocess.Popen(
        [*PROGRAM, "produce", "t"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert produce.stdin is not None
    # More than one piece and more than a pipe holds: when this returns, it is reading.
    produce.stdin.write(b'{"id":1}\n' * 50_000)
    produce.stdin.flush()
    produce.send_signal(ending)
    out, err = produce.communicate(timeout=300)
    assert (produce.returncode, out) == (code, b"")
    assert err == b"txnlog: interrupted; no record was written\n"
    assert log.refresh().entry == before


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ([], b"txnlog: interrupted\n"),
        (["--json"], b'{"error": {"class": "Interrupted", "kind": "interrupted", '),
    ],
)
def test_an_interrupt_while_modules_are_loaded_is_one_line(options: list[str], told: bytes) -> None:
    code = (
        "import os, signal, sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'txnlog.cli.failures':\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Finder())\n"
        "from txnlog.__main__ import main\n"
        "main()\n"
    )
    done = subprocess.run(
        [PROGRAM[0], "-c", code, "topics", *options], capture_output=True, check=False, timeout=300
    )
    assert (done.returncode, done.stdout) == (130, b"")
    assert done.stderr.startswith(told)
    assert done.stderr.count(b"\n") == 1
    if options:
        assert json.loads(done.stderr)["error"]["exit_code"] == 130


def test_an_interrupt_that_is_ignored_stays_so(log: TxnLog) -> None:
    code = (
        "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); from txnlog import __main__;"
        "import txnlog.cli.app as app; app.main = lambda: print(signal.getsignal(signal.SIGINT).name);"
        "__main__.main()"
    )
    done = subprocess.run([PROGRAM[0], "-c", code], capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout == "SIG_IGN\n"


def test_a_killed_produce_writes_nothing(log: TxnLog) -> None:
    log.create_topic("t", pa.schema([("id", pa.int64())]))
    before = log.refresh().entry
    produce = subprocess.Popen([*PROGRAM, "produce", "t"], stdin=subprocess.PIPE)
    assert produce.stdin is not None
    produce.stdin.write(b'{"id":1}\n' * 50_000)
    produce.stdin.flush()
    produce.kill()
    produce.stdin.close()
    assert produce.wait(300) == -signal.SIGKILL
    assert log.refresh().entry == before


def test_a_full_disk_is_no_defect(log: TxnLog) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*PROGRAM, "describe"], stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=300
        )
    assert done.returncode == 5
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


def test_what_was_printed_before_an_error_is_there(process: Command, log: TxnLog, root: Path) -> None:
    log.create_topic("t", "kafka")
    path = root / "_txnlog" / "log" / f"{1:020d}.json"
    path.chmod(0o644)
    path.write_bytes(b"{}")
    answer = process("dump", "entries", "-e", 0, "-e", 1, "--json")
    assert (answer.code, len(answer.lines)) == (6, 1)


def test_the_interpreter_does_not_tear_itself_down_under_arrows_threads(log: TxnLog) -> None:
    """Else about one in a hundred processes that read files ends with status 134, its work done."""
    code = (
        "import atexit, sys; atexit.register(print, 'torn down'); sys.argv = ['txnlog', 'topics', '--json'];"
        "from txnlog.cli.app import main; main()"
    )
    done = subprocess.run([PROGRAM[0], "-c", code], capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout == '{\n  "topics": []\n}\n'


# --- the terminal -------------------------------------------------------------------------------------------


def _on_a_terminal(*arguments: object, stdin: bytes = b"", **environment: str) -> str:
    """Run a command whose stdout and stderr are a terminal, and return what it shows there."""
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        [*PROGRAM, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm-256color", **environment},
    )
    os.close(theirs)
    shown = b""
    assert child.stdin is not None
    child.stdin.write(stdin)
    child.stdin.close()
    while True:
        select.select([ours], [], [])
        try:
            data = os.read(ours, 65_536)
        except OSError:  # Linux says so when the other end is closed
            break
        if not data:
            break
        shown += data
    os.close(ours)
    assert child.wait(300) == 0
    return shown.decode()


def test_a_table_on_a_terminal_has_its_width_and_no_colour_unless_wanted(long_topic: TxnLog) -> None:
    shown = _on_a_terminal("offsets", COLUMNS="60", NO_COLOR="1")
    assert "─" in shown
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", shown)
    assert max(map(len, re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown).splitlines())) <= 60


def test_progress_is_shown_on_a_terminal_only(long_topic: TxnLog, process: Command) -> None:
    lines = b'{"id":1}\n' * 30_000
    assert "records" in _on_a_terminal("produce", "long", stdin=lines).split("30000 records to long")[0]
    assert process("produce", "long", stdin=lines.decode()).err == ""
    assert "1 records" not in _on_a_terminal("produce", "long", stdin=lines.splitlines()[0])


# --- completion ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_script_is_produced(process: Command, shell: str) -> None:
    answer = process("completion", shell)
    assert (answer.code, answer.err) == (0, "")
    assert f"_TXNLOG_COMPLETE={shell}_complete" in answer.out
    assert process("completion", SHELL=f"/usr/bin/{shell}").out == answer.out


def test_an_unknown_shell_is_asked_for(process: Command) -> None:
    answer = process("completion", SHELL="/bin/dash")
    assert answer.code == 2
    assert "bash, zsh, fish" in answer.err


def test_what_the_script_asks_is_answered(process: Command) -> None:
    answer = process(_TXNLOG_COMPLETE="bash_complete", COMP_WORDS="txnlog cre", COMP_CWORD="1")
    assert answer.out.split() == ["plain,create", "plain,create-topic"]
    options = process(_TXNLOG_COMPLETE="bash_complete", COMP_WORDS="txnlog consume t --iso", COMP_CWORD="3")
    assert options.out.split() == ["plain,--isolation"]


NEW = {"create-topic", "import delta", "import parquet"}
"""Commands whose topic need not be there; import kafka takes Kafka's names."""


def test_every_command_that_takes_a_topic_completes_its_name() -> None:
    without = {
        name
        for name, command in commands()
        for one in command.params
        if one.name in ("topic", "topics") and one.type is not TOPIC
    }
    assert {name for name in without if name.partition(" ")[0] not in ("import", "export")} <= NEW
    assert "offsets" not in without


def completed(process: Command, line: str) -> list[str]:
    words = line.split(" ")
    answer = process(_TXNLOG_COMPLETE="bash_complete", COMP_WORDS=line, COMP_CWORD=str(len(words) - 1))
    assert (answer.code, answer.err) == (0, "")
    return [one.removeprefix("plain,") for one in answer.out.split()]


def test_names_that_the_log_knows_are_completed(
    process: Command, log: TxnLog, root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("orders", "order-lines", "payments"):
        log.create_topic(name, pa.schema([("id", pa.int64())]))
    for name in ("etl-1", "etl-2", "bad $(touch pwned)", "bad`x`", "bad;y", "-x", "bad\nz"):
        with Producer(log, name) as producer, producer.transaction() as txn:
            txn.send("orders", [{"id": 1}])
            txn.send_offsets("billing", {("orders", 0): 0})
    assert completed(process, "txnlog consume or") == ["order-lines", "orders"]
    assert completed(process, "txnlog delete-topic pay") == ["payments"]
    assert completed(process, "txnlog offsets or") == ["order-lines", "orders"]
    assert completed(process, "txnlog describe orders pay") == ["payments"]
    assert completed(process, "txnlog transactions abort e") == ["etl-1", "etl-2"]
    assert completed(process, "txnlog transactions describe etl-1 ") == ["etl-1", "etl-2"]
    assert completed(process, "txnlog groups describe b") == ["billing"]
    monkeypatch.delenv("TXNLOG_ROOT")
    assert completed(process, "txnlog consume or") == []
    assert completed(process, f"txnlog consume --root {root} or") == ["order-lines", "orders"]
    assert completed(process, f"txnlog consume --root {tmp_path / 'none'} or") == []
