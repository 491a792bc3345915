"""Settings of topics: what may be set, by whom, and what a snapshot keeps of it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.core.full_state import checkpoint_of
from tests.unit.core.memory_log import ORDERS, Log
from txnformat.core.fold import apply_operation
from txnformat.core.folding import At
from txnformat.core.intents import ChangeTopic, EnableFeatures, Included
from txnformat.core.invariants import check_whole
from txnformat.core.operation_codec import decode_operation, encode_operation
from txnformat.core.operations import AlterTopic, TopicSetting
from txnformat.core.snapshot.codec import decode_snapshot, encode_snapshot
from txnformat.core.state import LIFECYCLE
from txnformat.core.topics.evolution import as_change
from txnformat.core.topics.settings import SETTINGS, as_settings, value_of
from txnformat.errors import CorruptDataError, InvalidInputError, UnsupportedFeatureError
from txnformat.persistent import replace

DAY = 24 * 3_600_000


def log_of(**settings: int | str) -> Log:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return Log(EnableFeatures((LIFECYCLE,)), replace(ORDERS, settings=as_settings(named)))


def settings_of(log: Log) -> dict[str, int | str]:
    return {one.name: one.value for one in log.state.topics[ORDERS.topic_id].settings}


def change(**changes: Any) -> ChangeTopic:
    return as_change(ORDERS.topic_id, None, None, None, **changes)


def test_what_is_not_set_is_as_by_default() -> None:
    assert {name: value_of((), name) for name in SETTINGS} == {
        "retention.ms": -1,
        "retention.bytes": -1,
        "retention.time": "append",
        "retention.pinned.ms": 0,
        "compact.target.bytes": 134_217_728,
        "compact.bloom.columns": "",
        "min.compaction.lag.ms": 604_800_000,
        "cleanup.policy": "delete",
        "max.compaction.lag.ms": -1,
        "min.cleanable.dirty.ratio": "0.5",
        "delete.retention.ms": 86_400_000,
        "tombstone.column": "",
        "embed": "true",
        "publish.formats": "",
        "publish.iceberg.scheme": "",
        "publish.hold.ms": 604_800_000,
    }
    assert value_of(as_settings({"retention.ms": DAY}), "retention.ms") == DAY


def test_settings_are_set_one_by_one_and_taken_back() -> None:
    log = log_of(retention_ms=DAY)
    assert isinstance(
        log.commit(change(settings={"retention.bytes": 10, "retention.time": "record"})), Included
    )
    assert settings_of(log) == {"retention.bytes": 10, "retention.ms": DAY, "retention.time": "record"}
    log.commit(change(settings={"retention.bytes": 11}, unset=["retention.ms", "retention.pinned.ms"]))
    assert settings_of(log) == {"retention.bytes": 11, "retention.time": "record"}
    assert log.state.topics[ORDERS.topic_id].partitions == ORDERS.partitions
    log.commit(replace(change(unset=["retention.bytes", "retention.time"]), partitions=9))
    assert settings_of(log) == {}
    assert log.state.topics[ORDERS.topic_id].partitions == 9
    assert check_whole(log.state) == []


@pytest.mark.parametrize("settings", [{}, {"retention.ms": DAY}, {"retention.bytes": 0}])
def test_a_snapshot_keeps_them(settings: dict[str, int | str]) -> None:
    log = log_of(retention_ms=DAY)
    log.commit(change(settings=settings, unset=["retention.ms"] if "retention.ms" not in settings else []))
    data = encode_snapshot(log.state)
    again = decode_snapshot(data, checkpoint_of(log.state, data), log.state.log_id)
    assert again.topics[ORDERS.topic_id].settings == log.state.topics[ORDERS.topic_id].settings
    assert settings_of(log) == settings
    assert encode_snapshot(again) == data


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"retention.ms": -2}, "retention.ms is -2"),
        ({"retention.bytes": -2}, "retention.bytes is -2"),
        ({"retention.ms": "7"}, "retention.ms is '7'"),
        ({"retention.ms": True}, "retention.ms is True"),
        ({"retention.ms": 1.0}, "retention.ms is 1.0"),
        ({"retention.ms": None}, "retention.ms is None"),
        ({"retention.ms": 2**63}, "retention.ms is 9223372036854775808"),
        ({"retention.time": "user"}, "not append or record"),
        ({"retention.time": 1}, "not append or record"),
        ({"retention.mS": 1}, "there is no setting 'retention.mS'; did you mean retention.ms?"),
        ({7: 1}, "there is no setting 7"),
        ({"cleanup.policy": "keep"}, "not delete or compact"),
        ({"min.cleanable.dirty.ratio": 1.5}, "not a number from 0 to 1"),
        ({"min.cleanable.dirty.ratio": "nan"}, "not a number from 0 to 1"),
        ({"min.cleanable.dirty.ratio": "half"}, "not a number from 0 to 1"),
        ({"min.cleanable.dirty.ratio": "0.5_0"}, "not a number from 0 to 1"),
        ({"min.cleanable.dirty.ratio": " .5"}, "not a number from 0 to 1"),
        ({"min.cleanable.dirty.ratio": "-0"}, "not a number from 0 to 1"),
        ({"min.cleanable.dirty.ratio": "\N{ARABIC-INDIC DIGIT ZERO}.5"}, "not a number from 0 to 1"),
        ({"retention.ms": 2**63}, "to 9223372036854775807, or -1"),
        ({"publish.formats": "x"}, "not some of delta, delta-offsets, iceberg"),
        ({"min.cleanable.dirty.ratio": True}, "not a number from 0 to 1"),
        ({"max.compaction.lag.ms": 0}, "max.compaction.lag.ms is 0"),
        ({"delete.retention.ms": -1}, "delete.retention.ms is -1"),
        ({"tombstone.column": 7}, "not the name of a column"),
        ({"tombstone.column": ""}, "not the name of a column"),
        ({"compact.bloom.columns": 7}, "not names of columns"),
        ({"compact.bloom.columns": ""}, "not names of columns"),
        ({"compact.bloom.columns": "a,,b"}, "not names of columns"),
        ({"retention.ms": -2, "x": 1}, "there is no setting 'x'"),
        ("retention.ms=5", "not a mapping"),
        ([("retention.ms", 5)], "not a mapping"),
    ],
)
def test_bad_settings_are_refused(settings: Any, what: str) -> None:
    for call in (lambda: as_settings(settings), lambda: change(settings=settings)):
        with pytest.raises(InvalidInputError) as caught:
            call()
        assert caught.value.kind == "invalid-setting"
        assert what in str(caught.value)


@pytest.mark.parametrize("unset", ["retention.ms", ["x"], [7], 7])
def test_what_cannot_be_taken_back_is_refused(unset: Any) -> None:
    with pytest.raises(InvalidInputError):
        change(unset=unset)
    with pytest.raises(InvalidInputError, match="set and unset"):
        change(settings={"retention.ms": DAY}, unset=["retention.ms"])


@pytest.mark.parametrize("value", [0, 1, 899_999])
def test_a_time_below_the_longest_timeout_of_a_transaction_is_refused(value: int) -> None:
    log = log_of()
    for action in (
        change(settings={"retention.ms": value}),
        replace(
            ORDERS,
            topic_id="3e0f7d52-5f0b-4a0a-8f3c-2b0a3c4d5e6f",
            name="x",
            directory="x-3e0f7d52",
            settings=as_settings({"retention.ms": value}),
        ),
    ):
        error = log.refusal(action)
        assert isinstance(error, InvalidInputError)
        assert (error.kind, "at least 900000 ms" in str(error)) == ("invalid-setting", True)
    assert isinstance(log.commit(change(settings={"retention.ms": 900_000})), Included)


def test_settings_need_the_feature() -> None:
    log = Log(ORDERS)
    assert isinstance(log.refusal(change(settings={"retention.ms": DAY})), UnsupportedFeatureError)
    wanted = replace(
        ORDERS, topic_id="3e0f7d52-5f0b-4a0a-8f3c-2b0a3c4d5e6f", name="x", directory="x-3e0f7d52"
    )
    assert isinstance(
        log.refusal(replace(wanted, settings=as_settings({"retention.ms": DAY}))), UnsupportedFeatureError
    )
    assert isinstance(log.commit(wanted), Included)


def test_settings_of_a_later_version_are_kept() -> None:
    log = log_of(retention_ms=DAY)
    later = (TopicSetting("later", "x"), TopicSetting("retention.ms", DAY))
    op = AlterTopic(ORDERS.topic_id, ORDERS.partitions, 0, settings=later)
    log.state = apply_operation(log.state, op, At(log.state.entry, log.state.timestamp_ms))
    log.commit(change(settings={"retention.bytes": 1}))
    assert settings_of(log) == {"later": "x", "retention.bytes": 1, "retention.ms": DAY}


def test_names_ascend_in_an_entry() -> None:
    op = AlterTopic(ORDERS.topic_id, 1, 0, settings=(TopicSetting("a", 1), TopicSetting("b", "x")))
    assert decode_operation(encode_operation(op), 1, path="op") == op
    for settings in (op.settings[::-1], op.settings[:1] * 2):  # type: ignore[index]
        with pytest.raises(CorruptDataError, match="ascend"):
            decode_operation(encode_operation(replace(op, settings=settings)), 1, path="op")


def test_an_alteration_of_nothing_is_corrupt() -> None:
    log = log_of()
    with pytest.raises(CorruptDataError, match="not allowed"):
        apply_operation(log.state, AlterTopic(ORDERS.topic_id, ORDERS.partitions, 0), At(9, 2**40))
