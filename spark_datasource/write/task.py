"""The task of a write: rows to topics, records to partitions, partitions to batches, batches to files.

Memory stays bounded whatever the rows are: buffers hold ``BUFFER_BYTES`` over all topics and partitions, and
at most ``OPEN_FILES_MAX`` files are being written. A topic's rows are one file of the task unless its file
had to be closed early, because the task met more topics than that with more rows than the buffers hold.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_datasource.worker.collector import settle
from spark_datasource.worker.stores import kept_store
from spark_datasource.write.messages import HANDED_BYTES_MAX, TaskUpload
from spark_datasource.write.plan import WritePlan
from spark_datasource.write.routing import ROUTED_TOPICS_MAX, ByColumn, OneTopic, Route, first_turn
from txnformat.clock import SystemIds
from txnformat.columns.conform import conform
from txnformat.columns.multiset import NO_ROWS, Multiset, multiset_of
from txnformat.columns.text import bad_texts
from txnformat.core.topics.cleanup import check_keys
from txnformat.errors import InvalidInputError
from txnformat.spans import span
from txnformat.store.base import ObjectStore
from writers.partitioner import split_by_partition
from writers.upload import TopicUpload, Uploaded

__all__ = [
    "BATCH_BYTES",
    "BUFFER_BYTES",
    "FILE_BYTES_MAX",
    "OPEN_FILES_MAX",
    "Rechunker",
    "TopicUploads",
    "compare_task",
    "upload_task",
    "write_rows",
]

BATCH_BYTES = 8 * 2**20
"""Arrow bytes from which on buffered records of a partition become a batch."""

BUFFER_BYTES = 64 * 2**20
"""Arrow bytes of all partitions together from which on the largest one becomes a batch early."""

FILE_BYTES_MAX = 512 * 2**20
"""Size at which a task begins its next file."""

OPEN_FILES_MAX = 32
"""Files of different topics that a task writes at a time; another one closes the file that waited longest."""

PROBLEMS_MAX = 20
"""Most values of the routing column that one error lists; the rest is counted."""

K = TypeVar("K", bound=Any)


class Rechunker(Generic[K]):
    """Buffers tables by key (partition, or topic and partition) until ``emit`` gets a batch of a useful
    size.
    """

    def __init__(
        self,
        emit: Callable[[K, pa.Table], None],
        *,
        batch_bytes: int = BATCH_BYTES,
        buffer_bytes: int = BUFFER_BYTES,
    ) -> None:
        self._emit = emit
        self._batch_bytes = batch_bytes
        self._buffer_bytes = buffer_bytes
        self._tables: dict[K, list[pa.Table]] = {}
        self._sizes: dict[K, int] = {}
        self._size = 0

    def add(self, key: K, table: pa.Table) -> None:
        """Take records of one key; their order is kept."""
        if not table.num_rows:
            return
        table, size = _on_its_own(table)
        self._tables.setdefault(key, []).append(table)
        self._sizes[key] = self._sizes.get(key, 0) + size
        self._size += size
        if self._sizes[key] >= self._batch_bytes:
            self._flush(key)
        while self._size > self._buffer_bytes:
            self._flush(min(self._sizes, key=lambda one: (-self._sizes[one], one)))

    def finish(self, rank: Callable[[K], Any] = lambda key: 0) -> None:
        """Emit what is left, by rank and key."""
        for key in sorted(self._tables, key=lambda one: (rank(one), one)):
            self._flush(key)

    def _flush(self, key: K) -> None:
        table = pa.concat_tables(self._tables.pop(key)).combine_chunks()
        size = self._sizes.pop(key)
        self._size -= size
        # Records vary in size, so pieces are about equal in rows, not exactly in bytes.
        pieces = min(max(1, size // self._batch_bytes), table.num_rows)
        bounds = [table.num_rows * piece // pieces for piece in range(pieces + 1)]
        for start, end in itertools.pairwise(bounds):
            self._emit(key, table.slice(start, end - start))


def _on_its_own(table: pa.Table) -> tuple[pa.Table, int]:
    """Return a table without the memory that it was cut from, if that is over twice its size; and its size in
    bytes.
    """
    size = table.nbytes
    if table.get_total_buffer_size() > 2 * size + 4096:
        table = table.take(pa.array(np.arange(table.num_rows)))
    return table, size


class TopicUploads:
    """The files that a task writes: one after another for each topic, a bounded number at a time.

    ``begin``: makes the upload of a topic. None: nothing is written, the rows are only looked at.
    ``compared``: whether :attr:`contents` are wanted. ``contents``: the rows so far, by topic.
    """

    def __init__(
        self,
        begin: Callable[[Route], TopicUpload] | None,
        *,
        open_max: int = OPEN_FILES_MAX,
        compared: bool = False,
    ) -> None:
        self.contents: dict[str, Multiset] = {}
        self._begin = begin
        self._open_max = open_max
        self._compared = compared
        self._uploads: dict[str, TopicUpload] = {}
        self._open: dict[str, None] = {}
        """Topics whose file is open, the one that was written last at the end."""

    @property
    def open(self) -> Collection[str]:
        """Topics whose file is being written."""
        return self._open

    def add(self, route: Route, partition: int, table: pa.Table) -> None:
        """Write one batch."""
        topic = route.topic
        if self._compared:
            named = table.rename_columns(route.layout.schema.first_names())
            self.contents[topic] = self.contents.get(topic, NO_ROWS) + multiset_of(named)
        if self._begin is None:
            return
        if topic not in self._uploads:
            self._uploads[topic] = self._begin(route)
        if topic not in self._open and len(self._open) >= self._open_max:
            longest = next(iter(self._open))
            self._uploads[longest].close_file()
            del self._open[longest]
        upload = self._uploads[topic]
        self._open.pop(topic, None)
        self._open[topic] = None
        upload.add(partition, table)
        if not upload.is_open:  # it had grown to its full size
            del self._open[topic]

    def finish(self) -> dict[str, Uploaded]:
        """Close all files; return what was uploaded, by topic."""
        return {topic: upload.finish() for topic, upload in sorted(self._uploads.items())}

    def abort(self) -> None:
        """Drop the files that are being written. Never raises."""
        for topic in self._open:
            self._uploads[topic].abort()


def compare_task(batches: Iterator[pa.RecordBatch], plan: WritePlan, task: int) -> TaskUpload:
    """Return what the rows of a task are, for a version that the log holds; they are not uploaded.

    No requests.

    Raises InvalidInputError: as :func:`write_rows`, unless the rows may differ.
    """
    settle()
    left_out = TopicUploads(None, compared=True)
    try:
        write_rows(batches, plan, task, left_out)
    except InvalidInputError:
        if not plan.options.allow_different:
            raise
        for _ in batches:
            pass  # Spark wants its rows taken
        return TaskUpload(task, {}, None)
    return TaskUpload(task, {}, left_out.contents)


def upload_task(
    batches: Iterator[pa.RecordBatch], plan: WritePlan, task: int, *, compared: bool
) -> TaskUpload:
    """Upload the rows of a task, and return what was uploaded; errors as :func:`write_rows`.

    Requests: 1 PUT for each topic with rows, none where they are handed over. ``compared``: whether the log
    is to hold what the rows are.
    """
    settle()
    stores: list[ObjectStore] = []
    task_ends = ExitStack()

    def begin(route: Route) -> TopicUpload:
        if not stores:  # a task without rows needs none
            kept = kept_store(plan.options.path, plan.options.storage, plan.log_id)
            stores.append(task_ends.enter_context(kept))
        return TopicUpload(
            stores[0],
            SystemIds(),
            directory=route.directory,
            schema=route.layout.schema,
            born=plan.born,
            roll_bytes=FILE_BYTES_MAX,
            held_bytes_max=HANDED_BYTES_MAX if plan.embeds else 0,
        )

    uploads = TopicUploads(begin, compared=compared)
    with span("upload") as one, task_ends:
        try:
            uploaded = write_rows(batches, plan, task, uploads)
            if one:
                files = [file for upload in uploaded.values() for file in upload.files]
                one.set(
                    log=stores[0].url if stores else None,
                    topics=sorted(uploaded),
                    records=sum(file.rows for file in files),
                    size=sum(file.size for file in files),
                )
            return TaskUpload(task, uploaded, uploads.contents)
        except BaseException:
            uploads.abort()
            raise


def write_rows(
    batches: Iterator[pa.RecordBatch], plan: WritePlan, task: int, uploads: TopicUploads
) -> dict[str, Uploaded]:
    """Upload the rows of a task, and return what was uploaded, by topic.

    ``batches``: as Spark gives them. ``task``: the task's number. Records without a key go to one partition
    until its batch is full, then to the next; the tasks of a write begin at partitions next to each other,
    and a write at a random one. Raises InvalidInputError of kind ``schema-mismatch``: a value that the
    topic's type cannot hold, or a text that is not UTF-8; kind ``unroutable-rows``: every value of the
    routing column that is null, names no topic, or names one that does not take such rows.
    """
    found: dict[str, Route] = {}
    turns: dict[str, int] = {}

    def emit(key: tuple[str, int], table: pa.Table) -> None:
        topic, partition = key
        uploads.add(found[topic], partition, table)
        if turns[topic] == partition:
            turns[topic] = (partition + 1) % found[topic].layout.partition_count

    rechunker = Rechunker(emit)
    routes = plan.routes
    router = _Router(routes) if isinstance(routes, ByColumn) else _straight(routes)
    first_row = 0
    for batch in batches:
        _check_text(batch, first_row, task)
        first_row += batch.num_rows
        for route, rows in router(pa.Table.from_batches([batch])):
            layout = route.layout
            schema = layout.schema
            named = rows.rename_columns(list(layout.names))
            table = conform(named, schema.arrow_schema, schema.added, check_text=False)
            if layout.needs_key:
                check_keys(route.topic, schema, table, f" of a batch of task {task}")
            found[route.topic] = route
            if route.topic not in turns:
                begin = first_turn(plan.seed, route.topic) + task
                turns[route.topic] = begin % layout.partition_count
            parts, _ = split_by_partition(
                table, schema.key_columns, layout.partition_count, turns[route.topic]
            )
            for partition, part in parts:
                rechunker.add((route.topic, partition), part)
    if isinstance(router, _Router):
        router.check()
    # Files that are open first: then none of them has to be closed and continued in another.
    rechunker.finish(lambda key: key[0] not in uploads.open)
    return uploads.finish()


def _check_text(batch: pa.RecordBatch, first_row: int, task: int) -> None:
    """Refuse strings that Spark holds and that are not UTF-8: readers in Python could not give them out."""
    found = list(itertools.islice(bad_texts(batch), PROBLEMS_MAX + 1))
    if not found:
        return
    problems = [
        f"column {bad.column!r:.300}, row {first_row + bad.row} of task {task}: {bad}" for bad in found
    ]
    if len(problems) > PROBLEMS_MAX:
        problems[PROBLEMS_MAX:] = ["and more"]
    raise InvalidInputError(
        problems,
        kind="schema-mismatch",
        hint="nothing was written; repair the text, for instance with make_valid_utf8(column), or use a "
        "binary "
        "column",
    )


def _straight(routes: OneTopic) -> Callable[[pa.Table], Iterable[tuple[Route, pa.Table]]]:
    return lambda table: [(routes.only, table)] if table.num_rows else []


class _Router:
    """Cuts tables into those of the topics.

    After the first row that cannot go anywhere it only counts those.
    """

    def __init__(self, routes: ByColumn) -> None:
        self._routes = routes
        self._found: dict[str, Route] = {}
        self._problems: dict[str, int] = {}
        """Problems of topics, and how many rows have each."""
        self._refused: dict[str, list[str]] = {}
        self._more = 0

    def __call__(self, table: pa.Table) -> list[tuple[Route, pa.Table]]:
        """Return the rows of each topic, without the routing column, their order kept."""
        if not table.num_rows:
            return []
        named = pc.dictionary_encode(table.column(self._routes.position).combine_chunks().cast(pa.string()))
        codes = pc.fill_null(named.indices, len(named.dictionary)).to_numpy(zero_copy_only=False)
        order = np.argsort(codes, kind="stable")
        numbers, counts = np.unique(codes, return_counts=True)
        names = [*named.dictionary.to_pylist(), None]
        routes = [
            self._route(names[number], count)
            for number, count in zip(numbers.tolist(), counts.tolist(), strict=True)
        ]
        if self._problems:
            return []
        rows = table.remove_column(self._routes.position)
        if len(routes) == 1:
            return [(route, rows) for route in routes if route is not None]
        ends = np.cumsum(counts)
        return [
            (route, rows.take(pa.array(order[end - count : end])))
            for route, end, count in zip(routes, ends.tolist(), counts.tolist(), strict=True)
            if route is not None
        ]

    def _route(self, topic: str | None, count: int) -> Route | None:
        if topic is None:
            self._add("its value is null", count)
            return None
        route = self._found.get(topic)
        if route is not None:
            return route
        problems = self._refused.get(topic)
        if problems is None:
            problems = self._look_up(topic)
        for problem in problems:
            self._add(problem, count)
        return self._found.get(topic)

    def _look_up(self, topic: str) -> list[str]:
        try:
            route = self._routes.route(topic)
        except InvalidInputError as error:
            if len(self._refused) < 2 * PROBLEMS_MAX:
                self._refused[topic] = error.problems
            return error.problems
        if len(self._found) >= ROUTED_TOPICS_MAX:
            return [f"it names more than {ROUTED_TOPICS_MAX:,} topics, the most of one write"]
        self._found[topic] = route
        return []

    def _add(self, problem: str, count: int) -> None:
        if problem in self._problems or len(self._problems) < PROBLEMS_MAX:
            self._problems[problem] = self._problems.get(problem, 0) + count
        else:
            self._more += count

    def check(self) -> None:
        """Raise when there was any problem."""
        if not self._problems:
            return
        problems = [f"{problem} ({count} rows)" for problem, count in self._problems.items()]
        if self._more:
            problems.append(f"and more of this in {self._more} rows")
        hint = (
            "nothing was written; a topic's name has 1 to 249 of A-Z a-z 0-9 . _ - and no leading underscore"
        )
        if self._routes.create is None:
            hint += "; topics that do not exist are created with option createTopics=true"
        raise InvalidInputError(
            ["column topic routes the rows of this write, and some rows name no usable topic", *problems],
            kind="unroutable-rows",
            hint=hint,
        )
