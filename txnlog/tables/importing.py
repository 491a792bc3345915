"""Tables into a log: rows and the position behind them in one commit, so that each row is there once,
whatever dies when.

An import takes the steps of a source one by one. A step's rows are written in one transaction together with
the position behind it, as a foreign position of a group that must still be what it was. On start the producer
fences an older instance of the import; then the position is read from the log, and the source goes on from
there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import IO, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from txnformat.arguments import one_of, positive
from txnformat.client.identity import check_still_there
from txnformat.clock import waited_ms
from txnformat.errors import InvalidInputError, NotFoundError
from txnformat.keys import check_reader_name
from txnformat.log import TxnLog, check_log
from txnlog.rounds import abort, commit
from txnlog.tables.delta import DeltaSource
from txnlog.tables.parquet import ParquetSource
from txnlog.tables.shaping import CHANGE_COLUMNS, check_columns, shape
from txnlog.tables.steps import Source, SourceFile, Step, decode_position, encode_position, place_of
from writers.producer import Producer

__all__ = ["TableImport", "TableProgress", "import_delta", "import_parquet"]

MIB = 1024 * 1024

ROWS_PER_PIECE = 65_536

NAME = "table"
"""Name of the position in the group."""

KEEP_MS = 24 * 3_600_000
"""A following import without news commits its position again after this time: a group without use is
forgotten."""


class Start(StrEnum):
    """Where an import without a position begins in a topic that has records."""

    EARLIEST = "earliest"
    """Everything is copied."""
    LATEST = "latest"
    """Nothing that is there now is copied: only what comes behind it."""


class TableProgress(NamedTuple):
    """How far an import is; given to ``progress`` after each commit."""

    rows: int
    """Rows that are in the log by now, from this call."""
    done: int
    """Files that were passed."""
    total: int
    """Files to pass, as known now."""


@dataclass(slots=True)
class TableImport:
    """Result of an import."""

    topic: str
    group: str
    created: bool = False
    """Whether the import created the topic."""
    rows: int = 0
    """Rows that it wrote."""
    files: int = 0
    as_they_are: int = 0
    """Files whose bytes went into the log as they are; the rows of the others were encoded anew."""
    commits: int = 0
    position: dict[str, Any] = field(default_factory=dict)
    """Where the next call goes on: of Delta ``version``, of Parquet ``after``, the last path."""


class _Settings(NamedTuple):
    group: str
    partitions: int
    key_columns: Sequence[str] | None
    create: bool
    start: Start | None
    follow: bool
    poll_ms: int
    with_changes: bool
    rewrite: bool
    progress: Callable[[TableProgress], object] | None
    stop: threading.Event


def import_delta(
    log: TxnLog,
    table: str,
    topic: str,
    *,
    version: int | None = None,
    changes: bool = False,
    storage_options: Mapping[str, str] | None = None,
    group: str | None = None,
    follow: bool = False,
    poll_ms: int = 10_000,
    start: str | None = None,
    create: bool = True,
    partitions: int = 1,
    key_columns: Sequence[str] | None = None,
    step_bytes: int = 256 * MIB,
    rewrite: bool = False,
    progress: Callable[[TableProgress], object] | None = None,
    stop: threading.Event | None = None,
) -> TableImport:
    """Copy a Delta table into a topic, and then what its later versions add, each row exactly once.

    The first call copies the rows of one version. Each later version becomes one transaction: readers see of
    a commit of Delta all or nothing. An import can die at any time: call it again with the same group to
    continue where it stopped.

    Parameters
    ----------
    table
        Path or URL of the table, as the package deltalake takes it.
    topic
        Name of the topic. A column of the table goes to the topic's column of the same name, if its type can
        hold the values; a column that only the topic has is null.
    version
        Go up to this version (inclusive). The first call copies its rows. By default the newest version as of
        the call.
    changes
        Import versions that change or remove rows, too: as rows with the columns ``change_type`` ("insert",
        "delete", "update_preimage", "update_postimage") and ``table_version``. With the table's change data
        feed these are the rows that changed; without it, all rows of the files that were removed and added.
        By default such a version stops the import.
    storage_options
        Options of the table's store, as deltalake names them.
    group
        Name of the import in the log; its producer is ``import.<group>``. By default the topic's name.
    follow
        Follow the table. By default the import stops at the version that was newest at the start.
    poll_ms
        How often a following import looks for new versions.
    start
        "earliest" or "latest": where to begin without a position, if the topic has records already. Not
        needed otherwise.
    create
        Create the topic if the log does not have it, with ``partitions`` and ``key_columns``.
    step_bytes
        A transaction of the first copy takes whole files up to this size.
    rewrite
        Encode all rows again. By default a file's bytes are copied unchanged where possible
        (:meth:`txnlog.Producer.send_file` says when): that is faster, and the files keep their own
        compression and row groups.
    progress
        Called after each commit.
    stop
        When it is set, the import ends after its transaction.

    Returns
    -------
    TableImport
        What was imported.

    Raises
    ------
    InvalidInputError
        Kinds ``invalid-argument``, ``invalid-table`` (it cannot be read), ``unsupported-table`` (deletion
        vectors, column mapping, files elsewhere), ``unmappable-schema``, ``table-changes-rows``,
        ``other-table``, ``import-without-position``, ``invalid-file``.
    NotFoundError
        Kinds ``no-table``, ``no-version``, ``table-history-gone`` and ``table-file-gone`` (the table has
        removed what was not imported yet), ``unknown-topic`` (without ``create``).
    ProducerFencedError
        A newer import of the group has begun.
    UnsupportedFeatureError
        Kind ``missing-package``.

    Notes
    -----
    Requests to the log: an entry to begin, and for each step 1 entry and its files. Files are copied: a file
    of Delta is not named in place, because a vacuum of the table would remove it.
    """
    return _run(
        log,
        "import_delta",
        topic,
        lambda: DeltaSource(
            place_of("table", table),
            storage_options or {},
            version=version,
            with_changes=changes,
            step_bytes=step_bytes,
        ),
        group=group,
        follow=follow,
        poll_ms=poll_ms,
        start=start,
        create=create,
        partitions=partitions,
        key_columns=key_columns,
        with_changes=changes,
        step_bytes=step_bytes,
        rewrite=rewrite,
        progress=progress,
        stop=stop,
    )


def import_parquet(
    log: TxnLog,
    path: str,
    topic: str,
    *,
    group: str | None = None,
    follow: bool = False,
    poll_ms: int = 10_000,
    start: str | None = None,
    create: bool = True,
    partitions: int = 1,
    key_columns: Sequence[str] | None = None,
    step_bytes: int = 256 * MIB,
    rewrite: bool = False,
    progress: Callable[[TableProgress], object] | None = None,
    stop: threading.Event | None = None,
) -> TableImport:
    """Copy the Parquet files of a directory into a topic, and then those that come behind them, each row
    exactly once.

    Parameters
    ----------
    path
        A file, or a directory whose files with names that end with ``.parquet`` are taken in the order of
        their paths; or a URL that pyarrow knows, such as ``s3://…``, with the credentials of the environment.
        ``name=value`` in a path is a column. New files must sort behind the others.
    topic, group, follow, poll_ms, start, create, partitions, key_columns, step_bytes, rewrite, progress, stop
        As of :func:`import_delta`.

    Returns
    -------
    TableImport
        What was imported.

    Raises
    ------
    InvalidInputError
        Kinds ``invalid-argument``, ``invalid-file``, ``invalid-table``, ``unmappable-schema``,
        ``other-table``, ``import-without-position``; ``files-changed``: a file that was imported is not what
        it was, or a new one sorts before it.
    NotFoundError
        Kinds ``no-table``, ``table-file-gone``, ``unknown-topic`` (without ``create``).
    ProducerFencedError
        A newer import of the group has begun.
    """
    return _run(
        log,
        "import_parquet",
        topic,
        lambda: ParquetSource(place_of("path", path), step_bytes=step_bytes),
        group=group,
        follow=follow,
        poll_ms=poll_ms,
        start=start,
        create=create,
        partitions=partitions,
        key_columns=key_columns,
        with_changes=False,
        step_bytes=step_bytes,
        rewrite=rewrite,
        progress=progress,
        stop=stop,
    )


def _run(
    log: TxnLog,
    call: str,
    topic: str,
    source: Callable[[], Source],
    *,
    group: str | None,
    start: str | None,
    poll_ms: int,
    step_bytes: int,
    stop: threading.Event | None,
    **others: Any,
) -> TableImport:
    """Check the arguments, then open the source and import from it."""
    check_log(log, call)
    name = topic if group is None else group
    check_reader_name(name, "group")
    positive("step_bytes", step_bytes)
    settings = _Settings(
        group=name,
        start=None if start is None else one_of(Start, "start", start),
        poll_ms=positive("poll_ms", poll_ms),
        stop=stop or threading.Event(),
        **others,
    )
    return _Import(log, source(), topic, settings).run()


class _Import:
    """One import: its steps."""

    def __init__(self, log: TxnLog, source: Source, topic: str, settings: _Settings) -> None:
        self._log, self._source, self._settings = log, source, settings
        self._committed: str | None = None
        """Text of the position as the log has it."""
        self._schema = pa.schema([])
        self._report = TableImport(topic, settings.group)

    def run(self) -> TableImport:
        """Import until the end, or until it is stopped."""
        settings, clock = self._settings, self._log.committer.clock
        self._prepare()
        with Producer(self._log, f"import.{settings.group}") as producer:  # fences the older instance
            self._begin(producer)
            kept = clock.now()
            while not settings.stop.is_set():
                if self._round(producer):
                    kept = clock.now()
                if not settings.follow:
                    break
                clock.sleep(settings.poll_ms / 1000, settings.stop)
                check_still_there(self._log.committer)
                if waited_ms(kept, clock.now()) >= KEEP_MS:
                    self._write(producer, Step((), self._report.position, 0))
                    kept = clock.now()
        return self._report

    def _prepare(self) -> None:
        """See that the log has the topic, with a column for each of the table."""
        report, settings = self._report, self._settings
        wanted = self._source.schema
        if settings.create and report.topic not in self._log.refresh().topic_ids:
            more = CHANGE_COLUMNS if settings.with_changes else ()
            check_columns(wanted, pa.schema([*wanted, *more]), with_changes=settings.with_changes)
            self._log.create_topic(
                report.topic,
                pa.schema([field.with_nullable(True).remove_metadata() for field in [*wanted, *more]]),
                partitions=settings.partitions,
                key_columns=settings.key_columns,
            )
            report.created = True
        self._schema = self._log.refresh().topic(report.topic).schema.arrow_schema
        check_columns(wanted, self._schema, with_changes=settings.with_changes)

    def _begin(self, producer: Producer) -> None:
        """Find where the import goes on.

        Behind the producer's opening: no older instance commits any more.
        """
        group = self._log.refresh().groups.get(self._settings.group)
        held = None if group is None else group.committed.get(NAME)
        if held is not None:
            self._committed = str(held.value)
            self._report.position = decode_position(self._source, self._committed)
        elif self._settings.start is Start.LATEST:
            self._write(producer, Step((), self._source.end(), 0))
        elif self._settings.start is None and any(
            one.log_end for one in self._log.offsets(self._report.topic)
        ):
            raise InvalidInputError(
                "the topic has records already, and the group has no position in the table",
                kind="import-without-position",
                hint="set start: earliest copies everything, latest only what comes from now on",
                topic=self._report.topic,
                group=self._settings.group,
            )

    def _round(self, producer: Producer) -> bool:
        """Import what is there now; return whether the position has changed.

        Steps without rows go with the next one that has some.
        """
        before, empty = self._committed, None
        for step in self._source.steps(self._report.position or None):
            empty = step if not step.files else None
            if step.files:
                self._write(producer, step)
            if self._settings.stop.is_set():
                break
        if empty is not None:
            self._write(producer, empty)
        return self._committed != before

    def _write(self, producer: Producer, step: Step) -> None:
        """Commit a step's rows and the position behind it, in one transaction."""
        report = self._report
        text = encode_position(self._source, step.after)
        rows = whole = 0
        producer.begin()
        try:
            for file in step.files:
                sent, is_whole = self._send(producer, file)
                rows += sent
                whole += is_whole
            producer.send_offsets(
                self._settings.group, positions={NAME: text}, expected_positions={NAME: self._committed}
            )
            commit(producer)
        except BaseException:
            abort(producer)
            raise
        self._committed = text
        report.position = dict(step.after)
        report.rows += rows
        report.files += len(step.files)
        report.as_they_are += whole
        report.commits += 1
        if self._settings.progress is not None:
            self._settings.progress(TableProgress(report.rows, report.files, report.files + step.left))

    def _send(self, producer: Producer, file: SourceFile) -> tuple[int, bool]:
        """Send a file's rows; return how many there are, and whether its bytes are in the log as they are."""
        settings, topic = self._settings, self._report.topic
        with self._opened(file) as opened, pq.ParquetFile(opened) as found:
            if not (settings.rewrite or settings.with_changes or file.constants) and producer.send_file(
                topic, opened
            ):
                return int(found.metadata.num_rows), True
            rows = 0
            for batch in found.iter_batches(ROWS_PER_PIECE):
                producer.send(topic, shape(batch, file, self._schema, with_changes=settings.with_changes))
                rows += batch.num_rows
            return rows, False

    @contextmanager
    def _opened(self, file: SourceFile) -> Iterator[IO[bytes]]:
        try:
            with self._source.open(file) as opened:
                yield opened
        except FileNotFoundError:
            raise NotFoundError(
                "a file of the table that was not imported yet is gone",
                kind="table-file-gone",
                hint="a vacuum of the table has removed it: import the table as it is now into a new "
                "topic, under another group",
                file=file.path,
            ) from None
        except (pa.ArrowException, OSError) as error:
            raise InvalidInputError(
                f"a Parquet file cannot be read: {error!s:.300}",
                kind="invalid-file",
                hint="nothing of this step was imported; check the file with the program that wrote it",
                file=file.path,
            ) from None
