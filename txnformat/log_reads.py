"""The reading half of TxnLog: topics as record batches and datasets, by isolation level; cuts through all
topics.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

import pyarrow as pa

from txnformat.admin.transactions import Transactions
from txnformat.arguments import check_flags, items, whole
from txnformat.client.committer import Committer
from txnformat.core.state import LogState, TopicState
from txnformat.moments import Moment
from txnformat.predicates.tree import Predicate
from txnformat.protocol.cuts import check_version_options, cut_at, entry_time_ms, topic_as_of
from txnformat.reading.plan import OffsetSpec, ReadPlan, plan_read, topic_predicate
from txnformat.reading.resolving import on_newest, read_plan
from txnformat.reading.rows import output_schema
from txnformat.reading.sealed import SidecarCache
from txnformat.spans import counted, span
from txnformat.store.base import ObjectStore
from txnformat.types import IsolationLevel

if TYPE_CHECKING:
    from txnformat.reading.dataset import LogDataset

__all__ = ["LogReads", "LogSnapshot"]


class LogReads:
    """Read methods of TxnLog."""

    store: ObjectStore
    sidecars: SidecarCache
    committer: Committer
    transactions: Transactions

    def read(
        self,
        topic: str,
        *,
        isolation: str | IsolationLevel | None = None,
        version_as_of: int | None = None,
        timestamp_as_of: Moment | None = None,
        start: OffsetSpec = None,
        end: OffsetSpec = None,
        columns: Sequence[str] | None = None,
        partitions: Sequence[int] | None = None,
        where: str | None = None,
        end_expired: bool = False,
    ) -> pa.RecordBatchReader:
        """Read a topic as it is now: partition by partition, each in offset order.

        Parameters
        ----------
        isolation : str
            "read_committed" (default): up to the last stable offset, where the oldest open transaction
            begins. "read_uncommitted": up to the log end, with open and aborted transactions. "snapshot": up
            to the log end all that was committed by one entry, held back by nothing (docs/internals/spec.md,
            section 6).
        version_as_of : int, optional
            The entry of the snapshot; by default the newest. Implies "snapshot".
        timestamp_as_of : datetime, str or int, optional
            Instead: the last entry at or before this time, which is UTC without a zone; ISO 8601 as text, ms
            since the epoch as a number. Costs log2(entries) requests.
        start, end : int or mapping of partition to int, optional
            First offset (inclusive) and end offset (exclusive).
        columns : sequence of str, optional
            The topic's own columns and metadata columns (``_offset``, ``_partition``, …), in the wanted
            order. The schema is that of now, also of an older version.
        partitions : sequence of int, optional
            Only these.
        where : str, optional
            Only records for which this SQL condition is true, such as ``"amount > 5 AND _offset < 1000"``. It
            also saves reading: extents and row groups in which it cannot be true are not fetched.
        end_expired : bool
            First end the open transactions whose time is over, which hold the read back. That writes, only
            when there are any; where it is not permitted, or fails, a warning is logged once and the read
            goes on.

        Returns
        -------
        pyarrow.RecordBatchReader
            Data is fetched while it is consumed.

        Raises
        ------
        NotFoundError, OffsetOutOfRangeError, InvalidInputError
        """
        check_flags(end_expired=end_expired)
        level = check_version_options(isolation, version_as_of, timestamp_as_of)
        state = self.transactions.end_expired_if_permitted() if end_expired else self.committer.refresh()
        as_of = self.committer.read(cut_at(state, version_as_of, timestamp_as_of))

        def planned(state: LogState) -> ReadPlan:
            return self.plan(
                topic,
                isolation=level,
                start=start,
                end=end,
                partitions=partitions,
                where=where,
                state=state,
                as_of=as_of,
            )

        return _records(self, on_newest(self.committer.refresh, planned, state), columns)

    def dataset(
        self,
        topic: str,
        *,
        isolation: str | IsolationLevel | None = None,
        version_as_of: int | None = None,
        timestamp_as_of: Moment | None = None,
        start: OffsetSpec = None,
        end: OffsetSpec = None,
        columns: Sequence[str] | None = None,
        where: str | None = None,
    ) -> LogDataset:
        """Return a ``pyarrow.dataset.Dataset`` of a topic as it is now: for DuckDB, Polars, pandas.

        The parameters are those of :meth:`read`, but ``_partition`` is the only metadata column. Records
        written later are not in it. Row groups that ``start`` or ``end`` cuts are read at once, all others
        when it is scanned, by pyarrow's own reader: only page checksums are verified.

        Raises
        ------
        NotFoundError, OffsetOutOfRangeError, InvalidInputError
        """
        from txnformat.reading.dataset import plan_dataset  # a quarter of a second that only datasets need

        level = check_version_options(isolation, version_as_of, timestamp_as_of)
        state = self.committer.refresh()
        as_of = self.committer.read(cut_at(state, version_as_of, timestamp_as_of))

        def planned(state: LogState) -> LogDataset:
            plan = self.plan(
                topic, isolation=level, start=start, end=end, where=where, state=state, as_of=as_of
            )
            return plan_dataset(self.store, plan, items(columns, "columns"), may_be_cut=end is not None)

        return on_newest(self.committer.refresh, planned, state)

    def snapshot(
        self, *, version_as_of: int | None = None, timestamp_as_of: Moment | None = None
    ) -> LogSnapshot:
        """Return the log as of one entry, to read several topics of the same moment.

        Parameters
        ----------
        version_as_of, timestamp_as_of
            As of :meth:`read`; by default the newest entry.

        Raises
        ------
        NotFoundError
            Kinds ``unknown-version``, ``timestamp-before-log``, ``timestamp-in-future``.
        InvalidInputError
            Kinds ``invalid-version``, ``invalid-timestamp``.
        """
        check_version_options(IsolationLevel.SNAPSHOT, version_as_of, timestamp_as_of)
        state = self.committer.refresh()
        return LogSnapshot(self, state, self.committer.read(cut_at(state, version_as_of, timestamp_as_of)))

    def plan(
        self,
        topic: str,
        *,
        isolation: str | IsolationLevel = IsolationLevel.READ_COMMITTED,
        start: OffsetSpec = None,
        end: OffsetSpec = None,
        partitions: Sequence[int] | None = None,
        where: str | Predicate | None = None,
        state: LogState | None = None,
        open_sealed: bool = True,
        as_of: int | None = None,
    ) -> ReadPlan:
        """Plan a read on the newest state (or on ``state``) without reading any data.

        ``open_sealed`` and ``as_of`` are as in :func:`~txnformat.reading.plan.plan_read`.
        """
        check_flags(open_sealed=open_sealed)
        if as_of is not None:
            whole("as_of", as_of)
        with span("plan", log=self.store.url, topic=topic) as one:
            plan = plan_read(
                self.sidecars,
                self.committer.refresh() if state is None else state,
                topic,
                isolation=isolation,
                start=start,
                end=end,
                partitions=partitions,
                where=where,
                open_sealed=open_sealed,
                as_of=as_of,
            )
            if one:
                one.set(entry=plan.entry)
            return plan


class LogSnapshot:
    """A log as of one entry: all topics at the same moment, each transaction whole or not at all.

    Made by :meth:`TxnLog.snapshot`. It always gives the same: what is written, sealed or altered later does
    not change it. Safe for use by many threads.

    Parameters
    ----------
    state : LogState
        What topics looked like when the snapshot was made.
    entry : int
        The last entry that is in it.
    """

    def __init__(self, log: LogReads, state: LogState, entry: int) -> None:
        self._log = log
        self._state = state
        self.entry = entry

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._log.store.url!r}, entry={self.entry})"

    def __reduce__(self) -> NoReturn:
        self._log.committer.__reduce__()

    @property
    def timestamp_ms(self) -> int:
        """Log time of the entry, ms since the epoch. Requests: 1 GET, none when it was the newest."""
        return self._log.committer.read(entry_time_ms(self._state, self.entry))

    def topics(self) -> list[str]:
        """Return the names of the topics that were there, sorted."""
        return sorted(
            topic.name for topic in self._state.topics.values() if topic.created_entry <= self.entry
        )

    def read(
        self,
        topic: str,
        *,
        start: OffsetSpec = None,
        end: OffsetSpec = None,
        columns: Sequence[str] | None = None,
        partitions: Sequence[int] | None = None,
        where: str | None = None,
    ) -> pa.RecordBatchReader:
        """Read a topic; parameters and errors are those of :meth:`TxnLog.read`.

        Its schema is that of when this was made.
        """
        committer = self._log.committer

        def planned(state: LogState) -> ReadPlan:
            return self._plan(state, topic, start, end, partitions, where)

        return _records(self._log, on_newest(committer.refresh, planned, committer.state), columns)

    def dataset(
        self,
        topic: str,
        *,
        start: OffsetSpec = None,
        end: OffsetSpec = None,
        columns: Sequence[str] | None = None,
        where: str | None = None,
    ) -> LogDataset:
        """Return a topic as a ``pyarrow.dataset.Dataset``; otherwise as :meth:`TxnLog.dataset`."""
        from txnformat.reading.dataset import plan_dataset

        committer = self._log.committer

        def planned(state: LogState) -> LogDataset:
            plan = self._plan(state, topic, start, end, None, where)
            return plan_dataset(self._log.store, plan, items(columns, "columns"), may_be_cut=end is not None)

        return on_newest(committer.refresh, planned, committer.state)

    def _plan(
        self,
        now: LogState,
        topic: str,
        start: OffsetSpec,
        end: OffsetSpec,
        partitions: Sequence[int] | None,
        where: str | None,
    ) -> ReadPlan:
        """Plan on the newest state that is known, ``now``, where everything is found that was moved since; no
        request for it.
        """
        pinned: TopicState = topic_as_of(self._state, topic, self.entry)
        newest = now.topic_of(pinned.topic_id, "the snapshot")  # a topic of the same name may be another one
        plan = self._log.plan(
            topic,
            isolation=IsolationLevel.SNAPSHOT,
            start=start,
            end=end,
            partitions=range(pinned.partitions) if partitions is None else partitions,
            where=None if where is None else topic_predicate(where, pinned.schema),
            state=now,
            as_of=self.entry,
        )
        return replace(plan, topic=replace(pinned, schema=pinned.schema.beside(newest.schema)))


def _records(log: LogReads, plan: ReadPlan, columns: Sequence[str] | None) -> pa.RecordBatchReader:
    columns = items(columns, "columns")
    schema = output_schema(plan.topic.schema, columns)
    batches = read_plan(log.sidecars, log.committer.refresh, plan, columns)
    one = span("read", is_current=False, log=log.store.url, topic=plan.topic.name)
    return pa.RecordBatchReader.from_batches(schema, counted(one, batches))
