"""Many processes that create the same slots of a store, each with its own connection."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from txnformat.keys import entry_key
from txnformat.store.base import ObjectStore
from txnlog_testing.stores.create_race import slot_bytes

__all__ = ["race"]

ROOT = Path(__file__).resolve().parents[2]


def race(
    store: ObjectStore, environment: Mapping[str, str], *, racers: int, slots: int, losers: str = "EA"
) -> None:
    """Let many processes create the same slots, and read all of them back: each has one winner, whose bytes
    are there.

    Parameters
    ----------
    store : ObjectStore
        Where nothing is yet.
    environment : mapping
        Variables by which another process finds the store of this URL.
    racers, slots : int
        How many.
    losers : str
        What the others may be told. E: an object is there. A: another creator was in the way (409), and the
        answer is known only after reading it back.
    """
    command = [sys.executable, "-m", "txnlog_testing.stores.create_race", store.url]
    processes = [
        subprocess.Popen(
            [*command, str(number), str(slots)],
            cwd=ROOT,
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(racers)
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        answers = [process.communicate(timeout=3_600)[0].strip() for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    assert [len(answer) for answer in answers] == [slots] * racers
    for slot in range(slots):
        letters = [answer[slot] for answer in answers]
        assert letters.count("C") == 1, (slot, Counter(letters))
        assert set(letters) <= {"C", *losers}, (slot, Counter(letters))
        assert store.get(entry_key(slot)) == slot_bytes(letters.index("C"), slot), slot
    assert len(store.list("")) == slots
