"""An argument that takes several values takes no endless ones: one clear error, and nothing was done."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pyarrow as pa
import pytest

from txnformat.arguments import ITEMS_MAX
from txnlog import Consumer, InvalidInputError, Producer, Subscription, TxnLog

NUMBERS = pa.schema([("n", pa.int64())])
DRAWN_MAX = ITEMS_MAX + 10


def endless(value: Callable[[int], Any]) -> Iterator[Any]:
    """Yield values for as long as a call that reads on could still be told from one that never ends."""
    for number in count():
        if number > DRAWN_MAX:
            raise AssertionError("the call reads on and on")
        yield value(number)


TEXTS: dict[str, Callable[[int], Any]] = {"the same": lambda _: "n", "distinct": lambda number: f"n{number}"}
NUMBERED: dict[str, Callable[[int], Any]] = {"the same": lambda _: 0, "distinct": lambda number: number}

Call = Callable[["World", Iterator[Any]], object]


class World:
    """A log with a topic, and those who use it."""

    def __init__(self) -> None:
        self.log = TxnLog.create("memory://endless")
        self.log.create_topic("t", NUMBERS)
        self.log.create_topic("k", "kafka")
        self.producer = Producer(self.log, "x")
        self.producer.init()
        self.producer.begin()

    def subscription(self, **arguments: Any) -> Subscription:
        if not self.log.subscriptions.list("t"):
            self.log.subscriptions.create("t", "s")
        return Subscription(self.log, "t", "s", **arguments)

    def consumer(self, **arguments: Any) -> Consumer:
        return Consumer(self.log, "g", **arguments)


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    made = World()
    yield made
    made.producer.close()
    made.log.close()


OF_TEXTS: dict[str, Call] = {
    "create_topic key_columns": lambda world, given: world.log.create_topic("a", NUMBERS, key_columns=given),  # type: ignore[arg-type]
    "read columns": lambda world, given: world.log.read("t", columns=given).read_all(),  # type: ignore[arg-type]
    "snapshot columns": lambda world, given: world.log.snapshot().read("t", columns=given).read_all(),  # type: ignore[arg-type]
    "dataset columns": lambda world, given: world.log.dataset("t", columns=given),  # type: ignore[arg-type]
    "Consumer columns": lambda world, given: world.consumer(columns=given),
    "Subscription columns": lambda world, given: world.subscription(columns=given),
    "subscribe": lambda world, given: world.consumer().subscribe(given),
    "groups states": lambda world, given: world.log.groups.list(states=given),
    "groups describe_all": lambda world, given: world.log.groups.describe_all(given),
    "transactions states": lambda world, given: world.log.transactions.list(states=given),
    "transactions describe_all": lambda world, given: world.log.transactions.describe_all(given),
    "maintain": lambda world, given: world.log.maintain(given),  # type: ignore[arg-type]
}

OF_NUMBERS: dict[str, Call] = {
    "read partitions": lambda world, given: world.log.read("t", partitions=given).read_all(),  # type: ignore[arg-type]
    "snapshot partitions": lambda world, given: world.log.snapshot().read("t", partitions=given).read_all(),  # type: ignore[arg-type]
    "plan partitions": lambda world, given: world.log.plan("t", partitions=given),  # type: ignore[arg-type]
    "reset partitions": lambda world, given: world.log.groups.reset_offsets(
        "g",
        "t",
        given,  # type: ignore[arg-type]
        to="earliest",
        create=True,
    ),
    "transactions producer_ids": lambda world, given: world.log.transactions.list(producer_ids=given),  # type: ignore[arg-type]
}

OF_OTHERS: dict[str, tuple[Call, Callable[[int], Any]]] = {
    "alter_topic add_columns": (
        lambda world, given: world.log.alter_topic("t", add_columns=given),
        lambda number: pa.field(f"c{number}", pa.int64()),
    ),
    "assign": (lambda world, given: world.consumer().assign(given), lambda number: ("t", number)),
    "assign the same": (lambda world, given: world.consumer().assign(given), lambda _: ("t", 0)),
    "headers": (
        lambda world, given: world.producer.send("k", value=b"", headers=given),  # type: ignore[arg-type]
        lambda number: (f"h{number}", b""),
    ),
    "headers of a row": (
        lambda world, given: world.producer.send("k", [{"value": b"", "headers": given}]),
        lambda number: (f"h{number}", b""),
    ),
    "send": (lambda world, given: world.producer.send("t", given), lambda number: {"n": number}),
    "acknowledge": (
        lambda world, given: world.subscription().acknowledge(given),
        lambda number: (0, number),
    ),
    "acknowledge_cumulative": (
        lambda world, given: world.subscription().acknowledge_cumulative(given),
        lambda number: (0, number),
    ),
    "negative_acknowledge": (
        lambda world, given: world.subscription().negative_acknowledge(given),
        lambda number: (0, number),
    ),
    "acknowledge in a transaction": (
        lambda world, given: world.producer.acknowledge(world.subscription(), given),
        lambda number: (0, number),
    ),
    "schema": (
        lambda world, given: world.log.create_topic("b", given),
        lambda number: pa.field(f"c{number}", pa.int64()),
    ),
}


def refused(world: World, call: Call, value: Callable[[int], Any]) -> None:
    with pytest.raises(InvalidInputError) as caught:
        call(world, endless(value))
    assert len(str(caught.value)) < 1_000


@pytest.mark.parametrize("value", TEXTS.values(), ids=TEXTS)
@pytest.mark.parametrize("call", OF_TEXTS.values(), ids=OF_TEXTS)
def test_no_end_of_texts(world: World, call: Call, value: Callable[[int], Any]) -> None:
    refused(world, call, value)


@pytest.mark.parametrize("value", NUMBERED.values(), ids=NUMBERED)
@pytest.mark.parametrize("call", OF_NUMBERS.values(), ids=OF_NUMBERS)
def test_no_end_of_numbers(world: World, call: Call, value: Callable[[int], Any]) -> None:
    refused(world, call, value)


@pytest.mark.parametrize(("call", "value"), OF_OTHERS.values(), ids=OF_OTHERS)
def test_no_end_of_others(world: World, call: Call, value: Callable[[int], Any]) -> None:
    refused(world, call, value)
