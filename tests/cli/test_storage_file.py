"""``--storage @FILE``: secrets that no process list shows."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

import pytest

from tests.cli.conftest import Command
from txnlog import TxnLog
from txnlog.cli.storage_file import BYTES_MAX, read_storage_file

SECRET = "hush/hush+hush=="


@pytest.mark.parametrize(
    "text",
    [
        f"key=id\nsecret={SECRET}\n",
        f"# mine\n\n  key = id\r\nsecret = {SECRET}\r\n",
        f'{{"key": "id", "secret": "{SECRET}"}}',
        f'\ufeff{{"key": "id",\n "secret": "{SECRET}"}}',
    ],
)
def test_lines_and_json_mean_the_same(tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "options"
    path.write_text(text)
    path.chmod(0o600)
    assert read_storage_file(str(path)) == {"key": "id", "secret": SECRET}
    assert capsys.readouterr() == ("", "")


def test_a_file_that_others_can_read_is_told(tmp_path: Path, log: TxnLog, txnlog: Command) -> None:
    log.create_topic("orders", "kafka")
    path = tmp_path / "options"
    path.write_text("# nothing")
    path.chmod(0o640)
    note = f"other users can read {path}; chmod 600 ends that"
    assert txnlog("topics", "--storage", f"@{path}").err == f"txnlog: note: {note}\n"
    assert json.loads(txnlog("topics", "--storage", f"@{path}", "--json").err) == {"notes": [note]}
    failed = txnlog("describe", "none", "--storage", f"@{path}", "--json")
    assert (failed.error["kind"], failed.error["notes"]) == ("unknown-topic", [note])
    misused = txnlog("dump", "object", "--storage", f"@{path}", "--json")
    assert (misused.error["kind"], misused.error["notes"]) == ("usage", [note])


def test_with_json_stderr_has_one_document_whatever_the_library_warns_of(
    log: TxnLog, txnlog: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        for number in range(1_000):
            logging.getLogger("txnlog").warning("warning %d", number)
        raise RuntimeError("a defect")

    monkeypatch.setattr(TxnLog, "topics", broken)
    answer = txnlog("topics", "--json")
    assert (answer.code, answer.out, answer.error["kind"]) == (70, "", "internal")
    trace, *notes = answer.error["notes"]
    assert "RuntimeError: a defect" in trace
    assert notes == [f"warning {number}" for number in range(100)]
    assert txnlog("topics").err.startswith("txnlog: note: warning 0\ntxnlog: note: warning 1\n")


def test_a_pipe_is_read(root: Path, txnlog: Command) -> None:
    """As in ``--storage @<(vault read …)``."""
    reading, writing = os.pipe()
    os.write(writing, f"secret={SECRET}\n".encode())
    os.close(writing)
    try:
        assert read_storage_file(f"/dev/fd/{reading}") == {"secret": SECRET}
    finally:
        os.close(reading)


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        (SECRET.replace("=", ""), 2, "line 1 is not KEY=VALUE"),
        (f"key=id\n={SECRET}", 2, "line 2 is not KEY=VALUE"),
        (f'{{"secret": "{SECRET}"', 2, "not JSON: line 1"),
        (f'{{"secret": ["{SECRET}"]}}', 2, "'secret' is list; use text"),
        (f"secret={SECRET}\nsecret=x", 2, "line 2: option 'secret' is given twice"),
        (f'{{"secret": "{SECRET}", "secret": "x"}}', 2, "given twice"),
        (f"{SECRET}", 2, "does not look like a name"),
        (f"endpoint_url=http://user:{SECRET}@host", 2, "endpoint_url must be"),
        (b"secret=\xff\xfe", 2, "UTF-8"),
        (f"secret={SECRET * BYTES_MAX}", 2, "at most"),
        ("{" * 50_000, 2, "not JSON"),
        ('{"a":' * 13_000, 2, "not JSON"),
        (None, 3, "no such file"),
    ],
)
@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
def test_bad_files_are_one_error_that_repeats_nothing(
    tmp_path: Path, txnlog: Command, text: str | bytes | None, code: int, words: str, as_json: bool
) -> None:
    path = tmp_path / "options"
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        path.chmod(0o600)
    found = txnlog("topics", "--root", "s3://b/x", "--storage", f"@{path}", *(["--json"] if as_json else []))
    assert found.code == code, found
    assert words in found.err
    assert "hush" not in found.out + found.err
    assert "Traceback" not in found.err


def test_a_directory_and_no_name_are_told(tmp_path: Path, txnlog: Command) -> None:
    for name, words in ((str(tmp_path), "cannot be read"), ("", "the name of a file is missing after @")):
        found = txnlog("topics", "--root", "s3://b/x", "--storage", f"@{name}")
        assert found.code == 2
        assert words in found.err
        assert "Traceback" not in found.err


def test_an_option_of_a_json_object_is_named_by_itself(tmp_path: Path, txnlog: Command) -> None:
    path = tmp_path / "options"
    path.write_text('{"region": 5}')
    path.chmod(0o600)
    error = txnlog("topics", "--root", "s3://b/x", "--storage", f"@{path}", "--json").error
    assert error["problems"] == ["option 'region' is int; use text"]


@pytest.mark.parametrize("given", [SECRET, "hushhush", f"{SECRET}x", "=hush"])
def test_a_secret_in_the_wrong_place_is_not_repeated(txnlog: Command, given: str) -> None:
    for root in ("s3://b/x", "/tmp/x"):
        found = txnlog("topics", "--root", root, "--storage", given)
        assert found.code == 2
        assert "hush" not in found.err


def test_a_file_and_options_go_together_and_exclude_each_other(tmp_path: Path, txnlog: Command) -> None:
    path = tmp_path / "options"
    path.write_text("key=id")
    path.chmod(0o600)
    found = txnlog("topics", "--root", "s3://b/x", "--storage", f"@{path}", "--storage", "key=other")
    assert found.code == 2
    assert "'key' is given twice" in found.err
