"""Live bytes are counted by the ranges of a segment that are listed, not by its partitions."""

from __future__ import annotations

import numpy as np

from tests.unit.core.lifecycle.replaced_world import INDEX, KEY, SHA
from tests.unit.core.memory_log import ORDERS, Log
from txnformat import keys
from txnformat.core.records.state import SEGMENT
from txnformat.core.sealing.segment_list import SegmentPart
from txnformat.core.sealing.sidecar import RUN_ROW, SegmentIndex
from txnformat.types import FileRecord, SegmentRecord
from txnformat.verify.live import Live


def test_the_files_of_a_range_that_was_replaced_are_not_live() -> None:
    names = [keys.data_key(ORDERS.directory, 1, f"00000000-0000-4000-8000-00000000000{n}") for n in range(2)]
    files = {number: FileRecord(name, 100, SHA, 20, SHA, 0) for number, name in enumerate(names)}
    runs = np.zeros(2, RUN_ROW)
    runs["file"], runs["start_offset"], runs["end_offset"] = [0, 1], [0, 3], [3, 6]
    row = np.zeros(1, SEGMENT)
    row["start_offset"], row["end_offset"] = 3, 6
    live = Live(Log(ORDERS).state)
    live.listed({KEY: (SegmentPart(SegmentRecord(ORDERS.topic_id, INDEX), row[0]),)})
    live.index(INDEX.key, SegmentIndex(runs, files))
    assert [name in live.keys for name in names] == [False, True]
