"""The vacuum: deletes the objects that no state names any more, and no operation can name again. In two runs, a grace apart.

1. A mark (:mod:`txnformat.core.lifecycle.vacuum`) moves the floor to the last entry that is older than the grace: nothing that was born below it
   can be named from then on.
2. An object that was born below the floor, and that no state at the mark or later leads to, is garbage for good. The vacuum *condemns* it: its key goes into an object
   ``_txnlog/condemned/<entry>-<uuid>``.
3. A run that finds a list of an entry older than the grace deletes its objects: readers that planned by a state before that entry have had the grace.

So runs commute, and one that was cut short at any point is completed by the next. The specification, section 5.14, has the rules.
"""

from __future__ import annotations

import datetime
import logging
from collections.abc import Sequence

from txnformat import keys
from txnformat.admin.garbage import Garbage, Limits, VacuumReport, judge
from txnformat.admin.publishing.holding import published
from txnformat.arguments import check_callable, check_flags
from txnformat.client.committer import Committer
from txnformat.core.entry import sha256_hex
from txnformat.core.intents import MarkVacuum
from txnformat.core.lifecycle.trim import check_removal
from txnformat.core.lifecycle.vacuum import GRACE_MS_MIN
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
from txnformat.store.base import ObjectInfo
from txnformat.store.unfinished import UnfinishedUpload, discard_upload, unfinished_uploads
from txnformat.verify.live import CompactKeys, live_objects
from txnformat.verify.report import Progress
from txnformat.verify.requests import Requests

__all__ = ["GRACE", "GRACE_MIN", "vacuum"]

GRACE = datetime.timedelta(days=7)
"""How long readers may go on by what they have planned, and writers may take from an upload to its commit."""
GRACE_MIN = datetime.timedelta(milliseconds=GRACE_MS_MIN)
"""A shorter grace needs consent: jobs that run for longer lose what they read and write. Writers look for news four times in this time."""

logger = logging.getLogger("txnlog")


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
            hint="use a longer grace; or allow_short_grace=True (--allow-short-grace) if nothing else uses the log",
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
        objects = self._requests.objects("")
        of_views = [info.key for info in objects if keys.is_of_view(info.key)]
        if of_views:
            state = self._committer.refresh()  # it knows the topics of all tables that are listed
        old_entry = self._committer.read(last_entry_at(state, old_ms))
        state = self._marked(state, objects, old_entry)
        floor = max(state.vacuum_floor, old_entry) if self._dry_run else state.vacuum_floor
        # From here to the first deletion everything is read that is needed: what cannot be read stops the vacuum.
        live = live_objects(self._requests, state, CompactKeys())
        lists = self._lists(state, objects)
        sound = self._has_sound_snapshots(state, objects)
        views = published(self._committer, state, of_views, old_ms + self._grace_ms)
        self._notes += views.notes
        limits = Limits(floor, old_entry, old_ms)
        garbage = judge(
            objects,
            self._uploads(old_ms),
            live.keys,
            state,
            lists,
            limits,
            snapshots_sound=sound,
            views=views,
        )
        if not self._dry_run:
            self._condemn(state, garbage)
            self._delete(garbage)
        return VacuumReport(
            self._store.url,
            state.log_id,
            state.entry,
            floor,
            self._grace_ms,
            self._dry_run,
            garbage.rows(),
            tuple(self._notes),
        )

    def _marked(self, state: LogState, objects: Sequence[ObjectInfo], old_entry: int) -> LogState:
        """Move the floor to the last old entry, unless no object was born at the floor or later and no erasure waits for it; return the newest state."""
        names = (keys.named_after(info.key) for info in objects)
        useful = any(name is not None and name.born >= state.vacuum_floor for name in names) or any(
            one.complete_entry < 0 <= one.rewritten_entry and one.needed_floor > state.vacuum_floor
            for one in state.erasures.values()
        )
        if self._dry_run or not useful or old_entry <= state.vacuum_floor:
            return state
        try:
            self._committer.commit(self._committer.intend(MarkVacuum(old_entry)))
        except ConflictError as error:
            if error.kind != "vacuum-superseded":
                raise
            logger.debug("another vacuum has moved the floor: %s", error)
        return self._committer.refresh()

    def _lists(self, state: LogState, objects: Sequence[ObjectInfo]) -> dict[str, CondemnedDocument]:
        """Return the lists of condemned objects, by key. Another vacuum may delete one meanwhile."""
        wanted = [info.key for info in objects if keys.parse_condemned_key(info.key) is not None]
        answers = self._requests.parallel("lists", self._requests.get, wanted)
        return {
            key: decode_condemned(data, key, state.log_id)
            for key, data in zip(wanted, answers, strict=True)
            if data is not None
        }

    def _has_sound_snapshots(self, state: LogState, objects: Sequence[ObjectInfo]) -> bool:
        """Return whether the two newest named snapshots have the bytes that the log names; looks only if older ones are there."""
        named = state.checkpoints
        names = (keys.parse_snapshot_key(info.key) for info in objects)
        born = [name.born for name in names if name is not None]
        if len(named) < 2 or not any(entry < named[0].entry for entry in born):
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

    def _condemn(self, state: LogState, garbage: Garbage) -> None:
        """Write the lists of what a later run may delete."""
        now_ms = self._requests.attempt(self._store.store_time_ms)
        wanted = sorted(garbage.condemn)
        for start in range(0, len(wanted), CONDEMNED_KEYS_MAX):
            named = wanted[start : start + CONDEMNED_KEYS_MAX]
            key = keys.condemned_key(state.entry, self._committer.ids.new())
            self._committer.read(
                create_object(key, encode_condemned(state.log_id, state.entry, now_ms, named))
            )

    def _delete(self, garbage: Garbage) -> None:
        """Delete objects, and then the lists that named them."""

        def delete(key: str) -> None:
            self._requests.attempt(lambda: self._store.delete(key))

        def discard(upload: UnfinishedUpload) -> None:
            self._requests.attempt(lambda: discard_upload(self._store, upload))

        for _ in self._requests.parallel("deletions", delete, garbage.delete):
            pass
        for _ in self._requests.parallel("uploads", discard, garbage.uploads):
            pass
        for _ in self._requests.parallel("lists", delete, garbage.lists):
            pass
