"""``make erasure``: the campaign of processes, every request at which an erasure can die or meet another
client, and random histories."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from tests.erasure.campaign import run
from tests.erasure.histories import History
from tests.erasure.meetings import compact, erase, meetings
from tests.maintenance.deaths import deaths
from tests.maintenance.world import small_lists
from txnlog_testing.temporary import own_temporary_directory


def main(arguments: list[str]) -> int:
    """Do it, print the figures, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.erasure", description=__doc__)
    parser.add_argument("--canaries", type=int, default=100_000)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--histories", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--stream-steps", type=int, default=20, help="of a query of Spark; 0: there is none")
    parser.add_argument("--only-processes", action="store_true")
    given = parser.parse_args(arguments)
    figures: dict[str, object] = {}
    if not given.only_processes:
        with small_lists():
            figures["requests of an erasure that dies"] = deaths("erase", full=True)
        figures["requests of a compactor that waits"] = meetings(compact, erase, 1)
        figures["requests of an erasure that waits"] = meetings(erase, compact, 1)
        figures["requests of two erasures"] = meetings(erase, erase, 1)
        for seed in range(given.seed, given.seed + given.histories):
            History(seed).run(40)
        figures["histories"] = given.histories
    with tempfile.TemporaryDirectory(prefix="txnlog-erasure-") as root:
        outcome = run(
            Path(root) / "log", given.canaries, given.kills, given.seed, stream_steps=given.stream_steps
        )
    print(json.dumps({**figures, **asdict(outcome), "ok": outcome.ok}, indent=2, default=str))
    return 0 if outcome.ok else 1


if __name__ == "__main__":
    with own_temporary_directory():
        sys.exit(main(sys.argv[1:]))
