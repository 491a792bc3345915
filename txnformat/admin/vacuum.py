"""The vacuum: deletes the objects that no state names any more, and no operation can name again.

In two runs, a grace apart.

1. A mark (:mod:`txnformat.core.lifecycle.vacuum`) moves the floor to the last entry that is older than the
   grace: nothing that was born below it can be named from then on.
2. An object that was born below the floor, and that no state at the mark or later leads to, is garbage for
   good. The vacuum *condemns* it: its key goes into an object ``_txnlog/condemned/<entry>-<uuid>``.
3. A run that finds a list of an entry older than the grace deletes its objects: readers that planned by a
   state before that entry have had the grace.

So runs commute, and one that was cut short at any point is completed by the next. The specification, section
5.14, has the rules.
"""

from __future__ import annotations

import datetime
import logging
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from txnformat import keys
from txnformat.admin.garbage import Judge, Known, Limits, VacuumReport
from txnformat.admin.publishing.holding import ListedViews, published
from txnformat.arguments import check_callable, check_flags
from txnformat.client.committer import Committer
from txnformat.core.entry import sha256_hex
from txnformat.core.intents import MarkVacuum
from txnformat.core.lifecycle.features import check_removal
from txnformat.core.lifecycle.vacuum import GRACE, GRACE_MIN
from txnformat.core.state import LogState
from txnformat.core.wire.small_documents import (
    CONDEMNED_KEYS_MAX,
    CondemnedDocument,
    decode_condemned,
    encode_condemned,
)
from txnformat.errors import (
    ConflictError,
    InvalidInputError,
    StorageError,
    repr_of,
)
from txnformat.protocol.cuts import last_entry_at
from txnformat.protocol.snapshots import create_object
from txnformat.store.base import ObjectInfo, list_each
from txnformat.store.unfinished import UnfinishedUpload, discard_upload, unfinished_uploads
from txnformat.verify.live import live_objects
from txnformat.verify.report import Progress
from txnformat.verify.requests import Requests
from txnformat.verify.spool import Spool

__all__ = ["vacuum"]

logger = logging.getLogger("txnlog")

_LISTED, _LIVE, _HELD, _CONDEMNED = range(4)
"""A row of the spool says of its key: it was listed, with its size; the state leads to it; a published table
holds it; a list of condemned objects has it."""


def vacuum(
    committer: Committer,
    grace: datetime.timedelta = GRACE,
    *,
    dry_run: bool = False,
    allow_short_grace: bool = False,
    progress: Progress | None = None,
) -> VacuumReport:
    """Delete what no state names any more; see :meth:`txnformat.log.TxnLog.vacuum`."""
    check_flags(dry_run=dry_run, allow_short_grace=allow_short_grace)
    check_callable(progress, "progress")
    grace_ms = _checked_ms(grace, allow_short=allow_short_grace)
    return _Vacuum(committer, grace_ms, dry_run, progress).run()


def _checked_ms(grace: object, *, allow_short: bool) -> int:
    if not isinstance(grace, datetime.timedelta) or grace < datetime.timedelta():
        raise InvalidInputError(
            f"{repr_of(grace, 80)} is not a grace",
            kind="invalid-grace",
            hint="pass a timedelta, such as timedelta(days=7)",
        )
    if grace < GRACE_MIN and not allow_short:
        raise InvalidInputError(
            f"a grace of {grace} is shorter than {GRACE_MIN}: reads and uploads that take longer would fail",
            kind="grace-too-short",
            hint="use a longer grace; or allow_short_grace=True (--allow-short-grace) if nothing else "
            "uses the log",
        )
    return grace // datetime.timedelta(milliseconds=1)


class _Vacuum:
    """One run."""

    def __init__(self, committer: Committer, grace_ms: int, dry_run: bool, progress: Progress | None) -> None:
        self._committer = committer
        self._store = committer.store
        self._requests = Requests(committer.store, committer.clock, progress)
        self._grace_ms = grace_ms
        self._dry_run = dry_run
        self._notes: list[str] = []

    def run(self) -> VacuumReport:
        state = self._committer.refresh()
        check_removal(state)
        self._requests.advance("objects", 0, 0)
        old_ms = self._requests.attempt(self._store.store_time_ms) - self._grace_ms
        spool, listed = self._requests.attempt(self._list)
        with spool:
            if listed.has_views:
                state = self._committer.refresh()  # it knows the topics of all tables that are listed
            old_entry = self._committer.read(last_entry_at(state, old_ms))
            moves = _moves(state, listed, old_entry)
            if moves and not self._dry_run:
                state = self._marked(old_entry)
            floor = old_entry if moves and self._dry_run else state.vacuum_floor
            # From here to the first deletion everything is read that is needed: what cannot be read stops the
            # vacuum.
            live_objects(self._requests, state, lambda key: spool.add(key, _LIVE))
            documents = self._documents(state, listed)
            sound = self._has_sound_snapshots(state, listed)
            now_ms = old_ms + self._grace_ms
            views = published(self._committer, state, listed.views, now_ms, lambda key: spool.add(key, _HELD))
            self._notes += views.notes
            judge = Judge(state, Limits(floor, old_entry, old_ms), snapshots_sound=sound, views=views)
            for key, document in documents:
                number = judge.list_of(key, document)
                for named in document.keys:
                    spool.add(named, _CONDEMNED, number)
            uploads = judge.uploads(self._uploads(old_ms))
            self._judge(state, judge, spool)
        lists = judge.done_lists()
        if not self._dry_run:
            self._discard(uploads)
            self._delete("lists", lists)
        return VacuumReport(
            self._store.url,
            state.log_id,
            state.entry,
            floor,
            self._grace_ms,
            self._dry_run,
            judge.rows.sorted(),
            tuple(self._notes),
        )

    def _list(self) -> tuple[Spool, _Listed]:
        """List the root."""
        listed = _Listed()
        spool = Spool()

        def take(info: ObjectInfo) -> None:
            listed.add(info.key)
            spool.add(info.key, _LISTED, info.size)

        try:
            list_each(self._store, "", take)
        except BaseException:
            spool.close()
            raise
        return spool, listed

    def _marked(self, old_entry: int) -> LogState:
        """Move the floor to the last old entry; return the newest state."""
        try:
            self._committer.commit(self._committer.intend(MarkVacuum(old_entry)))
        except ConflictError as error:
            if error.kind != "vacuum-superseded":
                raise
            logger.debug("another vacuum has moved the floor: %s", error)
        return self._committer.refresh()

    def _documents(self, state: LogState, listed: _Listed) -> Iterator[tuple[str, CondemnedDocument]]:
        """Yield the lists of condemned objects, with their keys. Another vacuum may delete one meanwhile."""
        wanted = sorted(listed.lists)
        answers = self._requests.parallel("lists", self._requests.get, wanted)
        for key, data in zip(wanted, answers, strict=True):
            if data is not None:
                yield key, decode_condemned(data, key, state.log_id)

    def _has_sound_snapshots(self, state: LogState, listed: _Listed) -> bool:
        """Return whether the two newest named snapshots have the bytes that the log names; looks only if
        older ones are there.
        """
        named = state.checkpoints
        if len(named) < 2 or listed.oldest_snapshot >= named[0].entry:
            return True
        for one in named:
            data = self._requests.get(one.key)
            if data is None or sha256_hex(data) != one.sha256:
                return False
        return True

    def _uploads(self, old_ms: int) -> list[UnfinishedUpload]:
        try:
            return list(self._requests.attempt(lambda: unfinished_uploads(self._store, old_ms)))
        except (
            StorageError
        ) as error:  # a right that the account lacks, or a request that the store does not know
            self._notes.append(f"unfinished uploads could not be listed: {error}")
            return []

    def _judge(self, state: LogState, judge: Judge, spool: Spool) -> None:
        """Judge all objects that were listed, in parts, and condemn and delete them; what is condemned is
        noted before the last of the others go.
        """
        condemn: list[str] = []
        delete: list[str] = []
        for rows in spool.parts():
            sizes: dict[str, int] = {}
            known = Known()
            for key, kind, *values in rows:
                if kind == _LISTED:
                    sizes[key] = values[0]
                elif kind == _LIVE:
                    known.live.add(key)
                elif kind == _HELD:
                    known.held.add(key)
                else:
                    known.condemned.setdefault(key, []).append(values[0])
            garbage = judge.part((ObjectInfo(key, size) for key, size in sizes.items()), known)
            if self._dry_run:
                continue
            self._delete("deletions", delete)
            delete = garbage.delete
            condemn += garbage.condemn
            while len(condemn) > CONDEMNED_KEYS_MAX:
                self._condemn(state, condemn[:CONDEMNED_KEYS_MAX])
                condemn = condemn[CONDEMNED_KEYS_MAX:]
        if condemn:
            self._condemn(state, condemn)
        self._delete("deletions", delete)

    def _condemn(self, state: LogState, wanted: Sequence[str]) -> None:
        """Write a list of what a later run may delete."""
        now_ms = self._requests.attempt(self._store.store_time_ms)
        key = keys.condemned_key(state.entry, self._committer.ids.new())
        self._committer.read(
            create_object(key, encode_condemned(state.log_id, state.entry, now_ms, sorted(wanted)))
        )

    def _delete(self, stage: str, wanted: Sequence[str]) -> None:
        def delete(key: str) -> None:
            self._requests.attempt(lambda: self._store.delete(key))

        for _ in self._requests.parallel(stage, delete, wanted):
            pass

    def _discard(self, uploads: Sequence[UnfinishedUpload]) -> None:
        def discard(upload: UnfinishedUpload) -> None:
            self._requests.attempt(lambda: discard_upload(self._store, upload))

        for _ in self._requests.parallel("uploads", discard, uploads):
            pass


def _moves(state: LogState, listed: _Listed, old_entry: int) -> bool:
    """Return whether a run moves the floor to the last old entry: some object was born at the floor or later,
    or an erasure waits for it.
    """
    useful = listed.newest_born >= state.vacuum_floor or any(
        one.complete_entry < 0 <= one.rewritten_entry and one.needed_floor > state.vacuum_floor
        for one in state.erasures.values()
    )
    return useful and old_entry > state.vacuum_floor


@dataclass(slots=True)
class _Listed:
    """A summary of the listing of a root, besides the keys and sizes."""

    newest_born: int = -1
    """Largest number at which an object that entries name was born; -1: there is none."""
    oldest_snapshot: int = sys.maxsize
    """Entry of the oldest snapshot."""
    lists: list[str] = field(default_factory=list)
    """Keys of the lists of condemned objects."""
    views: ListedViews = field(default_factory=ListedViews)
    has_views: bool = False

    def add(self, key: str) -> None:
        """Take in a key."""
        if (name := keys.named_after(key)) is not None:
            self.newest_born = max(self.newest_born, name.born)
        elif (name := keys.parse_snapshot_key(key)) is not None:
            self.oldest_snapshot = min(self.oldest_snapshot, name.born)
        elif keys.parse_condemned_key(key) is not None:
            self.lists.append(key)
        elif keys.is_of_view(key):
            self.has_views = True
            self.views.add(key)
