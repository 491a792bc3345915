"""Logs with something of everything, written through the public calls by a seeded history."""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from txnlog import PreparedTransaction, Producer, TxnLog

__all__ = ["RandomLog"]

ORDERS = pa.schema(
    [("id", pa.int32()), ("customer", pa.string()), ("amount", pa.decimal128(10, 2)), ("ratio", pa.float32())]
)
WIDE = pa.schema(
    [
        ("yes", pa.bool_()), ("i8", pa.int8()), ("i16", pa.int16()), ("f32", pa.float32()), ("f64", pa.float64()), ("text", pa.string()),
        ("blob", pa.binary()), ("day", pa.date32()), ("moment", pa.timestamp("us", "UTC")), ("local", pa.timestamp("us")),
        ("hour", pa.time64("us")), ("took", pa.duration("us")), ("price", pa.decimal128(38, 5)), ("tags", pa.list_(pa.string())),
        ("counts", pa.map_(pa.string(), pa.list_(pa.int64()))),
        ("place", pa.struct([("lat", pa.float64()), ("hops", pa.list_(pa.struct([("n", pa.int32())])))])),
    ]
)  # fmt: skip
UTC = datetime.UTC


class RandomLog:
    """A log at `root`; each `step` does one thing to it, drawn from the seed."""

    def __init__(self, root: Path, seed: int, *, embedding: bool) -> None:
        self.random = random.Random(seed)
        self.log = TxnLog.create(root, embedding=embedding, max_transaction_timeout_ms=86_400_000)
        self.count = 0
        self.names: dict[str, str | None] = {}
        """What became of names of columns of the topic wide; None: the column was dropped."""
        compact = {"cleanup.policy": "compact", "tombstone.column": "value"}
        self.log.create_topic("orders", ORDERS, partitions=2, key_columns=["customer"])
        self.log.create_topic("wide", WIDE, timestamp_column="local", settings={"embed": "false"})
        self.log.create_topic(
            "keys",
            pa.schema([("key", pa.string()), ("value", pa.int32())]),
            partitions=2,
            key_columns=["key"],
            settings=compact,
        )
        self.log.create_topic("brief", pa.schema([("n", pa.int64())]))
        self.plain = self._producer()
        self.bulk = self._producer(enable_idempotence=False)
        self.auto = self._producer("auto")
        self.begun: dict[str, Producer] = {}
        self.prepared: list[PreparedTransaction] = []

    def _producer(self, name: str | None = None, buffer: str = "auto", **settings: Any) -> Producer:
        producer = Producer(
            self.log, name, buffer=buffer, linger_ms=3_600_000, transaction_timeout_ms=86_400_000, **settings
        )
        producer.init()
        return producer

    def close(self) -> None:
        self.log.close()

    # Values

    def _maybe(self, value: Callable[[], Any]) -> Any:
        return None if self.random.random() < 0.15 else value()

    def _orders(self) -> Iterator[dict[str, Any]]:
        for _ in range(self.random.randint(1, 6)):
            self.count += 1
            customer = self._maybe(lambda: f"c{self.random.randrange(5)}")
            ratio = self.random.choice((0.5, -0.0, float("nan"), float("inf")))
            yield {"id": self.count, "customer": customer, "amount": Decimal(self.count) / 4, "ratio": ratio}

    def _keys(self) -> Iterator[dict[str, Any]]:
        for _ in range(self.random.randint(1, 4)):
            yield {
                "key": f"k{self.random.randrange(6)}",
                "value": self._maybe(lambda: self.random.randrange(100)),
            }

    def _brief(self) -> Iterator[dict[str, Any]]:
        yield {"n": self.random.randrange(-(2**63), 2**63)}

    def _wide(self) -> Iterator[dict[str, Any]]:
        draw = self.random
        micros = datetime.timedelta(microseconds=draw.randrange(-(10**15), 10**15))
        values: dict[str, Callable[[], Any]] = {
            "yes": lambda: draw.random() < 0.5,
            "i8": lambda: draw.choice((-128, 127, 0)),
            "i16": lambda: draw.randrange(-(2**15), 2**15),
            "f32": lambda: draw.choice((1.5, float("nan"), -0.0, float("-inf"))),
            "f64": lambda: draw.choice((draw.random(), float("nan"), -0.0, 5e-324)),
            "text": lambda: draw.choice(("", "ü\0\n", "x" * 50, "日本")),
            "blob": lambda: draw.randbytes(draw.randrange(8)),
            "day": lambda: datetime.date(1, 1, 1) + datetime.timedelta(days=draw.randrange(3_000_000)),
            "moment": lambda: datetime.datetime(1970, 1, 1, tzinfo=UTC) + micros,
            "local": lambda: datetime.datetime(1970, 1, 1) - micros,
            "hour": lambda: datetime.time(23, 59, 59, draw.randrange(10**6)),
            "took": lambda: micros,
            "price": lambda: Decimal(draw.randrange(-(10**38) + 1, 10**38)).scaleb(-5),
            "tags": lambda: [self._maybe(lambda: "t") for _ in range(draw.randrange(3))],
            "counts": lambda: [(f"m{n}", self._maybe(lambda: [1, None])) for n in range(draw.randrange(3))],
            "place": lambda: {
                "lat": self._maybe(draw.random),
                "hops": self._maybe(lambda: [None, {"n": 1}, {"n": None}]),
            },
        }
        for _ in range(draw.randint(1, 3)):
            row = {self.names.get(name, name): self._maybe(value) for name, value in values.items()}
            yield {name: value for name, value in row.items() if name is not None}

    def _send(self, producer: Producer, *, sure: str | None = None) -> None:
        rows = {"orders": self._orders, "wide": self._wide, "keys": self._keys, "brief": self._brief}
        names = {sure} if sure else set(self.random.sample([*rows], self.random.randint(1, 3)))
        for name in sorted(names & set(self.log.topics())):
            producer.send(name, list(rows[name]()))

    # Steps

    def step(self) -> None:
        weights = {
            self.one_transaction: 4, self.flush_plain: 2, self.flush_bulk: 2, self.grow: 6, self.end: 3, self.open_anew: 1, self.prepare: 1,
            self.decide: 1, self.seal: 1, self.compact: 1, self.trim: 1,
        }  # fmt: skip
        self.random.choices([*weights], [*weights.values()])[0]()

    def one_transaction(self) -> None:
        with self.auto.transaction():
            self._send(self.auto)
            if self.random.random() < 0.3:
                self._send(self.auto)

    def flush_plain(self) -> None:
        self._send(self.plain)
        self.plain.flush()

    def flush_bulk(self) -> None:
        self._send(self.bulk)
        self.bulk.flush()

    def grow(self) -> None:
        """Append or stage something in a transaction, which stays open."""
        name = self.random.choice(("inline-1", "inline-2", "deferred-1"))
        if name not in self.begun:
            self.begun[name] = self._producer(name, name.split("-")[0])
            self.begun[name].begin()
        self._send(self.begun[name])
        self.begun[name].flush()

    def end(self) -> None:
        if self.begun:
            producer = self.begun.pop(self.random.choice(sorted(self.begun)))
            self.random.choice((producer.commit, producer.commit, producer.abort))()

    def open_anew(self) -> None:
        """Open a producer under an id in use: what it had open is aborted."""
        if self.begun:
            name = self.random.choice(sorted(self.begun))
            self.begun[name] = self._producer(name, name.split("-")[0])
            self.begun[name].begin()

    def prepare(self) -> None:
        self.count += 1
        producer = self._producer(f"prepared-{self.count}", self.random.choice(("inline", "deferred")))
        producer.begin()
        self._send(producer)
        self.prepared.append(producer.prepare())

    def decide(self) -> None:
        if self.prepared:
            token = self.prepared.pop(self.random.randrange(len(self.prepared)))
            self.random.choice((self.log.commit_prepared, self.log.abort_prepared))(token)

    def seal(self) -> None:
        self.log.maintain("seal")

    def compact(self) -> None:
        self.log.compact(min_lag_ms=0)

    def trim(self) -> None:
        topic = self.random.choice(("orders", "keys", "wide"))
        parts = self.log.offsets(topic)
        self.log.delete_records(
            topic, {part.partition: self.random.randint(0, part.last_stable_offset) // 2 for part in parts}
        )

    def grow_topics(self) -> None:
        """More partitions, further columns and wider types; records of the older schema stay."""
        self.log.alter_topic(
            "orders", partitions=3, add_columns=[pa.field("note", pa.list_(pa.string()))],
            widen={"id": pa.int64(), "amount": pa.decimal128(20, 4), "ratio": pa.float64()},
        )  # fmt: skip
        self.log.alter_topic("brief", add_columns=[pa.field("later", pa.struct([("x", pa.int8())]))])

    def rename_columns(self) -> None:
        """Other names, also of the time; a column that goes, its name for another one, and a new one under a
        name that was free."""
        self.log.alter_topic("wide", rename={"local": "at", "text": "words"}, drop=["i8"])
        self.log.alter_topic("wide", rename={"i16": "i8"}, add_columns=[pa.field("text", pa.int64())])
        self.names = {"local": "at", "text": "words", "i8": None, "i16": "i8"}

    def delete_brief(self, *, again: bool) -> None:
        self.log.delete_topic("brief", force=[token.transactional_id for token in self.prepared])
        self.begun = {}
        if again:
            self.log.create_topic("brief", pa.schema([("n", pa.int64())]))

    def spill(self) -> None:
        """Hold a partition by an open transaction, append 300 batches behind it in one step, and spill
        them.
        """
        holder = self._producer("inline-holder", "inline")
        holder.begin()
        holder.send("orders", list(self._orders()), partition=0)
        holder.flush()
        many = self._producer("many", batch_bytes=1)
        with many.transaction():
            for _ in range(300):
                many.send("orders", list(self._orders()), partition=0)
        self.log.maintain("seal")
        self.begun["inline-holder"] = holder

    def end_held(self) -> None:
        """Commit what held the partition: what was spilled can be read, from the spill."""
        self.begun.pop("inline-holder").commit()

    def write_every_kind(self) -> None:
        """Leave something to read in every kind of object, and something that nothing reads."""
        deferred, inline = self._producer("deferred-1", "deferred"), self._producer("inline-1", "inline")

        def append(producer: Producer, end: Callable[[], Any]) -> None:
            producer.begin()
            for topic in self.log.topics():
                self._send(producer, sure=topic)
            producer.flush()
            end()

        for producer, end in ((inline, inline.commit), (inline, inline.abort), (deferred, deferred.commit)):
            append(producer, end)
        self.seal()
        self.compact()  # a .runs, and segment lists
        self.grow_topics()
        for producer, end in ((inline, inline.commit), (inline, inline.abort), (deferred, deferred.commit)):
            append(producer, end)
        self.seal()  # an .index and a .txnindex
        self.spill()
        for producer, end in ((inline, inline.commit), (inline, inline.abort), (deferred, deferred.commit)):
            append(producer, end)
        self.end_held()
        self.bulk.send("wide", list(self._wide()))
        self.bulk.flush()
        self.auto.begin()
        self._send(self.auto, sure="brief")
        self.auto.commit()
        self.bulk.send(
            "brief", [{"n": n, "later": None} for n in range(3000)]
        )  # an entry that is compressed, or a file
        self.bulk.flush()
