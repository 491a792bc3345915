"""Seeded histories of a topic whose columns come, grow, get other names, go, and come again under a name that
was free, beside an oracle that keeps rows by place.

The oracle knows nothing of files and versions: a row is a dict of place to value, and the topic is a list of
(place, name, type).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from txnlog import ConflictError, InvalidInputError, Producer, TxnLog
from txnlog_testing.stores.counting import CountingStore

__all__ = ["Column", "RenamedLog"]

WIDER = {"int8": pa.int16(), "int16": pa.int32(), "int32": pa.int64()}
NAMES = ("note", "a", "b", "c", "d", "Kind")
"""Few names for many columns: most of them are used again."""
PARTITIONS = 2
Row = dict[int, Any]


@dataclass(frozen=True)
class Column:
    """A column of the topic as the oracle has it."""

    place: int
    name: str
    type: pa.DataType

    @property
    def values(self) -> tuple[Any, ...]:
        return ("x", "y", "z") if self.type == pa.string() else (-3, 0, 1, 2, 77)


@dataclass
class Outcome:
    """What has become of a transaction: None: it is open."""

    is_committed: bool | None = None


@dataclass
class Begun:
    """A transaction that is open: its rows have offsets, or are staged until it ends."""

    producer: Producer
    has_offsets: bool
    outcome: Outcome
    pending: list[list[Row]]
    """Rows that have no offsets yet."""


class RenamedLog:
    """A log with the topic ``t``; each :meth:`step` does one thing to it, drawn from the seed."""

    def __init__(self, store: CountingStore | Any, seed: int, *, embedding: bool) -> None:
        self.random = random.Random(seed)
        self.log = TxnLog.create(store, embedding=embedding)
        self.columns = [
            Column(0, "k", pa.int64()),
            Column(1, "note", pa.string()),
            Column(2, "a", pa.int8()),
            Column(3, "b", pa.int16()),
        ]
        self.next_place = 4
        self.log.create_topic("t", self.schema, partitions=PARTITIONS, key_columns=["k"])
        self.count = 0
        self.log_rows: list[list[tuple[Row, Outcome]]] = [[] for _ in range(PARTITIONS)]
        """Rows by partition, in the order of the log, and what has become of their transactions."""
        self.producer = Producer(self.log, "one", buffer="auto", linger_ms=3_600_000)
        self.producer.init()
        self.other = TxnLog.open(store)
        self.begun: Begun | None = None
        self.snapshots: list[tuple[Any, list[Column], list[list[Row]]]] = []
        """Snapshots that were opened, with the columns and rows of then."""
        self.done: dict[str, int] = {}

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([(one.name, one.type) for one in self.columns])

    @property
    def rows(self) -> list[list[Row]]:
        """Rows that can be read by partition: committed, and before the first of an open transaction."""
        found: list[list[Row]] = []
        for part in self.log_rows:
            found.append([])
            for row, outcome in part:
                if outcome.is_committed is None:
                    break
                if outcome.is_committed:
                    found[-1].append(row)
        return found

    def close(self) -> None:
        if self.begun is not None:
            self.begun.producer.abort()
            self.begun.producer.close()
        self.producer.close()
        self.log.close()
        self.other.close()

    # Rows

    def _made(self, columns: list[Column]) -> Row:
        self.count += 1
        row: Row = {}
        for one in columns:
            if one.place == 0:
                row[0] = self.count
            elif self.random.random() < 0.8:
                row[one.place] = self.random.choice(one.values)
        return row

    def _send(self, producer: Producer, pending: list[list[Row]]) -> None:
        """Send rows under the names that the producer's process knows."""
        partition = self.random.randrange(PARTITIONS)
        rows = [self._made(self.columns) for _ in range(self.random.randint(1, 4))]
        named = [{one.name: row.get(one.place) for one in self.columns} for row in rows]
        if self.random.random() < 0.3:
            producer.send("t", pa.Table.from_pylist(named, self.schema), partition=partition)
        else:
            producer.send("t", named, partition=partition)
        pending[partition] += rows

    # Steps

    def step(self) -> None:
        weights: dict[Callable[[], object], int] = {
            self.send: 8, self.begin: 3, self.grow_begun: 2, self.end: 4, self.change: 9, self.seal: 3, self.compact: 2, self.pin: 1,
        }  # fmt: skip
        chosen = self.random.choices([*weights], [*weights.values()])[0]
        self.done[chosen.__name__] = self.done.get(chosen.__name__, 0) + 1
        chosen()

    def send(self) -> None:
        pending: list[list[Row]] = [[] for _ in range(PARTITIONS)]
        with self.producer.transaction():
            self._send(self.producer, pending)
            if (
                self.random.random() < 0.4
            ):  # rows wait in the buffer under names that are not those of the commit
                self.change()
            if self.random.random() < 0.4:
                self.log.refresh()
                self._send(self.producer, pending)
        self._place(pending, Outcome(True))

    def _place(self, pending: list[list[Row]], outcome: Outcome) -> None:
        """Give rows their offsets."""
        for number, rows in enumerate(pending):
            self.log_rows[number] += [(row, outcome) for row in rows]
            rows.clear()

    def begin(self) -> None:
        """Begin a transaction whose rows are staged, or have offsets, while the topic changes."""
        if self.begun is None:
            kind = self.random.choice(("inline", "deferred"))
            producer = Producer(self.log, kind, buffer=kind, linger_ms=3_600_000)
            producer.init()
            producer.begin()
            self.begun = Begun(producer, kind == "inline", Outcome(), [[] for _ in range(PARTITIONS)])
        self.grow_begun()

    def grow_begun(self) -> None:
        if self.begun is not None:
            begun = self.begun
            self._send(begun.producer, begun.pending)
            if self.random.random() < 0.7:
                begun.producer.flush()
                if begun.has_offsets:
                    self._place(begun.pending, begun.outcome)

    def end(self) -> None:
        if self.begun is None:
            return
        begun, self.begun = self.begun, None
        if self.random.random() < 0.7:
            begun.producer.commit()
            self._place(begun.pending, begun.outcome)
            begun.outcome.is_committed = True
        else:
            begun.producer.abort()
            begun.outcome.is_committed = False
        begun.producer.close()

    def seal(self) -> None:
        self.log.maintain("seal")

    def compact(self) -> None:
        self.log.compact("t", min_lag_ms=0)

    def pin(self) -> None:
        """Open a snapshot: it has what is committed, also behind the first of an open transaction."""
        rows = [[row for row, outcome in part if outcome.is_committed] for part in self.log_rows]
        self.snapshots.append((self.log.snapshot(), list(self.columns), rows))

    def change(self) -> None:
        """Rename, drop, add or widen columns, several at once perhaps, by this process or another one."""
        change: dict[str, Any] = {}
        columns = list(self.columns)
        free = [name for name in NAMES if name.lower() not in {one.name.lower() for one in columns}]
        self.random.shuffle(free)
        for kind in self.random.sample(
            ["rename", "drop", "add", "widen"], self.random.choice((1, 1, 1, 2, 3))
        ):
            taken = {*change.get("rename", {}), *change.get("drop", []), *change.get("widen", {})}
            known = [one for one in self.columns if one.name not in taken]
            own = [one for one in known if one.place]
            if kind == "rename" and free and known:
                one, name = self.random.choice(known), free.pop()
                change["rename"] = {one.name: name}
                columns = [Column(one.place, name, one.type) if each == one else each for each in columns]
            elif kind == "drop" and len(own) > 1:
                one = self.random.choice(own)
                change["drop"] = [one.name]
                columns = [each for each in columns if each != one]
            elif kind == "add" and free:
                name, type_ = free.pop(), self.random.choice((pa.int8(), pa.int32(), pa.string()))
                change["add_columns"] = [pa.field(name, type_)]
                columns.append(Column(self.next_place, name, type_))
            elif kind == "widen":
                narrow = [one for one in own if str(one.type) in WIDER]
                if narrow:
                    one = self.random.choice(narrow)
                    change["widen"] = {one.name: WIDER[str(one.type)]}
                    columns = [
                        Column(one.place, one.name, WIDER[str(one.type)]) if each == one else each
                        for each in columns
                    ]
        if not change:
            return
        (self.log if self.random.random() < 0.5 else self.other).alter_topic("t", **change)
        self.log.refresh()
        self.next_place += "add_columns" in change
        self.columns = columns

    # Reading

    def expected(
        self, columns: list[Column], rows: list[list[Row]], keep: Callable[[Row], bool] = lambda row: True
    ) -> list[dict[str, Any]]:
        return [
            {one.name: row.get(one.place) for one in columns} for part in rows for row in part if keep(row)
        ]

    def condition(self) -> tuple[str, Callable[[Row], bool]]:
        """Return a condition on a column of now, and what it means."""
        one = self.random.choice(self.columns)
        value = self.random.choice(one.values)
        shown = repr(value)

        def at(row: Row) -> Any:
            return row.get(one.place)

        return self.random.choice(
            [
                (f"{one.name} IS NULL", lambda row: at(row) is None),
                (f"{one.name} IS NOT NULL", lambda row: at(row) is not None),
                (f"{one.name} = {shown}", lambda row: at(row) == value),
                (f"{one.name} >= {shown}", lambda row: at(row) is not None and at(row) >= value),
                (f"{one.name} IN ({shown})", lambda row: at(row) == value),
            ]
        )

    def check(self) -> None:
        """Compare each reader with the oracle."""
        columns = self.random.sample(self.columns, self.random.randint(1, len(self.columns)))
        names = [one.name for one in columns]
        wanted = self.expected(columns, self.rows)
        fresh = TxnLog.open(self.log.store)
        condition, keep = self.condition()
        for log in (self.log, fresh):
            log.refresh()
            assert log.read("t").schema.equals(self.schema)
            assert log.read("t", columns=names).read_all().to_pylist() == wanted, names
            found = log.read("t", columns=names, where=condition).read_all().to_pylist()
            assert found == self.expected(columns, self.rows, keep), condition
        assert fresh.dataset("t", columns=names).to_table().to_pylist() == wanted
        table = fresh.dataset("t", where=condition).to_table()
        assert table.to_pylist() == self.expected(self.columns, self.rows, keep), condition
        fresh.close()

    def check_snapshots(self) -> int:
        """Read the snapshots that were opened: each shows the columns and rows of then, or says that a column
        is gone. Return how many said that."""
        refused = 0
        for snapshot, columns, rows in self.snapshots:
            for some in (columns, [columns[-1]], [columns[0]]):
                names = [one.name for one in some]
                left = {one.place for one in self.columns}
                try:
                    found = snapshot.read("t", columns=names).read_all().to_pylist()
                except ConflictError as error:
                    found = [error.kind, error.values["column"]]
                    refused += 1
                gone = [["column-dropped", one.name] for one in some if one.place not in left]
                assert found == self.expected(some, rows) or found in gone, names
        return refused

    def check_old_names(self) -> None:
        """A row with a name that the topic does not have any more is refused."""
        row = self._made(self.columns)
        named = {one.name: row.get(one.place) for one in self.columns} | {"nowhere": 1}
        self.producer.begin()
        with pytest.raises(InvalidInputError) as caught:
            self.producer.send("t", [named])
        assert caught.value.kind == "schema-mismatch"
        self.producer.abort()
