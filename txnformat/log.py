"""TxnLog: a log as users hold it.

A method imports the code that few programs call: Spark starts a Python process for each step of a query, and
each of them imports this module.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self

import pyarrow as pa

from txnformat import keys
from txnformat.admin.groups import Groups
from txnformat.admin.publishing.reports import DELTA, KnownTables
from txnformat.admin.subscriptions import Subscriptions
from txnformat.admin.transactions import Transactions
from txnformat.arguments import check_flags
from txnformat.client.committer import Committer
from txnformat.client.create import begin_log, check_max_timeout, create_format
from txnformat.clock import Clock, Ids, Instant, SystemClock, SystemIds
from txnformat.core.intents import ChangeLog, EnableFeatures
from txnformat.core.lifecycle.truncation import OLDER_THAN
from txnformat.core.lifecycle.vacuum import GRACE
from txnformat.core.operations import CreateTopic
from txnformat.core.state import COLUMNS, EMBEDDING, LIFECYCLE, LogState, TopicState
from txnformat.core.topics.creation import check_same_topic, new_topic
from txnformat.core.topics.evolution import as_change
from txnformat.errors import ConflictError, InvalidInputError, NotFoundError, repr_of
from txnformat.log_reads import LogReads
from txnformat.moments import Moment
from txnformat.protocol.commit import CommitSettings
from txnformat.protocol.reads import read_boundary
from txnformat.reading.sealed import SidecarCache
from txnformat.store.base import ObjectStore, rotate_key
from txnformat.store.open import Location, as_store, check_store
from txnformat.types import Outcome

if TYPE_CHECKING:
    from txnformat.admin.compaction import CompactedTopic, CompactionProgress
    from txnformat.admin.describe import LogDescription, PartitionOffsets, TransactionOutcome
    from txnformat.admin.erasure.call import ErasureReport
    from txnformat.admin.erasure.status import ErasureStatus
    from txnformat.admin.garbage import VacuumReport
    from txnformat.admin.history import HistoryEntry
    from txnformat.admin.maintenance import MaintenanceReport
    from txnformat.admin.metrics import LogMetrics
    from txnformat.admin.prepared import PreparedTransaction
    from txnformat.admin.publishing.reports import PublishReport
    from txnformat.admin.topics import TopicDeletion
    from txnformat.admin.trimming import DeletedRecords
    from txnformat.admin.truncation import TruncationReport
    from txnformat.looking.timeline import Timeline
    from txnformat.verify.report import Progress, VerifyReport
    from txnformat.views.manifests import ViewTable

__all__ = ["TxnLog", "check_log"]


class TxnLog(LogReads):
    """A transactional log: topics and partitions under one root.

    Made by :meth:`open`, :meth:`create` or :meth:`open_or_create`. Safe for use by many threads. Reading
    needs only read rights. Use as a context manager, or call :meth:`close`, to wait for background work.

    Examples
    --------
    >>> log = TxnLog.open_or_create("/data/log")                      # doctest: +SKIP
    >>> log.create_topic("orders", pa.schema([("id", pa.int64())]))   # doctest: +SKIP
    >>> log.read("orders").read_all()                                 # doctest: +SKIP
    """

    def __init__(
        self,
        store: ObjectStore,
        *,
        clock: Clock | None = None,
        ids: Ids | None = None,
        settings: CommitSettings | None = None,
    ) -> None:
        check_store(store)
        self.store = store
        self.sidecars = SidecarCache(store)
        self.committer = Committer(store, clock or SystemClock(), ids or SystemIds(), settings)
        self._last_done: dict[str, Instant] = {}  # when a task of maintenance ended last here, by name
        self._tables = KnownTables()  # published ones as last seen here
        self.transactions = Transactions(self.committer)
        self.groups = Groups(self.committer, self.sidecars)
        self.subscriptions = Subscriptions(self.committer, self.sidecars)

    @classmethod
    def open(
        cls,
        location: Location,
        *,
        storage_options: Mapping[str, str] | None = None,
        **components: Any,
    ) -> Self:
        """Open the log at a path or URL.

        Parameters
        ----------
        storage_options : mapping of str to str, optional
            Credentials, endpoint, … of S3 (docs/storage.md).

        Raises
        ------
        NotFoundError
            Kind ``no-log``: there is none.
        """
        log = cls(as_store(location, storage_options), **components)
        try:
            log.committer.refresh()
        except NotFoundError as error:
            raise NotFoundError(
                error.what, kind=error.kind, hint=error.hint, path=log.url, **error.values
            ) from None
        return log

    @classmethod
    def create(
        cls,
        location: Location,
        *,
        storage_options: Mapping[str, str] | None = None,
        max_transaction_timeout_ms: int | None = None,
        embedding: bool | None = None,
        **components: Any,
    ) -> Self:
        """Create a log where there is none.

        Parameters
        ----------
        max_transaction_timeout_ms : int, optional
            The longest ``transaction_timeout_ms`` that its producers may ask for, 1 to 7 days; 15 minutes by
            default. Given, it costs 1 entry.
        embedding : bool, optional
            Whether small transactions may travel in their entries
            (:attr:`~writers.settings.ProducerSettings.embed_bytes`). False: each uploads its files, until
            :meth:`upgrade` allows it; so that rights to read may differ by topic (docs/rights.md). By default
            they may, as :attr:`~txnformat.protocol.commit.CommitSettings.embedding` of ``settings`` says.
            Given, it costs 1 entry.

        Raises
        ------
        ConflictError
            Kind ``log-exists``.
        InvalidInputError
            Kind ``invalid-transaction-timeout``; nothing was written.
        """
        if max_transaction_timeout_ms is not None:
            check_max_timeout(max_transaction_timeout_ms)
        log = cls(as_store(location, storage_options), **components)
        if not create_format(log.store, log.committer.ids):
            raise ConflictError(
                "there is a log already", kind="log-exists", hint="open it with TxnLog.open", path=log.url
            )
        log.committer.refresh()
        if max_transaction_timeout_ms is not None or embedding is not None:
            begin_log(log.committer, max_transaction_timeout_ms, embedding=embedding)
        return log

    @classmethod
    def open_or_create(
        cls,
        location: Location,
        *,
        storage_options: Mapping[str, str] | None = None,
        **components: Any,
    ) -> Self:
        """Open the log, or create it where there is none."""
        log = cls(as_store(location, storage_options), **components)
        if log.store.head(keys.FORMAT_KEY) is None:
            create_format(log.store, log.committer.ids)
        log.committer.refresh()
        return log

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    def __reduce__(self) -> NoReturn:
        self.committer.__reduce__()

    @property
    def url(self) -> str:
        """Where the log is, for people."""
        return self.store.url

    @property
    def log_id(self) -> str:
        """The log's own id (uuid)."""
        return self.committer.state.log_id

    @property
    def state(self) -> LogState:
        """The state as last seen."""
        return self.committer.state

    def refresh(self) -> LogState:
        """Follow the log to its tip and return its state. Requests: 1 GET when nothing is new."""
        return self.committer.refresh()

    def topics(self) -> list[str]:
        """Return the names of all topics, sorted."""
        return sorted(self.refresh().topic_ids)

    def create_topic(
        self,
        name: str,
        schema: Any,
        *,
        partitions: int = 1,
        key_columns: Sequence[str] | None = None,
        timestamp_column: str | None = None,
        settings: Mapping[str, int | str] | None = None,
        exist_ok: bool = False,
    ) -> TopicState:
        """Create a topic. Requests: 1 entry.

        Parameters
        ----------
        schema : pyarrow.Schema, Spark StructType, or "kafka"
            "kafka": key, value, headers, timestamp; keyed by key.
        partitions : int
            1 to 10,000; can only grow later.
        key_columns : sequence of str, optional
            Records with equal keys go to one partition (Kafka's murmur2).
        timestamp_column : str, optional
            The column that is the records' time; log time of the append without one.
        settings : mapping of str to int or str, optional
            Settings by name, such as ``{"retention.ms": 604_800_000}`` (docs/operate.md).
        exist_ok : bool
            Return a topic that exists already, if it has the same schema, columns and partition count, or
            began with them; its settings stay.

        Raises
        ------
        ConflictError
            Kind ``topic-exists``.
        InvalidInputError
            Name, schema, columns or partition count: every problem found. Kind ``invalid-partitions``: the
            topics of the log would have more than 200,000 partitions together.
        """
        check_flags(exist_ok=exist_ok)
        wanted = self.topic_operation(
            name,
            schema,
            partitions=partitions,
            key_columns=key_columns,
            timestamp_column=timestamp_column,
            settings=settings,
        )
        try:
            self.committer.commit(self.committer.intend(wanted))
        except ConflictError as error:
            found = self.refresh().topics.get(self.state.topic_ids.get(name, ""))
            if not exist_ok or error.kind != "topic-exists" or found is None:
                raise
            check_same_topic(wanted, found)
            return found
        return self.committer.state.topic_of(wanted.topic_id, "the creation")

    def topic_operation(
        self,
        name: str,
        schema: Any,
        *,
        partitions: int = 1,
        key_columns: Sequence[str] | None = None,
        timestamp_column: str | None = None,
        settings: Mapping[str, int | str] | None = None,
    ) -> CreateTopic:
        """Return the operation that creates a topic, checked; nothing is committed."""
        return new_topic(
            name,
            schema,
            self.committer.ids.new(),
            partitions=partitions,
            key_columns=key_columns,
            timestamp_column=timestamp_column,
            settings=settings,
        )

    def alter_topic(
        self,
        name: str,
        *,
        partitions: int | None = None,
        add_columns: pa.Schema | Sequence[pa.Field] | None = None,
        widen: Mapping[str, pa.DataType] | None = None,
        rename: Mapping[str, str] | None = None,
        drop: Sequence[str] | None = None,
        settings: Mapping[str, int | str] | None = None,
        unset: Sequence[str] | None = None,
    ) -> TopicState:
        """Let a topic grow, rename and drop columns, or change its settings, in one step; nothing that is
        there is rewritten.

        Requests: 1 entry.

        Records that were written before read as null in added columns, as the same values in widened and in
        renamed ones, and without the dropped ones. Producers go on: what they send without the added columns
        gets nulls there. A row with a name that was dropped, or changed, is refused.

        Parameters
        ----------
        partitions : int, optional
            How many there shall be in all: more than now, at most 10,000. Keys then go to other partitions;
            records that are there stay where they are.
        add_columns : pyarrow.Schema or sequence of pyarrow.Field, optional
            New nullable columns, behind the others.
        widen : mapping of str to pyarrow.DataType, optional
            Column to its new type: int8 to int16 to int32 to int64, float32 to float64, decimals with no
            fewer digits before and after the point. Key columns stay.
        rename : mapping of str to str, optional
            Column to its new name. Records that are there have it under the new name at once.
        drop : sequence of str, optional
            Columns that no reader gets any more; neither the key's nor the timestamp column. Values stay in
            files until a compaction writes these anew: to remove them for good, erase. A column that is added
            under the same name later is another one: it is null in all older records.
        settings : mapping of str to int or str, optional
            Settings by name, such as ``{"retention.ms": 604_800_000}`` (docs/operate.md); others stay.
        unset : sequence of str, optional
            Names of settings that are to be as by default.

        Raises
        ------
        InvalidInputError
            Kind ``invalid-alter``: every problem, "nothing to change" among them; kind ``invalid-setting``.
            Nothing was written.
        UnsupportedFeatureError
            Kind ``upgrade-required``: in a log of an older version settings, and changes of names, need
            :meth:`upgrade` first.
        NotFoundError
            Kind ``unknown-topic``.
        """
        seen = self.refresh().topic(name)
        change = as_change(seen.topic_id, partitions, add_columns, widen, settings, unset, rename, drop)
        self.committer.commit(self.committer.intend(replace(change, schema_id=seen.schema.schema_id)))
        return self.committer.state.topic_of(change.topic_id, "the alteration")

    def alter(self, *, truncate_older_than: datetime.timedelta | None) -> LogState:
        """Change settings of the whole log.

        Parameters
        ----------
        truncate_older_than : timedelta or None
            :meth:`maintain` deletes commit entries that are older, as ``older_than`` of :meth:`truncate`: at
            least 7 days. None (default): entries are kept.

        Returns
        -------
        LogState
            The state with the setting.

        Raises
        ------
        InvalidInputError
            Kind ``invalid-age``.
        UnsupportedFeatureError
            Kind ``upgrade-required``: an older version has created the log; call :meth:`upgrade` first.

        Notes
        -----
        Requests: 1 entry; none if the log has the setting already.
        """
        from txnformat.admin.truncation import checked_age_ms

        age_ms = -1 if truncate_older_than is None else checked_age_ms(truncate_older_than)
        state = self.refresh()
        if state.truncate_older_than_ms != age_ms:
            self.committer.commit(self.committer.intend(ChangeLog(age_ms)))
        return self.committer.state

    def rotate_key(self, *, master: bool = False) -> int:
        """Give an encrypted log a new data key, or wrap its data keys by the newest master key.

        Nothing is written anew: what is there stays encrypted with the key that it was written with, which
        stays in the key ring. Processes that have the log open use the new data key once they meet an object
        that was written with it, or open the log again.

        Parameters
        ----------
        master : bool
            Wrap each data key by the newest master key of the key client. Once it is done, the older master
            keys are needed no more.

        Returns
        -------
        int
            How many data keys were made or wrapped.

        Raises
        ------
        InvalidInputError
            Kind ``log-not-encrypted``.
        StorageError
            Kinds ``key-refused``, ``key-client-failed``; ``key-ring-changed``: another process was faster.

        Notes
        -----
        Requests: 1 GET, 1 LIST and 1 conditional PUT; with ``master`` 2 more for each further data key.
        """
        check_flags(master=master)
        return rotate_key(self.store, master=master)

    def maintain(
        self, *tasks: str, truncate_older_than: datetime.timedelta | None = None, dry_run: bool = False
    ) -> MaintenanceReport:
        """Do now what keeps the log small. Writers do most of it as they go.

        Parameters
        ----------
        *tasks : str
            "timeouts": end the open transactions whose time is over. "seal": move the extents below the last
            stable offsets from the state into sidecars, and merge the segment lists that are too large for
            writers. "expire": forget transactional ids that had no use for 7 days, and producers without one
            for a day. "subscriptions": lift the marks of subscriptions over offsets without a visible record.
            "retention": remove the oldest records of topics as their settings say. "publish": as
            :meth:`publish`, the topics whose setting ``publish.formats`` asks for it. "compact": as
            :meth:`compact`, by the settings of each topic. "vacuum": as :meth:`vacuum` with its grace of 7
            days. "truncate": as :meth:`truncate`, after the one or two snapshots that the boundary needs.
            None: all tasks, of these the marks and the compaction once an hour, the vacuum once in 24 hours,
            and the truncation once in 6 hours, if the log has an age for it (:meth:`alter`) or
            ``truncate_older_than`` is given.
        truncate_older_than : timedelta, optional
            As ``older_than`` of :meth:`truncate`. None: what :meth:`alter` has set; without that all tasks
            leave the old entries alone, and "truncate" takes 7 days.
        dry_run : bool
            Change nothing, and return what each task would do to the log as it is now: of "retention" and
            "compact" with what is sealed already, of "expire" and "seal" with one entry. The tasks do not see
            each other's effects. "publish" makes no tables; the report names the topics.

        Returns
        -------
        MaintenanceReport
            What was done; nothing is not an error. A task that removes something is skipped, and the report
            says so, in a log of an older version that needs :meth:`upgrade` first. A topic with damaged
            objects is not compacted; the report names it, and the other topics are.

        Notes
        -----
        Requests of "timeouts": 1 entry for each 100 transactions; of "seal": up to 3 objects per topic, each
        read back, and 1 entry for each 1,000 partitions, and where lists are merged each of their objects is
        read and written once; of "expire": 1 entry for each 1,000 ids; of "retention": none without settings,
        else about log2(entries) GETs for each retention time, those of segment lists, 1 GET for each segment
        that goes and 1 entry for each topic. Any number of processes may do this at the same time. A dry run
        makes GETs and LISTs alone, as many as the tasks.
        """
        from txnformat.admin.maintenance import maintain

        self.refresh()
        return maintain(
            self.committer, self.sidecars, tasks, self._last_done, truncate_older_than, self._tables, dry_run
        )

    def upgrade(self, *, embedding: bool = False, columns: bool = False) -> bool:
        """Allow in a log of an older version that records are removed.

        From then on programs that do not know this can neither read nor write the log.

        A log that this version has created allows all of it from the start, but for embedding if its creator
        left that out.

        Parameters
        ----------
        embedding : bool
            Allow as well that small transactions travel in their entries
            (:attr:`~writers.settings.ProducerSettings.embed_bytes`).
        columns : bool
            Allow as well that columns of topics are renamed and dropped (:meth:`alter_topic`).

        Returns
        -------
        bool
            Whether the log was upgraded now; False: it allowed all of this before.

        Notes
        -----
        Requests: 1 entry.
        """
        check_flags(embedding=embedding, columns=columns)
        features = (LIFECYCLE, *(EMBEDDING,) * embedding, *(COLUMNS,) * columns)
        if self.refresh().features.reader.issuperset(features):
            return False
        try:
            self.committer.commit(self.committer.intend(EnableFeatures(features)))
        except ConflictError:  # another client was faster
            if not self.refresh().features.reader.issuperset(features):
                raise
            return False
        return True

    @property
    def embeds(self) -> bool:
        """Whether entries may have payloads, as far as this log object knows. Requests: none."""
        return EMBEDDING in self.state.features.reader

    def delete_records(
        self,
        topic: str,
        offsets: int | Mapping[int, int],
        *,
        dry_run: bool = False,
        force: bool | Sequence[str] = False,
    ) -> list[DeletedRecords]:
        """Remove the oldest records of partitions (Kafka's ``deleteRecords``): log starts move, and never go
        back.

        Parameters
        ----------
        offsets : int, or mapping of int to int
            For every partition, or by partition, the first offset that stays, from 0 to the last stable
            offset (both inclusive); -1: the last stable offset. A log start that is there already, or
            further, stays. An append with more than 400,000 batches in a partition cannot be sealed, so
            nothing can be removed from there on.
        dry_run : bool
            Change nothing, and return what would come of it.
        force : bool or sequence of str
            True: offsets may be up to the log end, which -1 then stands for; open transactions that have
            begun below an offset in its partition are aborted first, as a whole. A list of transactional ids
            does the same, and gives up what the prepared transactions of these ids have in such a partition,
            also above the offset; the coordinator may still commit or abort the rest of them. If the call
            fails afterwards, they have ended nevertheless.

        Returns
        -------
        list of DeletedRecords
            The log starts before and now, by partition in ascending order.

        Raises
        ------
        NotFoundError
            Kind ``unknown-topic`` or ``unknown-partition``.
        OffsetOutOfRangeError
            An offset is beyond the last stable offset: an open transaction has records there, or it is beyond
            the log end. Or it is between records that were spilled together, and an open transaction that
            would stay begins among them. Nothing was changed.
        InvalidTransactionStateError
            Kind ``transaction-prepared``: prepared transactions have begun below an offset that ``force``
            does not name. Nothing was changed.
        InvalidInputError
            Kind ``invalid-force``: also a name without a prepared transaction. Nothing was changed.
        UnsupportedFeatureError
            Kind ``upgrade-required``: an older version has created the log; call :meth:`upgrade` first.
        ConflictError
            Kind ``not-sealed``, or ``trim-superseded``: other clients move the same log starts all the time.
            Nothing was removed.

        Notes
        -----
        The partitions move in one entry. Readers that have planned before go on. Requests: those of a seal
        where what goes is not sealed yet, 1 GET for each sealed segment in which a removed record is, and 1
        entry; 1 entry more where ``force`` ends transactions.
        """
        from txnformat.admin.trimming import delete_records

        check_flags(dry_run=dry_run)
        return delete_records(self.committer, self.sidecars, topic, offsets, dry_run=dry_run, force=force)

    def delete_topic(
        self, name: str, *, force: bool | Sequence[str] = False, dry_run: bool = False
    ) -> TopicDeletion:
        """Delete a topic: its records, its subscriptions, positions of groups in it.

        A topic of the same name is another one from then on.

        Parameters
        ----------
        force : bool or sequence of str
            True: abort the open transactions that touch the topic: with records, also staged ones, with
            positions or acknowledgements. A list of transactional ids does the same, and gives up what the
            prepared transactions of these ids have in the topic; the coordinator may still commit or abort
            the rest of them.
        dry_run : bool
            Change nothing, and return what would come of it. A deletion that would be refused now is refused.
            Requests: those of a refresh.

        Raises
        ------
        NotFoundError
            Kind ``unknown-topic``.
        ConflictError
            Kind ``topic-in-use``: open transactions touch the topic. Nothing was deleted.
        InvalidTransactionStateError
            Kind ``transaction-prepared``: prepared transactions touch it that ``force`` does not name.
        UnsupportedFeatureError
            Kind ``upgrade-required``: an older version has created the log; call :meth:`upgrade` first.
        InvalidInputError
            Kind ``invalid-force``: also a name without a prepared transaction. Nothing was changed.

        Notes
        -----
        Requests: 1 entry. Files stay until a vacuum deletes them. Producers, consumers, subscriptions and
        queries of the topic stop with an error of kind ``topic-gone``, also if a topic of the same name is
        there by then; a read that was planned before goes on.
        """
        from txnformat.admin.topics import delete_topic

        return delete_topic(self.committer, name, force, dry_run=dry_run)

    def vacuum(
        self,
        grace: datetime.timedelta = GRACE,
        *,
        dry_run: bool = False,
        allow_short_grace: bool = False,
        progress: Progress | None = None,
    ) -> VacuumReport:
        """Delete the objects that nothing names any more: what removed records left, lists that newer ones
        replace, failed uploads, old snapshots.

        It takes two runs, the grace apart: the first condemns, the second deletes.

        Parameters
        ----------
        grace : timedelta
            How long readers may go on by what they have planned, and writers may take from an upload to its
            commit; 7 days. A job that takes longer fails, and nothing of the log is lost.
        dry_run : bool
            Change nothing, and return what a run would do now.
        allow_short_grace : bool
            Allow less than two hours.
        progress : callable, optional
            Called with a VerifyProgress as the work goes on.

        Returns
        -------
        VacuumReport
            What was deleted, condemned and kept, and why. Only objects with keys of txnlog's own are deleted;
            others are named.

        Raises
        ------
        UnsupportedFeatureError
            Kind ``upgrade-required``: an older version has created the log; call :meth:`upgrade` first.
        InvalidInputError
            Kind ``invalid-grace`` or ``grace-too-short``.
        CorruptDataError, StorageError
            Something that says what is in use cannot be read: nothing was deleted.
        CommitStateUnknownError
            Whether the mark landed is unknown; nothing was deleted. Call again.

        Notes
        -----
        Requests: a listing of the root, 1 entry, 1 GET for each object of the segment lists and each sealed
        segment, and 1 DELETE for each object. May run in several places at once.
        """
        from txnformat.admin.vacuum import vacuum

        return vacuum(
            self.committer,
            grace,
            dry_run=dry_run,
            allow_short_grace=allow_short_grace,
            progress=progress,
        )

    def truncate(
        self,
        older_than: datetime.timedelta = OLDER_THAN,
        *,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> TruncationReport:
        """Delete old commit entries.

        No record goes with them, and the history stays readable: it is in bundles.

        It takes two runs, an hour apart: the first writes a boundary, the second deletes the entries below
        it.

        Parameters
        ----------
        older_than : timedelta
            Entries that are younger stay; at least 7 days, which is the default. The two newest snapshots and
            every entry from the older one on stay, too.
        dry_run : bool
            Change nothing, and return what a run would do now.
        progress : callable, optional
            Called with a VerifyProgress as the work goes on.

        Returns
        -------
        TruncationReport
            What was deleted, written and kept, and why.

        Raises
        ------
        UnsupportedFeatureError
            Kind ``upgrade-required``: an older version has created the log; call :meth:`upgrade` first.
        InvalidInputError
            Kind ``invalid-age``.
        CorruptDataError, StorageError
            Something that has to stay cannot be read, or is not what it was: nothing was deleted.

        Notes
        -----
        Requests: 3 LISTs, 1 HEAD for a boundary, those of a time (:func:`~txnformat.protocol.cuts.cut_at`);
        if anything goes 2 GETs of snapshots, 1 GET for each entry after the older one, 1 GET for each hundred
        entries that go and 1 DELETE for each of them. May run in several places at once.
        """
        from txnformat.admin.truncation import truncate

        return truncate(self.committer, older_than, dry_run=dry_run, progress=progress)

    def compact(
        self,
        topic: str | None = None,
        partitions: Sequence[int] | None = None,
        *,
        target_bytes: int | None = None,
        min_lag_ms: int | None = None,
        dry_run: bool = False,
        progress: Callable[[CompactionProgress], None] | None = None,
    ) -> list[CompactedTopic]:
        """Write small files of old records together, so that reads need fewer requests; in topics with
        ``cleanup.policy=compact`` only the latest record of each key stays.

        Readers and writers go on meanwhile.

        Parameters
        ----------
        topic : str, optional
            Only this one.
        partitions : sequence of int, optional
            Only these of the topic.
        target_bytes : int, optional
            Compressed bytes of a new file, about; at least 1. Compacted parts of that size are left alone.
            Default: the topic's ``compact.target.bytes``, 128 MiB unless set.
        min_lag_ms : int, optional
            Records of aborted transactions are dropped, but parts with a transaction that was aborted within
            this time stay as they are. Keys are compared up to the first record that was appended within it.
            Default: the topic's ``min.compaction.lag.ms``, 7 days unless set.
        dry_run : bool
            Write nothing, and return what would be written anew, of what is listed already, and how many
            records would go because their keys have later ones (when a partition has more keys than the map,
            in the first pass).
        progress : callable, optional
            Is called with a CompactionProgress after each step.

        Returns
        -------
        list of CompactedTopic
            By topic, also those in which nothing was to be done.

        Raises
        ------
        NotFoundError
            Kind ``unknown-topic`` or ``unknown-partition``.
        UnsupportedFeatureError
            Kind ``upgrade-required``: an older version has created the log; call :meth:`upgrade` first.
        InvalidInputError
            Kind ``invalid-target-bytes``, ``invalid-min-lag-ms`` or ``invalid-partitions``.
        ConflictError
            Kind ``replace-superseded``: other clients change the segments all the time; kind
            ``chunks-in-compacted-topic``: the keys of a topic cannot be compared, for a value takes several
            records.
        CorruptDataError, StorageError
            A file cannot be read or written. Parts that were compacted before stay so.

        Notes
        -----
        What can be sealed is sealed first. Below the end of what was compacted ``read_uncommitted`` shows
        what ``read_committed`` does. The old files stay, for readers that have planned before. Memory: a row
        group of 16 MiB, and one plan. Requests: those of a read of what is compacted; for each 128 MiB one
        upload, a ``.runs``, the segment lists that change, and 1 entry.
        """
        from txnformat.admin.compaction import compact

        check_flags(dry_run=dry_run)
        return compact(
            self.committer,
            self.sidecars,
            topic,
            partitions,
            target_bytes=target_bytes,
            min_lag_ms=min_lag_ms,
            dry_run=dry_run,
            progress=progress,
        )

    def erase(
        self,
        topic: str,
        where: str,
        *,
        requested_by: str,
        key: str | None = None,
        dry_run: bool = False,
        all_rows: bool = False,
    ) -> ErasureReport:
        """Remove the records that a condition matches for good: files that hold them are rewritten, the old
        ones deleted by vacuums, and a certificate says when nothing is left.

        Records that were appended or staged before the call, and those of transactions that had begun by
        then, are covered; later ones that match may go, too.

        Parameters
        ----------
        topic : str
            Where to erase.
        where : str
            SQL condition on the topic's own columns, as for reads. The log keeps its columns and a keyed
            hash, never the condition.
        requested_by : str
            By whom, or for which ticket: 1 to 1,000 bytes; the log keeps it.
        key : str, optional
            Of the hash: 32 to 1,000 characters. A call with the same condition and key goes on with the same
            erasure, in any process. Drawn at random unless given; the report has it.
        dry_run : bool
            Only say which files hold how many matching rows; change nothing.
        all_rows : bool
            Allow a condition that matches every committed record.

        Returns
        -------
        ErasureReport
            Its ``status.missing`` says what is to be done before the erasure is complete.

        Raises
        ------
        NotFoundError
            Kind ``unknown-topic``.
        UnsupportedFeatureError
            Kind ``upgrade-required``: an older version has created the log; call :meth:`upgrade` first.
        InvalidInputError
            Kind ``invalid-where``, ``erases-all-rows``, ``invalid-requested-by`` or ``invalid-erasure-key``.
        ConflictError
            Kind ``chunks-in-erasure``: the topic has values in several records; ``too-many-erasures``;
            ``replace-superseded``: other clients change the segments all the time.
        CorruptDataError, StorageError
            A file cannot be read or written. Segments that were rewritten before stay so; call again with the
            same condition and key.

        Notes
        -----
        What can be sealed is sealed first. Offsets stay: a removed record leaves a gap. Versions below the
        newest commit of a removed record can be read no more. Memory: a row group of 16 MiB, and the keys of
        the topic's files. Requests: of each file of the topic the columns of the condition; of each file with
        matching rows those of a compaction.
        """
        from txnformat.admin.erasure.call import erase

        return erase(
            self.committer,
            self.sidecars,
            topic,
            where,
            requested_by=requested_by,
            key=key,
            dry_run=dry_run,
            all_rows=all_rows,
        )

    def abandon_erasure(self, erasure_id: str, *, requested_by: str) -> ErasureStatus:
        """Give up an erasure that is not complete: the log forgets it, without a certificate.

        Records that were removed stay removed.

        For an erasure whose key or condition is lost: no call can go on with it. Erase again, with another
        key, what it should have removed.

        Parameters
        ----------
        erasure_id : str
            Of :meth:`erasures`.
        requested_by : str
            By whom, or for which ticket: 1 to 1,000 bytes; the history of the log keeps it.

        Returns
        -------
        ErasureStatus
            How far it had come.

        Raises
        ------
        NotFoundError
            Kind ``unknown-erasure``.
        ConflictError
            Kind ``erasure-superseded``: it is complete.
        InvalidInputError
            Kind ``invalid-requested-by``.
        """
        from txnformat.admin.erasure.call import abandon

        return abandon(self.committer, erasure_id, requested_by=requested_by)

    def erasures(self, *, look: bool = False) -> list[ErasureStatus]:
        """Return the erasures that are not complete and the last 100 that are, in the order of their
        requests, and what each lacks.

        Parameters
        ----------
        look : bool
            Look at the store for the erasures that lack only that: ``missing`` then names what is left over
            there. Nothing is changed.

        Notes
        -----
        Requests: 1 GET when nothing is new. With a look for which an erasure is due: 1 LIST for each 1,000
        objects, and those of a vacuum's look for what is in use.
        """
        from txnformat.admin.erasure.certificate import look as look_at_erasures
        from txnformat.admin.erasure.status import statuses

        check_flags(look=look)
        return look_at_erasures(self.committer) if look else statuses(self.refresh())

    def offsets(self, topic: str) -> list[PartitionOffsets]:
        """Return earliest offset, last stable offset and log end of each partition, as of now."""
        from txnformat.admin.describe import partition_offsets

        state = self.refresh()
        return partition_offsets(state, state.topic(topic))

    def describe(self) -> LogDescription:
        """Return what is in the log: topics, partitions, transactional ids, groups, what holds which
        partition back.

        Requests: 1 LIST; of a topic that is compacted by key, those of its segment lists.
        """
        from txnformat.admin.compaction.cleaning import dirty_ratios
        from txnformat.admin.describe import describe_log

        state = self.refresh()
        ratios, boundary = dirty_ratios(self.sidecars, state), self.committer.read(read_boundary())
        return describe_log(state, self.url, self.store.store_time_ms(), ratios, boundary)

    def outcome(self, transactional_id: str, epoch: int) -> TransactionOutcome:
        """Return how transaction (transactional id, epoch) ended, or that it is open.

        Raises
        ------
        NotFoundError
            The log knows no such transaction.
        """
        from txnformat.admin.describe import known_outcome

        return self.committer.read(known_outcome(self.refresh(), transactional_id, epoch))

    def commit_prepared(self, token: str | PreparedTransaction) -> TransactionOutcome:
        """Commit a prepared transaction, from any process; again: the original answer.

        Parameters
        ----------
        token : str or PreparedTransaction
            What :meth:`writers.producer.Producer.prepare` returned, or its ``str()``.

        Raises
        ------
        InvalidInputError, NotFoundError, InvalidTransactionStateError, ProducerFencedError,
        CommitStateUnknownError
            See :func:`txnformat.admin.prepared.end_prepared`.
        """
        from txnformat.admin.prepared import end_prepared

        return end_prepared(self.committer, token, Outcome.COMMIT)

    def abort_prepared(self, token: str | PreparedTransaction) -> TransactionOutcome:
        """Abort a prepared transaction; otherwise as :meth:`commit_prepared`."""
        from txnformat.admin.prepared import end_prepared

        return end_prepared(self.committer, token, Outcome.ABORT)

    def publish(
        self,
        *topics: str,
        format: str = DELTA,  # the users' word
        rebuild: bool = False,
    ) -> PublishReport:
        """Publish topics as tables of other engines, all at one entry. No record of a Parquet file is copied.

        A table shows what :meth:`read` gives with isolation "snapshot" at that entry: whole transactions. A
        Delta table is in the topic's own directory, an Iceberg table in a directory below it. The engines
        that were tried refuse to change either, but pyiceberg's ``purge_table`` deletes the files that an
        Iceberg table names: give programs that only read no right to delete. Embedded records are sealed
        first, and files that hold other records besides are written anew first, as :meth:`compact` does.

        Parameters
        ----------
        *topics : str
            If none is named: all, but those with columns that the format does not have.
        format : str
            "delta"; "iceberg", which needs the extra ``iceberg``; or "delta-offsets": the columns
            ``_partition``, ``_offset`` and ``_timestamp`` besides, of compacted files only, up to the last
            entry below which all files of these topics are compacted. Nothing is sealed or written anew for
            it.
        rebuild : bool
            State all of each table anew, in one version: after another program has changed it.

        Returns
        -------
        PublishReport
            The entry, and the version of each table. If open transactions hold something back, the entry is
            an older one, and the report says why.

        Raises
        ------
        NotFoundError
            Kind ``unknown-topic``.
        InvalidInputError
            Kinds ``unknown-view-format``, ``unsupported-view-schema``, ``nothing-to-publish``; of Iceberg
            ``no-pyiceberg``, ``wrong-view-scheme``.
        ConflictError
            Kinds ``view-changed`` (by another program), ``view-held-back``, ``publish-superseded``; of
            Iceberg ``view-elsewhere`` (the root was moved).
        StorageError
            The root cannot be written to. The log is as it was.

        Notes
        -----
        Requests, apart from following and sealing: of Delta 1 LIST and 1 conditional PUT for each topic, and
        1 conditional PUT; 1 in 50 versions has a checkpoint, which needs 5 more. Of Iceberg 1 LIST, 3
        conditional PUTs and 1 PUT for each topic with new files, and 1 conditional PUT.
        """
        from txnformat.admin.publishing.call import publish

        return publish(
            self.committer, self.sidecars, self._tables, topics or None, format_=format, rebuild=rebuild
        )

    def published_tables(
        self,
        entry: int | None = None,
        format: str = DELTA,  # the users' word
    ) -> dict[str, ViewTable]:
        """Return the tables of one publication, by topic: read at these versions they join without a torn
        transaction.

        Parameters
        ----------
        entry : int, optional
            The entry of the publication; by default the newest one.
        format : str
            "delta", "delta-offsets" or "iceberg".

        Raises
        ------
        NotFoundError
            Kind ``not-published``.
        InvalidInputError
            Kind ``unknown-view-format``.
        """
        from txnformat.admin.publishing.call import checked_format
        from txnformat.views.manifests import newest_manifest, view_tables

        return view_tables(self.committer.read(newest_manifest(entry, checked_format(format))), self.url)

    def history(self, limit: int | None = None, start: int | None = None) -> Iterator[HistoryEntry]:
        """Yield what happened to the log, entry by entry, newest first.

        Parameters
        ----------
        limit : int, optional
            Most entries.
        start : int, optional
            The newest entry to show (inclusive); the log's last by default.

        Raises
        ------
        InvalidInputError
            Kind ``invalid-history-range``.
        CorruptDataError
            An entry is missing, or not the one that the next one follows.
        """
        from txnformat.admin.history import read_history

        return read_history(self.refresh(), self.committer.read, limit=limit, start=start)

    def timeline(
        self,
        topic: str | None = None,
        *,
        version_as_of: int | None = None,
        timestamp_as_of: Moment | None = None,
        entries: int = 1_000,
    ) -> Timeline:
        """Return the transactions of a window of the log, as a page: a notebook shows it, ``save`` writes it
        to a file.

        Parameters
        ----------
        topic : str, optional
            The only topic to show; by default all, up to 200 partitions.
        version_as_of, timestamp_as_of
            The entry to end with, as of :meth:`read`; by default the newest. Older states can be told while
            the entries and snapshots that tell them are stored.
        entries : int
            Most entries of the window, 1 to 20,000.

        Returns
        -------
        Timeline
            With ``to_json()``, ``to_html()`` and ``save(path)``; in Databricks
            ``displayHTML(timeline.to_html())``.

        Raises
        ------
        NotFoundError
            Kinds ``unknown-topic``, ``unknown-version``, ``state-gone``, ``state-too-far``.
        InvalidInputError
            Kinds ``invalid-version``, ``invalid-timestamp``, ``invalid-entries``.

        Notes
        -----
        Requests: 2 LISTs, a snapshot, and the entries from there on: 1 GET each, or 1 per hundred where there
        are bundles.
        """
        from txnformat.looking.timeline import look  # only those who look need it

        return look(
            self.committer,
            self.url,
            topic,
            version_as_of=version_as_of,
            timestamp_as_of=timestamp_as_of,
            entries=entries,
        )

    def metrics(self) -> LogMetrics:
        """Return measures of the log as it is now, and of this process's commits.

        Requests: 1 GET when nothing is new.
        """
        from txnformat.admin.metrics import measure

        state = self.refresh()
        return measure(state, self.url, self.store.store_time_ms(), self.committer.counter.counts)

    def verify(self, *, deep: bool = False, progress: Progress | None = None) -> VerifyReport:
        """Derive everything again from the log's objects, and report all that differs; damage raises nothing.

        ``TxnLog(store).verify()`` and :func:`txnformat.verify.log.verify_log` do it for a log that cannot be
        opened.

        Parameters
        ----------
        deep : bool
            Also read every data file.
        progress : callable, optional
            Called with a VerifyProgress as the work goes on.

        Raises
        ------
        NotFoundError, StorageError
            There is no log; or the store cannot even be listed.
        """
        from txnformat.verify.log import verify_log

        return verify_log(self.store, deep=deep, progress=progress, clock=self.committer.clock)

    def close(self) -> None:
        """Wait for background work (a snapshot being written)."""
        self.committer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def check_log(log: object, call: str) -> None:
    """Raise InvalidInputError of kind ``not-a-log`` about the first argument of ``call`` if it is something
    else.
    """
    if not isinstance(log, TxnLog):
        hint = f"open it first: {call}(TxnLog.open(path), …)"
        raise InvalidInputError(f"{repr_of(log, 80)} is not a log", kind="not-a-log", hint=hint)
