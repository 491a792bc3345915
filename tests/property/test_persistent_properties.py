"""Persistent mappings, sets and tables against dicts, sets and lists; no version that somebody holds ever
changes."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from txnformat.core.state import INTENT_WINDOW_ENTRIES, IntentWindow
from txnformat.persistent import (
    DICT_MAX,
    TAIL_ROWS,
    Columns,
    Map,
    Members,
    excluding,
    first_value,
    including,
    put,
    update,
    without,
    without_key,
)

KEYS = st.integers(0, 3 * DICT_MAX)
ROW = np.dtype([("n", "<i8"), ("m", "<i4")])


class Mappings(RuleBasedStateMachine):
    """One mapping and one dict, changed in the same way; now and then a version is held, and looked at
    again.
    """

    def __init__(self) -> None:
        super().__init__()
        self.mapping: Mapping[int, int] = {}
        self.model: dict[int, int] = {}
        self.held: list[tuple[Mapping[int, int], dict[int, int]]] = []

    @initialize(count=st.sampled_from([0, DICT_MAX - 1, DICT_MAX, DICT_MAX + 1, 3 * DICT_MAX]))
    def begin(self, count: int) -> None:
        self.model = {number: -number for number in range(count)}
        self.mapping = dict(self.model)

    @rule(key=KEYS, value=st.integers())
    def put(self, key: int, value: int) -> None:
        self.mapping = put(self.mapping, key, value)
        self.model[key] = value

    @rule(more=st.dictionaries(KEYS, st.integers(), max_size=60))
    def update(self, more: dict[int, int]) -> None:
        self.mapping = update(self.mapping, more)
        self.model.update(more)

    @rule(keys=st.lists(KEYS, max_size=60))
    def without(self, keys: list[int]) -> None:
        self.mapping = without(self.mapping, keys)
        for key in keys:
            self.model.pop(key, None)

    @rule(keys=st.lists(KEYS, max_size=60))
    def without_each(self, keys: list[int]) -> None:
        for key in keys:
            self.mapping = without_key(self.mapping, key)
            self.model.pop(key, None)

    @rule(count=st.integers(1, 60))
    def without_the_oldest(self, count: int) -> None:
        oldest = [*self.model][:count]
        self.mapping = without(self.mapping, oldest)
        for key in oldest:
            del self.model[key]

    @rule(key=KEYS, value=st.integers())
    def again(self, key: int, value: int) -> None:
        """A key that is removed and added again is the newest."""
        self.mapping = put(without(self.mapping, [key]), key, value)
        self.model.pop(key, None)
        self.model[key] = value

    @rule()
    def hold(self) -> None:
        self.held.append((self.mapping, dict(self.model)))

    @rule()
    def stored(self) -> None:
        self.mapping = pickle.loads(pickle.dumps(self.mapping))
        assert type(self.mapping) is dict

    @invariant()
    def same(self) -> None:
        assert len(self.mapping) == len(self.model)
        assert [*self.mapping.items()] == [*self.model.items()]
        assert first_value(self.mapping, -1) == next(iter(self.model.values()), -1)
        assert self.mapping == self.model == self.mapping
        for key in (*range(-1, 3), DICT_MAX, *list(self.model)[:1]):
            assert (key in self.mapping) == (key in self.model)
            assert self.mapping.get(key, "none") == self.model.get(key, "none")

    def teardown(self) -> None:
        for mapping, model in self.held:
            assert [*mapping.items()] == [*model.items()]


TestMappings = Mappings.TestCase
TestMappings.settings = settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)


class Sets(RuleBasedStateMachine):
    """One set and its model."""

    def __init__(self) -> None:
        super().__init__()
        self.values: Any = frozenset()
        self.model: set[int] = set()
        self.held: list[tuple[Any, frozenset[int]]] = []

    @initialize(count=st.sampled_from([0, DICT_MAX - 1, DICT_MAX, 2 * DICT_MAX]))
    def begin(self, count: int) -> None:
        self.model = set(range(count))
        self.values = frozenset(self.model)

    @rule(value=KEYS)
    def including(self, value: int) -> None:
        self.values = including(self.values, value)
        self.model.add(value)

    @rule(value=KEYS)
    def excluding(self, value: int) -> None:
        self.values = excluding(self.values, value)
        self.model.discard(value)

    @rule()
    def hold(self) -> None:
        self.held.append((self.values, frozenset(self.model)))

    @invariant()
    def same(self) -> None:
        assert len(self.values) == len(self.model)
        assert self.values == self.model == self.values
        assert set(self.values) == self.model
        assert (0 in self.values, -1 in self.values) == (0 in self.model, False)

    def teardown(self) -> None:
        for values, model in self.held:
            assert values == model


TestSets = Sets.TestCase
TestSets.settings = settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)


class Tables(RuleBasedStateMachine):
    """One table and a list of its rows."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.model, self.next = Columns(ROW), list[tuple[int, int]](), 0
        self.held: list[tuple[Columns, list[tuple[int, int]]]] = []

    @rule(count=st.sampled_from([0, 1, 1, 1, 2, TAIL_ROWS - 1, TAIL_ROWS, 5 * TAIL_ROWS]))
    def append(self, count: int) -> None:
        rows = [(self.next + number, number) for number in range(count)]
        self.next += count
        self.table = self.table.append(np.array(rows, ROW))
        self.model = [*self.model, *rows]

    @rule(count=st.integers(0, 3 * TAIL_ROWS))
    def drop(self, count: int) -> None:
        count = min(count, len(self.model))
        self.table = self.table.drop(count)
        self.model = self.model[count:]

    @rule()
    def hold(self) -> None:
        self.held.append((self.table, self.model))

    @rule(start=st.integers(0, 5 * TAIL_ROWS))
    def since(self, start: int) -> None:
        start = min(start, len(self.model))
        assert self.table.since(start).tolist() == self.model[start:]

    @rule(end=st.integers(0, 20 * TAIL_ROWS))
    def until(self, end: int) -> None:
        assert self.table.until("n", end).tolist() == [row for row in self.model if row[0] < end]
        assert self.table.count_below("n", end) == sum(row[0] < end for row in self.model)

    @invariant()
    def same(self) -> None:
        assert len(self.table) == len(self.model)
        assert self.table.array().tolist() == self.model
        assert not self.table.array().flags.writeable
        last = self.table.last()
        assert (None if last is None else last.item()) == (self.model[-1] if self.model else None)

    def teardown(self) -> None:
        for table, model in self.held:
            assert table.array().tolist() == model


TestTables = Tables.TestCase


def test_a_large_mapping_shares_its_dict_with_the_versions_after_it() -> None:
    """So that a change costs the root of its size: the shape says so, whatever the machine."""
    count, changes = 10_000, 1_000
    mapping: Mapping[int, int] = dict.fromkeys(range(count), 0)
    copied, bases = 0, set()
    kept = []
    for number in range(changes):
        mapping = put(mapping, number if number % 2 else count + number, 1)
        mapping = without(mapping, [number])
        assert isinstance(mapping, Map)
        kept.append(mapping)
        bases.add(id(mapping._base))
        copied += len(mapping._new) + len(mapping._gone)
        assert next(iter(mapping)) == number + 1
    assert copied <= changes * 2 * 100 * 1.1, "twice the root of the items, at most"
    assert len(bases) <= 2 * changes / (2 * 100) + 2


def test_small_ones_are_dicts_and_frozensets_and_copies_too() -> None:
    large = {number: number for number in range(DICT_MAX + 1)}
    mapping, values = put(large, 0, 1), including(frozenset(large), -1)
    assert (type(mapping), type(values)) == (Map, Members)
    assert type(without(mapping, range(DICT_MAX))) is dict
    assert type(put({}, 0, 1)) is type(update({}, {1: 1})) is dict
    assert type(including(frozenset(), 0)) is type(excluding(frozenset({1}), 1)) is frozenset
    for one in (mapping, values):
        assert type(copy.copy(one)) in (dict, frozenset)
        assert copy.deepcopy(one) == pickle.loads(pickle.dumps(one)) == one
    assert type(values | {7}) is type(values - {7}) is frozenset
    assert repr(mapping) == repr(dict(mapping))
    with pytest.raises(KeyError, match="9999"):
        mapping[9_999]
    assert update(mapping, {}) is without(mapping, [9_999]) is without_key(mapping, 9_999) is mapping


def test_a_window_remembers_the_last_entries_and_is_equal_however_it_was_made() -> None:
    window, given = IntentWindow(), list[tuple[str, ...]]()
    for entry in range(INTENT_WINDOW_ENTRIES + 100):
        before = window.entries
        pushed = window.push(entry, (f"a{entry}", f"b{entry}"))
        assert window.entries is before or window.entries == before
        window = pushed
        given.append((f"a{entry}", f"b{entry}"))
        if entry % 37 == 0 or entry > INTENT_WINDOW_ENTRIES:
            assert window.entries == tuple(given[-INTENT_WINDOW_ENTRIES:])
            assert len(window) == len(window.entries)
            assert window.first == entry + 1 - len(window)
            same = IntentWindow(window.first, window.entries)
            assert window == same == pickle.loads(pickle.dumps(window))
            assert window != IntentWindow(window.first + 1, window.entries)
            for one in {window.first, max(window.first, entry - 40), entry}:
                assert (
                    window.find(f"b{one}", 0)
                    == same.find(f"b{one}", one)
                    == window.find(f"a{one}", one)
                    == one
                )
                assert window.find(f"a{one}", one + 1) is None
            assert window.find(f"a{window.first - 1}", 0) is None
