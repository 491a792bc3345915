"""The way in: a window of a log, read and collected, as a Timeline that notebooks show and files keep."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from txnformat.admin.metrics import measure
from txnformat.client.committer import Committer
from txnformat.core.state import LogState
from txnformat.errors import InvalidInputError, NotFoundError, StorageError, repr_of
from txnformat.looking.collecting import Collector
from txnformat.looking.costs import PRICES
from txnformat.looking.describing import group_views, open_transactions, storage_view, topic_views
from txnformat.looking.model import Document, Request
from txnformat.looking.page import frame, page
from txnformat.looking.past import Reach, fold_to, read_reach, state_after
from txnformat.moments import Moment
from txnformat.protocol.cuts import check_version_options, cut_at, topic_as_of
from txnformat.version import __version__

__all__ = ["ENTRIES", "ENTRIES_MAX", "EntryWindow", "Timeline", "look"]

ENTRIES = 1_000
"""Entries of a window, unless the caller asks for another number."""
ENTRIES_MAX = 20_000


class Timeline:
    """A log as of one entry, with its transactions: shown by notebooks, kept as a file.

    Made by :meth:`TxnLog.timeline`.

    Attributes
    ----------
    document : Document
        All that the page shows, as values.
    """

    def __init__(self, document: Document) -> None:
        self.document = document

    def __repr__(self) -> str:
        shown = self.document
        return f"Timeline({shown.url!r}, topic={shown.topic!r}, entries={shown.first}..{shown.entry})"

    def to_json(self) -> str:
        """Return the document as JSON."""
        return msgspec.json.encode(self.document).decode()

    def to_html(self) -> str:
        """Return the page: one HTML file that fetches nothing."""
        return page(self.document)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the page to a file, and return its path.

        Raises
        ------
        StorageError
            Kind ``output-failed``: the file cannot be written.
        """
        target = Path(path)
        try:
            target.write_text(self.to_html(), encoding="utf-8")
        except OSError as error:
            raise StorageError(
                f"the page cannot be written: {error.strerror or error}",
                kind="output-failed",
                path=str(target),
            ) from error
        return target

    def _repr_html_(self) -> str:
        """Return what Jupyter shows, and what ``displayHTML`` takes: the page in a frame of its own, which
        can reach nothing outside.
        """
        return frame(self.to_html())


class EntryWindow:
    """The entries of a window, collected; it can follow the log.

    Safe for one thread at a time.

    Parameters
    ----------
    topic : str, optional
        The only topic to show.
    entry : int, optional
        The entry to end with; the newest one by default.
    entries : int
        Most entries.

    Raises
    ------
    NotFoundError
        Kinds ``unknown-topic``, ``state-gone``, ``state-too-far``.
    """

    def __init__(
        self, committer: Committer, topic: str | None = None, entry: int | None = None, entries: int = ENTRIES
    ) -> None:
        self._committer = committer
        self._topic = topic
        self._most = entries
        self.newest: LogState = committer.state
        last = self.newest.entry if entry is None else entry
        self.reach: Reach = committer.read(read_reach())
        self.notes: tuple[str, ...] = ()
        if topic is not None:
            topic_as_of(self.newest, topic, last)
        self._collector = Collector(self._base(last), topic, last)
        self._fold(last)

    @property
    def state(self) -> LogState:
        """The state after the last entry of the window."""
        return self._collector.state

    def _base(self, last: int) -> LogState:
        first = max(last - self._most, min(self.reach.earliest, last))
        if last - first < self._most and first > -1:
            self.notes = (
                (
                    f"entries up to {first} are deleted or compressed into snapshots: the window begins "
                    "behind them"
                ),
            )
        try:
            return self._committer.read(state_after(self.newest, first, self.reach))
        except NotFoundError as error:
            if last != self.newest.entry or error.kind not in ("state-gone", "state-too-far"):
                raise
            self.notes = (f"the entries before are not shown: {error.what}",)
            return self.newest

    def _fold(self, last: int) -> None:
        steps = fold_to(self._collector.state, last, self.newest, self.reach.boundary, self._collector.add)
        self._committer.read(steps)

    def follow(self) -> bool:
        """Take the entries that are new. Return whether there were any.

        Requests: 1 GET when nothing is new; 2 more for each new entry.
        """
        self.newest = self._committer.refresh()
        if self.newest.entry == self.state.entry:
            return False
        if self.newest.entry - self._collector.base.entry > 2 * self._most:
            again = EntryWindow(self._committer, self._topic, None, self._most)
            self.reach, self.notes, self._collector = again.reach, again.notes, again._collector
        else:
            self._fold(self.newest.entry)
        return True

    def document(self, url: str, store_time_ms: int) -> Document:
        """Return the document of the window as it is; ``store_time_ms`` is now, for a window that ends with
        the newest entry.

        No requests.
        """
        state = self.state
        is_newest = state.entry == self.newest.entry
        now_ms = max(state.timestamp_ms, store_time_ms) if is_newest else state.timestamp_ms
        collected = self._collector.collected(now_ms)
        counts = self._committer.counter.counts
        metrics = measure(state, url, now_ms, counts)
        return Document(
            url=url,
            log_id=state.log_id,
            topic=self._topic,
            version=__version__,
            entry=state.entry,
            newest=self.newest.entry,
            earliest=max(0, self.reach.earliest),
            first=self._collector.base.entry + 1,
            timestamp_ms=state.timestamp_ms,
            now_ms=now_ms,
            notes=(*self.notes, *collected.notes),
            partitions=collected.partitions,
            transactions=collected.transactions,
            samples=collected.samples,
            entries=collected.entries,
            group_names=collected.group_names,
            topics=topic_views(state, metrics),
            open=open_transactions(state, url, now_ms, self._topic),
            groups=group_views(state, metrics),
            storage=storage_view(state, metrics),
            objects=self._collector.objects.kinds(),
            requests=tuple(
                Request(operation.value, object_.value, count)
                for (operation, object_), count in sorted(counts.requests.items())
            ),
            prices=PRICES,
        )


def look(
    committer: Committer,
    url: str,
    topic: str | None = None,
    *,
    version_as_of: int | None = None,
    timestamp_as_of: Moment | None = None,
    entries: int = ENTRIES,
) -> Timeline:
    """Return the timeline of a log; see :meth:`TxnLog.timeline`."""
    if type(entries) is not int or not 1 <= entries <= ENTRIES_MAX:
        raise InvalidInputError(
            f"entries is {repr_of(entries, 80)}, not a number from 1 to {ENTRIES_MAX}", kind="invalid-entries"
        )
    check_version_options(None, version_as_of, timestamp_as_of)
    state = committer.refresh()
    entry = None
    if version_as_of is not None or timestamp_as_of is not None:
        entry = committer.read(cut_at(state, version_as_of, timestamp_as_of))
    window = EntryWindow(committer, topic, entry, entries)
    return Timeline(window.document(url, committer.store.store_time_ms()))
