"""``startingOffsets`` and ``endingOffsets``: Kafka's forms, and a shorter one for the single topic of a read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

__all__ = ["EARLIEST", "LATEST", "OffsetsOption", "parse_offsets"]

EARLIEST = -2
"""Stands for the first offset, as in the Kafka source's JSON."""

LATEST = -1
"""Stands for the end offset, as in the Kafka source's JSON."""

OffsetsOption = int | Mapping[int, int]
"""EARLIEST or LATEST for every partition, or by partition an offset (from 0) or one of the two."""


def parse_offsets(
    text: str | None, name: str, topic: str, default: int, problems: list[str]
) -> OffsetsOption:
    """Return what an offsets option says.

    Parameters
    ----------
    text : str or None
        ``earliest``, ``latest``, ``{"topic": {"0": 5, "1": -2}}`` or ``{"0": 5}``. Partitions that are not named
        take ``default``.
    name : str
        The option's, for messages.
    problems : list of str
        Gets one more when the text is anything else.
    """
    if text is None:
        return default
    if text.lower() in ("earliest", "latest"):
        return EARLIEST if text.lower() == "earliest" else LATEST
    form = 'use earliest, latest, or JSON such as {"0": 5, "1": -2} (-2 earliest, -1 latest)'
    try:
        value = json.loads(text, object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict) or not value:
        problems.append(f"option {name} is {text!r:.100}; {form}")
        return default
    if any(isinstance(inner, dict) for inner in value.values()):
        others = sorted(key for key in value if key != topic)
        if others:
            problems.append(f"option {name} names topics that are not read: {', '.join(others):.300}")
        value = value.get(topic, {})
    offsets: dict[int, int] = {}
    wrong: list[str] = []
    for key, offset in value.items() if isinstance(value, dict) else [(topic, value)]:
        if key.isascii() and key.isdigit() and type(offset) is int and EARLIEST <= offset < 2**63:
            offsets[int(key)] = offset
        else:
            wrong.append(f"{key}: {json.dumps(offset)}")
    if wrong:
        problems.append(f"option {name} has no partition and offset in {', '.join(wrong):.300}; {form}")
    return offsets


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is there twice")
    return found
