"""upgrade: a new log needs none; a log of an older version refuses what it does not allow, and says which
command allows it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tests.cli.conftest import Command
from tests.older_logs import older_log
from txnformat.core.state import EMBEDDING
from txnlog import Producer, TxnLog

ALL = ["base-1", "columns-1", "embedding-1", "lifecycle-1"]


def filled(log: TxnLog) -> TxnLog:
    log.create_topic("orders", pa.schema([("id", pa.int64()), ("note", pa.string())]), key_columns=["id"])
    with Producer(log) as producer:
        producer.send("orders", [{"id": 1, "note": "x"}])
    return log


@pytest.fixture
def older(root: Path) -> TxnLog:
    """A log of an older version that embeds."""
    return filled(older_log(root, EMBEDDING))


REMOVALS = [
    "alter-topic orders --set retention.bytes=0",
    "create-topic more -c id:int64 --set retention.ms=7d",
    "alter-log --truncate-older-than 30d",
    "delete-records orders --before latest",
    "delete-topic orders --yes",
    "compact",
    "truncate",
    "vacuum",
    "erase orders --where id=1 --requested-by me --all-rows",
]
RENAMES = [
    "alter-topic orders --rename-column note=remark",
    "alter-topic orders --drop-column note",
]


@pytest.mark.parametrize("command", [*REMOVALS, *RENAMES])
def test_a_new_log_needs_no_upgrade(txnlog: Command, log: TxnLog, command: str) -> None:
    filled(log)
    assert txnlog("upgrade", "--embedding", "--columns", "--json").json == {
        "upgraded": False,
        "features": ALL,
    }
    answer = txnlog(*command.split())
    assert answer.code == 0, answer.err


@pytest.mark.parametrize("command", ["vacuum", "truncate", "compact", "alter-log --truncate-older-than 30d"])
def test_nor_does_a_log_that_has_no_entry_yet(txnlog: Command, root: Path, command: str) -> None:
    assert txnlog("create").code == 0
    assert txnlog(*command.split()).code == 0
    assert "skipped: the log does not allow" not in txnlog("maintain", "all").out


@pytest.mark.parametrize("command", REMOVALS)
def test_an_older_log_refuses_removals_until_it_is_upgraded(
    txnlog: Command, older: TxnLog, command: str
) -> None:
    before = older.refresh().entry
    answer = txnlog(*command.split(), "--json")
    assert (answer.code, answer.error["kind"]) == (4, "upgrade-required")
    assert "`txnlog upgrade`" in answer.error["hint"]
    assert older.refresh().entry == before
    assert txnlog("upgrade").out == "upgraded\n"
    answer = txnlog(*command.split())
    assert answer.code == 0, answer.err
    assert txnlog("upgrade").out == "nothing to do: the log is upgraded already\n"
    assert txnlog("upgrade", "--json").json == {
        "upgraded": False,
        "features": ["base-1", "embedding-1", "lifecycle-1"],
    }


@pytest.mark.parametrize("command", RENAMES)
def test_and_other_names_until_it_allows_these(txnlog: Command, older: TxnLog, command: str) -> None:
    txnlog("upgrade")
    answer = txnlog(*command.split(), "--json")
    assert (answer.code, answer.error["kind"]) == (4, "upgrade-required")
    assert "`txnlog upgrade --columns`" in answer.error["hint"]
    assert txnlog("upgrade", "--columns", "--json").json == {"upgraded": True, "features": ALL}
    assert txnlog(*command.split()).code == 0


def test_maintenance_of_an_older_log_leaves_removals_out_and_says_so(txnlog: Command, older: TxnLog) -> None:
    assert txnlog("maintain", "retention").out.startswith("skipped: the log does not allow")
    lines = txnlog("maintain", "all", "--truncate-older-than", "30d").out.splitlines()
    skipped = [line.split()[0] for line in lines if "skipped: the log does not allow" in line]
    assert skipped == ["retention", "compact", "vacuum", "erasures", "truncate"]
    txnlog("upgrade")
    assert txnlog("maintain", "retention").out == "nothing to remove\n"
