"""What hostile names and values of a log do to a terminal: nothing. Every command is run with them, and its
bytes are looked at."""

from __future__ import annotations

import ast
import csv
import io
import json
import re
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pytest

from tests.cli.conftest import PROGRAM, Command
from tests.cli.terminals import DRAWN, on_a_terminal
from tests.meta.cli_reference import commands
from txnformat.core.groups.operations import OffsetCommit, PositionCommit
from txnformat.core.intents import GroupOffsets, JoinAsMember, Write
from txnformat.errors import printable
from txnlog import InvalidInputError, Producer, TxnLog
from txnlog.cli.app import application
from txnlog.cli.output import printable_json

EVIL = "a\x1b]52;c;aGFoYQ==\x07\x1b[31m[/red][bold]\x9b2J\x7f\u202eevil\u2066\u200f\u061c\r\n\u2028b"
"""An escape that sets the clipboard, colours, markup of rich (closing what is not open), C1, DEL,
bidirectional, line breaks."""

NAME = EVIL + ":name"
PATH = "log \x1b[41m\u202e[/red]"

ANSI_COLOURS = re.compile(rb"\x1b\[(?:3[0-9]|4[0-9]|31|41)m")

SHOWN = {
    "create": ["create", "--exist-ok"],
    "topics": ["topics"],
    "create-topic": ["create-topic", "made", "-c", "id:int64"],
    "alter-topic": ["alter-topic", "made", "--add-column", "more:string"],
    "alter-log": ["alter-log", "--truncate-older-than", "30d"],
    "describe": ["describe"],
    "schema": ["schema", "t"],
    "produce": ["produce", "t", "FILE"],
    "consume": ["consume", "t", "--from", "0:0", "--to", "0:3"],
    "import kafka": ["import", "kafka", EVIL],
    "import delta": ["import", "delta", EVIL, "t"],
    "import parquet": ["import", "parquet", EVIL, "t"],
    "export kafka": ["export", "kafka", f"t={EVIL}"],
    "offsets": ["offsets"],
    "transactions list": ["transactions", "list"],
    "transactions describe": ["transactions", "describe", NAME],
    "transactions describe-producers": ["transactions", "describe-producers", "t", "--partition", "0"],
    "transactions find-hanging": ["transactions", "find-hanging"],
    "transactions abort": ["transactions", "abort", NAME, "--dry-run"],
    "transactions force-terminate": ["transactions", "force-terminate", NAME, "--dry-run"],
    "transactions abort-lingering": ["transactions", "abort-lingering", "--prefix", NAME, "--list"],
    "transactions end-expired": ["transactions", "end-expired"],
    "groups list": ["groups", "list"],
    "groups describe": ["groups", "describe", "readers"],
    "groups reset-offsets": ["groups", "reset-offsets", "readers", "--to-latest", "--force"],
    "groups delete": ["groups", "delete", "readers", "--dry-run"],
    "subscriptions list": ["subscriptions", "list"],
    "subscriptions describe": ["subscriptions", "describe", "t", "work"],
    "subscriptions create": ["subscriptions", "create", "t", "made"],
    "subscriptions seek": ["subscriptions", "seek", "t", "made", "--to-latest"],
    "subscriptions delete": ["subscriptions", "delete", "t", "made"],
    "history": ["history", "--all"],
    "dump entries": ["dump", "entries"],
    "dump batches": ["dump", "batches", "t"],
    "dump object": ["dump", "object", "_txnlog/log/00000/00000000000000000001.json"],
    "verify": ["verify", "--deep"],
    "doctor": ["doctor"],
    "maintain timeouts": ["maintain", "timeouts"],
    "maintain seal": ["maintain", "seal"],
    "maintain expire": ["maintain", "expire"],
    "maintain retention": ["maintain", "retention"],
    "maintain erasures": ["maintain", "erasures"],
    "maintain subscriptions": ["maintain", "subscriptions"],
    "maintain all": ["maintain", "all"],
    "upgrade": ["upgrade"],
    "rotate-key": ["rotate-key"],
    "compact": ["compact", "--dry-run"],
    "delete-records": ["delete-records", "t", "--before", "0"],
    "publish": ["publish"],
    "vacuum": ["vacuum"],
    "truncate": ["truncate"],
    "erase": ["erase", "t", "--where", f"\"{EVIL}\" = 'x'", "--requested-by", EVIL],
    "delete-topic": ["delete-topic", "t", "--yes"],
    "metrics": ["metrics"],
    "report": ["report", "--output", "PAGE"],
    "ui": ["ui", "--port", "0", "--for", "0s"],
    "completion": ["completion", "bash"],
}
"""Each command as people call it; the log has hostile names and values wherever it takes them."""

MORE = [
    ["consume", "t", "--to", "0:3", "--format", "csv"],
    ["consume", "t", "--to", "0:3", "--format", "table"],
    ["consume", "t", "--to", "0:3", "--format", "table", "--binary", "hex"],
    ["dump", "entries", "--raw"],
    ["groups", "reset-offsets", "readers", "--to-latest", "--force", "--export"],
    ["metrics", "--prometheus"],
    ["transactions", "abort", "--prefix", "a"],
    ["erase", "--status"],
]
FAILING = [
    [EVIL],
    ["describe", EVIL],
    ["consume", "t", "--columns", EVIL],
    ["consume", "t", "--where", f"{EVIL} = 1"],
    ["consume", EVIL],
    ["erase", EVIL, "--where", f"{EVIL} = 1", "--requested-by", EVIL],
    ["erase", EVIL, "--status"],
    ["create-topic", EVIL, "-c", f"{EVIL}:{EVIL}"],
    ["create-topic", "x", "--schema", f"/nowhere/{EVIL}"],
    ["schema", "t", "--as", "avro"],
    ["create-topic", "x", f"--{EVIL}"],
    ["consume", "t", "--format", EVIL],
    ["produce", "t", "BAD"],
    ["produce", EVIL, "FILE"],
    ["groups", "describe", EVIL],
    ["groups", "reset-offsets", "readers", "--from-file", "BAD"],
    ["dump", "object", EVIL],
    ["transactions", "describe", EVIL],
    ["topics", "--root", f"s3:/{EVIL}"],
    ["topics", "--root", f"{EVIL}://host/x"],
    ["topics", "--storage", EVIL],
    ["topics", "--storage", f"{EVIL}=x"],
]

TWICE = """
import json, sys
from txnlog.cli import app
from txnlog.cli.output import Guarded, is_terminal
if is_terminal(sys.stderr):
    sys.stderr = Guarded(sys.stderr)
for arguments in json.load(open(sys.argv[1])):
    print("=====")
    sys.stdout.flush()
    app.run(arguments)
"""
"""Many command lines in one process, each as the program runs it."""


def unsafe(data: bytes) -> list[str]:
    """Return the characters on a terminal that could steer it or hide something, besides line feeds and
    rich's own."""
    text = DRAWN.sub(b"", data).decode("utf-8", "backslashreplace")
    return sorted({f"U+{ord(one):04X}" for one in text if one != "\n" and unicodedata.category(one) in _BAD})


_BAD = ("Cc", "Cf", "Cs", "Zl", "Zp")


def run_all(lines: Sequence[Sequence[str]], folder: Path) -> list[bytes]:
    """Run command lines on one terminal, and return what each shows."""
    script = folder / "lines.json"
    script.write_text(json.dumps(lines))
    shown = on_a_terminal([PROGRAM[0], "-c", TWICE, str(script)])
    parts = shown.split(b"=====\r\n")[1:]
    assert len(parts) == len(lines), shown[-2000:]
    return parts


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TxnLog:
    """A log whose names and values are hostile, at a path that is."""
    root = tmp_path / PATH
    monkeypatch.setenv("TXNLOG_ROOT", str(root))
    monkeypatch.setenv("PYTHONPATH", str(Path.cwd()))
    log = TxnLog.create(root)
    schema = pa.schema([("id", pa.int64()), (EVIL, pa.string()), ("data", pa.binary())])
    log.create_topic("t", schema, key_columns=[EVIL], timestamp_column=None)
    rows = [{"id": 1, EVIL: EVIL, "data": EVIL.encode()}, {"id": 2, EVIL: "=1+1", "data": b"-1"}]
    with Producer(log, NAME, buffer="inline") as producer, producer.transaction() as txn:
        txn.send("t", rows)
        txn.send_offsets("readers", positions={EVIL: EVIL})
    for number in range(2):
        opened = Producer(log, f"{EVIL}-{number}", buffer="deferred")
        opened.init()
        opened.begin()
        opened.send("t", rows)
        opened.flush()
    held = Producer(log, NAME, buffer="deferred")
    held.init()
    held.begin()
    held.send("t", rows)
    held.send_offsets("others", positions={EVIL: EVIL})
    held.flush()
    topic_id = log.refresh().topic("t").topic_id
    members = (JoinAsMember("members", EVIL, 45_000),)
    offsets = GroupOffsets("readers", (OffsetCommit(topic_id, 0, 1, EVIL),), (PositionCommit(NAME, EVIL),))
    for action in (*members, Write(offsets=(offsets,))):
        log.committer.commit(log.committer.intend(action))
    log.subscriptions.create("t", "work")
    return log


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """Input with hostile values: rows that fit, and rows that do not."""
    good, bad = tmp_path / f"{EVIL.replace('/', '')}.json", tmp_path / "bad.json"
    good.write_text(json.dumps({"id": 3, EVIL: EVIL, "data": "x"}) + "\n")
    bad.write_text(json.dumps({EVIL: 1, EVIL + "?": EVIL}) + f"\n{EVIL}\n")
    return {"FILE": str(good), "BAD": str(bad), "PAGE": str(good.with_suffix(".html"))}


def _filled(lines: Sequence[Sequence[str]], files: dict[str, str]) -> list[list[str]]:
    return [[files.get(word, word) for word in line] for line in lines]


def test_no_command_lets_a_log_steer_the_terminal(
    hostile: TxnLog, tmp_path: Path, files: dict[str, str]
) -> None:
    assert set(SHOWN) == {name for name, _ in commands()}, "a command is missing here"
    lines = _filled([*SHOWN.values(), *MORE, *FAILING], files)
    for line, shown in zip(lines, run_all(lines, tmp_path), strict=True):
        assert unsafe(shown) == [], (line, shown)
        assert not ANSI_COLOURS.search(shown), (line, shown)
        assert b"Traceback" not in shown, (line, shown.decode())
        assert shown, line
    shown = b"".join(run_all([["describe"], ["consume", "t", "--format", "table", "--limit", "1"]], tmp_path))
    assert shown.count(rb"\x1b[31m[/red][bold]\x9b2J\x7f\u202eevil") >= 3  # of the head of a table as well


def test_json_on_a_terminal_is_escaped_and_means_the_same(
    process: Command, hostile: TxnLog, tmp_path: Path, files: dict[str, str]
) -> None:
    names = [name for name in SHOWN if name != "completion"]
    lines = [[*line, "--json"] for line in _filled([*(SHOWN[name] for name in names), *FAILING], files)]
    for line, shown in zip(lines, run_all(lines, tmp_path), strict=True):
        assert unsafe(shown) == [], (line, shown)
        assert b"Traceback" not in shown, (line, shown.decode())
    (shown,) = run_all([["consume", "t", "--limit", "2"]], tmp_path)
    piped = process("consume", "t", "--limit", "2")
    assert "\u202e" in piped.out, "a pipe gets exact values"
    assert "\x9b" in piped.out
    assert [json.loads(line) for line in shown.decode().splitlines()] == [
        json.loads(line) for line in piped.out.split("\n")[:-1]
    ]
    described = process("describe", "--json")
    assert [EVIL in topic["columns"] for topic in described.json["topics"] if topic["name"] == "t"] == [True]
    assert "\u202e" in described.out


def test_log_lines_warnings_and_tracebacks_are_escaped_on_a_terminal(hostile: TxnLog) -> None:
    program = f"""
import logging, sys, threading, warnings
from txnlog.cli import app, topics
def defect(*_, **__):
    logging.getLogger("txnlog").warning("seen %s", {EVIL!r})
    warnings.warn({EVIL!r})
    thread = threading.Thread(target=lambda: 1 / len({{}}) if {EVIL!r} in {{}} else int({EVIL!r}))
    thread.start(); thread.join()
    raise ValueError({EVIL!r})
app.application.commands["topics"].callback = defect
sys.argv = ["txnlog", "topics"]
app.main()
"""
    shown = on_a_terminal([PROGRAM[0], "-c", program])
    assert shown.count(b"Traceback") >= 2, shown
    assert unsafe(shown) == [], shown


def test_output_has_one_door() -> None:
    """Nothing in the command line prints but txnlog/cli/output.py, which escapes."""
    folder = Path("txnlog/cli")
    doors = ("print", "click.echo", "click.secho", "sys.stdout.write", "sys.stderr.write", "Console")
    found = [
        f"{path.name}:{ast.unparse(node)}"
        for path in sorted(folder.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in doors
    ]
    assert [one for one in found if not one.startswith("output.py:")] == [
        "progress.py:Console(file=unguarded(sys.stderr))",
    ]


def test_the_question_before_an_abort_is_escaped() -> None:
    """click.confirm is the one call that prompts."""
    source = Path("txnlog/cli/ending.py").read_text(encoding="utf-8")
    assert source.count("click.confirm") == 1
    assert 'names = printable(", ".join' in source


# --- errors of the library ----------------------------------------------------------------------------------


def test_the_message_of_an_error_is_one_line_that_steers_nothing() -> None:
    """Tracebacks, log lines and notebooks show it; its values stay exact."""
    error = InvalidInputError([f"column {EVIL} is wrong"], hint=EVIL, name=EVIL)
    assert str(error).isprintable()
    assert error.values == {"name": EVIL}
    assert error.problems == [f"column {EVIL} is wrong"]


@pytest.mark.parametrize("text", ["", "plain", "größer 日本 😀", EVIL, "\ud800"])
def test_json_with_escapes_means_the_same(text: str) -> None:
    shown = printable_json(json.dumps({"x": text}, ensure_ascii=False))
    assert json.loads(shown) == {"x": text}
    assert shown.isprintable()
    assert printable(text).isprintable()


# --- CSV ----------------------------------------------------------------------------------------------------


def _csv(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text)))


def test_csv_holds_binary_columns_as_text(txnlog: Command, log: TxnLog) -> None:
    log.create_topic("b", pa.schema([("id", pa.int64()), ("data", pa.binary())]))
    with Producer(log) as producer:
        producer.send(
            "b", [{"id": 1, "data": b"\xff\x00,\n"}, {"id": 2, "data": None}, {"id": 3, "data": b""}]
        )
    hexed = txnlog("consume", "b", "--format", "csv", "--binary", "hex")
    assert (hexed.code, hexed.out) == (0, '"id","data"\n1,"ff002c0a"\n2,\n3,""\n')
    based = txnlog("consume", "b", "--format", "csv", "--binary", "base64")
    assert _csv(based.out)[1] == ["1", "/wAsCg=="]
    plain = txnlog("consume", "b", "--format", "csv")
    assert plain.code == 2
    assert "kind: not-utf8" in plain.err
    assert "--binary base64" in plain.err


FORMULAS = [
    "=1+1",
    "+1",
    "-1",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    "\n=1",
    "\uff1d1",
    "\uff0b1",
    "\uff0d1",
    "\uff201",
]


def test_formulas_are_neutralised_where_asked_for_and_kept_otherwise(txnlog: Command, log: TxnLog) -> None:
    names: Any = pa.schema([("id", pa.int64()), ("=cmd()", pa.string()), ("raw", pa.binary())])
    log.create_topic("f", names)
    texts = [*FORMULAS, "1-1", "a=b", "", " =1"]
    with Producer(log) as producer:
        producer.send("f", [{"id": -5, "=cmd()": text, "raw": text.encode()} for text in texts])
    exact = _csv(txnlog("consume", "f", "--format", "csv").out.replace("\r", "\\r"))
    assert exact[0] == ["id", "=cmd()", "raw"]
    assert [row[1].replace("\\r", "\r") for row in exact[1:]] == texts
    safe = _csv(txnlog("consume", "f", "--format", "csv", "--no-formulas").out.replace("\r", "\\r"))
    assert safe[0] == ["id", "'=cmd()", "raw"]
    expected = [f"'{text}" for text in FORMULAS] + texts[len(FORMULAS) :]
    assert [row[1].replace("\\r", "\r") for row in safe[1:]] == expected
    assert [row[2].replace("\\r", "\r") for row in safe[1:]] == expected
    assert {row[0] for row in safe[1:]} == {"-5"}, "numbers stay numbers"
    wrong = txnlog("consume", "f", "--no-formulas")
    assert wrong.code == 2
    assert "--format csv" in wrong.err


def test_the_commands_that_are_walked_are_all_of_the_program() -> None:
    groups = [command for command in application.commands.values() if isinstance(command, click.Group)]
    assert len(SHOWN) == len(application.commands) - len(groups) + sum(len(one.commands) for one in groups)
