"""A topic that grows in any way reads as a list of records would: nulls before a column came, values
unchanged."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from txnformat.store.memory import MemoryStore
from txnlog import Producer, TxnLog
from writers.partitioner import encode_keys, partition_for_keys

WIDTHS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
TYPES = {"int8": pa.int8(), "int16": pa.int16(), "int32": pa.int32(), "int64": pa.int64()}

steps = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(1, 5), st.sampled_from(["flush", "keep"])),
        st.tuples(st.just("add"), st.sampled_from(sorted(WIDTHS)), st.sampled_from(["mine", "other"])),
        st.tuples(st.just("widen"), st.integers(0, 9), st.sampled_from(["mine", "other"])),
        st.tuples(st.just("grow"), st.integers(1, 3), st.sampled_from(["mine", "other"])),
        st.tuples(st.just("end"), st.booleans(), st.just("")),
    ),
    min_size=3,
    max_size=25,
)
"""What happens to a log: sends, ends of transactions, and changes by the producer's process or by another
one."""


class Model:
    """The topic as plain Python."""

    def __init__(self) -> None:
        self.types = {"k": "int64", "v": "int8"}
        self.partitions = 1
        self.committed: list[dict[str, Any]] = []
        self.pending: list[dict[str, Any]] = []

    def change(self, what: str, value: Any) -> dict[str, Any] | None:
        """Return the arguments of a change that is possible, and make it."""
        if what == "grow":
            self.partitions += value
            return {"partitions": self.partitions}
        if what == "add":
            name = f"c{len(self.types)}"
            self.types[name] = value
            return {"add_columns": [pa.field(name, TYPES[value])]}
        names = [name for name in self.types if name != "k" and self.types[name] != "int64"]
        if not names:
            return None
        name = names[value % len(names)]
        wider = next(kind for kind in WIDTHS if WIDTHS[kind] > WIDTHS[self.types[name]])
        self.types[name] = wider
        return {"widen": {name: TYPES[wider]}}


def by_value(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple((value is None, value) for value in row.values())


@settings(max_examples=40)
@given(steps, st.sampled_from(["auto", "inline"]), st.sampled_from([1, 2**20]))
def test_any_way_of_growing_reads_as_a_list_of_records(path: Any, buffer: str, batch_bytes: int) -> None:
    mine = TxnLog.create(MemoryStore())
    mine.create_topic("t", pa.schema([("k", pa.int64()), ("v", pa.int8())]), key_columns=["k"])
    other = TxnLog.open(mine.store)
    model, number = Model(), 0
    known = dict(model.types)  # what the producer's process has seen of the topic
    producer = Producer(mine, "p", buffer=buffer, batch_bytes=batch_bytes)
    producer.init()
    producer.begin()
    for what, value, how in [*path, ("end", True, "")]:
        if what == "send":
            for _ in range(value):
                number += 1
                # The largest values of each width that the sender knows; columns may be left out once they
                # were added.
                known = {field.name: str(field.type) for field in mine.state.topic("t").schema.arrow_schema}
                row = {name: 2 ** (WIDTHS[kind] - 1) - number for name, kind in known.items()}
                row["k"] = number % 4
                sent = {name: value for name, value in row.items() if name in "kv" or number % 3}
                producer.send("t", [sent])
                model.pending.append(sent)
            if how == "flush":
                producer.flush()
        elif what == "end":
            (producer.commit if value else producer.abort)()
            model.committed += model.pending if value else []
            model.pending = []
            producer.begin()
        else:
            change = model.change(what, value)
            if change is not None:
                (mine if how == "mine" else other).alter_topic("t", **change)
    producer.close()
    reader = TxnLog.open(mine.store)
    table = reader.read("t", columns=[*model.types, "_partition"]).read_all()
    assert {field.name: str(field.type) for field in reader.read("t").schema} == model.types
    found = table.drop_columns("_partition").to_pylist()
    expected = [{name: row.get(name) for name in model.types} for row in model.committed]
    assert len(found) == len(expected)
    for key in range(4):
        of_key = [row for row in found if row["k"] == key]
        wanted = [row for row in expected if row["k"] == key]
        assert sorted(of_key, key=by_value) == sorted(wanted, key=by_value)
    # A key is only ever where one of the partition counts that the topic has had puts it.
    hashed = encode_keys([table.column("k").combine_chunks()])
    allowed = [partition_for_keys(hashed, count) for count in range(1, model.partitions + 1)]
    for index, partition in enumerate(table.column("_partition").to_pylist()):
        assert any(places[index] == partition for places in allowed)
