"""What a worker reads, and from where on."""

from __future__ import annotations

from typing import Any

from txnformat.group_operations import OffsetCommit
from txnformat.intents import GroupOffsets, Write
from txnformat.types import TopicPartition
from txnlog import Producer, TxnLog

PARTITIONS = 2


class Input:
    def __init__(self, source: TxnLog, target: TxnLog, group: str) -> None:
        self._source, self._target, self._group = source, target, group
        topic = source.refresh().topic_ids["raw"]
        state = target.refresh()
        found = state.groups.get(group)
        self._is_foreign = source is not target
        self._topic = topic
        self._prefix = f"{source.log_id}/{topic}/"
        self._at: dict[int, int] = {}
        for number in range(PARTITIONS):
            key = self._prefix + str(number) if self._is_foreign else TopicPartition(topic, number)
            value = -1 if found is None else found.value(key)
            self._at[number] = int(value or 0) if int(value or -1) > 0 else 0
        self._committed: dict[int, int | None] = {n: at or None for n, at in self._at.items()}
        self._committing: dict[int, int] = {}

    def poll(self, count: int) -> list[dict[str, Any]]:
        columns = ["n", "_partition", "_offset"]
        for number in range(PARTITIONS):
            rows: list[dict[str, Any]] = (
                self._source.read(
                    "raw", partitions=[number], start={number: self._at[number]}, columns=columns
                )
                .read_all()
                .slice(0, count)
                .to_pylist()
            )
            if rows:
                self._at[number] = rows[-1]["_offset"] + 1
                return rows
        return []

    def send_positions(self, producer: Producer, at: dict[int, int] | None = None) -> None:
        at = dict(at or self._at)
        at = {n: offset for n, offset in at.items() if offset}
        if self._is_foreign:
            producer.send_offsets(
                self._group,
                positions={self._prefix + str(n): str(offset) for n, offset in at.items()},
                expected_positions={
                    self._prefix + str(n): str(c) if (c := self._committed[n]) is not None else None
                    for n in at
                },
            )
        else:
            producer.send_offsets(
                self._group,
                {("raw", n): offset for n, offset in at.items()},
                expected={("raw", n): self._committed[n] for n in at},
            )
        self._committed |= at

    def commit(self) -> None:
        offsets = tuple(OffsetCommit(self._topic, n, at) for n, at in self._at.items() if at)
        self._target.committer.commit(
            self._target.committer.intend(Write(offsets=(GroupOffsets(self._group, offsets),)))
        )

    def close(self) -> None: ...
