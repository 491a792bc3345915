"""Options, their forms and their mistakes; cutting a read into splits. Pure: no session needed."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spark_datasource.datasource import TxnLogDataSource
from spark_datasource.failures import code_of, coded
from spark_datasource.options.declared import READ
from spark_datasource.options.delegation import TRANSACTION, delegated_by
from spark_datasource.options.read import parse_read_options
from spark_datasource.options.values import Option
from spark_datasource.options.write import parse_stream_write_options, parse_write_options
from spark_datasource.read.splits import SPLIT_BYTES_MIN, TopicPlan, TopicRead, cut, split_count
from txnformat.core.records.scan import PLANNED, PartitionPlan
from txnformat.core.topics.schema import as_topic_schema
from txnformat.errors import InvalidInputError, NotFoundError, StorageError
from txnformat.types import FileRecord, OffsetRange

PATH = {"path": "/log", "topic": "t"}


def problems(options: Mapping[str, str], *, write: bool = False) -> list[str]:
    with pytest.raises(InvalidInputError) as caught:
        (parse_write_options if write else parse_read_options)(options)
    assert caught.value.kind == "invalid-option"
    return caught.value.problems


def test_keys_come_in_any_letter_case_and_aliases_mean_the_same() -> None:
    found = parse_read_options({"PATH": "/log", "Subscribe": "t", "isolationlevel": "Read_Uncommitted"})
    assert (found.path, found.topics.names, found.isolation.value) == ("/log", ("t",), "read_uncommitted")
    assert parse_read_options({**PATH, "subscribe": "t"}).topics.names == ("t",)
    assert "mean the same, but" in problems({**PATH, "subscribe": "u"})[0]


def test_a_relative_path_is_made_absolute_and_a_url_is_left() -> None:
    assert parse_read_options({"path": "log", "topic": "t"}).path == str(Path.cwd() / "log")
    assert parse_read_options({"path": "file:///log", "topic": "t"}).path == "file:///log"


def test_a_bad_value_under_both_names_names_both() -> None:
    both = {"maxRowsPerTrigger": "0", "maxOffsetsPerTrigger": "0"}
    assert problems({**PATH, **both}) == [
        "options maxRowsPerTrigger and maxOffsetsPerTrigger are '0'; use an integer from 1 on"
    ]
    differ = problems({**PATH, **both, "maxOffsetsPerTrigger": "-5"})
    assert differ[0] == (
        "options maxRowsPerTrigger and maxOffsetsPerTrigger mean the same, but their values differ: '0' "
        "and '-5'; "
        "give one of them"
    )
    assert problems({**PATH, "isolationLevel": "none"})[0].startswith("option isolationLevel is 'none'; use ")


@pytest.mark.parametrize(
    ("name", "option"),
    [(name, one) for one in READ.values() if one.only for name in (one.name, one.alias) if name],
)
def test_an_option_of_one_kind_of_read_is_refused_by_the_other_under_each_of_its_names(
    name: str, option: Option
) -> None:
    found = parse_read_options({**PATH, name: option.example})
    others, own = found.check_batch, found.check_stream
    if option.only == "batch":
        others, own = own, others
    own()
    with pytest.raises(InvalidInputError, match=f"option {name} is for ") as caught:
        others()
    assert len(caught.value.problems) == 1


def test_no_alias_is_left_out_of_the_kinds_of_reads() -> None:
    assert {one.alias for one in READ.values() if one.only and one.alias} == {"maxOffsetsPerTrigger"}


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("1700000000123", 1_700_000_000_123),
        ("-1", -1),
        ("2026-01-31T12:00:00.001Z", 1_769_860_800_001),
        ("2026-01-31T12:00:00.0000001+00:00", 1_769_860_800_000),
        ("2026-01-31T12:00:00.000001+00:00", 1_769_860_800_001),  # the first whole millisecond not before it
        ("2026-01-31 13:00+01:00", 1_769_860_800_000),
    ],
)
def test_timestamps_are_milliseconds_or_iso_with_a_zone(text: str, milliseconds: int) -> None:
    assert parse_read_options({**PATH, "startingTimestamp": text}).starting_timestamp_ms == milliseconds


@pytest.mark.parametrize("text", ["2026-01-31T12:00:00", "yesterday", "1.5", "--1"])
def test_a_timestamp_without_a_zone_is_refused(text: str) -> None:
    assert "ISO 8601 with a zone" in problems({**PATH, "endingTimestamp": text})[0]


@pytest.mark.parametrize(("text", "count"), [("1", 1), ("64k", 2**16), ("64MB", 2**26), ("2g", 2**31)])
def test_bytes_take_the_suffixes_of_spark(text: str, count: int) -> None:
    assert parse_read_options({**PATH, "maxBytesPerPartition": text}).bytes_per_partition_max == count


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("maxBytesPerPartition", "0"),
        ("maxBytesPerPartition", "m"),
        ("minPartitions", "0"),
        ("minPartitions", "two"),
        ("failOnDataLoss", "no"),
        ("endExpired", "yes"),
        ("columns", ""),
        ("columns", "a,,b"),
        ("isolation", "serializable"),
        ("startingOffsets", "first"),
        ("startingOffsets", "{}"),
        ("startingOffsets", "[1]"),
        ("startingOffsets", '{"0": -3}'),
        ("startingOffsets", '{"0": 1.5}'),
        ("startingOffsets", '{"0": true}'),
        ("startingOffsets", '{"0": 1, "0": 2}'),
        ("startingOffsets", '{"0": 1, "00": 2}'),
        ("startingOffsets", '{"": {"0": 1}}'),
        ("maxRowsPerTrigger", "1_0"),
        ("startingTimestamp", "\u0663"),
        ("maxBytesPerTrigger", "\u0663k"),
        ("maxRowsPerTrigger", "\u0663"),
        ("startingOffsets", '{"t": 5}'),
        ("startingOffsets", '{"t": {"x": 5}}'),
        ("startingOffsets", '{"u": {"0": 5}}'),
        ("versionAsOf", "-1"),
        ("versionAsOf", "latest"),
        ("timestampAsOf", "yesterday"),
        ("storage.key", "secret"),
        ("txnVersion", "1"),
        ("topic", "_hidden"),
        ("topic", "a,,b"),
        ("order", "time"),
        ("subscribePattern", "orders("),
        ("maxRowsPerTrigger", "0"),
        ("maxOffsetsPerTrigger", "-5"),
        ("maxBytesPerTrigger", "0"),
        ("path", ""),
        ("paths", '["a", "b"]'),
    ],
)
def test_a_bad_value_is_one_problem_that_names_the_option(option: str, value: str) -> None:
    given = {"path": "/log"} if option == "subscribePattern" else PATH
    (problem,) = problems({**given, option: value})
    name = {"_hidden": "topic name"}.get(
        value,
        "topic name" if (option, value) == ("topic", "a,,b") else "path" if option == "paths" else option,
    )
    assert name in problem
    assert "secret" not in problem


@pytest.mark.parametrize("option", ["txnAppId", "txnVersion", "partitions", "keyColumns", "createTopics"])
def test_an_option_that_is_given_but_empty_is_no_option_left_out(option: str) -> None:
    """Else a variable that was not set would make a write that is not once for each version."""
    options = {**PATH, "txnAppId": "a", "txnVersion": "1", option: " "}
    assert f"option {option} is empty; give it a value, or leave it out" in problems(options, write=True)


def test_empty_options_of_streams_and_reads_are_told_too() -> None:
    with pytest.raises(InvalidInputError, match="option txnAppId is empty") as caught:
        parse_stream_write_options({**PATH, "txnAppId": ""})
    assert caught.value.kind == "invalid-option"
    assert problems({**PATH, "versionAsOf": ""}) == [
        "option versionAsOf is empty; give it a value, or leave it out"
    ]


@pytest.mark.parametrize("parse", [parse_write_options, parse_stream_write_options])
def test_a_missing_topic_is_told_with_both_ways_to_name_one_and_an_empty_one_does_not_route(
    parse: Any,
) -> None:
    for options, columns in (({"path": "/log"}, ["n"]), ({"path": "/log", "topic": ""}, ["n", "topic"])):
        with pytest.raises(InvalidInputError, match=r"option topic is missing.* in a column topic"):
            parse(options, columns)
    assert parse({"path": "/log"}, ["n", "topic"])


def test_a_version_or_a_time_means_a_snapshot_and_nothing_else() -> None:
    version = parse_read_options({**PATH, "versionAsOf": "0"})
    assert (version.isolation.value, version.version_as_of) == ("snapshot", 0)
    for text in (
        "2026-01-31T12:00:00",
        "2026-01-31T17:30:00+05:30",
        "2026-01-31T12:00:00.000999Z",
        "1769860800000",
    ):
        time = parse_read_options({**PATH, "timestampAsOf": text, "isolation": "Snapshot"})
        assert (time.isolation.value, time.timestamp_as_of_ms) == ("snapshot", 1_769_860_800_000)
    assert "not both" in problems({**PATH, "versionAsOf": "1", "timestampAsOf": "1"})[0]
    (problem,) = problems({**PATH, "versionAsOf": "1", "isolation": "read_committed"})
    assert problem == "versionAsOf and timestampAsOf are for isolation snapshot, not for read_committed"


def test_offsets_and_timestamps_exclude_each_other_and_keep_their_order() -> None:
    both = {"startingOffsets": "earliest", "startingTimestamp": "0"}
    assert "not both" in problems({**PATH, **both})[0]
    assert (
        "before startingTimestamp" in problems({**PATH, "startingTimestamp": "2", "endingTimestamp": "1"})[0]
    )


def test_several_paths_are_one_problem() -> None:
    assert problems({"paths": '["a", "b"]', "topic": "t"}) == ["load one path: a read covers one log"]


def test_all_problems_come_at_once() -> None:
    assert len(problems({"isolation": "x", "startingOfset": "y", "minPartitions": "z"})) == 5
    assert len(problems({"partitions": "10001", "keyColumns": ",", "txnAppId": "a"}, write=True)) == 5


def test_an_error_carries_its_code_once_and_on_one_line() -> None:
    error = NotFoundError("no\nsuch thing", kind="unknown-topic", topic="t")
    assert code_of(error) == "TXNLOG_UNKNOWN_TOPIC"
    assert str(coded(coded(error))) == "[TXNLOG_UNKNOWN_TOPIC] no\\nsuch thing: topic=`t`"
    transient = coded(StorageError("lost", transient=True))
    assert isinstance(transient, StorageError)
    assert transient.transient


def test_nothing_is_checked_before_spark_says_what_it_wants() -> None:
    source = pickle.loads(pickle.dumps(TxnLogDataSource({"nonsense": "1"})))
    with pytest.raises(InvalidInputError, match=r"^\[TXNLOG_INVALID_OPTION\] "):
        source.schema()


# --- splits -------------------------------------------------------------------------------------------------


def plan(partition: int, sizes: list[int]) -> PartitionPlan:
    rows = np.zeros(len(sizes), PLANNED)
    rows["size"], rows["take"] = sizes, 1
    rows["base_offset"] = range(len(sizes))
    rows["file"] = partition
    return PartitionPlan(partition, OffsetRange(0, len(sizes)), rows)


FILES = {n: FileRecord(f"file {n}", 1, "", 1, "", 1) for n in range(9)}


def shape(plans: list[PartitionPlan], count: int) -> list[list[tuple[int, list[int]]]]:
    """Return (partition, offsets) of the parts of each split."""
    read = TopicRead("t", "id", as_topic_schema(pa.schema([("n", pa.int64())])), ("n",))
    splits = pickle.loads(pickle.dumps(cut("log", 7, [TopicPlan(read, plans, FILES)], count)))
    for split in splits:
        named = {int(number) for part in split.parts for number in part.planned()["file"]}
        assert split.files == {number: FILES[number] for number in named}, "a split knows its own files"
    return [
        [(part.partition, part.planned()["base_offset"].tolist()) for part in split.parts] for split in splits
    ]


def test_splits_are_runs_of_the_log_of_about_equal_bytes() -> None:
    plans = [plan(0, [10, 10, 10]), plan(3, [30]), plan(4, [])]
    assert shape(plans, 1) == [[(0, [0, 1, 2]), (3, [0])]]
    assert shape(plans, 2) == [[(0, [0, 1, 2])], [(3, [0])]]
    assert shape(plans, 3) == [[(0, [0, 1])], [(0, [2])], [(3, [0])]]
    assert shape(plans, 100) == [[(0, [0])], [(0, [1])], [(0, [2])], [(3, [0])]]
    assert shape([plan(0, [])], 5) == [] == shape([], 5)


@pytest.mark.parametrize(
    ("arguments", "count"),
    [
        ({"size": 0}, 1),
        ({"size": 2 * SPLIT_BYTES_MIN - 1}, 1),
        ({"size": 3 * SPLIT_BYTES_MIN}, 3),
        ({"size": 100 * SPLIT_BYTES_MIN}, 8),
        ({"size": 0, "partitions_min": 5}, 5),
        ({"size": 1001, "bytes_max": 100, "partitions_min": 5}, 11),
    ],
)
def test_there_are_splits_for_every_core_unless_they_get_small(arguments: dict[str, Any], count: int) -> None:
    assert split_count(**{"bytes_max": 2**40, "partitions_min": None, "cores": 8, **arguments}) == count


@pytest.mark.parametrize(
    "text", ["", "[", "[" * 100_000, "7", "{}", "[]", '["t", 1, 2]', '["t", 1, 2, true]', "[1, 1, 2, 3]"]
)
def test_an_internal_option_that_others_set_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="is internal") as caught:
        delegated_by({TRANSACTION: text})
    assert caught.value.kind == "invalid-option"
