"""Processor time of this process's children, apart for Java and Python: what a scan by Spark costs on either
side.
"""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["children_seconds"]


def children_seconds() -> dict[str, float]:
    """Return the processor time that all processes below this one have taken so far, in seconds; zeros
    without /proc.
    """
    ticks = os.sysconf("SC_CLK_TCK")
    parents: dict[int, int] = {}
    taken: dict[int, tuple[str, float]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = path.read_text()
        except OSError:  # it ended meanwhile
            continue
        name = text[text.index("(") + 1 : text.rindex(")")]
        fields = text[text.rindex(")") + 2 :].split()
        number = int(path.parent.name)
        parents[number] = int(fields[1])
        taken[number] = (name, sum(map(int, fields[11:15])) / ticks)  # with that of children that have ended
    found = {"jvm": 0.0, "python": 0.0}
    for number, (name, seconds) in taken.items():
        above = number
        while above not in (0, os.getpid()):
            above = parents.get(above, 0)
        if above and number != os.getpid():
            found["jvm" if name == "java" else "python"] += seconds
    return found
