"""alter-topic: columns that are renamed and dropped, and what describe shows of that."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.cli.conftest import Command
from txnlog import Producer, TxnLog


@pytest.fixture
def shop(log: TxnLog) -> TxnLog:
    """A topic with two records."""
    log.create_topic("orders", pa.schema([("id", pa.int64())]), partitions=2, key_columns=["id"])
    with Producer(log) as producer:
        producer.send("orders", [{"id": 1}, {"id": 2}], partition=0)
    return log


def test_columns_get_other_names_and_go_and_describe_shows_places(txnlog: Command, shop: TxnLog) -> None:
    assert txnlog("alter-topic", "orders", "--add-column", "note:string", "--add-column", "n:int").code == 0
    options = ["--rename-column", "id=key", "--rename-column", "n=count", "--drop-column", "note", "--json"]
    answer = txnlog("alter-topic", "orders", *options)
    assert (answer.code, list(answer.json["columns"])) == (0, ["key", "count"])
    assert answer.json["places"] == {"key": 0, "count": 2}
    assert answer.json["dropped"] == [{"place": 1, "name": "note", "type": "string"}]
    assert txnlog("alter-topic", "orders", "--add-column", "note:string").code == 0
    shown = txnlog("describe", "orders").out
    assert "Dropped: note:string (place 1)" in shown
    assert "Places: key=0, count=2, note=3" in shown
    assert txnlog("consume", "orders", "--limit", 1).lines == [{"key": 1, "count": None, "note": None}]
    assert "int64 note = " not in txnlog("schema", "orders", "--as", "protobuf").out
    proto = txnlog("schema", "orders", "--as", "protobuf").out
    for line in ("reserved 2;", "int32 count = 3;", "string note = 4;"):
        assert line in proto


def test_a_topic_as_it_began_shows_neither_places_nor_what_was_dropped(txnlog: Command, shop: TxnLog) -> None:
    shown = txnlog("describe", "orders").out
    assert "Places" not in shown
    assert "Dropped" not in shown


@pytest.mark.parametrize(
    ("options", "code", "kind"),
    [
        (["--rename-column", "id"], 2, "usage"),
        (["--rename-column", "id="], 2, "usage"),
        (["--rename-column", "=id"], 2, "usage"),
        (["--rename-column", "id=a", "--rename-column", "id=b"], 2, "usage"),
        (["--rename-column", "nix=a"], 2, "invalid-alter"),
        (["--drop-column", "nix"], 2, "invalid-alter"),
        (["--drop-column", "id"], 2, "invalid-alter"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_written(
    txnlog: Command, shop: TxnLog, options: list[str], code: int, kind: str
) -> None:
    before = shop.refresh().entry
    answer = txnlog("alter-topic", "orders", *options, "--json")
    assert (answer.code, answer.error["kind"], answer.out) == (code, kind, "")
    assert shop.refresh().entry == before
