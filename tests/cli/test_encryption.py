"""An encrypted log on the command line."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Command
from txnformat.store.encrypted.key_file import new_key_file


def test_every_command_takes_the_key_and_none_goes_without(
    txnlog: Command, root: Path, tmp_path: Path
) -> None:
    keys = tmp_path / "keys.json"
    keys.write_text(new_key_file("one"), encoding="utf-8")
    given = ("--storage", f"key_client=file:{keys}")
    assert txnlog("create", *given).code == 0
    assert txnlog("create-topic", "t", "--column", "id:int64", *given).code == 0
    assert txnlog("produce", "t", "-", *given, stdin='{"id": 7}\n').code == 0
    assert txnlog("rotate-key", *given).out == "1 data key made\n"
    assert txnlog("rotate-key", "--master", *given).out == "2 data keys wrapped again\n"
    assert txnlog("rotate-key", *given, "--json").json == {"made": 1}
    assert [line["id"] for line in txnlog("consume", "t", *given).lines] == [7]
    assert txnlog("verify", "--deep", *given).code == 0
    assert txnlog("dump", "object", "_txnlog/log/00000000000000000001.json", *given).code == 0
    assert txnlog("doctor", *given).code == 0
    for line in (("topics",), ("verify",), ("consume", "t"), ("dump", "entries")):
        answer = txnlog(*line, "--json")
        assert (answer.code != 0, answer.error["kind"]) == (True, "log-encrypted"), line
    answer = txnlog("publish", *given, "--json")
    assert answer.error["kind"] == "view-of-encrypted-log"
