"""Entries whose operations each change a little of something large: the fold may not copy or search all of it
for each."""

from __future__ import annotations

import hashlib
import pickle
import uuid
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from msgspec import structs

from tests.limits.case import Case
from tests.limits.document_cases import LOG, TOPIC, entry_of
from txnformat import keys
from txnformat.core.entry import decode_entry, sha256_hex
from txnformat.core.fold import apply
from txnformat.core.groups.operations import CommitOffsets, PositionCommit
from txnformat.core.operations import (
    AllocateProducerIds,
    AlterTopic,
    Append,
    AppendedPartition,
    Cause,
    CreateTopic,
    EndTxn,
    Expire,
    InitProducer,
    Marker,
    Operation,
    Seal,
    SealedPartition,
    SealedSegment,
)
from txnformat.core.state import LogState
from txnformat.core.subscriptions.operations import Ack, AckedPartition, AckMode, CreateSubscription
from txnformat.persistent import replace
from txnformat.types import FileRecord, ObjectRecord, Outcome, SegmentListRecord

__all__ = ["CASES", "HASH", "append_of", "topic_of"]

MANY = 10_000
HASH = "0" * 64


def _state(*batches: Sequence[Operation]) -> LogState:
    state = LogState(log_id=LOG, entry_sha256=hashlib.sha256(b"").hexdigest())
    for operations in batches:
        data = entry_of(state, operations)
        state = apply(state, decode_entry(data, state.entry + 1), sha256_hex(data))
    return state


def topic_of(partitions: int, number: int = 0) -> CreateTopic:
    topic_id = TOPIC if number == 0 else str(uuid.UUID(int=number + (4 << 76)))
    directory = keys.topic_directory(f"t{number}", topic_id)
    return CreateTopic(
        topic_id, f"t{number}", directory, partitions, ({"name": "id", "type": "int64"},), (), None, 0
    )


def append_of(
    topic: CreateTopic, partitions: Iterable[int], offset: int = 0, records: int = 1, producer: int = -1,
    owner: str | None = None,
) -> Append:  # fmt: skip
    sequence = -1 if producer < 0 else 0
    partitions = tuple(partitions)
    name = str(uuid.UUID(int=(4 << 76) + offset * MANY + partitions[0]))  # a file is named once
    return Append(
        topic_id=topic.topic_id, producer_id=producer, epoch=sequence, transactional_id=owner,
        partition_count=topic.partitions,
        files=(FileRecord(keys.data_key(topic.directory, 0, name), 100, HASH, 50, HASH, 1, 0),),
        partitions=tuple(
            AppendedPartition(part, records, 1, "0" * 16, 1, 0, 0, base_sequence=sequence, base_offset=offset) for part in partitions
        ),
        batches=(), table=ObjectRecord(keys.table_key(0, TOPIC), 100, HASH), section=0, intent=0,
    )  # fmt: skip


def _opened(count: int) -> list[Operation]:
    return [
        InitProducer(transactional_id=f"x{number}", producer_id=number, epoch=0, aborted=(), intent=0)
        for number in range(count)
    ]


def _abort(number: int, markers: Iterable[Marker] = (), epoch: int = 0) -> EndTxn:
    return EndTxn(
        transactional_id=f"x{number}", producer_id=number, epoch=epoch, outcome=Outcome.ABORT, cause=Cause.PRODUCER,
        markers=tuple(markers), placed=(), intent=0,
    )  # fmt: skip


def _ack(mode: AckMode, parts: Iterable[AckedPartition], owner: int | None = None) -> Ack:
    if owner is None:
        return Ack(TOPIC, "s", mode, tuple(parts), None, -1, -1, 0)
    return Ack(TOPIC, "s", mode, tuple(parts), f"x{owner}", owner, 0, 0)


def _subscribed(records: int = 1_000_000) -> list[Sequence[Operation]]:
    topic = topic_of(MANY)
    return [[topic], [append_of(topic, range(MANY), 0, records)], [CreateSubscription(TOPIC, "s", (), 0)]]


def _positions(names: Iterable[int], owner: int | None = None) -> CommitOffsets:
    expected = None if owner is None else ""
    commits = tuple(PositionCommit(f"p{number}", "x", "", expected) for number in names)
    if owner is None:
        return CommitOffsets("g", (), commits, None, None, -1, -1, 0)
    return CommitOffsets("g", (), commits, None, f"x{owner}", owner, 0, 0)


Built = tuple[LogState, Sequence[Operation]]


def _long_name() -> Built:
    columns = tuple({"name": f"c{number}", "type": "int8"} for number in range(9_000))
    field = {"name": "a" * 10_000_000, "type": {"struct": columns}}
    return _state(), [replace(topic_of(1), fields=(field,))]


def _key_columns() -> Built:
    fields = tuple({"name": f"c{number}", "type": "int8"} for number in range(9_000))
    keys_ = tuple(f"C{number}" for number in range(9_000))
    return _state(), [replace(topic_of(1), fields=fields, key_columns=keys_)]


def _held_positions() -> Built:
    return _state(_opened(1), [_positions(range(MANY), 0)]), [_positions([number]) for number in range(MANY)]


def _expired() -> Built:
    topics = [topic_of(MANY, number) for number in range(3)]
    state = _state(
        [*topics, AllocateProducerIds("o", 0, MANY - 1, 0)],
        *([append_of(topic, range(MANY))] for topic in topics),
        [append_of(topics[0], [0], 1 + number, 1, number) for number in range(MANY)],
    )
    return state, [Expire((), (number,), (), (), 0) for number in range(MANY)]


def _aborted() -> Built:
    topic, open_, step = topic_of(20), 9_000, 500
    appends = [
        [append_of(topic, range(20), one, 1, one, f"x{one}") for one in range(first, first + step)]
        for first in range(0, open_, step)
    ]
    ends = [_abort(one, (Marker(TOPIC, part, open_ + one) for part in range(20))) for one in range(open_)]
    return _state([topic], _opened(open_), *appends), ends


def _seeks() -> Built:
    seek = _ack(AckMode.SEEK, (AckedPartition(part, position=1) for part in range(MANY)))
    return _state(*_subscribed()), [seek] * 20


def _cumulative() -> Built:
    return _state(*_subscribed()), [
        _ack(AckMode.CUMULATIVE, (AckedPartition(part, position=1 + step) for part in range(MANY)))
        for step in range(20)
    ]


def _ranges() -> Built:
    apart = tuple((2 * number + 1, 2 * number + 2) for number in range(9_000))
    held = _ack(AckMode.INDIVIDUAL, (AckedPartition(part, apart) for part in range(20)))
    more = [
        _ack(AckMode.INDIVIDUAL, (AckedPartition(part, ((100_000 + n, 100_001 + n),)) for part in range(20)))
        for n in range(4_000)
    ]
    return _state(*_subscribed(), [held]), more


def _ends_of_acks() -> Built:
    pending = [
        _ack(AckMode.INDIVIDUAL, [AckedPartition(number, ((2, 3),))], number) for number in range(MANY)
    ]
    everywhere = _ack(AckMode.SEEK, (AckedPartition(part, position=1) for part in range(MANY)))
    return _state(*_subscribed(), [everywhere], _opened(MANY), pending), [_abort(n) for n in range(MANY)]


def _holders(count: int, more: int = 1) -> LogState:
    pending = [
        _ack(AckMode.INDIVIDUAL, [AckedPartition(0, ((10 + 2 * one, 11 + 2 * one),))], one)
        for one in range(count)
    ]
    topic, create = topic_of(1), CreateSubscription(TOPIC, "s", (), 0)
    return _state([topic], [append_of(topic, [0], 0, 1_000_000)], [create], _opened(count + more), pending)


def _beside_holders() -> Built:
    holders, operations = 9_000, list[Operation]()
    for epoch in range(1_000):
        ack = _ack(AckMode.CUMULATIVE, [AckedPartition(0, position=1)], holders)
        operations += [replace(ack, epoch=epoch), _abort(holders, epoch=epoch)]
    return _holders(holders), operations


def _ends_of_holders() -> Built:
    return _holders(9_000), [_abort(one) for one in range(9_000)]


def _plain_beside_holders() -> Built:
    state = _holders(9_000)
    (subscription,) = state.subscriptions.values()
    read = replace(subscription.partition(0), _held=None)  # as of a snapshot
    subscriptions = {key: subscription.with_partitions({0: read}) for key in state.subscriptions}
    acks = [
        _ack(AckMode.INDIVIDUAL, [AckedPartition(0, ((100_000 + one, 100_001 + one),))])
        for one in range(9_000)
    ]
    return replace(state, subscriptions=subscriptions), acks


def _held_ranges(first: int, more: Callable[[int], AckedPartition], count: int, mode: AckMode) -> Built:
    apart = tuple((first + 2 * one, first + 2 * one + 1) for one in range(9_000))
    held = _ack(AckMode.INDIVIDUAL, (AckedPartition(part, apart) for part in range(20)), 0)
    acks = [_ack(mode, (replace(more(one), partition=part) for part in range(20)), 0) for one in range(count)]
    return _state(*_subscribed(), _opened(1), [held]), acks


def _more_of_held() -> Built:
    return _held_ranges(
        1, lambda one: AckedPartition(0, ((100_000 + one, 100_001 + one),)), 9_500, AckMode.INDIVIDUAL
    )


def _below_held() -> Built:
    return _held_ranges(100_001, lambda one: AckedPartition(0, position=one + 1), 4_000, AckMode.CUMULATIVE)


def _structs() -> Built:
    struct = {"struct": tuple({"name": f"{number:x}", "type": "int8"} for number in range(9_990))}
    fields = ({"name": "s", "type": struct},)
    return _state(), [replace(topic_of(1, number), fields=fields) for number in range(20)]


def _altered_keys() -> Built:
    names = [f"c{number}" for number in range(9_000)]
    fields = tuple({"name": name, "type": "int8"} for name in names)
    topics = [replace(topic_of(1, number), fields=fields, key_columns=tuple(names)) for number in range(20)]
    wider = (*fields, {"name": "more", "type": "int8"})
    return _state(topics), [AlterTopic(topic.topic_id, 1, 1, wider) for topic in topics]


def _forgotten_ids() -> Built:
    count = MANY // 2
    topic = topic_of(1)
    state = _state(
        [topic], _opened(count), [AllocateProducerIds("o", count, 2 * count - 1, 0)], [append_of(topic, [0])]
    )
    more: list[list[Operation]] = [
        [Expire((f"x{number}",), (), (), (), 0), append_of(topic, [0], 1 + number, 1, count + number)]
        for number in range(count)
    ]
    return state, [one for pair in more for one in pair]


def _seals() -> Built:
    topic = topic_of(MANY)
    state = _state([topic], *([append_of(topic, range(MANY), offset)] for offset in range(3)))
    index = ObjectRecord(keys.sidecar_key(topic.directory, 0, TOPIC, "index"), 100, HASH)
    parts = [SealedPartition(part, 0, 1, 1, 0, 0, 1, 1, 0, 0, 0, 0) for part in range(MANY)]
    return state, [Seal((SealedSegment(topic_id=TOPIC, index=index, partitions=(part,)),)) for part in parts]


def _seals_of_one() -> Built:
    topic = topic_of(1)
    appends = ([append_of(topic, [0], offset) for offset in range(MANY)],)
    index = ObjectRecord(keys.sidecar_key(topic.directory, 0, TOPIC, "index"), 100, HASH)
    parts = [SealedPartition(0, one, one + 1, 1, 0, 0, 1, 1, 0, 0, 0, 0) for one in range(MANY)]
    return _state([topic], *appends), [
        Seal((SealedSegment(topic_id=TOPIC, index=index, partitions=(part,)),)) for part in parts
    ]


def _lists() -> Built:
    state, seals = _seals_of_one()
    return state, [
        structs.replace(
            op,
            segment_list=SegmentListRecord(keys.table_key(0, str(uuid.UUID(int=one))), 1, HASH, one, 1),
            listed_segments=one + 1,
        )
        for one, op in enumerate(seals)
    ]


def _make(build: Callable[[], Built], folder: Path) -> int:
    state, operations = build()
    data = entry_of(state, operations)
    (folder / "state").write_bytes(pickle.dumps(state))
    (folder / "object").write_bytes(data)
    return len(data)


def _prepared(folder: Path) -> tuple[LogState, bytes]:
    return pickle.loads((folder / "state").read_bytes()), (folder / "object").read_bytes()


def _fold(given: tuple[LogState, bytes]) -> object:
    state, data = given
    apply(state, decode_entry(data, state.entry + 1), sha256_hex(data))
    return "folded"


CASES = tuple(
    Case(f"fold-of-{key}", f"entry: {what}", partial(_make, build), _fold, _prepared)
    for key, what, build in (
        ("long-name", "a topic with a name of 10,000,000 letters above 9,000 columns", _long_name),
        (
            "key-columns",
            "a topic with 9,000 columns, and 9,000 key columns that are none of them",
            _key_columns,
        ),
        ("held-positions", "10,000 commits of positions that one transaction holds", _held_positions),
        ("expired", "10,000 times `expire`, in 30,000 partitions", _expired),
        ("aborts", "9,000 aborts, each in 20 partitions", _aborted),
        ("seeks", "20 seeks in 10,000 partitions", _seeks),
        ("cumulative", "20 cumulative acks in 10,000 partitions", _cumulative),
        ("ranges", "4,000 acks in 20 partitions that have 9,000 ranges each", _ranges),
        ("ends-of-acks", "10,000 ends of transactions, each with one ack", _ends_of_acks),
        (
            "structs",
            "20 topics with a struct of 9,990 fields, the most in one entry",
            _structs,
        ),
        ("altered-keys", "20 topics with 9,000 key columns, each of which gets a column", _altered_keys),
        (
            "forgotten-ids",
            "5,000 times `expire` of one transactional id of 5,000, each with a new producer",
            _forgotten_ids,
        ),
        ("seals", "10,000 times `seal`, each of one of 10,000 partitions", _seals),
        ("seals-of-one", "10,000 times `seal`, each of one record of a partition", _seals_of_one),
        ("lists", "10,000 times `seal`, each with a segment list of its own", _lists),
        (
            "beside-holders",
            "1,000 cumulative acks, each aborted, beside 9,000 transactions that hold a range",
            _beside_holders,
        ),
        (
            "ends-of-holders",
            "9,000 ends of transactions that hold a range of one partition",
            _ends_of_holders,
        ),
        (
            "plain-beside-holders",
            "9,000 acks beside 9,000 transactions that hold a range, after a snapshot",
            _plain_beside_holders,
        ),
        (
            "more-of-held",
            "9,500 acks of a transaction in 20 partitions of which it holds 9,000 ranges",
            _more_of_held,
        ),
        (
            "below-held",
            "4,000 cumulative acks of a transaction in 20 partitions of which it holds 9,000 ranges",
            _below_held,
        ),
    )
)
