"""Creates by many processes on the local disk: each slot has exactly one winner."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

from txnformat.keys import LOG_PREFIX, entry_key
from txnformat.store.local import LocalStore
from txnlog_testing.stores.create_race import slot_bytes

ROOT = Path(__file__).resolve().parents[2]
RACERS = 16
SLOTS = 1000


def test_sixteen_processes_and_a_thousand_slots_have_one_winner_each(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "txnlog_testing.stores.create_race", str(tmp_path)]
    racers = [
        subprocess.Popen(
            [*command, str(number), str(SLOTS)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(RACERS)
    ]
    try:
        for racer in racers:
            assert racer.stdout is not None
            assert racer.stdout.readline() == "ready\n"
        for racer in racers:
            assert racer.stdin is not None
            racer.stdin.write("go\n")
            racer.stdin.flush()
        answers = [racer.communicate(timeout=300)[0].strip() for racer in racers]
    finally:
        for racer in racers:
            racer.kill()
            racer.communicate()

    store = LocalStore(tmp_path)
    assert [len(answer) for answer in answers] == [SLOTS] * RACERS
    for slot in range(SLOTS):
        letters = [answer[slot] for answer in answers]
        assert Counter(letters) == {"C": 1, "E": RACERS - 1}, slot
        assert store.get(entry_key(slot)) == slot_bytes(letters.index("C"), slot), slot
    directory = tmp_path / LOG_PREFIX
    assert len(list(directory.iterdir())) == SLOTS  # and no temporary file stays
