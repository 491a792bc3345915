"""Digests of a stream: the same whatever the size, with and without a thread, and no thread left behind."""

from __future__ import annotations

import hashlib
import random
import threading
import zlib

import pyarrow as pa
import pytest

from txnformat.segments.running_digest import HANDED_OVER_MAX, HANDOVER_BYTES, THREAD_BYTES, RunningDigest
from txnformat.segments.writer import SegmentFileWriter
from txnformat.store.memory import MemoryStore


def _threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("txnlog-digest")}


@pytest.mark.parametrize(
    "size",
    [0, 1, THREAD_BYTES - 1, THREAD_BYTES, 2 * THREAD_BYTES + 17, (HANDED_OVER_MAX + 9) * HANDOVER_BYTES],
)
def test_the_digests_are_those_of_the_whole_stream_at_every_end_of_an_update(size: int) -> None:
    generator = random.Random(size)
    stream = generator.randbytes(size)
    digest = RunningDigest()
    ends, end = [0], 0
    while end < size:
        begin, end = end, min(size, end + generator.choice((1, 900, 70_000, HANDOVER_BYTES + 1)))
        digest.update(stream[begin:end])
        ends.append(end)
        if generator.random() < 0.05:
            assert digest.hexdigest() == hashlib.sha256(stream[:end]).hexdigest()
    assert digest.hexdigest() == hashlib.sha256(stream).hexdigest()
    expected, before, crc32 = {0: 0}, 0, 0
    for end in ends:
        crc32 = zlib.crc32(stream[before:end], crc32)
        expected[end], before = crc32, end
    assert digest._crc32_at == expected
    digest.close()


def test_only_a_large_stream_has_a_thread_and_it_ends_with_the_stream() -> None:
    before = _threads()
    digest = RunningDigest()
    digest.update(bytes(THREAD_BYTES - 1))
    assert _threads() == before
    digest.update(bytes(2 * HANDOVER_BYTES))
    assert len(_threads() - before) == 1
    digest.close()
    digest.close()
    assert _threads() == before


@pytest.mark.parametrize("end", ["close", "abort"])
def test_a_segment_file_that_is_closed_or_aborted_leaves_no_thread(end: str) -> None:
    before = _threads()
    table = pa.table({"payload": pa.array([random.Random(number).randbytes(2**16) for number in range(128)])})
    writer = SegmentFileWriter(MemoryStore().open_write("a"), "a", table.schema)
    writer.write_batch(0, table)
    assert len(_threads() - before) == 1
    getattr(writer, end)()
    assert _threads() == before
