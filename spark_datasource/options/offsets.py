"""``startingOffsets`` and ``endingOffsets``: Kafka's forms, a shorter one for a single topic, and entries of
the log.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from spark_datasource.options.values import OptionValues
from txnformat.digits import whole

__all__ = ["EARLIEST", "END", "LATEST", "StartOrEnd", "parse_offsets"]

EARLIEST = -2
"""Stands for the first offset, as in the Kafka source's JSON."""

LATEST = -1
"""Stands for the end offset, as in the Kafka source's JSON."""

_ONLY_TOPIC = ""


@dataclass(frozen=True, slots=True)
class StartOrEnd:
    """Where a read begins, or ends."""

    default: int
    """EARLIEST or LATEST: of every partition that is not named."""
    by_topic: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """An offset (from 0), or EARLIEST or LATEST, by topic name and partition."""
    entry: int | None = None
    """In commit order: the first entry that is read (inclusive); of an end the last one."""

    def of(self, topic: str) -> Mapping[int, int]:
        """Return what is said of single partitions of a topic."""
        return self.by_topic.get(_ONLY_TOPIC) or self.by_topic.get(topic, {})


END = StartOrEnd(LATEST)


def parse_offsets(
    found: OptionValues, name: str, topics: tuple[str, ...], *, by_entry: bool
) -> StartOrEnd | None:
    """Return what an offsets option says; None when it is not given.

    The text is ``earliest``, ``latest``, ``{"topic": {"0": 5, "1": -2}}`` or, for a single topic, ``{"0":
    5}``; in commit order ``{"entry": 17}``. ``found``: gets one more problem when the text is anything else.
    ``topics``: those of the read; empty: they are given by a pattern. ``by_entry``: whether the read is in
    commit order.
    """
    text = found.text(name)
    if text is None:
        return None
    if text.lower() in ("earliest", "latest"):
        return StartOrEnd(EARLIEST if text.lower() == "earliest" else LATEST)
    # Partitions that are not named are read from the first offset, and to the last one.
    default = EARLIEST if name.startswith("starting") else LATEST
    form = 'use earliest, latest, or JSON such as {"0": 5, "1": -2} (-2 earliest, -1 latest)'
    if by_entry:
        form = 'with order commit use earliest, latest, or {"entry": 17}'
    try:
        value = json.loads(text, object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict) or not value:
        found.refuse(name, form)
        return StartOrEnd(default)
    if by_entry:
        entry = value.get("entry")
        if type(entry) is not int or not 0 <= entry < 2**63 or len(value) > 1:
            found.refuse(name, form)
        return StartOrEnd(default, entry=entry)
    return StartOrEnd(default, _by_topic(found, name, value, topics, form))


def _by_topic(
    found: OptionValues, name: str, value: dict[str, Any], topics: tuple[str, ...], form: str
) -> dict[str, dict[int, int]]:
    is_short = not any(isinstance(inner, dict) for inner in value.values())
    others = sorted(key for key in value if not is_short and (not key or (topics and key not in topics)))
    if is_short:
        if len(topics) == 1:
            value = {_ONLY_TOPIC: value}
        else:
            found.problems.append(f'option {name} has to name topics, as in {{"orders": {{"0": 5}}}}')
            return {}
    if others:
        found.problems.append(
            f"option {name} names topics that are not read: {', '.join(map(repr, others)):.300}"
        )
    offsets: dict[str, dict[int, int]] = {}
    wrong: list[str] = []
    for topic, partitions in value.items():
        for key, offset in partitions.items() if isinstance(partitions, dict) else [(topic, partitions)]:
            if (
                (number := whole(key, 9)) is not None
                and key == str(number)  # "00" beside "0" would be the same partition twice
                and type(offset) is int
                and EARLIEST <= offset < 2**63
            ):
                offsets.setdefault(topic, {})[number] = offset
            else:
                wrong.append(f"{key}: {json.dumps(offset)}")
    if wrong:
        found.problems.append(f"option {name} has no partition and offset in {', '.join(wrong):.300}; {form}")
    return offsets


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key appears twice")
    return found
