"""Entries decoded by their declarations: what is refused, what the error says, and what is passed over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.golden_entries import FORMS, entry_of
from txnformat import keys
from txnformat.core.entry import decode_entry, encode_entry
from txnformat.core.operations import AppVersion
from txnformat.core.records.chunks import Chunk
from txnformat.core.wire.document import plain_json
from txnformat.core.wire.entry_bytes import encode_stored
from txnformat.errors import CorruptDataError, TxnLogError, UnsupportedFeatureError
from txnlog_testing.entries import changed_entry, replaced_in_entry

NAME = keys.entry_key(5)
OP = f"{NAME}.operations[0]"
UUID = "9a6f2a90-8a35-4a63-9d1b-1b8a1f8a2c33"
Json = dict[str, Any]


def entry(name: str, form: int = 0) -> bytes:
    return encode_entry(entry_of(5, (FORMS[name][form],)))


def changed(name: str, change: Callable[[Json], object], form: int = 0) -> bytes:
    return changed_entry(entry(name, form), lambda doc: change(doc["operations"][0]))


def refused(data: bytes, kind: type[TxnLogError] = CorruptDataError) -> TxnLogError:
    with pytest.raises(TxnLogError) as caught:
        decode_entry(data, 5)
    assert type(caught.value) is kind
    return caught.value


BATCH = repr((FORMS["append"][0].batches[0],))[:80]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("name", "change", "place", "field", "expected", "got"),
    [
        ("append", lambda op: op.pop("topic_id"), OP, "topic_id", "uuid", "nothing"),
        ("append", lambda op: op.update(topic_id=5), OP, "topic_id", "uuid", "5"),
        ("append", lambda op: op.update(intent=2), OP, "intent", "integer from 0 to 1", "2"),
        ("append", lambda op: op.pop("intent"), OP, "intent", "a value", "nothing"),
        ("append", lambda op: op.update(partitions={}), OP, "partitions", "list", "{}"),
        ("append", lambda op: op.update(files=[]), OP, "files", "at least one file", "[]"),
        ("append", lambda op: op["files"][1].update(rows=True), f"{OP}.files[1]", "rows", (f"integer from "
                                                                                          f"0 to {2**63 - 1}"), "True"),
        ("append", lambda op: op["partitions"][0].update(records=1.0), f"{OP}.partitions[0]", "records", f"integer from 1 to {2**63 - 1}", "1.0"),
        ("append", lambda op: op["partitions"].append(7), OP, "partitions[2]", "object", "7"),
        ("append", lambda op: op["partitions"][0].update(digest="x" * 16), f"{OP}.partitions[0]", "digest", "16 hex digits", "'xxxxxxxxxxxxxxxx'"),
        ("append", lambda op: op["files"][0].update(sha256="0" * 64 + "\n"), f"{OP}.files[0]", "sha256", "64 hex digits", repr("0" * 64 + "\n")),
        ("append", lambda op: op["files"][0].update(footer_bytes=101), f"{OP}.files[0]", "footer_bytes", "at most size, 100", "101"),
        ("append", lambda op: op["batches"][2].update(file=2), OP, "batches", "files below 2", "2"),
        ("append", lambda op: op.pop("batches"), OP, "batches", "a value", "nothing"),
        ("append", lambda op: op["partitions"][0].update(size=2**48 + 1), f"{OP}.partitions[0]", "size", f"integer from 0 to {2**48}", f"{2**48 + 1}"),
        ("append", lambda op: op["batches"][0].update(size=2**62), f"{OP}.batches[0]", "size", f"integer from 0 to {2**48}", f"{2**62}"),
        ("stage", lambda op: op["partitions"][0].update(size=2**62), f"{OP}.partitions[0]", "size", f"integer from 0 to {2**48}", f"{2**62}"),
        ("append", lambda op: op.update(epoch=-1), OP, "epoch", "-1 exactly when producer_id is -1", "-1"),
        ("append", lambda op: op.update(section=1), OP, "section", "nothing without a table", "1"),
        ("append", lambda op: op.update(transactional_id="é" * 125), OP, "transactional_id", "text of 1 to 249 bytes", repr("é" * 125)[:80]),
        ("stage", lambda op: op.pop("section"), OP, "section", "a value", "nothing"),
        ("stage", lambda op: op.update(table=None), OP, "table", "object", "None"),
        ("create_topic", lambda op: op.update(directory="x"), OP, "directory", "groesse-9a6f2a90", "'x'"),
        ("create_topic", lambda op: op.update(name=".."), OP, "name", "topic name", "'..'"),
        ("create_topic", lambda op: op.update(partitions=10_001), OP, "partitions", ("integer from 1 to "
                                                                                    "10000"), "10001"),
        ("init_producer", lambda op: op.pop("aborted"), OP, "aborted", "a value", "nothing"),
        ("allocate_producer_ids", lambda op: op.update(first=1_000), OP, "last", ("at least first, "
                                                                                 "1000"), "999"),
        ("end_txn", lambda op: op.update(outcome="maybe"), OP, "outcome", "commit or abort", "'maybe'"),
        ("end_txn", lambda op: op.update(cause=5), OP, "cause", ("producer or init or timeout or "
                                                                "operator"), "5"),
        ("checkpoint", lambda op: op.update(entry=2), OP, "key", ("key of a snapshot of entry "
                                                                 "2"), repr(keys.snapshot_key(1, "9a6f2a90-8a35-4a63-9d1b-1b8a1f8a2c33"))[:80]),
        ("seal", lambda op: op["segments"][0].pop("index"), f"{OP}.segments[0]", "index", "object", "nothing"),
        ("seal", lambda op: op.pop("listed_segments"), OP, "listed_segments", "a value", "nothing"),
        ("join_group", lambda op: op.update(member=None), OP, "session_timeout_ms", ("at least 1 with a "
                                                                                    "member, 0 without"), "45000"),
        ("commit_offsets", lambda op: op.update(epoch=0), OP, "producer_id", ("-1, as epoch, exactly when "
                                                                             "transactional_id is "
                                                                             "null"), "-1"),
        ("ack", lambda op: op["partitions"][0].update(ranges=[[1, 2], [2, 3]]), f"{OP}.partitions[0]", "ranges", "ranges that ascend, of which no two overlap or touch", "((1, 2), (2, 3))"),
        ("ack", lambda op: op["partitions"][0].update(ranges=[[1]]), f"{OP}.partitions[0]", "ranges[0]", "list", "[1]"),
        ("ack", lambda op: op["partitions"][0].update(position=1), f"{OP}.partitions[0]", "ranges", "list of [start, end], and no position", "((5, 7), (9, 4611686018427387903))"),
        ("append", lambda op: op.update(table={"key": keys.table_key(1, UUID), "size": 1, "sha256": "0" * 64}, batches=[op["batches"][0]], section=0), OP, "batches", "nothing beside a table", BATCH),
        ("ack", lambda op: op.update(mode="cumulative"), f"{OP}.partitions[0]", "position", ("integer, and "
                                                                                            "no ranges"), "None"),
        ("ack", lambda op: op.update(mode="seek"), OP, "transactional_id", "null of a seek", "'größe'"),
        ("app_version", lambda op: op.update(content={"scheme": 1, "topics": 5}), OP, "content", "Expected `array`, got `int` - at `$.topics`", "{'scheme': 1, 'topics': 5}"),
    ],
)  # fmt: skip
def test_an_error_names_place_field_expectation_and_value(
    name: str, change: Callable[[Json], object], place: str, field: str, expected: str, got: str
) -> None:
    values = refused(changed(name, change)).values
    assert values == {"object": place, "field": field, "expected": expected, "got": got}


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (changed("append", lambda op: op.update(operation="vanish")), {"operation": "vanish"}),
        (changed("end_txn", lambda op: op.update(cause="moonlight")), {"cause": "moonlight"}),
        (changed("end_txn", lambda op: op.update(cause="init")), {"cause": "init"}),
        (changed("ack", lambda op: op.update(mode="batch")), {"mode": "batch"}),
    ],
)
def test_what_this_version_does_not_know_is_a_feature(data: bytes, told: Json) -> None:
    error = refused(data, UnsupportedFeatureError)
    assert error.values == {"object": OP, **told}
    assert error.hint == "upgrade txnlog"


def test_a_newer_format_is_told_before_anything_else_of_it() -> None:
    data = changed_entry(entry("append"), lambda doc: doc.update(format=2, operations=[{"operation": "new"}]))
    assert refused(data, UnsupportedFeatureError).kind == "newer-format"


@pytest.mark.parametrize("name", FORMS)
def test_fields_that_are_not_known_are_passed_over(name: str) -> None:
    more = {"": None, "x": [{"y": [1.5, "é", None, 10**400]}]}
    for form, operation in enumerate(FORMS[name]):
        data = changed_entry(
            entry(name, form), lambda doc: (doc.update(x=more), doc["operations"][0].update(more))
        )
        assert decode_entry(data, 5).operations == (operation,)


@pytest.mark.parametrize(
    "bad", [b'"\xff"', b'"\xed\xa0\x80"', b'"\\ud800"', b'"\n"', b"NaN", b"01", b"[1,]", b"[" * 100_000]
)
def test_what_is_not_json_is_refused_even_where_it_would_be_passed_over(bad: bytes) -> None:
    data = replaced_in_entry(entry("append"), b'"format":1', b'"format":1,"g":"HERE"')
    assert decode_entry(data, 5).entry == 5
    plain = data[:-79].replace(b'"HERE"', bad) + b"}"
    assert refused(encode_stored(plain)).values["expected"] == "JSON"


def test_of_a_field_that_is_there_twice_the_last_counts_and_names_cannot_differ() -> None:
    data = replaced_in_entry(
        entry("delete_group"), b'"group":"readers"', b'"group":"others","group":"readers"'
    )
    assert decode_entry(data, 5).operations == (FORMS["delete_group"][0],)
    name = b'"operation":"delete_group"'
    for both in (name + b',"operation":"ack"', b'"operation":"ack",' + name):
        assert refused(replaced_in_entry(entry("delete_group"), name, both)).values["field"] in (
            "operation",
            "topic_id",
        )


def test_a_content_of_a_later_scheme_is_left_out() -> None:
    data = changed("app_version", lambda op: op.update(content={"scheme": 2, "topics": 5}))
    (version,) = decode_entry(data, 5).operations
    assert isinstance(version, AppVersion)
    assert version.content is None


def test_a_log_time_that_python_has_not_is_refused() -> None:
    latest = 253_402_300_799_999
    data = changed_entry(entry("append"), lambda doc: doc.update(timestamp_ms=latest))
    assert decode_entry(data, 5).timestamp_ms == latest
    error = refused(changed_entry(data, lambda doc: doc.update(timestamp_ms=latest + 1)))
    assert error.values["expected"] == f"integer from 0 to {latest}"


def test_an_entry_of_another_slot_is_refused() -> None:
    with pytest.raises(CorruptDataError) as caught:
        decode_entry(entry("append"), 6)
    assert caught.value.values["field"] == "entry"


@pytest.mark.parametrize(
    "fields",
    [
        {"count": 4, "size": 9},
        {"count": 3},
        {"size": 9},
        {"count": None, "size": 9},
        {"index": -1},
        {"value": "é" * 36},
    ],
)
def test_a_chunk_header_that_contradicts_itself_is_refused(fields: Json) -> None:
    whole = {"value": UUID, "index": 2}
    assert Chunk.decode(plain_json({**whole, "count": 3, "size": 9}), name="x") == Chunk(UUID, 2, 3, 9)
    assert Chunk.decode(plain_json({**whole, "count": None, "x": 5}), name="x") == Chunk(UUID, 2)
    with pytest.raises(CorruptDataError):
        Chunk.decode(plain_json(whole | fields), name="x")


def test_a_document_of_another_kind_is_refused() -> None:
    for text in (b"[]", b"5", b'"x"', b"null"):
        assert "JSON object" in str(refused(text))
