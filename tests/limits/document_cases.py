"""Documents that say far more than they have bytes: entries, ``latest``, format.json, snapshots; entries of
many operations."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from tests.limits.case import Case
from txnformat import keys
from txnformat.admin.describe import describe_log
from txnformat.admin.metrics import measure
from txnformat.client.commit_counts import CommitCounts
from txnformat.core.entry import CommitEntry, decode_entry, encode_entry, sha256_hex
from txnformat.core.fold import apply
from txnformat.core.groups.operations import CommitOffsets, PositionCommit
from txnformat.core.operations import (
    AllocateProducerIds,
    AppVersion,
    CreateTopic,
    Expire,
    InitProducer,
    Operation,
)
from txnformat.core.state import LogState
from txnformat.core.subscriptions.operations import Ack, AckedPartition, AckMode, CreateSubscription
from txnformat.core.wire.document import packed
from txnformat.core.wire.entry_bytes import encode_stored
from txnformat.field_types import LOG_PARTITIONS_MAX, PARTITIONS_MAX
from txnformat.log import TxnLog
from txnformat.patterns import Pattern
from txnformat.persistent import replace
from txnformat.protocol.follow import empty_state, parse_hint
from txnformat.store.local import LocalStore

__all__ = ["CASES", "LOG", "MIB", "entry_of", "open_root", "plain_entry", "state_before"]

MIB = 1024 * 1024
LOG = "7d2b3c52-6c0b-4a43-9e39-5d9f9a1d0f10"
TOPIC = "9a6f2a90-8a35-4a63-9d1b-1b8a1f8a2c33"
OPERATIONS = 10_000


def plain_entry(filler: bytes, size: int, before: LogState | None = None) -> bytes:
    """Return the JSON of an entry, of number 0 or the next after ``before``, with ``size`` bytes of values
    that no reader knows."""
    entry, previous = (0, "0" * 64) if before is None else (before.entry + 1, before.entry_sha256)
    head = (
        f'{{"engine":"e","entry":{entry},"format":1,"intents":[],"log_id":"{LOG}","operations":[],'
        f'"previous":"{previous}","timestamp_ms":{entry + 1},"write_id":"w","x_":['
    ).encode()
    return head + filler * (size // len(filler)) + filler.rstrip(b",") + b"]}"


def _make_entry(filler: bytes, size: int, folder: Path) -> int:
    data = encode_stored(plain_entry(filler, size))
    (folder / "object").write_bytes(data)
    return len(data)


def _make_ranges(wrong: bool, folder: Path) -> int:
    """Write an entry that has as many values in a field that is known as may be, then perhaps a field that is
    wrong."""
    pairs = ",".join(f"[{2 * at + 10**6},{2 * at + 10**6 + 1}]" for at in range(900_000))
    operation = (
        f'{{"epoch":-1,"intent":0,"mode":"individual","operation":"ack","partitions":[{{"partition":0,"ranges":[{pairs}]}}],'
        f'"producer_id":-1,"subscription":"s","topic_id":"{"x" if wrong else TOPIC}","transactional_id":null}}'
    ).encode()
    plain = plain_entry(b"0,", 0).replace(b'"operations":[]', b'"operations":[' + operation + b"]")
    data = encode_stored(plain)
    (folder / "object").write_bytes(data)
    return len(data)


def _make_document(filler: bytes, size: int, folder: Path) -> int:
    data = packed(b'{"entry":0,"x":[' + filler * (size // len(filler)) + b"0]}")
    (folder / "object").write_bytes(data)
    return len(data)


def _read(decode: Callable[[bytes], object], folder: Path) -> object:
    found = decode((folder / "object").read_bytes())
    return "passed over" if found is None else "read"


def _hint(data: bytes) -> None:
    if parse_hint(data) is not None:
        raise ValueError("a hint was taken")


def _make_sparse(folder: Path) -> int:
    TxnLog.create(str(folder / "root")).close()
    entry = folder / "root" / keys.entry_key(0)
    entry.parent.mkdir(exist_ok=True)
    with entry.open("wb") as file:
        file.truncate(20 * 1024 * MIB)
    return 0


def open_root(folder: Path) -> object:
    """Open a log as a reader does."""
    return TxnLog.open(str(folder / "root")).state.entry


def _open_beside(folder: Path) -> object:
    return "passed over" if open_root(folder) == -1 else "read"


def _make_junk(folder: Path) -> int:
    root = folder / "root"
    TxnLog.create(str(root)).close()
    store = LocalStore(root)
    for number in range(51):
        store.create(keys.snapshot_key(number, str(uuid.UUID(int=number + (4 << 76)))), bytes(20_000))
    return 51 * 20_000


def _deep() -> dict[str, Any]:
    type_: Any = "int32"
    for _ in range(60):
        type_ = {"struct": [{"name": "a", "type": type_}, {"name": "b", "type": "int32"}]}
    return {"name": "n", "type": type_}


DEEP = _deep()


def _operations(name: str) -> Iterable[Operation]:
    for number in range(OPERATIONS):
        match name:
            case "app_version":
                yield AppVersion("n", f"a{number}", 1, 0)
            case "create_topic":
                made = str(uuid.UUID(int=number + (4 << 76)))
                directory = keys.topic_directory(f"t{number}", made)
                fields = ({"name": "id", "type": "int64"},)
                yield CreateTopic(made, f"t{number}", directory, 1, fields, (), None, 0)
            case "create_topic, names of 249 letters":
                made = str(uuid.UUID(int=number + (4 << 76)))
                long = f"{number:09}{'t' * 240}"
                fields = ({"name": "id", "type": "int64"},)
                yield CreateTopic(made, long, keys.topic_directory(long, made), 1, fields, (), None, 0)
            case "create_topic, nested 60 deep":
                if number < 1_600:
                    made = str(uuid.UUID(int=number + (4 << 76)))
                    directory = keys.topic_directory(f"t{number}", made)
                    yield CreateTopic(made, f"t{number}", directory, 1, (DEEP,), (), None, 0)
            case "init_producer":
                yield InitProducer(
                    transactional_id=f"x{number}", producer_id=number, epoch=0, aborted=(), intent=0
                )
            case "allocate_producer_ids":
                yield AllocateProducerIds("o", number, number, 0)
            case "expire":
                yield Expire((), (), (number,), (), 0)
            case "commit_offsets":
                position = PositionCommit(f"p{number}", "x", "", None)
                yield CommitOffsets("g", (), (position,), None, None, -1, -1, 0)
            case _:
                seek = (AckedPartition(0, position=0),)
                yield Ack(TOPIC, "s", AckMode.SEEK, seek, None, -1, -1, 0)


def entry_of(state: LogState, operations: Iterable[Operation]) -> bytes:
    """Return the bytes of the entry after ``state``."""
    return encode_entry(
        CommitEntry(
            entry=state.entry + 1, log_id=LOG, write_id="w", previous=state.entry_sha256,
            timestamp_ms=state.timestamp_ms + 1, engine="e", intents=("i",), operations=tuple(operations),
        )
    )  # fmt: skip


def state_before(name: str) -> LogState:
    """Return the state that an entry of such operations needs."""
    state = LogState(log_id=LOG, entry_sha256=hashlib.sha256(b"").hexdigest())
    if name == "expire":
        blocks = [AllocateProducerIds("o", number, number, 0) for number in range(OPERATIONS)]
        data = entry_of(state, blocks)
        return apply(state, decode_entry(data, 0), sha256_hex(data))
    if name != "ack":
        return state
    fields = ({"name": "id", "type": "int64"},)
    topic = CreateTopic(TOPIC, "t", keys.topic_directory("t", TOPIC), 1, fields, (), None, 0)
    data = entry_of(state, (topic, CreateSubscription(TOPIC, "s", (), 0)))
    return apply(state, decode_entry(data, 0), sha256_hex(data))


def _make_operations(name: str, folder: Path) -> int:
    data = entry_of(state_before(name), _operations(name))
    (folder / "object").write_bytes(data)
    return len(data)


def _fold(name: str, folder: Path) -> object:
    state, data = state_before(name), (folder / "object").read_bytes()
    apply(state, decode_entry(data, state.entry + 1), sha256_hex(data))
    return "folded"


def _make_partitions(count: int, folder: Path) -> int:
    """Write an entry whose topics have ``count`` partitions together."""
    topics = islice(_operations("create_topic"), count // PARTITIONS_MAX)
    data = entry_of(state_before(""), (replace(op, partitions=PARTITIONS_MAX) for op in topics))
    (folder / "object").write_bytes(data)
    return len(data)


def _describe(folder: Path) -> object:
    state, data = state_before(""), (folder / "object").read_bytes()
    state = apply(state, decode_entry(data, 0), sha256_hex(data))
    described = describe_log(state, "memory://", 0)
    measured = measure(state, "memory://", 0, CommitCounts())
    assert sum(topic.partitions for topic in described.topics) == len(measured.partitions)
    return "described and measured"


def _match(folder: Path) -> object:
    return "matched" if not Pattern("(a+)+b").matching(["a" * 249] * 1_000) else "a name that does not match"


_FILLERS = (
    ("zeros", "256 MiB of one number", b"0,", 256 * MIB - 1000),
    ("lists", "24 MiB of empty lists", b"[],", 24 * MIB),
    ("objects", "24 MiB of small objects", b'{"":0},', 24 * MIB),
    ("texts", "31 MiB of long texts", b'"' + b"x" * 4000 + b'",', 31 * MIB),
    ("uncounted", "4 MiB of small objects", b'{"":0},', 4 * MIB - 1000),
)

CASES = (
    *(
        Case(
            f"entry-{key}",
            f"entry: {what}",
            partial(_make_entry, filler, size),
            partial(_read, lambda data: decode_entry(data, 0)),
        )
        for key, what, filler, size in _FILLERS
    ),
    *(
        Case(
            f"entry-ranges-{wrong}",
            f"entry: 900,000 pairs of numbers{', and a field that is wrong' if wrong else ''}",
            partial(_make_ranges, wrong),
            partial(_read, lambda data: decode_entry(data, 0)),
        )
        for wrong in (False, True)
    ),
    Case(
        "latest",
        "`latest`: 250 MiB of one number",
        partial(_make_document, b"0,", 250 * MIB),
        partial(_read, _hint),
    ),
    Case(
        "format",
        "`format.json`: 250 MiB of one number",
        partial(_make_document, b"0,", 250 * MIB),
        partial(_read, empty_state),
    ),
    Case("sparse", "entry: a sparse file of 20 GiB", _make_sparse, open_root),
    Case("snapshot-junk", "snapshot: 51 that no entry names", _make_junk, _open_beside),
    *(
        Case(
            f"fold-{name}",
            f"entry: {1_600 if 'deep' in name else 10_000:,} times "
            f"`{name.partition(',')[0]}`{''.join(name.partition(',')[1:])}",
            partial(_make_operations, name),
            partial(_fold, name),
        )
        for name in (
            "app_version",
            "create_topic",
            "create_topic, names of 249 letters",
            "create_topic, nested 60 deep",
            "init_producer",
            "allocate_producer_ids",
            "expire",
            "commit_offsets",
            "ack",
        )
    ),
    *(
        Case(
            f"fold-partitions-{count}",
            f"entry: topics with {count:,} partitions",
            partial(_make_partitions, count),
            _describe,
        )
        for count in (LOG_PARTITIONS_MAX, 10 * LOG_PARTITIONS_MAX)
    ),
    Case("pattern", "`(a+)+b` against 1,000 names of 249 letters", lambda folder: 7, _match),
)
