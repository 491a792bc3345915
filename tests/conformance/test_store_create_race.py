"""Creates by many processes on the local disk: each slot has exactly one winner."""

from __future__ import annotations

from pathlib import Path

from tests.conformance.store_races import race
from txnformat.keys import LOG_PREFIX
from txnformat.store.local import LocalStore

RACERS = 16
SLOTS = 1000


def test_sixteen_processes_and_a_thousand_slots_have_one_winner_each(tmp_path: Path) -> None:
    race(LocalStore(tmp_path), {}, racers=RACERS, slots=SLOTS, losers="E")
    directory = tmp_path / LOG_PREFIX
    assert len(list(directory.iterdir())) == SLOTS  # and no temporary file stays
