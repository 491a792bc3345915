"""What hostile objects cost a reader: ``python -m tests.limits [--only TEXT]`` measures each and prints the
table.

Every object is made in one process and read in another, which tells its own peak of memory. The exit status
is 1 when a case takes more than ``case.MEMORY_MAX`` or ``case.SECONDS_MAX``, ends by a signal, or raises what
is not txnlog's error.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.limits.case import MEMORY_MAX, SECONDS_MAX, Case
from tests.limits.cases import CASES
from txnformat.errors import TxnLogError

MIB = 1024 * 1024
TIMEOUT_S = 120
ADDRESS_SPACE_MAX = 24 * 1024 * MIB
"""Of a measured process: a case that fails must not take the machine with it."""


def measure(case: Case) -> dict[str, Any]:
    """Return size, bytes of memory, seconds of the processor and outcome of one case.

    ``outcome`` is the kind of the error or what was read instead; ``ok`` says whether all of it is as
    promised.
    """
    with tempfile.TemporaryDirectory() as folder:
        made = _in_process("make", case, folder)
        if "size" not in made:
            return {"case": case.key, "ok": False, "outcome": f"the object could not be made: {made}"}
        found = {"case": case.key, **made, **_in_process("use", case, folder)}
    found["ok"] = (
        found.get("error") is None
        and found["size"] <= MIB
        and found["memory"] <= MEMORY_MAX
        and found["seconds"] <= SECONDS_MAX
    )
    return found


def _in_process(step: str, case: Case, folder: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.limits", "--step", step, "--only", case.key, "--folder", folder]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return {"error": f"no end within {TIMEOUT_S} s", "memory": 0, "seconds": float(TIMEOUT_S)}
    if done.returncode:
        what = f"exit status {done.returncode}: {done.stderr[-300:]}"
        return {"error": what, "memory": 0, "seconds": 0.0}
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def _step(step: str, case: Case, folder: Path) -> dict[str, Any]:
    if step == "make":
        return {"size": case.make(folder)}
    given = case.prepare(folder) if case.prepare else folder
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE_MAX, ADDRESS_SPACE_MAX))
    before = _memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins here
    start = time.process_time()
    error = None
    try:
        outcome = str(case.use(given))
    except TxnLogError as raised:
        outcome = f"`{raised.kind}`"
    except BaseException as raised:  # noqa: BLE001 - what it is belongs into the table
        outcome, error = type(raised).__name__, f"{type(raised).__name__}: {raised}"[:300]
    seconds = time.process_time() - start
    return {"outcome": outcome, "error": error, "seconds": seconds, "memory": _memory("VmHWM") - before}


def _memory(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * 1024
    raise RuntimeError(f"/proc/self/status does not have {field}")


def main() -> int:
    """Measure what is asked for and print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.limits")
    parser.add_argument("--only", default="", help="cases whose key contains this text")
    parser.add_argument("--step", choices=("make", "use"), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.step:
        (case,) = (case for case in CASES if case.key == asked.only)
        print(json.dumps(_step(asked.step, case, asked.folder)))
        return 0
    print("| object | bytes | memory | seconds | outcome |", "|---|---|---|---|---|", sep="\n")
    worst = True
    for case in CASES:
        if asked.only not in case.key:
            continue
        found = measure(case)
        worst &= found["ok"]
        shown = found.get("error") or found["outcome"]
        print(
            f"| {case.what} | {found.get('size', 0):,} | {found.get('memory', 0) / MIB:,.0f} MiB "
            f"| {found.get('seconds', 0):.2f} | {'' if found['ok'] else '**not as promised** '}{shown} |",
            flush=True,
        )
    return 0 if worst else 1


if __name__ == "__main__":
    sys.exit(main())
