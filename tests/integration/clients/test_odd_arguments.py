"""Arguments of any type: what cannot be compared, hashed or shown is refused in words, never by an error from
inside."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from txnformat.consumers.settings import ConsumerSettings
from txnformat.errors import InvalidInputError
from txnformat.protocol.commit import CommitSettings
from txnlog import Consumer, Producer, Subscription, TxnLog, TxnLogError, read_values
from writers.bulk import BulkAppend
from writers.settings import ProducerSettings

NUMBERS = pa.schema([("n", pa.int64())])
DEPTH = 20_000


def deep() -> Any:
    """Return a list that is nested deeper than Python shows."""
    value: Any = []
    for _ in range(DEPTH):
        value = [value]
    return value


class Unshown:
    """Has no text."""

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        raise ValueError("no text of me")


class Raising:
    """Can neither be compared, hashed nor tested for truth; what it raises is no TypeError."""

    def __eq__(self, other: object) -> bool:
        raise ValueError("not to be compared")

    def __hash__(self) -> int:
        raise ValueError("not to be hashed")

    def __bool__(self) -> bool:
        raise ValueError("neither true nor false")


ODD: dict[str, Callable[[], Any]] = {
    "unhashable": lambda: ["t"],
    "unhashable inside": lambda: [["t"]],
    "mapping": lambda: {"t": ["t"]},
    "number": lambda: 5.5,
    "bytes": lambda: b"t",
    "deep": deep,
    "deep mapping": lambda: {"t": deep()},
    "without text": Unshown,
    "list without text": lambda: [Unshown()],
    "array": lambda: np.array([1, 2]),
    "array of texts": lambda: np.array(["t", "u"]),
    "list with an array": lambda: [np.array([1, 2])],
    "array of pyarrow": lambda: pa.array([1, 2]),
    "scalar of pyarrow": lambda: pa.scalar(5.5),
    "neither true nor false": lambda: pd.NA,
    "table": lambda: pd.DataFrame({"a": [1, 2]}),
    "raising": Raising,
    "list with a raising one": lambda: [Raising()],
    "mapping with a raising one": lambda: {"t": Raising()},
}

Call = Callable[["World", Any], object]


class World:
    """A log with topics, and those who use it."""

    def __init__(self) -> None:
        self.log = TxnLog.create("memory://odd")
        self.log.create_topic("t", NUMBERS)
        self.log.create_topic("k", "kafka")
        self.log.subscriptions.create("t", "s")
        self.producer = Producer(self.log, "x")
        self.producer.init()
        self.producer.begin()

    def consumer(self, **arguments: Any) -> Consumer:
        return Consumer(self.log, "g", **arguments)

    def assigned(self) -> Consumer:
        consumer = self.consumer()
        consumer.assign([("t", 0)])
        return consumer


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    made = World()
    yield made
    made.producer.close()
    made.log.close()


TOPICS: dict[str, Call] = {
    "read": lambda world, given: world.log.read(given),
    "dataset": lambda world, given: world.log.dataset(given),
    "snapshot read": lambda world, given: world.log.snapshot().read(given),
    "plan": lambda world, given: world.log.plan(given),
    "offsets": lambda world, given: world.log.offsets(given),
    "create_topic": lambda world, given: world.log.create_topic(given, NUMBERS),
    "create_topic again": lambda world, given: world.log.create_topic(given, NUMBERS, exist_ok=True),
    "alter_topic": lambda world, given: world.log.alter_topic(given, partitions=5),
    "read_values": lambda world, given: list(read_values(world.log, given)),
    "send": lambda world, given: world.producer.send(given, [{"n": 1}]),
    "send at once": lambda world, given: Producer(world.log).send(given, [{"n": 1}]),
    "subscribe": lambda world, given: world.consumer().subscribe([given]),
    "assign": lambda world, given: world.consumer().assign([(given, 0)]),
    "seek": lambda world, given: world.assigned().seek(given, 0, 0),
    "position": lambda world, given: world.assigned().position(given, 0),
    "Subscription": lambda world, given: Subscription(world.log, given, "s").receive(),
    "subscriptions.create": lambda world, given: world.log.subscriptions.create(given, "new"),
    "subscriptions.list": lambda world, given: world.log.subscriptions.list(given),
    "reset_offsets": lambda world, given: world.log.groups.reset_offsets(
        "g", given, to="earliest", create=True
    ),
}

OTHERS: dict[str, Call] = {
    "isolation": lambda world, given: world.log.read("t", isolation=given),
    "version_as_of": lambda world, given: world.log.read("t", version_as_of=given),
    "timestamp_as_of": lambda world, given: world.log.read("t", timestamp_as_of=given),
    "start": lambda world, given: world.log.read("t", start=given),
    "end": lambda world, given: world.log.read("t", end={0: given}),
    "columns": lambda world, given: world.log.read("t", columns=[given]),
    "columns after another": lambda world, given: world.log.read("t", columns=["n", given]),
    "columns itself": lambda world, given: world.log.read("t", columns=given),
    "columns of a dataset": lambda world, given: world.log.dataset("t", columns=[given]),
    "partitions": lambda world, given: world.log.read("t", partitions=[given]),
    "partitions itself": lambda world, given: world.log.read("t", partitions=given),
    "where": lambda world, given: world.log.read("t", where=given),
    "schema": lambda world, given: world.log.create_topic("new", given),
    "partitions of a topic": lambda world, given: world.log.create_topic("new", NUMBERS, partitions=given),
    "key_columns": lambda world, given: world.log.create_topic("new", NUMBERS, key_columns=[given]),
    "key_columns itself": lambda world, given: world.log.create_topic("new", NUMBERS, key_columns=given),
    "timestamp_column": lambda world, given: world.log.create_topic("new", NUMBERS, timestamp_column=given),
    "alter partitions": lambda world, given: world.log.alter_topic("t", partitions=given),
    "add_columns": lambda world, given: world.log.alter_topic("t", add_columns=given),
    "widen": lambda world, given: world.log.alter_topic("t", widen=given),
    "widen to": lambda world, given: world.log.alter_topic("t", widen={"n": given}),
    "maintain": lambda world, given: world.log.maintain(given),
    "outcome": lambda world, given: world.log.outcome(given, 0),
    "outcome epoch": lambda world, given: world.log.outcome("x", given),
    "commit_prepared": lambda world, given: world.log.commit_prepared(given),
    "history": lambda world, given: list(world.log.history(given)),
    "history start": lambda world, given: list(world.log.history(start=given)),
    "max timeout": lambda world, given: TxnLog.create("memory://new", max_transaction_timeout_ms=given),
    "Producer log": lambda _, given: Producer(given),
    "Consumer log": lambda _, given: Consumer(given),
    "Subscription log": lambda _, given: Subscription(given, "t", "s"),
    "read_values log": lambda _, given: list(read_values(given, "t")),
    "transactional_id": lambda world, given: Producer(world.log, given),
    "buffer": lambda world, given: Producer(world.log, "y", buffer=given),
    "batch_bytes": lambda world, given: Producer(world.log, "y", batch_bytes=given),
    "send data": lambda world, given: world.producer.send("t", given),
    "send row": lambda world, given: world.producer.send("t", [given]),
    "send partition": lambda world, given: world.producer.send("t", [{"n": 1}], partition=given),
    "headers": lambda world, given: world.producer.send("k", value=b"", headers=given),
    "header": lambda world, given: world.producer.send("k", value=b"", headers=[given]),
    "header value": lambda world, given: world.producer.send("k", value=b"", headers=[("h", [given])]),
    "timestamp": lambda world, given: world.producer.send("k", value=b"", timestamp=given),
    "key": lambda world, given: world.producer.send("k", key=[given], value=b""),  # type: ignore[arg-type]
    "group": lambda world, given: Consumer(world.log, given),
    "auto_offset_reset": lambda world, given: world.consumer(auto_offset_reset=given),
    "Consumer isolation": lambda world, given: world.consumer(isolation=given),
    "groups states itself": lambda world, given: world.log.groups.list(states=given),
    "transactions states itself": lambda world, given: world.log.transactions.list(states=given),
    "subscriptions start": lambda world, given: world.log.subscriptions.create("t", "new", start=given),
    "subscriptions seek": lambda world, given: world.log.subscriptions.seek("t", "s", given),
    "storage options": lambda _, given: TxnLog.open("memory://odd", storage_options=given),
    "enable_auto_commit": lambda world, given: world.consumer(enable_auto_commit=given),
    "enable_idempotence": lambda world, given: Producer(world.log, enable_idempotence=given),
    "poll timeout_ms": lambda world, given: world.assigned().poll(given),
    "poll max_records": lambda world, given: world.assigned().poll(0, given),
    "receive max_records": lambda world, given: Subscription(world.log, "t", "s").receive(given),
    "receive timeout_ms": lambda world, given: Subscription(world.log, "t", "s").receive(timeout_ms=given),
    "Subscription columns": lambda world, given: Subscription(world.log, "t", "s", columns=[given]).receive(),
    "open settings": lambda world, given: TxnLog.open(world.log.store, settings=given),
    "Consumer columns": lambda world, given: world.consumer(columns=[given]),
    "assign itself": lambda world, given: world.consumer().assign(given),
    "assign partition": lambda world, given: world.consumer().assign([("t", given)]),
    "seek offset": lambda world, given: world.assigned().seek("t", 0, given),
    "seek_to_beginning": lambda world, given: world.assigned().seek_to_beginning([given]),  # type: ignore[arg-type]
    "commit offsets": lambda world, given: world.assigned().commit({("t", 0): given}),
    "commit": lambda world, given: world.assigned().commit(given),
    "subscription": lambda world, given: Subscription(world.log, "t", given),
    "acknowledge": lambda world, given: Subscription(world.log, "t", "s").acknowledge(given),
    "reset to": lambda world, given: world.log.groups.reset_offsets("g", "t", to=given, create=True),
    "reset partitions": lambda world, given: world.log.groups.reset_offsets("g", "t", [given], to="earliest"),
    "groups states": lambda world, given: world.log.groups.list(states=[given]),
    "groups describe": lambda world, given: world.log.groups.describe(given),
    "transactions states": lambda world, given: world.log.transactions.list(states=[given]),
    "transactions producer_ids": lambda world, given: world.log.transactions.list(producer_ids=[given]),
    "transactions describe": lambda world, given: world.log.transactions.describe(given),
    "exist_ok": lambda world, given: world.log.create_topic("t", NUMBERS, exist_ok=given),
    "subscriptions exist_ok": lambda world, given: world.log.subscriptions.create("t", "s", exist_ok=given),
    "end_expired": lambda world, given: world.log.read("t", end_expired=given),
    "deep": lambda world, given: world.log.verify(deep=given),
    "reset dry_run": lambda world, given: world.log.groups.reset_offsets(
        "g", "t", to="earliest", create=True, dry_run=given
    ),
    "reset force": lambda world, given: world.log.groups.reset_offsets(
        "g", "t", to="earliest", create=True, force=given
    ),
    "reset create": lambda world, given: world.log.groups.reset_offsets(
        "h", "t", to="earliest", create=given, dry_run=True
    ),
    "delete dry_run": lambda world, given: world.log.groups.delete("g", dry_run=given),
    "delete force": lambda world, given: world.log.groups.delete("g", force=given),
    "abort": lambda world, given: world.log.transactions.abort(given),
    "abort prefix": lambda world, given: world.log.transactions.abort(prefix=given),
    "abort dry_run": lambda world, given: world.log.transactions.abort(prefix="none", dry_run=given),
    "abort start_offset": lambda world, given: world.log.transactions.abort(
        topic="t", partition=0, start_offset=given
    ),
    "abort_lingering restored": lambda world, given: world.log.transactions.abort_lingering(
        "w", 1, 0, restored=given
    ),
    "abort_lingering dry_run": lambda world, given: world.log.transactions.abort_lingering(
        "w", 1, 0, dry_run=given
    ),
    "force_terminate dry_run": lambda world, given: world.log.transactions.force_terminate(
        "x", dry_run=given
    ),
    "BulkAppend log": lambda _, given: BulkAppend(given),
    "BulkAppend settings": lambda world, given: BulkAppend(world.log, given),
    "force_terminate": lambda world, given: world.log.transactions.force_terminate(given),
}


@pytest.mark.parametrize("make", ODD.values(), ids=ODD)
@pytest.mark.parametrize("call", [*TOPICS.values(), *OTHERS.values()], ids=[*TOPICS, *OTHERS])
def test_what_is_odd_is_refused_in_words(world: World, call: Call, make: Callable[[], Any]) -> None:
    with pytest.raises(TxnLogError) as caught:
        call(world, make())
    assert len(str(caught.value)) < 3_000


@pytest.mark.parametrize("call", ["verify", "vacuum", "compact", "truncate"])
def test_a_progress_that_cannot_be_called_is_refused_before_anything_is_done(world: World, call: str) -> None:
    with pytest.raises(InvalidInputError, match="progress is 5, not a function") as caught:
        getattr(world.log, call)(progress=5)
    assert caught.value.kind == "invalid-argument"


class BytesPath:
    def __fspath__(self) -> bytes:
        return b"./nowhere"


LOCATIONS: dict[str, Callable[[], Any]] = {
    **ODD,
    "None": lambda: None,
    "path of bytes": BytesPath,
    "log": lambda: TxnLog,
}


@pytest.mark.parametrize("make", LOCATIONS.values(), ids=LOCATIONS)
@pytest.mark.parametrize("call", [TxnLog, TxnLog.open, TxnLog.create, TxnLog.open_or_create])
def test_what_is_no_location_is_named(call: Callable[[Any], object], make: Callable[[], Any]) -> None:
    with pytest.raises(TxnLogError) as caught:
        call(make())
    assert caught.value.kind == "invalid-location"
    assert "not a location" in str(caught.value)


@pytest.mark.parametrize("given", ["key=CANARY", ["CANARY"], b"CANARY", 5, {5: "CANARY"}, {("CANARY",): "x"}])
@pytest.mark.parametrize("location", ["s3://bucket/log", "memory://odd", "{tmp}"])
@pytest.mark.parametrize("call", [TxnLog.open, TxnLog.create, TxnLog.open_or_create])
def test_options_that_are_no_mapping_are_not_shown(
    call: Callable[..., object], location: str, given: Any, tmp_path: Path
) -> None:
    with pytest.raises(TxnLogError) as caught:
        call(location.format(tmp=tmp_path), storage_options=given)
    assert caught.value.kind == "invalid-storage-option"
    assert "CANARY" not in str(caught.value)
    assert "storage_options" in str(caught.value)


@pytest.mark.parametrize("make", ODD.values(), ids=ODD)
@pytest.mark.parametrize(("location", "name"), [("s3://bucket/log", "region"), ("{tmp}", "follow_symlinks")])
def test_values_of_options_are_text(
    location: str, name: str, make: Callable[[], Any], tmp_path: Path
) -> None:
    with pytest.raises(TxnLogError) as caught:
        TxnLog.open(location.format(tmp=tmp_path), storage_options={name: make()})
    assert caught.value.kind == "invalid-storage-option"
    assert name in str(caught.value)


SETTINGS = [
    (cls, field.name)
    for cls in (ConsumerSettings, ProducerSettings, CommitSettings)
    for field in dataclasses.fields(cls)
    if (cls, field.name) != (CommitSettings, "max_transaction_timeout_ms")  # the log's creation checks it
]


@pytest.mark.parametrize("make", ODD.values(), ids=ODD)
@pytest.mark.parametrize(("cls", "name"), SETTINGS, ids=[f"{cls.__name__}.{name}" for cls, name in SETTINGS])
def test_a_setting_of_another_type_is_named(
    cls: Callable[..., object], name: str, make: Callable[[], Any]
) -> None:
    given = [make()] if name == "columns" else make()
    with pytest.raises(InvalidInputError) as caught:
        cls(**{name: given})
    assert name.removesuffix("_id") in str(caught.value).replace(" ", "_")
    assert len(str(caught.value)) < 3_000


@pytest.mark.parametrize("value", [True, False, 1, 0, np.True_, np.False_])
def test_true_and_false_are_taken_as_numpy_and_integers_have_them(value: Any) -> None:
    assert ConsumerSettings(group="g", enable_auto_commit=value).enable_auto_commit == value
    assert ProducerSettings(enable_idempotence=value).enable_idempotence == value
    problem = "enable_auto_commit needs a group" if value else None
    if problem:
        with pytest.raises(InvalidInputError, match=problem):
            ConsumerSettings(enable_auto_commit=value)
    else:
        ConsumerSettings(enable_auto_commit=value)
        with pytest.raises(InvalidInputError, match="needs idempotence"):
            ProducerSettings(transactional_id="x", enable_idempotence=value)
