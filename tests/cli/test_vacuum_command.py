"""``txnlog vacuum``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.cli.conftest import Command
from txnlog import TxnLog


def test_it_shows_what_there_is_and_what_became_of_it(txnlog: Command, log: TxnLog) -> None:
    root = Path(log.url.removeprefix("file://"))
    (root / "notes.txt").write_text("mine")
    answer = txnlog("vacuum")
    assert answer.code == 0
    assert "Fate" in answer.out
    assert "not a key of txnlog" in answer.out
    assert "0 objects deleted, 0 objects condemned; floor 0, entry " in answer.out
    assert "nothing was changed" in txnlog("vacuum", "--dry-run", "--grace", "2h").out


def test_json_has_the_rows(txnlog: Command, log: TxnLog) -> None:
    report: dict[str, Any] = json.loads(txnlog("vacuum", "--json", "--dry-run", "--grace", "12h").out)
    assert (report["dry_run"], report["grace_ms"], report["floor"]) == (True, 12 * 3_600_000, 0)
    assert report["rows"][0]["fate"] == "kept"
    assert {"fate", "kind", "why", "objects", "bytes", "examples"} == set(report["rows"][0])


@pytest.mark.parametrize(
    ("arguments", "code", "kind"),
    [
        (["--grace", "30m"], 2, "grace-too-short"),
        (["--grace", "0s"], 2, "grace-too-short"),
        (["--grace", "7"], 2, "usage"),
        (["--grace", "7w"], 2, "usage"),
        (["--grace", "-1d"], 2, "usage"),
        (["--grace", ""], 2, "usage"),
    ],
)
def test_a_grace_that_is_none_or_too_short_is_refused(
    txnlog: Command, log: TxnLog, arguments: list[str], code: int, kind: str
) -> None:
    answer = txnlog("vacuum", *arguments, "--json")
    assert (answer.code, answer.error["kind"]) == (code, kind)


def test_a_short_grace_with_consent(txnlog: Command, log: TxnLog) -> None:
    assert txnlog("vacuum", "--grace", "1s", "--allow-short-grace").code == 0


def test_a_dry_run_says_the_floor_of_the_real_run(txnlog: Command, log: TxnLog) -> None:
    """Also where the real run leaves the floor, because it would condemn nothing more."""
    log.create_topic("t", pa.schema([("id", pa.int64())]))
    grace = ("--grace", "0s", "--allow-short-grace", "--json")
    floors = []
    for number in range(6):
        if number % 3 == 0:
            assert txnlog("produce", "t", stdin='{"id": 1}').code == 0
            txnlog("maintain", "seal")
        elif number % 3 == 1:
            txnlog(
                "groups",
                "reset-offsets",
                f"g{number}",
                "--topic",
                "t",
                "--to-earliest",
                "--create",
                "--execute",
            )
        said = txnlog("vacuum", *grace, "--dry-run").json["floor"]
        assert txnlog("vacuum", *grace).json["floor"] == said
        floors.append(said)
    assert len(set(floors)) < len(floors)  # it stayed at least once
    assert len(set(floors)) > 1
