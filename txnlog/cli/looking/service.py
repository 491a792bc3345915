"""The answers of the page's server, as text: they need no web framework. Nothing here writes to the log."""

from __future__ import annotations

import threading
from collections import OrderedDict

import msgspec
from msgspec import structs

from txnformat.client.identity import check_still_there, explaining
from txnformat.clock import Instant, waited_ms
from txnformat.errors import InvalidInputError, NotFoundError
from txnformat.log import TxnLog
from txnformat.looking.model import Document
from txnformat.looking.page import page
from txnformat.looking.timeline import EntryWindow

__all__ = ["Service"]

KEPT_MAX = 8
"""Documents of older entries that are kept: a slider goes to and fro."""


class Service:
    """Answers for any number of pages: one window follows the log for all of them. Safe for many threads.

    Parameters
    ----------
    entries : int
        Most entries of a window.
    every_ms : int
        Least time between two looks at the log, however many pages ask.
    """

    def __init__(self, log: TxnLog, topic: str | None, entries: int, every_ms: int) -> None:
        self._log = log
        self._topic = topic
        self._entries = entries
        self._every_ms = every_ms
        self._lock = threading.Lock()
        self._is_due = False  # to ask whether the log is still there
        self._window = EntryWindow(log.committer, topic, None, entries)
        self._looked: Instant = log.committer.clock.now()
        self._checked = self._looked
        self._older: OrderedDict[int, Document] = OrderedDict()

    def page(self) -> str:
        """Return the page, with the newest document in it."""
        with self._lock:
            self._look()
            return page(self._newest(), every_ms=self._every_ms)

    def follow(self, entry: int) -> str:
        """Return the newest document as JSON if it ends behind ``entry``; else only what changes without
        entries.

        Requests: 1 GET at most once in ``every_ms``, and a second one every other time, which tells that the
        log is still there; 2 for each new entry. While a look fails each page that asks looks, and gets the
        error.
        """
        with self._lock:
            self._look()
            document = self._newest()
        if document.entry != entry:
            return msgspec.json.encode(document).decode()
        unchanged = {"entry": entry, "now_ms": document.now_ms, "requests": document.requests}
        return msgspec.json.encode(unchanged).decode()

    def document(self, entry: int) -> str:
        """Return the document that ends with an entry, as JSON. Raises NotFoundError: its state cannot be
        told.

        Requests: 1 GET at most once in ``every_ms``, and for each state that is read, which tells that the
        log is still the one that was opened.
        """
        if type(entry) is not int or entry < 0:
            raise InvalidInputError("the entry is not a number from 0 on", kind="invalid-version")
        with self._lock, explaining(self._log.committer):
            if waited_ms(self._checked, self._log.committer.clock.now()) >= self._every_ms * 0.9:
                self._check()
            newest = self._window.newest.entry
            if entry > newest:
                raise NotFoundError("no such version of the log", kind="unknown-version", version=entry)
            if entry == self._window.state.entry:
                return msgspec.json.encode(self._newest()).decode()
            if entry not in self._older:
                older = EntryWindow(self._log.committer, self._topic, entry, self._entries)
                found = older.document(self._log.url, self._log.store.store_time_ms())
                self._check()  # what was read may be another log's
                self._older[entry] = found
                if len(self._older) > KEPT_MAX:
                    self._older.popitem(last=False)
            self._older.move_to_end(entry)
            document = structs.replace(self._older[entry], newest=newest)
        return msgspec.json.encode(document).decode()

    def _check(self) -> None:
        check_still_there(self._log.committer)
        self._checked = self._log.committer.clock.now()

    def _look(self) -> None:
        now = self._log.committer.clock.now()
        if waited_ms(self._looked, now) >= self._every_ms * 0.9:  # a timer of a browser may be early
            with explaining(self._log.committer):
                if not self._window.follow():
                    if self._is_due:
                        self._check()
                    self._is_due = not self._is_due
            # A look that fails is told to every page, and the next request looks again.
            self._looked = now

    def _newest(self) -> Document:
        return self._window.document(self._log.url, self._log.store.store_time_ms())
