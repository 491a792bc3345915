"""``txnlog erase``, and ``txnlog maintain erasures``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.cli.conftest import Command
from txnlog import Producer, TxnLog

KEY = "0123456789abcdef" * 2
SCHEMA = pa.schema([("name", pa.string())])


@pytest.fixture
def people(log: TxnLog) -> TxnLog:
    log.create_topic("people", SCHEMA)
    with Producer(log, "writer") as producer, producer.transaction() as transaction:
        transaction.send("people", pa.table({"name": ["ann", "bob", "canary"]}, SCHEMA))
    return log


def erase(txnlog: Command, *arguments: str) -> Any:
    return txnlog("erase", "people", "--where", "name = 'canary'", "--requested-by", "the desk", *arguments)


def test_it_shows_the_key_first_and_then_what_is_missing(txnlog: Command, people: TxnLog) -> None:
    answer = erase(txnlog)
    assert answer.code == 0
    assert answer.err.startswith("key: ")
    assert len(answer.err.split()[1]) == 64
    assert "1 matching row in 1 file" in answer.out
    assert "1 record removed, deleting" in answer.out
    assert "missing: a vacuum that deletes what was written before entry " in answer.out
    assert people.read("people").read_all()["name"].to_pylist() == ["ann", "bob"]


def test_a_dry_run_names_the_files_and_needs_no_name(txnlog: Command, people: TxnLog) -> None:
    answer = txnlog("erase", "people", "--where", "name = 'canary'", "--dry-run")
    assert answer.code == 0
    assert "/data/" in answer.out
    assert "nothing was changed" in answer.out
    assert people.erasures() == []


def test_status_says_what_each_erasure_lacks(txnlog: Command, people: TxnLog) -> None:
    assert "the log has no erasure" in txnlog("erase", "--status").out
    report = json.loads(erase(txnlog, "--key", KEY, "--json").out)
    assert (report["key"], report["rows"], report["status"]["columns"]) == (KEY, 1, ["name"])
    name = report["status"]["erasure_id"]
    assert name in txnlog("erase", "--status", name).out
    (found,) = json.loads(txnlog("erase", "--status", "--json").out)["erasures"]
    assert (found["erasure_id"], found["stage"], found["requested_by"]) == (name, "deleting", "the desk")
    assert "older than its grace" in found["missing"][0]
    unknown = txnlog("erase", "--status", "x", "--json")
    assert (unknown.code, unknown.error["kind"]) == (3, "unknown-erasure")
    for other in (["--where", "n = 1"], ["--requested-by", "me"], ["--key", KEY], ["--abandon"]):
        assert "takes only the id of an erasure" in txnlog("erase", name, "--status", *other).err


def test_a_call_says_whether_the_erasure_is_new_and_whether_anything_matches(
    txnlog: Command, people: TxnLog
) -> None:
    assert ", a new erasure: 1 record removed" in erase(txnlog, "--key", KEY).out
    assert ", the erasure that had begun before: 1 record removed" in erase(txnlog, "--key", KEY).out
    other = txnlog("erase", "people", "--where", "name = 'bib'", "--requested-by", "x", "--key", KEY).out
    assert ", a new erasure: 0 records removed" in other
    assert "no row matches the condition" in other


def test_a_key_is_taken_back_where_no_erasure_began(txnlog: Command, people: TxnLog) -> None:
    for where in ("name = bob", "none = 1", "TRUE"):
        answer = txnlog("erase", "people", "--where", where, "--requested-by", "x")
        assert answer.code == 2
        assert "no erasure was started; discard this key" in answer.err
    assert (
        "a text needs single quotes"
        in txnlog("erase", "people", "--where", "name = bob", "--requested-by", "x").err
    )


def test_an_empty_condition_is_told_before_a_key_is_shown(txnlog: Command, people: TxnLog) -> None:
    answer = txnlog("erase", "people", "--where", " ", "--requested-by", "me")
    assert answer.code == 2
    assert "key:" not in answer.err


def test_an_empty_name_of_who_asks_is_refused(txnlog: Command, people: TxnLog) -> None:
    """As ``--requested-by "$TICKET"`` gives, where the variable is not set."""
    before = people.refresh().entry
    answer = txnlog("erase", "people", "--where", "n = 1", "--requested-by", "", "--json")
    assert (answer.code, answer.error["kind"]) == (2, "invalid-requested-by")
    assert people.refresh().entry == before


def test_an_erasure_is_abandoned_by_its_id(txnlog: Command, people: TxnLog) -> None:
    name = json.loads(erase(txnlog, "--key", KEY, "--json").out)["status"]["erasure_id"]
    for wrong in (["erase", "--abandon"], ["erase", name, "--abandon"]):
        assert txnlog(*wrong).code == 2
    assert erase(txnlog, "--abandon").code == 2
    assert people.erasures() != []
    answer = txnlog("erase", name, "--abandon", "--requested-by", "the desk")
    assert (answer.code, answer.out.startswith(f"erasure {name} is abandoned: 1 record removed")) == (0, True)
    assert people.erasures() == []
    name = json.loads(erase(txnlog, "--key", KEY, "--json").out)["status"]["erasure_id"]
    answer = txnlog("erase", name, "--abandon", "--requested-by", "the desk", "--json")
    assert json.loads(answer.out)["abandoned"]["erasure_id"] == name


def test_maintenance_says_what_erasures_lack(txnlog: Command, people: TxnLog) -> None:
    assert "every erasure is complete" in txnlog("maintain", "erasures").out
    erase(txnlog)
    assert (
        "missing: a vacuum that deletes what was written before entry " in txnlog("maintain", "erasures").out
    )
    assert "0 erasures completed, 1 not complete" in txnlog("maintain", "all").out


def test_history_and_dump_show_the_audit_and_no_literal(txnlog: Command, people: TxnLog) -> None:
    erase(txnlog, "--key", KEY)
    entry = next(one.entry for one in people.history() if "request_erasure" in one.operations)
    assert "request_erasure" in txnlog("history").out
    dumped = txnlog("dump", "entries", "--entry", str(entry)).out
    assert "the desk" in dumped
    for out in (dumped, txnlog("history", "--json").out, txnlog("erase", "--status", "--json").out):
        assert "canary" not in out
        assert KEY not in out


@pytest.mark.parametrize(
    ("arguments", "code", "kind"),
    [
        ([], 2, "usage"),
        (["people"], 2, "usage"),
        (["people", "--where", "name = 'x'"], 2, "usage"),
        (["people", "--where", "TRUE", "--requested-by", "x"], 2, "erases-all-rows"),
        (["people", "--where", "none = 1", "--requested-by", "x"], 2, "invalid-where"),
        (["none", "--where", "a = 1", "--requested-by", "x"], 3, "unknown-topic"),
    ],
)
def test_what_is_asked_wrongly_is_refused(
    txnlog: Command, people: TxnLog, arguments: list[str], code: int, kind: str
) -> None:
    answer = txnlog("erase", *arguments, "--json")
    assert (answer.code, answer.error["kind"]) == (code, kind)
    assert people.erasures() == []


def test_all_rows_go_with_consent(txnlog: Command, people: TxnLog) -> None:
    answer = txnlog("erase", "people", "--where", "TRUE", "--requested-by", "x", "--all-rows")
    assert answer.code == 0
    assert people.read("people").read_all().num_rows == 0


def test_without_a_log_there_is_no_key(txnlog: Command, root: Path) -> None:
    answer = txnlog("erase", "people", "--where", "id = 1", "--requested-by", "x")
    assert answer.code == 3
    assert answer.err.startswith("txnlog: ")
    assert "key" not in answer.err
