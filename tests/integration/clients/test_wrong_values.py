"""Every parameter of every public call with values that are none: each is refused as a TxnLogError, before
anything is done, and in a short message."""

from __future__ import annotations

import datetime
import inspect
import io
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from itertools import islice
from typing import Any

import pyarrow as pa
import pytest

import txnlog
from txnformat.errors import TxnLogError
from txnformat.store.memory import MemoryStore
from txnlog import Consumer, InvalidInputError, Producer, Subscription, TxnLog, read_values

SCHEMA = pa.schema([("id", pa.int64()), ("note", pa.string())])


class Thing:
    """Nothing that a call takes; no call may depend on how it looks."""

    def __repr__(self) -> str:
        return "thing " * 20_000


LONG = "a" * 100_000
WRONG: dict[str, tuple[Any, ...]] = {
    "int": ("x", b"x", [], {}, math.nan, 1.5, Thing(), LONG),
    "str": (1, b"x", [], ["t"], {}, math.nan, Thing()),
    "bool": ("x", 2, [], math.nan, Thing()),
}
"""By a parameter's type, what must be refused."""
ODD: tuple[Any, ...] = (
    None, 0, -1, 2**31, 2**63 - 1, 2**63, 2**64, -(2**63) - 1, 1.5, math.nan, math.inf, True, "", "x", LONG, "\0", "\ud800",
    b"", b"x", [], [[]], [1], ["x", "x"], [None], set(), {}, {"x": None}, {1: 1}, (), Thing(),
    datetime.timedelta(-1), datetime.timedelta.max, datetime.datetime.min, datetime.datetime.max,
)  # fmt: skip
"""Values that some parameters take: where one is refused, it is by an error of the library."""


def make() -> TxnLog:
    log = TxnLog.create(MemoryStore(name="wrong"))
    log.create_topic("t", SCHEMA)
    log.create_topic("k", "kafka")
    with Producer(log, "writer") as producer, producer.transaction():
        producer.send("t", [{"id": 1, "note": "a"}, {"id": 2, "note": None}])
    log.subscriptions.create("t", "s")
    with closing(Consumer(log, "g")) as consumer:
        consumer.subscribe(["t"])
        consumer.poll(0)
        consumer.commit()
    return log


def subscribed(log: TxnLog) -> Consumer:
    consumer = Consumer(log, "g2")
    consumer.subscribe(["t"])
    consumer.poll(0)
    return consumer


def producing(log: TxnLog) -> Producer:
    producer = Producer(log, linger_ms=60_000)
    producer.init()
    return producer


DAYS = datetime.timedelta(days=7)
LOG: dict[str, dict[str, Any]] = {
    "abandon_erasure": {"erasure_id": "x", "requested_by": "me"},
    "abort_prepared": {"token": "x"},
    "alter": {"truncate_older_than": DAYS},
    "alter_topic": {"name": "t"},
    "commit_prepared": {"token": "x"},
    "compact": {"dry_run": True},
    "create_topic": {"name": "u", "schema": SCHEMA},
    "dataset": {"topic": "t"},
    "delete_records": {"topic": "t", "offsets": 1, "dry_run": True},
    "delete_topic": {"name": "t", "dry_run": True},
    "erase": {"topic": "t", "where": "id = 1", "requested_by": "me", "dry_run": True},
    "erasures": {},
    "history": {},
    "maintain": {"dry_run": True},
    "offsets": {"topic": "t"},
    "outcome": {"transactional_id": "writer", "epoch": 0},
    "plan": {"topic": "t"},
    "published_tables": {},
    "read": {"topic": "t"},
    "rotate_key": {},
    "snapshot": {},
    "timeline": {},
    "topic_operation": {"name": "u", "schema": SCHEMA},
    "truncate": {"dry_run": True},
    "upgrade": {},
    "vacuum": {"dry_run": True},
    "verify": {},
}
TRANSACTIONS: dict[str, dict[str, Any]] = {
    "abort": {"transactional_id": "writer", "dry_run": True},
    "abort_lingering": {"prefix": "w", "parallelism": 1, "worker": 0, "dry_run": True},
    "describe": {"transactional_id": "writer"},
    "describe_all": {"transactional_ids": ["writer"]},
    "describe_producers": {"topic": "t", "partition": 0},
    "find_hanging": {},
    "force_terminate": {"transactional_id": "writer", "dry_run": True},
    "lingering": {"prefix": "w"},
    "list": {},
}
GROUPS: dict[str, dict[str, Any]] = {
    "delete": {"group": "g", "dry_run": True},
    "describe": {"group": "g"},
    "describe_all": {},
    "list": {},
    "reset_offsets": {"group": "g", "to": "earliest", "dry_run": True},
}
SUBSCRIPTIONS: dict[str, dict[str, Any]] = {
    "create": {"topic": "t", "name": "new"},
    "delete": {"topic": "t", "name": "s"},
    "describe": {"topic": "t", "name": "s"},
    "list": {},
    "seek": {"topic": "t", "name": "s", "to": "earliest"},
}
PRODUCER: dict[str, dict[str, Any]] = {
    "acknowledge": {"subscription": None, "records": []},
    "acknowledge_cumulative": {"subscription": None, "record": []},
    "send": {"topic": "t", "data": [{"id": 3, "note": "b"}]},
    "send_file": {"topic": "t", "file": io.BytesIO(b"no Parquet")},
    "send_offsets": {"group": "g", "offsets": {}},
}
CONSUMER: dict[str, dict[str, Any]] = {
    "assign": {"topic_partitions": [("t", 0)]},
    "batches": {"max_records": 1},
    "commit": {"offsets": {("t", 0): 1}},
    "committed": {"topic": "t", "partition": 0},
    "offsets_for_times": {"times": {("t", 0): "2026-01-01"}},
    "poll": {"timeout_ms": 0},
    "poll_dicts": {"timeout_ms": 0},
    "position": {"topic": "t", "partition": 0},
    "seek": {"topic": "t", "partition": 0, "offset": 0},
    "seek_to_time": {"when": "2026-01-01"},
    "subscribe": {"topics": ["t"]},
}
SUBSCRIPTION: dict[str, dict[str, Any]] = {
    "acknowledge": {"records": []},
    "acknowledge_cumulative": {"record": []},
    "negative_acknowledge": {"records": []},
    "receive": {"timeout_ms": 0},
    "receive_dicts": {"timeout_ms": 0},
    "seek": {"offset": "earliest"},
}
LEFT_OUT = {
    "log.create", "log.open", "log.open_or_create",  # where a log is: tests of the stores
    "log.publish",  # needs a log on disk
    "consumer.pause", "consumer.resume", "consumer.seek_to_beginning", "consumer.seek_to_end",  # any number of names
    "consumer.group_offsets", "consumer.offsets_committed",  # what producers call
    "subscription.acks", "subscription.transaction_ended", "subscription.transaction_takes",
}  # fmt: skip

Call = Callable[..., Any]
NAMESPACES: dict[str, tuple[Mapping[str, dict[str, Any]], Callable[[TxnLog], Any]]] = {
    "log": (LOG, lambda log: log),
    "transactions": (TRANSACTIONS, lambda log: log.transactions),
    "groups": (GROUPS, lambda log: log.groups),
    "subscriptions": (SUBSCRIPTIONS, lambda log: log.subscriptions),
    "producer": (PRODUCER, producing),
    "consumer": (CONSUMER, subscribed),
    "subscription": (SUBSCRIPTION, lambda log: Subscription(log, "t", "s")),
}
CLASSES: dict[str, tuple[Any, dict[str, Any]]] = {
    "Producer": (Producer, {}),
    "Consumer": (Consumer, {}),
    "Subscription": (Subscription, {"topic": "t", "name": "s"}),
}


def _parameters(call: Call) -> list[inspect.Parameter]:
    varying = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [
        one
        for one in inspect.signature(call).parameters.values()
        if one.kind not in varying and one.name not in ("self", "log")
    ]


def _public(thing: Any) -> dict[str, Call]:
    found = {name: getattr(thing, name) for name in dir(thing) if not name.startswith("_")}
    return {name: call for name, call in found.items() if inspect.isroutine(call)}


def _cases() -> Iterator[tuple[str, str, str]]:
    for space, (calls, _) in NAMESPACES.items():
        thing = {"log": TxnLog, "transactions": txnlog.Transactions, "groups": txnlog.Groups,
                 "subscriptions": txnlog.Subscriptions, "producer": Producer, "consumer": Consumer,
                 "subscription": Subscription}[space]  # fmt: skip
        for name in calls:
            for one in _parameters(getattr(thing, name)):
                if f"{space}.{name}-{one.name}" != "log.plan-state":  # a state of the log itself
                    yield f"{space}.{name}", one.name, str(one.annotation)
    for name, (thing, _) in CLASSES.items():
        for one in _parameters(thing):
            yield name, one.name, str(one.annotation)


CASES = list(_cases())


def _ready(name: str, log: TxnLog) -> tuple[Call, dict[str, Any], Any]:
    if name in CLASSES:
        cls, arguments = CLASSES[name]
        return (lambda **more: cls(log, **more)), arguments, None
    space, _, call = name.partition(".")
    calls, on = NAMESPACES[space]
    thing = on(log)
    return getattr(thing, call), calls[call], thing


def _done(call: Call, arguments: dict[str, Any]) -> TxnLogError | None:
    """Return the error of a call, or None; any other error is one of the test."""
    try:
        answer = call(**arguments)
        if isinstance(answer, Iterator) and not isinstance(answer, pa.RecordBatchReader):
            list(islice(answer, 1))
        if isinstance(answer, Producer | Consumer | Subscription):
            with closing(answer):
                _use(answer)
    except TxnLogError as error:
        return error
    return None


def _use(thing: Producer | Consumer | Subscription) -> None:
    match thing:
        case Producer():
            with thing:
                thing.send("k", [{"value": b"x"}])
        case Consumer():
            thing.subscribe(["t"])
            thing.seek_to_beginning()
            thing.poll(0)
        case Subscription():
            thing.receive(timeout_ms=0)


def _wrong(annotation: str) -> tuple[Any, ...]:
    first, _, rest = annotation.strip("'").partition(" | ")
    wrong = WRONG.get(first, ())
    return wrong if rest in ("", "None") else ()


@pytest.mark.parametrize(
    ("name", "parameter", "annotation"), CASES, ids=[f"{one[0]}-{one[1]}" for one in CASES]
)
def test_a_wrong_value_is_refused_as_one(name: str, parameter: str, annotation: str) -> None:
    log = make()
    call, arguments, thing = _ready(name, log)
    for value in _wrong(annotation):
        error = _done(call, {**arguments, parameter: value})
        assert error is not None, f"{name} takes {parameter}={value!r:.80}"
        assert isinstance(error, InvalidInputError | txnlog.NotFoundError), (
            f"{parameter}={value!r:.80}: {error!r:.300}"
        )
        assert len(str(error)) < 2_000, f"{parameter}={value!r:.80} is told in {len(str(error))} characters"
    for value in ODD:
        if (parameter, type(value)) in WAITS and value not in (None, 0, -1, True):
            continue
        error = _done(call, {**arguments, parameter: value})
        assert error is None or len(str(error)) < 2_000, f"{parameter}={value!r:.80}"
    if hasattr(thing, "close") and name.partition(".")[0] != "log":
        thing.close()


WAITS = {("timeout_ms", int), ("timeout_ms", bool)}
"""What makes a call wait."""


@pytest.mark.parametrize("space", NAMESPACES)
def test_every_call_with_parameters_is_here(space: str) -> None:
    calls, on = NAMESPACES[space]
    found = {name for name, call in _public(on(make())).items() if inspect.signature(call).parameters}
    assert found == set(calls) | {name.partition(".")[2] for name in LEFT_OUT if name.startswith(f"{space}.")}


@pytest.mark.parametrize("value", ["x", None, [], -1, math.nan, 1.5, 2**64])
def test_wrong_bounds_of_read_values_are_refused(value: Any) -> None:
    with pytest.raises(InvalidInputError):
        list(read_values(make(), "k", held_bytes_max=value))


@pytest.mark.parametrize("columns", [["id", "id"], [], set(), {"id"}, {"id": 1}, "id", 1, [1]])
def test_wrong_columns_are_refused_by_every_reader_that_goes_on(columns: Any) -> None:
    log = make()
    for make_reader in (
        lambda: Subscription(log, "t", "s", columns=columns),
        lambda: Consumer(log, columns=columns),
    ):
        with pytest.raises(InvalidInputError):
            make_reader()


def test_columns_of_a_subscription_may_come_from_a_generator() -> None:
    with closing(Subscription(make(), "t", "s", columns=(name for name in ["note"]))) as one:  # type: ignore[arg-type]
        batch = one.receive(timeout_ms=0)
    assert batch is not None
    assert batch.schema.names == ["note", "_partition", "_offset"]


@pytest.mark.parametrize("value", [-1, math.nan, 1.5, 2**64, [], "x"])
def test_a_time_after_which_a_transaction_hangs_is_a_number(value: Any) -> None:
    with pytest.raises(InvalidInputError):
        make().transactions.find_hanging(max_transaction_timeout_ms=value)
