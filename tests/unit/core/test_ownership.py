"""A topic's files are the topic's: whatever names those of another one is refused, wherever it stands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from txnformat import keys
from txnformat.client.driver import Driver
from txnformat.clock import SystemClock
from txnformat.core.assemble import assemble
from txnformat.core.decide import decide
from txnformat.core.entry import CommitEntry, sha256_hex
from txnformat.core.fold import apply, apply_operation
from txnformat.core.folding import At
from txnformat.core.intents import Action, Intent, OpenProducer, ProducerRef, Rejected, SealSegments, Write
from txnformat.core.invariants import check_state, check_whole
from txnformat.core.operations import Checkpoint, CreateTopic
from txnformat.core.records.batch_table import TABLE_ROW
from txnformat.core.records.scan import expanded
from txnformat.core.records.state import EXTENT
from txnformat.core.sealing.segment_list import decode_segment_list, encode_segment_list
from txnformat.core.sealing.sidecar import decode_index, encode_index
from txnformat.core.snapshot.codec import decode_snapshot, encode_snapshot, state_digest
from txnformat.core.state import LogState
from txnformat.errors import ConflictError, CorruptDataError, InternalError
from txnformat.persistent import Columns, Vector, replace
from txnformat.protocol.sealing import write_segments
from txnformat.reading.sealed import SidecarCache
from txnformat.store.memory import MemoryStore
from txnformat.types import (
    FileRecord,
    ObjectRecord,
    OffsetRange,
    Outcome,
    SegmentListRecord,
    SegmentRecord,
    TopicPartition,
)
from txnlog_testing.seal_of import CountedIds
from txnlog_testing.strategies import in_table, make_append, make_topic

ORDERS, SECRETS = make_topic("orders"), make_topic("secrets")
OTHER_ORDERS = make_topic("orders", 1)
KEY = TopicPartition(ORDERS.topic_id, 0)
ETL, STAGING = ProducerRef(0, 0, "etl"), ProducerRef(1, 0, "staging")
APPEND = make_append(ORDERS, {0: (0, 4)}, content="a")
STAGED = in_table(make_append(ORDERS, {0: (0, 3)}, content="s"))
LONG = "n" * 245


def step(state: LogState, action: Action) -> tuple[CommitEntry, LogState]:
    intent = Intent(f"intent {state.entry + 1}", state.entry + 1, action)
    assembled = assemble(state, [intent], store_time_ms=1_700_000_000_000, write_id="write")
    assert assembled.entry is not None, assembled.verdicts
    return assembled.entry, assembled.after


def after(*actions: Action) -> LogState:
    state = LogState("0a8b4b7e-46a4-4d0f-9c3b-3f3e1f0f5a11", entry_sha256=sha256_hex(b"format"))
    for action in actions:
        _, state = step(state, action)
    return state


OPEN = after(ORDERS, SECRETS, OpenProducer("etl"), OpenProducer("staging"))
WRITTEN = after(
    ORDERS,
    SECRETS,
    OpenProducer("etl"),
    OpenProducer("staging"),
    Write(ETL, (APPEND,), Outcome.COMMIT),
    Write(STAGING, (STAGED,), deferred=True),
    Write(appends=(in_table(make_append(ORDERS, {0: (-1, 2)}, content="t")),)),
)


def in_directory(directory: str, file: FileRecord) -> FileRecord:
    return replace(file, key=f"{directory}/{file.key.partition('/')[2]}")


def moved(named: ObjectRecord, directory: str) -> ObjectRecord:
    return replace(named, key=f"{directory}/{named.key.partition('/')[2]}")


def with_moved(record: SegmentRecord, kind: str, directory: str) -> SegmentRecord:
    """Return a segment with one of its sidecars in another directory."""
    changes: dict[str, Any] = {kind: moved(getattr(record, kind), directory)}
    return replace(record, **changes)


def changed(entry: CommitEntry, **changes: Any) -> CommitEntry:
    return replace(entry, operations=(replace(entry.operations[0], **changes), *entry.operations[1:]))


@pytest.mark.parametrize(
    "action", [Write(ETL, (APPEND,)), Write(STAGING, (STAGED,), deferred=True)], ids=["append", "stage"]
)
def test_a_file_of_another_topic_is_corrupt(action: Write) -> None:
    entry, _ = step(OPEN, action)
    files = (action.appends[0].files[0], in_directory(SECRETS.directory, action.appends[0].files[0]))
    with pytest.raises(CorruptDataError) as caught:
        apply(OPEN, changed(entry, files=files), "0" * 64)
    assert caught.value.kind == "invalid-entry"
    assert caught.value.values["got"] == files[1].key


@pytest.mark.parametrize(
    "action", [Write(ETL, (APPEND,)), Write(STAGING, (STAGED,), deferred=True)], ids=["append", "stage"]
)
def test_a_directory_that_the_topic_would_have_with_another_id_is_its_own(action: Write) -> None:
    """A writer that lost the creation of the topic has uploaded there."""
    entry, _ = step(OPEN, action)
    files = (in_directory(OTHER_ORDERS.directory, action.appends[0].files[0]),)
    legal = changed(entry, files=files)
    state = apply(OPEN, legal, "0" * 64)
    assert check_state(OPEN, legal, state) == []
    assert check_whole(state) == []


def test_who_loses_the_creation_of_a_topic_writes_to_the_winners() -> None:
    lost = Write(appends=(make_append(OTHER_ORDERS, {0: (-1, 4)}, content="a"),), create=(OTHER_ORDERS,))
    _, state = step(after(ORDERS), lost)
    assert state.partition(KEY).log_end == 4
    assert next(iter(state.files)).key.startswith(OTHER_ORDERS.directory)
    assert check_whole(state) == []


@pytest.mark.parametrize("prefix", ["order", "orders-", "orders2", "Orders"])
def test_names_that_look_alike_have_directories_of_their_own(prefix: str) -> None:
    directory = f"{prefix}-12345678"
    assert not keys.is_topics_file(keys.data_key(directory, 0, KEY.topic_id), ORDERS.directory)


def test_a_writer_never_makes_such_an_entry() -> None:
    file = in_directory(SECRETS.directory, APPEND.files[0])
    verdict = decide(OPEN, Intent("x", 0, Write(ETL, (replace(APPEND, files=(file,)),))))
    assert isinstance(verdict, Rejected)
    assert isinstance(verdict.error, InternalError)


# --- names that their directory cuts ------------------------------------------------------------------------


def alike(name: str, topic_id: str) -> CreateTopic:
    return replace(
        ORDERS, name=name, topic_id=topic_id, directory=keys.topic_directory(name, topic_id), intent=0
    )


FIRST = alike(LONG, "12345678-0000-4000-8000-000000000001")
SAME_DIRECTORY = alike(LONG + "x", "12345678-0000-4000-8000-000000000002")
SAME_NAME = alike(LONG, "87654321-0000-4000-8000-000000000003")


def test_no_two_topics_have_one_directory() -> None:
    state = after(FIRST)
    with pytest.raises(CorruptDataError) as caught:
        apply_operation(state, SAME_DIRECTORY, At(1, 1))
    assert caught.value.kind == "invalid-entry"
    for action in (SAME_DIRECTORY, Write(create=(SAME_DIRECTORY,))):
        verdict = decide(state, Intent("x", 0, action))
        assert isinstance(verdict, Rejected)
        assert isinstance(verdict.error, ConflictError)
        assert verdict.error.kind == "topic-exists"
    both = decide(after(), Intent("x", 0, Write(create=(FIRST, SAME_DIRECTORY))))
    assert isinstance(both, Rejected)


def test_a_name_that_is_cut_has_one_directory_only() -> None:
    state = after(FIRST)
    lost = make_append(SAME_NAME, {0: (-1, 4)}, content="a")
    verdict = decide(state, Intent("x", 0, Write(appends=(lost,), create=(SAME_NAME,))))
    assert isinstance(verdict, Rejected)
    assert verdict.error.kind == "topic-exists"
    entry, _ = step(state, Write(appends=(make_append(FIRST, {0: (-1, 4)}, content="a"),)))
    with pytest.raises(CorruptDataError):
        apply(state, changed(entry, files=lost.files), "0" * 64)


# --- sealed segments ----------------------------------------------------------------------------------------


class Sealed:
    """A log with an aborted and a committed transaction, sealed with real sidecars; the seal, and the state
    before."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.before = after(
            ORDERS,
            SECRETS,
            OpenProducer("etl"),
            Write(ETL, (APPEND,), Outcome.ABORT),
        )
        seal = Driver(self.store, SystemClock(), CountedIds()).run(write_segments(self.before))
        assert seal is not None
        self.seal = seal
        self.entry, self.state = step(self.before, SealSegments(seal))
        self.record = seal.segments[0].record


SEALED = Sealed()


@pytest.mark.parametrize("kind", ["index", "markers", "txnindex"])
@pytest.mark.parametrize("directory", [SECRETS.directory, OTHER_ORDERS.directory])
def test_a_sidecar_outside_of_the_topics_own_directory_is_corrupt(kind: str, directory: str) -> None:
    segment = SEALED.seal.segments[0]
    moved = getattr(with_moved(SEALED.record, kind, directory), kind)
    wrong = changed(SEALED.entry, segments=(replace(segment, **{kind: moved}),))
    with pytest.raises(CorruptDataError) as caught:
        apply(SEALED.before, wrong, "0" * 64)
    assert caught.value.kind == "invalid-entry"


def index_of(directory: str) -> tuple[bytes, ObjectRecord]:
    """Return the ``.index`` with its file in another directory, and what names it."""
    data = SEALED.store.get(SEALED.record.index.key)
    index = decode_index(data, SEALED.record.index)
    files = {number: in_directory(directory, file) for number, file in index.files.items()}
    encoded = encode_index(index.rows, files)
    return encoded, ObjectRecord(SEALED.record.index.key, len(encoded), sha256_hex(encoded))


def test_an_index_that_names_files_of_another_topic_is_refused() -> None:
    decode_index(*index_of(OTHER_ORDERS.directory))
    with pytest.raises(CorruptDataError) as caught:
        decode_index(*index_of(SECRETS.directory))
    assert caught.value.kind == "invalid-key"


@pytest.mark.parametrize("kind", ["index", "markers", "txnindex"])
def test_a_segment_list_that_names_sidecars_of_another_topic_is_refused(kind: str) -> None:
    part = SidecarCache(SEALED.store).segments(SEALED.state, KEY, OffsetRange(0, 5))[0]
    record = with_moved(part.record, kind, SECRETS.directory)
    data = encode_segment_list({KEY: (part._replace(record=record),)})
    store = MemoryStore()
    named = SegmentListRecord(keys.table_key(0, KEY.topic_id), len(data), sha256_hex(data))
    store.put(named.key, data)
    partition = replace(SEALED.state.partitions[KEY], listed_end=5, segments=Columns(part.row.dtype))
    listed = replace(SEALED.state, segment_lists=(named,), listed_segments=1, partitions={KEY: partition})
    with pytest.raises(CorruptDataError) as caught:
        SidecarCache(store).segments(listed, KEY, OffsetRange(0, 5))
    assert caught.value.kind == "invalid-key"
    assert KEY in decode_segment_list(data, named, {}), "of topics that nobody knows nothing is asked"


# --- batch tables -------------------------------------------------------------------------------------------


def test_a_row_of_a_batch_table_that_counts_beyond_its_appends_files_is_refused() -> None:
    extents = WRITTEN.partition(KEY).extents.array()
    extent = extents[extents["table"] >= 0]
    assert extent["file_count"].tolist() == [1]
    rows = np.zeros(1, TABLE_ROW)
    for name, value in (("records", 2), ("row_group_count", 1), ("size", 9)):
        rows[name] = value
    tables = {int(extent["table"][0]): rows}
    assert len(expanded(extent, 0, tables)) == 1
    rows["file"] = 1
    with pytest.raises(CorruptDataError) as caught:
        expanded(extent, 0, tables)
    assert caught.value.values["got"] == 1


# --- snapshots ----------------------------------------------------------------------------------------------


def decoded(state: LogState) -> LogState:
    data = encode_snapshot(state)
    named = Checkpoint(
        state.entry,
        keys.snapshot_key(state.entry, KEY.topic_id),
        len(data),
        sha256_hex(data),
        state_digest(state),
    )
    return decode_snapshot(data, named, state.log_id)


def with_files(state: LogState, number: int, directory: str) -> LogState:
    files = [
        in_directory(directory, file) if index == number else file for index, file in enumerate(state.files)
    ]
    return replace(state, files=Vector(files))


@pytest.mark.parametrize("number", [0, 1, 2], ids=["extent", "stage", "through a table"])
def test_a_snapshot_that_names_files_of_another_topic_is_refused(number: int) -> None:
    assert len(WRITTEN.files) == 3
    decoded(with_files(WRITTEN, number, OTHER_ORDERS.directory))
    wrong = with_files(WRITTEN, number, SECRETS.directory)
    assert {problem[:4] for problem in check_whole(wrong)} == {"I20 "}
    with pytest.raises(CorruptDataError) as caught:
        decoded(wrong)
    assert caught.value.kind == "invalid-key"


@pytest.mark.parametrize("kind", ["index", "markers", "txnindex"])
def test_a_snapshot_that_names_sidecars_of_another_topic_is_refused(kind: str) -> None:
    decoded(SEALED.state)
    record = with_moved(SEALED.record, kind, OTHER_ORDERS.directory)
    wrong = replace(SEALED.state, segments=Vector([record]))
    assert [problem[:4] for problem in check_whole(wrong)] == ["I20 "]
    with pytest.raises(CorruptDataError) as caught:
        decoded(wrong)
    assert caught.value.kind == "invalid-key"


def with_extent(**values: int) -> Callable[[LogState], LogState]:
    def change(state: LogState) -> LogState:
        partition = state.partitions[KEY]
        rows = partition.extents.array().copy()
        at = int(np.flatnonzero(rows["table"] >= 0)[0]) if "table" in values or "file_count" in values else 0
        for name, value in values.items():
            rows[name][at] = value
        return replace(state, partitions={KEY: replace(partition, extents=Columns(EXTENT, (rows,)))})

    return change


@pytest.mark.parametrize(
    "change",
    [
        with_extent(file=77),
        with_extent(table=77),
        with_extent(file_count=2),
        with_extent(file_count=2**31 - 1, first_file=2**40),
        with_extent(file_count=2, first_file=-1),
        with_extent(file_count=2, first_file=1),
        lambda state: replace(state, topics={SECRETS.topic_id: state.topics[SECRETS.topic_id]}),
    ],
    ids=[
        "file",
        "table",
        "files of a table",
        "very many files",
        "a number below 0",
        "files of another append",
        "topic",
    ],
)
def test_a_snapshot_that_names_what_it_lacks_is_refused(change: Callable[[LogState], LogState]) -> None:
    """It would be read as another one's, or end in an error without a name."""
    with pytest.raises(CorruptDataError) as caught:
        decoded(change(WRITTEN))
    assert caught.value.what.startswith("a snapshot names a ")
