"""Removals from a random log, on purpose: old records, keys that have later records, erased records, topics,
and old entries.

The users of topic ``t`` go on meanwhile. A second topic, ``keyed``, is written outside of transactions, so
its model is a list:

* what is below the log start, erased, or not the latest of its key may be gone; everything else is there, in
  order, once;
* what is gone never comes back, also not in a topic that is created again under the name;
* when an erasure is complete, no object of the root has anything of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import NamedTuple

import pyarrow as pa
from hypothesis import event
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from tests.erasure.world import canaries
from tests.model.groups import Client
from tests.model.log_world import GRACE, HOURS, LogWorld
from txnformat.admin.erasure.status import ErasureStage
from txnformat.core.intents import AllocateIds
from txnlog import TxnLog
from writers.bulk import BulkAppend

__all__ = ["Removals"]

SCHEMA = pa.schema([("k", pa.int64()), ("n", pa.int64()), ("text", pa.string())])
DAY_S = 86_400
SETTINGS: dict[str, int | str] = {
    "cleanup.policy": "compact,delete",
    "min.compaction.lag.ms": 0,
    "retention.ms": 1_000 * DAY_S,
}
OLD_ENTRIES = 220
TEXT = "erased-or-not-"


class _Sent(NamedTuple):
    """A record of the keyed topic; its place in the list is its offset."""

    k: int
    n: int
    sent_ms: int


@dataclass
class _Keyed:
    """The keyed topic, as long as it is not deleted."""

    sent: list[_Sent] = field(default_factory=list)
    erased: set[int] = field(default_factory=set)
    gone: set[int] = field(default_factory=set)
    """Numbers that a reader no longer saw."""
    open: list[tuple[str, str, set[int]]] = field(default_factory=list)
    """Conditions and keys of erasures, and what they covered."""


class Removals(LogWorld):
    """Adds the removals to the users of a log."""

    def __init__(self) -> None:
        super().__init__()
        self.keyed: _Keyed | None = None
        self.dead: set[int] = set()
        """Numbers of keyed topics that were deleted."""
        self.was_truncated = False

    # The topic that all users write to.

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        """Move the log starts of the users' topic."""
        self.read()
        log = self.process_that_removes()
        wanted = {
            one.partition: one.earliest + int(share * (one.last_stable_offset - one.earliest))
            for one in log.offsets("t")
        }
        before = self.visible(log)
        done = log.delete_records("t", wanted)
        assert {one.partition: one.earliest for one in done} == wanted
        after = self.visible(self.open(self.store))
        left = {number for (partition, offset), number in before.items() if offset >= wanted[partition]}
        assert set(after.values()) == left, "a trim takes what is below the log start, and nothing else"
        self.readers.removed |= set(before.values()) - left
        event(f"records deleted: {before != after}")

    def visible(self, log: TxnLog) -> dict[tuple[int, int], int]:
        """Return the committed numbers by place."""
        table = log.read("t", columns=["_partition", "_offset", "n"]).read_all()
        columns = [table.column(name).to_pylist() for name in ("_partition", "_offset", "n")]
        return {(partition, offset): number for partition, offset, number in zip(*columns, strict=True)}

    # The topic with keys.

    def writer(self) -> TxnLog:
        """Return a log with the keyed topic, on a store without faults."""
        log = self.process_that_removes(faults=False)
        if self.keyed is None:
            log.create_topic("keyed", SCHEMA, key_columns=["k"], settings=SETTINGS)
            self.keyed = _Keyed()
        return log

    @rule(wanted=st.lists(st.integers(0, 3), min_size=1, max_size=4), seals=st.booleans())
    def write_keyed(self, wanted: list[int], seals: bool) -> None:
        """Append records of some keys."""
        log = self.writer()
        assert self.keyed is not None
        numbers = [next(self.numbers) for _ in wanted]
        texts = [f"{TEXT}{number:06d}" for number in numbers]
        with BulkAppend(log) as bulk:
            bulk.send("keyed", pa.table({"k": wanted, "n": numbers, "text": texts}, SCHEMA), 0)
            bulk.commit()
        now_ms = log.committer.store.store_time_ms()
        self.keyed.sent += [_Sent(k, n, now_ms) for k, n in zip(wanted, numbers, strict=True)]
        if seals:
            log.maintain("seal")

    @precondition(lambda self: self.keyed is not None)
    @rule(key=st.integers(0, 3))
    def erase(self, key: int) -> None:
        """Erase the records of a key; those that come later stay."""
        log, keyed = self.writer(), self.keyed
        assert keyed is not None
        covered = {one.n for one in keyed.sent if one.k == key}
        secret = f"{next(self.numbers):032d}"
        where = f"k = {key}"
        report = log.erase("keyed", where, requested_by="a user", key=secret, all_rows=True)
        keyed.erased |= covered
        keyed.open.append((where, secret, covered))
        assert report.status is not None
        event(f"erased: {report.status.stage}")
        self.check_keyed()

    @precondition(lambda self: self.keyed is not None)
    @rule()
    def delete_topic(self) -> None:
        """Delete the keyed topic; the next write creates another one under its name."""
        log, keyed = self.writer(), self.keyed
        assert keyed is not None
        log.delete_topic("keyed")
        self.dead |= {one.n for one in keyed.sent}
        self.keyed = None
        event("topic deleted")

    @rule(hours=st.sampled_from([0, 25]))
    def retention(self, hours: int) -> None:
        """Let time pass, and let retention do its work."""
        self.check_keyed()  # it may take what a compaction has left of young records: nothing
        self.time_passes(hours * 3_600, enforces=False)
        removed = self.process_that_removes(faults=False).maintain("retention").removed
        assert not removed or {one.topic for one in removed} == {"keyed"}
        event(f"retention removed: {len(removed) > 0}")
        self.check_keyed()

    @precondition(lambda self: self.has_faults and not self.was_truncated)
    @rule()
    def truncate(self) -> None:
        """Make many entries, let them become old, and let them go. Idle ids are forgotten meanwhile, so all
        processes end before."""
        self.was_truncated = True
        for client in self.clients:
            self.drop(client)
        self.clients.clear()
        deleted_below = self.let_entries_go(OLD_ENTRIES)
        event(f"truncated: {deleted_below > 0}")

    def let_entries_go(self, entries: int) -> int:
        """Make as many entries as it takes for the log to have so many, let them become old, and let them go;
        return below which one they are deleted."""
        log = self.process_that_removes(faults=False)
        while log.state.entry < entries:
            log.committer.commit(log.committer.intend(AllocateIds("model", 1)))
        self.time_passes(8 * DAY_S, enforces=False)
        log.maintain(truncate_older_than=timedelta(days=7))
        self.time_passes(HOURS, enforces=False)
        return self.process_that_removes(faults=False).truncate(timedelta(days=7)).deleted_below

    def drop(self, client: Client) -> None:
        """Forget a process."""
        raise NotImplementedError

    # Checks.

    def check_keyed(self) -> None:
        """Compare the keyed topic with its model."""
        log, keyed = self.open(self.store), self.keyed
        if keyed is None:
            assert "keyed" not in log.topics()
            return
        table = log.read("keyed", columns=["_offset", "n"]).read_all()
        offsets, numbers = (table.column(name).to_pylist() for name in ("_offset", "n"))
        assert [keyed.sent[offset].n for offset in offsets] == numbers, "another record is at an offset"
        assert offsets == sorted(set(offsets)), "a record is there twice, or out of order"
        (place,) = log.offsets("keyed")
        seen = set(numbers)
        assert not seen & (keyed.gone | keyed.erased | self.dead), "what was gone is back"
        latest = {one.k: one.n for one in keyed.sent if one.n not in keyed.erased}
        now_ms = self.store.store_time_ms()
        for offset, one in enumerate(keyed.sent):
            if offset < place.earliest:
                is_old = now_ms - one.sent_ms > int(SETTINGS["retention.ms"])
                assert is_old or one.n in keyed.gone | keyed.erased, "retention took a young record"
            elif latest.get(one.k) == one.n:
                assert one.n in seen, "the latest record of a key is gone"
        keyed.gone |= {one.n for one in keyed.sent} - seen

    def finish_erasures(self) -> None:
        """Bring all erasures to an end, and look for what they covered."""
        log = self.process_that_removes(faults=False)
        if not log.erasures():
            return
        if self.keyed is not None:
            for where, secret, _ in self.keyed.open:
                log.erase("keyed", where, requested_by="a user", key=secret, all_rows=True)
        if self.has_faults and log.embeds:
            self.let_entries_go(log.state.entry + OLD_ENTRIES)
        for _ in range(3 if self.has_faults else 0):
            self.time_passes(HOURS, enforces=False)
            log = self.process_that_removes(faults=False)
            log.committer.commit(log.committer.intend(AllocateIds("model", 1)))
            log.vacuum(GRACE)
            log.maintain("erasures")
        if not self.has_faults:
            return  # the grace of the vacuum is by the store's own clock
        left = [one for one in log.erasures() if one.stage is not ErasureStage.COMPLETE]
        assert not left, f"an erasure never comes to an end: {left}"
        erased = set() if self.keyed is None else self.keyed.erased
        texts = {text for found in canaries(self.store, TEXT).values() for text in found}
        held = {number for number in erased if any(f"{TEXT}{number:06d}" in text for text in texts)}
        assert not held, f"erased, and in an object: {held}"
        event("erasures completed")
