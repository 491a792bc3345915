"""Replays one seed of the simulator with its trace: ``python -m txnlog_testing.replay SEED``."""

from __future__ import annotations

import argparse
import sys

from txnlog_testing.simulator.simulator import SimulationError, run_history

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> int:
    """Print every effect and answer of one history; return 1 when it breaks a rule."""
    parser = argparse.ArgumentParser(prog="python -m txnlog_testing.replay", description=__doc__)
    parser.add_argument("seed", type=int)
    parser.add_argument("--hash", action="store_true", help="print the hash of the trace and nothing else")
    options = parser.parse_args(arguments)
    try:
        history = run_history(options.seed, keep_lines=not options.hash)
    except SimulationError as error:
        print("\n".join(error.lines))
        print(f"VIOLATION  {error}")
        return 1
    if options.hash:
        print(history.trace_hash)
        return 0
    print("\n".join(history.lines))
    for name, count in sorted(history.hits.items()):
        print(f"{count:6d} {name}")
    print(
        f"seed {history.seed}: {history.steps} steps, {history.entries} entries, "
        f"{history.writers} writers, no violation; trace {history.trace_hash}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
