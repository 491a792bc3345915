"""`make power-cuts`: the power is cut at every system call of every call that writes; what was told has to
stay true.

Also while the process that goes on after one that was killed, at each of its system calls, answers and works
on.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from tests.power.scenes import KILLED, SCENES, kill_everywhere
from tests.power.world import Machine, Tally


def main(arguments: list[str] | None = None) -> int:
    """Run all histories; return 1 when what was told was lost."""
    parser = argparse.ArgumentParser(prog="python -m tests.power", description=__doc__)
    parser.add_argument("--only", default="", help="only histories whose name holds this text")
    parser.add_argument(
        "--every", type=int, default=1, help="kill before each n-th system call only (default: 1)"
    )
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the counts there")
    options = parser.parse_args(arguments)
    killed = {
        f"killed: {name}, {buffer}": (name, buffer)
        for name, (_, buffers) in KILLED.items()
        for buffer in buffers
    }
    rows: list[dict[str, Any]] = []
    for label, embeds in itertools.product([*SCENES, "killed: creates, auto", *killed], (True, False)):
        shown = label if embeds else f"{label}, in files"
        if options.only not in shown:
            continue
        tally, start = Tally(), time.perf_counter()
        make = partial(Machine, tally, embeds=embeds)
        if label in SCENES:
            machine = make(label)
            try:
                SCENES[label](machine)
            finally:
                machine.close()
        else:
            name, buffer = killed.get(label, ("creates", "auto"))
            for _ in kill_everywhere(name, buffer, make, options.every):
                pass
        rows.append(_row(shown, tally))
        print(_line(rows[-1]), f"{time.perf_counter() - start:.1f} s", flush=True)
        for problem in tally.problems[:5]:
            print(f"    {problem}")
    total = {key: sum(row[key] for row in rows) for key in rows[0] if key != "history"}
    print(_line({"history": "all", **total}))
    if options.json:
        options.json.write_text(json.dumps({"total": total, "rows": rows}, indent=1) + "\n")
    return 1 if total["problems"] else 0


def _row(label: str, tally: Tally) -> dict[str, Any]:
    return {
        "history": label,
        "histories": tally.histories,
        "cuts": tally.moments,
        "states": tally.states,
        "judged": tally.judged,
        "problems": len(tally.problems),
    }


def _line(row: dict[str, Any]) -> str:
    return (
        f"{row['history']:44} {row['histories']:4} histories, {row['cuts']:6} cuts, {row['states']:6} "
        "states, "
        f"{row['judged']:5} judged, {row['problems']} problems"
    )


if __name__ == "__main__":
    sys.exit(main())
