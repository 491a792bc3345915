"""Input files for a query: each row has a number that no other has."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

__all__ = ["feed", "numbers_in"]

KEYS = 7


def feed(folder: Path, name: str, numbers: Iterable[int]) -> None:
    """Write a file, which is there at once and whole. Files are processed in the order in which they came."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [json.dumps({"n": n, "key": f"key-{n % KEYS}"}) for n in numbers]
    beside = folder / f".{name}.json"  # Spark overlooks names that begin with a dot
    beside.write_text("".join(f"{row}\n" for row in rows))
    beside.replace(folder / f"{name}.json")


def numbers_in(folder: Path) -> list[int]:
    """Return the numbers of all files."""
    return [
        json.loads(line)["n"]
        for path in sorted(folder.glob("*.json"))
        for line in path.read_text().splitlines()
    ]
