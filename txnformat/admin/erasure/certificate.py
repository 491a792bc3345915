"""The certificate of an erasure: the last look at the store, and the entry that says that nothing was
found.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from txnformat import keys
from txnformat.admin.erasure.status import ErasureStatus, status_of
from txnformat.client.committer import Committer
from txnformat.core.intents import Action
from txnformat.core.lifecycle.features import check_removal
from txnformat.core.lifecycle.operations import CompleteErasure, KeptVersions
from txnformat.core.lifecycle.state import ErasureState
from txnformat.core.state import EMBEDDING, LogState
from txnformat.core.wire.bundle import BUNDLE_ENTRIES, bundle_first
from txnformat.errors import ConflictError, NotFoundError, StorageError
from txnformat.store.base import ObjectStore, keeps_versions
from txnformat.store.unfinished import UnfinishedUpload, unfinished_uploads
from txnformat.verify.live import live_objects
from txnformat.verify.requests import Requests

__all__ = ["certify", "look"]

EXAMPLES_MAX = 3
ALL_MS = 2**53
"""Later than any time of a store."""

CLEAN = "only the certificate: nothing is left; `txnlog maintain erasures` or `txnlog maintain all` writes it"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Seen:
    """The findings of one look at the store."""

    garbage: Sequence[str]
    """Keys of objects that the state does not lead to."""
    uploads: Sequence[UnfinishedUpload]
    """Multipart uploads, and temporary files that were there all the time."""
    failure: str
    """Why uploads are not known; empty: they are."""
    kept: KeptVersions
    oldest_entry: int | None
    """The first entry that is there, if entries may have payloads."""
    oldest_payloads: int | None = None
    """The first entry that a payload bundle has."""
    tables: frozenset[str] = frozenset()
    """Directories with a published table."""

    def published(self, directory: str) -> str:
        """Return what else is to be done about a topic with a published table; nothing about another one."""
        return (
            "; publish the topic first: its table may have some of them" if directory in self.tables else ""
        )


def certify(committer: Committer) -> list[ErasureStatus]:
    """Complete the erasures that lack nothing but the last look; return all that were not complete before,
    and what they lack now.

    Requests: none when no vacuum has passed an erasure that is not complete; else 3 LIST (2 of unfinished
    uploads), and those of a vacuum's look for what is in use. Raises UnsupportedFeatureError,
    CorruptDataError, StorageError: what is in use is not known, so nothing is complete.
    """
    state = committer.refresh()
    check_removal(state)
    opened = [one for one in state.erasures.values() if one.complete_entry < 0]
    left: dict[str, tuple[str, ...]] = {}
    complete: dict[str, ErasureState] = {}
    if due := _due(state):
        seen = _look(committer, state)
        for one in due:
            left[one.erasure_id] = tuple(_left(one, seen))
            if not left[one.erasure_id]:
                _complete(committer, one, seen.kept)
                # When more than a hundred are completed, the state does not keep the first ones.
                if (now := committer.refresh().erasures.get(one.erasure_id)) is not None:
                    complete[one.erasure_id] = now
    state = committer.refresh()
    known = {**complete, **state.erasures}
    # One that is not there was abandoned meanwhile.
    return [
        status_of(state, known[one.erasure_id], left.get(one.erasure_id, ()))
        for one in opened
        if one.erasure_id in known
    ]


def look(committer: Committer) -> list[ErasureStatus]:
    """Return all erasures that the state knows, and what each lacks; where that is the last look, what it
    would find.

    Nothing is changed.

    Requests: as of :func:`certify`. Raises CorruptDataError, StorageError: what is in use is not known.
    """
    state = committer.refresh()
    left: dict[str, tuple[str, ...]] = {}
    if due := _due(state):
        seen = _look(committer, state)
        left = {one.erasure_id: tuple(_left(one, seen)) or (CLEAN,) for one in due}
    return [status_of(state, one, left.get(key, ())) for key, one in state.erasures.items()]


def _due(state: LogState) -> list[ErasureState]:
    """Return the erasures that lack nothing but the last look."""
    return [
        one
        for one in state.erasures.values()
        if one.complete_entry < 0 <= one.rewritten_entry and one.needed_floor <= state.vacuum_floor
    ]


def _look(committer: Committer, state: LogState) -> _Seen:
    store = committer.store
    requests = Requests(store, committer.clock, None)
    before, failure = _uploads(requests, store)
    live: set[str] = set()
    live_objects(requests, state, live.add)
    now, failed = _uploads(requests, store)
    # A temporary file that went meanwhile is gone, or an object that is listed below; one that came is of a
    # writer that runs.
    known = {one.key for one in before}
    uploads = [one for one in now if one.upload_id or one.key in known]
    # The listing also has objects that land while this looks for what is in use, and an upload that is
    # completed after its own listing.
    sizes = requests.list("")
    garbage = [key for key in sizes if keys.named_after(key) is not None and key not in live]
    entries = [number for number in map(keys.parse_entry_key, sizes) if number is not None]
    oldest = min(entries, default=None) if EMBEDDING in state.features.reader else None
    bundles = [found[0] for found in map(keys.parse_payloads_key, sizes) if found is not None]
    names = (keys.delta_name(key) or keys.iceberg_name(key) for key in sizes if keys.is_of_view(key))
    tables = frozenset(name.directory for name in names if name is not None)
    return _Seen(
        garbage, uploads, failure or failed, _kept(store), oldest, min(bundles, default=None), tables
    )


def _uploads(requests: Requests, store: ObjectStore) -> tuple[Sequence[UnfinishedUpload], str]:
    """Return the unfinished uploads, or none and why they are not known."""
    try:
        return requests.attempt(lambda: unfinished_uploads(store, ALL_MS)), ""
    except StorageError as error:  # a right that the account lacks, or a request that the store does not know
        return (), str(error)


def _kept(store: ObjectStore) -> KeptVersions:
    try:
        kept = keeps_versions(store)
    except StorageError as error:
        logger.warning("it is not known whether the store keeps old versions of objects: %s", error)
        kept = None
    return KeptVersions.UNKNOWN if kept is None else KeptVersions.YES if kept else KeptVersions.NO


def _left(one: ErasureState, seen: _Seen) -> list[str]:
    """Say what still has to go from the directories of an erasure's topic."""
    found = []
    old = [key for key in seen.garbage if _is_of(one, key) and keys.born_of(key) < one.needed_floor]
    if old:
        found.append(
            f"{len(old)} objects that nothing refers to still exist ({', '.join(old[:EXAMPLES_MAX])}): "
            "vacuums delete them, the second one a grace after the first"
            f"{seen.published(one.directory)}"
        )
    if seen.oldest_entry is not None and seen.oldest_entry <= one.rewritten_entry:
        found.append(
            f"entries {seen.oldest_entry} to {one.rewritten_entry} (their payloads may hold erased "
            "records) still exist: truncations delete them "
            "(`txnlog truncate`) when their rows are sealed and all entries below "
            f"{bundle_first(one.rewritten_entry) + BUNDLE_ENTRIES} are old "
            "enough and have two snapshots behind them"
        )
    if seen.oldest_payloads is not None and seen.oldest_payloads <= one.rewritten_entry:
        found.append(
            f"payload bundles with entries from {seen.oldest_payloads} on, which repeat payloads, still "
            "exist: truncations delete them with "
            "their entries, and vacuums when these are older than the grace"
        )
    if seen.failure:
        found.append(f"unfinished uploads could not be listed: {seen.failure}")
    uploads = [upload.key for upload in seen.uploads if _is_of(one, upload.key) and _may_be_old(one, upload)]
    if uploads:
        found.append(
            f"{len(uploads)} unfinished uploads still exist ({', '.join(uploads[:EXAMPLES_MAX])}): "
            "a vacuum discards them when they are older than its grace"
        )
    return found


def _is_of(one: ErasureState, key: str) -> bool:
    return keys.is_topics_file(key, one.directory)


def _may_be_old(one: ErasureState, upload: UnfinishedUpload) -> bool:
    if not upload.upload_id:
        return True  # the name of a temporary file does not say what it was written from, nor does its time
    name = keys.named_after(upload.key)
    return name is not None and name.born < one.needed_floor


def _complete(committer: Committer, one: ErasureState, kept: KeptVersions) -> None:
    action: Action = CompleteErasure(
        one.erasure_id,
        one.topic_id,
        one.entry,
        one.columns,
        one.condition,
        one.requested_by,
        one.records,
        one.files,
        one.replaced_entry,
        one.rewritten_entry,
        one.needed_floor,
        kept,
    )
    try:
        committer.commit(committer.intend(action))
    except (ConflictError, NotFoundError) as error:  # another client has completed it, or abandoned it
        logger.debug("not completed: %s", error)
