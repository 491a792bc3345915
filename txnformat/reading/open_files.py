"""The segment files that one reader has open: each small one is one request, and the next ones are on their
way.

Rules of this file:

* A file of up to SMALL_FILE_BYTES is fetched whole, and kept while the reader is to open it again: its
  batches may be in many partitions.
* Embedded files of many entries come out of payload bundles (:mod:`txnformat.reading.bundled`) where a
  request has a latency.
* Where a request has a latency (``reads_in_flight`` of the store), the next files are fetched by threads, in
  the order in which they are opened. On a local disk a file is read when it is opened: handing it from thread
  to thread takes longer.
* An error of a file that is fetched ahead is raised where this file is read. Nothing is compared or decoded
  ahead: the caller's thread does that.
* Bounds: AHEAD_MAX files on their way, of SMALL_FILE_BYTES each; KEPT_BYTES_MAX bytes of files that are to be
  opened again. A file that finds no room is fetched again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from types import TracebackType
from typing import NamedTuple, Self

import numpy as np

from txnformat.columns.file_columns import FileColumns
from txnformat.errors import StorageError
from txnformat.forking import renew_after_fork
from txnformat.persistent import Rows
from txnformat.reading.bundled import BundledFiles
from txnformat.segments.reader import SegmentFileReader
from txnformat.segments.segment_object import SMALL_FILE_BYTES, is_small, tail_start
from txnformat.store.base import ObjectStore
from txnformat.types import FileRecord

__all__ = ["AHEAD_MAX", "FETCHED_MAX", "KEPT_BYTES_MAX", "OpenFiles"]

AHEAD_MAX = 16
"""Most files on their way; a store that likes fewer reads in flight gets fewer."""

KEPT_BYTES_MAX = 64 * 2**20
"""Bytes of files, and footers of larger ones, that are kept to be opened again."""

FETCHED_MAX = 64
"""Most files that :meth:`OpenFiles.fetch` holds until they are opened."""

FOOTER_WEIGHT = 4
"""A parsed footer takes about so many times its bytes."""


class _Kept(NamedTuple):
    reader: SegmentFileReader
    weight: int


class _Tail:
    """Gives what a thread has fetched, once; after that, and for what failed ahead for now, it asks the
    store.
    """

    def __init__(
        self,
        store: ObjectStore,
        file: FileRecord,
        begun: Future[bytes] | None,
        bundled: BundledFiles,
        *,
        again: bool,
    ) -> None:
        self._store = store
        self._file = file
        self._bundled = bundled
        self._begun = begun
        self._again = again

    def __call__(self, start: int, length: int) -> bytes:
        begun, self._begun = self._begun, None
        if begun is not None:
            try:
                return begun.result()
            except CancelledError:
                pass
            except StorageError as error:
                if not (self._again and error.transient):
                    raise
        return self._bundled.read(self._store, self._file, start, length)


class OpenFiles:
    """The open segment files of one reader.

    Safe for use by many threads; close it, or leave its ``with`` block.

    ``has_data``: False where no column of the files is read: then a file is only its footer. ``keeps``: keep
    files for which nothing is expected, too, the last used ones. ``bytes_max``: of what is kept. ``ahead``:
    the store that threads ask; what fails there for now is asked of ``store`` again, in the thread that opens
    the file.
    """

    def __init__(
        self,
        store: ObjectStore,
        *,
        has_data: bool = True,
        keeps: bool = False,
        bytes_max: int = KEPT_BYTES_MAX,
        ahead: ObjectStore | None = None,
    ) -> None:
        self._store = store
        self._has_data = has_data
        self._keeps = keeps
        self._bytes_max = bytes_max
        self._ahead = ahead
        self._ahead_max = min(AHEAD_MAX, store.reads_in_flight) if store.reads_in_flight > 1 else 0
        self.opened_bytes = 0
        """Bytes of the small files, and of the footers of larger ones, that were opened, kept or not."""
        self._bytes = 0
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._uses: dict[str, int] = {}
        """How often files are to be opened that are to be opened more than once."""
        self._shared: frozenset[str] = frozenset()
        """Files of which that is known before they are expected."""
        self._queue: deque[Iterator[FileRecord]] = deque()
        """Files that are expected,"""
        self._next: FileRecord | None = None
        """and the first of them."""
        self._bundled = BundledFiles()
        self.renew()
        renew_after_fork(self)

    def renew(self) -> None:
        """Let go of what threads are fetching: a forked child does not have them."""
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._begun: OrderedDict[str, Future[bytes]] = OrderedDict()
        self._bundled.renew()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def is_at_hand(self, file: FileRecord) -> bool:
        """Return whether all that is read of a file comes with one request, of SMALL_FILE_BYTES at most."""
        return is_small(file) or (not self._has_data and file.footer_bytes <= SMALL_FILE_BYTES)

    def share(self, reads: Mapping[str, int]) -> None:
        """Tell how many of the reads that come need a file, by key: it is kept from the first of them to the
        last.

        Each of them still expects its files.
        """
        with self._lock:
            shared = {key: count for key, count in reads.items() if count > 1}
            self._shared |= shared.keys()
            for key, count in shared.items():
                self._uses[key] = self._uses.get(key, 0) + count

    def expect(self, numbers: Rows, file_of: Callable[[int], FileRecord]) -> None:
        """Announce files, in the order in which they will be opened, each as often as it will be.

        ``numbers``: ndarray, shape (n,), int64, as ``file_of`` knows them. No request before one of them is
        opened.
        """
        files, counts = np.unique(numbers, return_counts=True)
        with self._lock:
            for number, count in zip(files[counts > 1].tolist(), counts[counts > 1].tolist(), strict=True):
                key = file_of(number).key
                self._uses[key] = self._uses.get(key, 0) + count - (key in self._shared)
            if self._ahead_max:
                self._bundled.expect(map(file_of, files.tolist()))
                self._queue.append(filter(self.is_at_hand, map(file_of, numbers.tolist())))
                self._next = self._next or self._following()

    def open(self, file: FileRecord, columns: FileColumns, *, alone: bool = True) -> SegmentFileReader:
        """Return the reader of a file, and begin to fetch the next ones that are expected.

        The reader itself makes no request yet.

        ``columns``: what the file must hold, and its names for the caller. ``alone``: as of
        :class:`SegmentFileReader`.
        """
        with self._lock:
            kept = self._kept.pop(file.key, None)
            if kept is not None:
                self._bytes -= kept.weight
                if self._next is not None and self._next.key == file.key:
                    self._next = self._following()  # it need not be fetched
            if kept is None or kept.reader.columns != columns:  # of another version, its names are others
                kept = self._opened(file, columns, alone=alone)
            self.opened_bytes += kept.weight
            uses = self._uses.pop(file.key, 1)
            if uses > 1:
                self._uses[file.key] = uses - 1
            if uses > 1 or self._keeps:
                self._keep(file.key, kept)
            self._fill()
        return kept.reader

    def fetch(self, files: Iterable[FileRecord]) -> None:
        """Fetch files, several at a time, and wait for them; large ones and those that are kept are left out,
        and a single one.

        An error of a file is raised when this file is read. On a store that likes one read at a time nothing
        is done.
        """
        if not self._ahead_max:
            return
        with self._lock:
            wanted = {
                file.key: file
                for file in files
                if self.is_at_hand(file) and file.key not in self._begun and file.key not in self._kept
            }
            if len(wanted) < 2:
                return
            self._bundled.expect(wanted.values())
            while self._begun and len(self._begun) + len(wanted) > FETCHED_MAX:
                self._begun.popitem(last=False)
            for file in list(wanted.values())[:FETCHED_MAX]:
                self._begin(file)
            begun = list(self._begun.values())
        try:
            wait(begun)
        finally:
            self._end_pool()

    def close(self) -> None:
        """Let go of all files: what has not begun is dropped, what has is waited for."""
        with self._lock:
            self._stop()
            self._kept.clear()
            self._uses.clear()
            self._bytes = 0
        self._end_pool()

    def _end_pool(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=True, cancel_futures=True)

    # The callers of the methods below hold the lock.

    def _opened(self, file: FileRecord, columns: FileColumns, *, alone: bool) -> _Kept:
        begun = self._begun.pop(file.key, None)
        if begun is None and self.is_at_hand(file):
            self._pass_over(file)
        reader = SegmentFileReader(
            self._store,
            file,
            columns,
            alone=alone,
            has_data=self._has_data,
            fetch_tail=_Tail(self._store, file, begun, self._bundled, again=self._ahead is not None),
        )
        weight = FOOTER_WEIGHT * file.footer_bytes + (file.size if self._has_data and is_small(file) else 0)
        return _Kept(reader, weight)

    def _keep(self, key: str, kept: _Kept) -> None:
        """Keep a file if there is room, or no other: those for which nothing is expected make room, the
        longest unused first.
        """
        over = self._bytes + kept.weight - self._bytes_max
        if over > 0 and self._keeps:
            for other in [other for other in self._kept if other not in self._uses]:
                if over <= 0:
                    break
                weight = self._kept.pop(other).weight
                self._bytes -= weight
                over -= weight
        if over > 0 and self._kept:
            return
        self._kept[key] = kept
        self._bytes += kept.weight

    def _following(self) -> FileRecord | None:
        """Return the next file of the queue."""
        while self._queue:
            found = next(self._queue[0], None)
            if found is not None:
                return found
            self._queue.popleft()
        return None

    def _pass_over(self, file: FileRecord) -> None:
        """Take a file that its reader fetches itself from the queue.

        It is the first one there. Otherwise the caller has left its order, as one does that has lost a file:
        what lies before is not fetched any more.
        """
        if self._next is None:
            return
        if self._next.key != file.key:
            self._begun.clear()
            while self._next is not None and self._next.key != file.key:
                self._next = self._following()
        self._next = self._following()

    def _fill(self) -> None:
        """Begin with files of the queue."""
        while (
            self._next is not None
            and len(self._begun) < self._ahead_max
            and self._next.key not in self._begun
        ):
            if self._next.key not in self._kept:
                self._begin(self._next)
            self._next = self._following()

    def _begin(self, file: FileRecord) -> None:
        start = tail_start(file, has_data=self._has_data)
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._ahead_max, thread_name_prefix="txnlog-read")
        try:
            store = self._ahead or self._store
            self._begun[file.key] = self._pool.submit(
                self._bundled.read, store, file, start, file.size - start
            )
        except RuntimeError:  # no thread can be started: the interpreter shuts down
            self._stop()

    def _stop(self) -> None:
        """Fetch nothing ahead any more."""
        self._ahead_max = 0
        self._queue.clear()
        self._next = None
        self._begun.clear()
