"""Appends whose files are parts of the entry's payload: what is decided, assembled, folded, and refused."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import pytest

from tests.unit.core.full_state import checkpoint_of
from tests.unit.core.memory_log import COMMIT, NOW_MS, ORDERS, Log, rows
from txnformat import keys
from txnformat.core.assemble import assemble
from txnformat.core.entry import CommitEntry, decode_entry, encode_entry, sha256_hex
from txnformat.core.fold import apply
from txnformat.core.intents import EnableFeatures, Included, OpenProducer, TopicAppend, Write
from txnformat.core.invariants import check_whole
from txnformat.core.operations import Append
from txnformat.core.snapshot.codec import decode_snapshot, encode_snapshot
from txnformat.core.state import EMBEDDING
from txnformat.errors import ConflictError, CorruptDataError, InternalError
from txnformat.keys import Place
from txnformat.persistent import replace
from txnformat.segments.payload import PAYLOAD_BYTES_MAX, PayloadRecord, head_of, payload_of
from txnformat.types import FileRecord, ObjectRecord
from txnformat.verify.references import References
from txnformat.verify.report import Record
from txnlog_testing.strategies import make_append, make_topic

PAYMENTS = make_topic("payments")


def embedded(append: TopicAppend | tuple[TopicAppend, ...], data: bytes = b"") -> TopicAppend:
    """Return an append that embeds its file."""
    if isinstance(append, tuple):
        (append,) = append
    (file,) = append.files
    data = data or file.key.encode()
    named = replace(file, size=len(data), sha256=hashlib.sha256(data).hexdigest(), footer_bytes=8)
    return replace(append, files=(named,), payload=(data,))


def log_of() -> Log:
    return Log(ORDERS, PAYMENTS, EnableFeatures((EMBEDDING,)), OpenProducer("etl"), OpenProducer("other"))


def files_of(entry: CommitEntry) -> list[FileRecord]:
    return [file for op in entry.operations if isinstance(op, Append) for file in op.files]


def test_one_entry_has_the_files_of_several_topics_and_intents_one_behind_the_other() -> None:
    log = log_of()
    first = Write(
        log.producer(),
        (embedded(rows()), embedded(make_append(PAYMENTS, {0: (0, 1)}, content="p"), b"payments")),
        COMMIT,
    )
    second = Write(log.producer("other"), (embedded(rows(content="more"), data=b"the second"),), COMMIT)
    assembled = log.assemble(log.intent(first), log.intent(second))
    assert assembled.entry is not None
    data = b"".join(payload for write in (first, second) for one in write.appends for payload in one.payload)
    assert payload_of(assembled.data) == data
    assert assembled.entry.payload == PayloadRecord(len(data), sha256_hex(data))
    assert assembled.sha256 == sha256_hex(head_of(assembled.data)), "the chain binds the head"
    found = files_of(assembled.entry)
    for file in found:
        place = file.place
        assert place is not None
        assert place.entry == log.state.entry
        assert sha256_hex(data[place.start : place.start + file.size]) == file.sha256
    assert [keys.own_key(file.key) for file in found] == [
        file.key for write in (first, second) for one in write.appends for file in one.files
    ]
    decoded = decode_entry(assembled.data, log.state.entry)
    assert decoded == assembled.entry == decode_entry(head_of(assembled.data), log.state.entry)
    assert encode_entry(decoded) == head_of(assembled.data)
    assert check_whole(log.state) == []
    snapshot = encode_snapshot(log.state)
    again = decode_snapshot(snapshot, checkpoint_of(log.state, snapshot), log.state.log_id)
    assert [file.key for file in again.files] == [file.key for file in found]


def test_a_group_stops_before_the_payload_is_too_large() -> None:
    log = log_of()
    large = bytes(700_000)
    writes = [
        Write(log.producer(name), (embedded(rows(content=name), data=large),), COMMIT)
        for name in ("etl", "other")
    ]
    intents = [log.intent(write) for write in writes]
    assembled = log.assemble(*intents)
    assert assembled.verdicts.keys() == {intents[0].intent_id}
    assert len(payload_of(assembled.data)) == len(large)


def test_an_append_that_the_log_holds_already_embeds_nothing() -> None:
    log = log_of()
    write = Write(log.producer(), (embedded(rows()),))
    assert isinstance(log.commit(write), Included)
    other = embedded(make_append(PAYMENTS, {0: (0, 1)}, content="p"), b"payments")
    both = log.assemble(log.intent(replace(write, appends=(*write.appends, other))))
    assert payload_of(both.data) == b"payments"


@pytest.mark.parametrize("then", [lambda append: replace(append, payload=()), lambda append: append])
def test_a_key_is_named_once_whether_its_file_is_embedded_or_an_object(
    then: Callable[[TopicAppend], TopicAppend],
) -> None:
    log = log_of()
    append = embedded(rows(-1))
    assert isinstance(log.commit(Write(None, (append,))), Included)
    error = log.refusal(Write(None, (then(append),)))
    assert isinstance(error, ConflictError)
    assert error.kind == "file-named"


def test_verify_finds_a_file_that_is_embedded_by_one_entry_and_an_object_of_another() -> None:
    log = log_of()
    assembled = log.assemble(log.intent(Write(None, (embedded(rows(-1)),))))
    assert assembled.entry is not None
    again = _with_files(
        replace(assembled.entry, entry=assembled.entry.entry + 1, payload=None), lambda _, key: key
    )
    record = Record()
    references = References(record)
    references.add(assembled.entry)
    assert record.problems == []
    references.add(again)
    assert any("another one has named it" in one.what for one in record.problems)


def test_a_log_that_was_not_upgraded_takes_no_payload() -> None:
    log = Log(ORDERS)
    verdict = assemble(
        log.state, [log.intent(Write(None, (embedded(rows(-1)),)))], store_time_ms=NOW_MS, write_id="w"
    ).verdicts
    (rejected,) = verdict.values()
    assert isinstance(getattr(rejected, "error", None), InternalError)


def test_the_fold_refuses_embedded_files_in_a_log_that_was_not_upgraded() -> None:
    log = log_of()
    before = replace(log.state, features=Log(ORDERS).state.features)
    assembled = log.assemble(log.intent(Write(None, (embedded(rows(-1)),))))
    assert assembled.entry is not None
    with pytest.raises(CorruptDataError, match="embeds files"):
        apply(before, assembled.entry, assembled.sha256)


def _with_files(entry: CommitEntry, key: Callable[[Place, str], str]) -> CommitEntry:
    (op,) = entry.operations
    assert isinstance(op, Append)
    files = tuple(
        replace(file, key=key(file.place or Place(0, 0), keys.own_key(file.key))) for file in op.files
    )
    return replace(entry, operations=(replace(op, files=files),))


@pytest.mark.parametrize(
    "broken",
    [
        lambda entry: _with_files(
            entry, lambda place, key: keys.embedded_key(key, Place(place.entry - 1, 0))
        ),
        lambda entry: _with_files(entry, lambda place, key: keys.embedded_key(key, Place(place.entry, 1))),
        lambda entry: _with_files(entry, lambda _, key: key),
        lambda entry: _with_files(entry, lambda place, key: f"{key}@{place.entry:020d}+00"),
        lambda entry: replace(entry, payload=None),
        lambda entry: replace(entry, payload=PayloadRecord(entry.payload.size + 1, entry.payload.sha256)),
        lambda entry: replace(entry, payload=PayloadRecord(PAYLOAD_BYTES_MAX + 1, entry.payload.sha256)),
        lambda entry: replace(
            entry,
            operations=(
                replace(
                    entry.operations[0],
                    batches=(),
                    table=ObjectRecord(
                        keys.table_key(0, "0a8b4b7e-46a4-4d0f-9c3b-3f3e1f0f5a11"), 9, "0" * 64
                    ),
                ),
            ),
        ),
    ],
    ids=[
        "other entry",
        "gap",
        "an object",
        "a zero too many",
        "not named",
        "too short",
        "too large",
        "a table",
    ],
)
def test_an_entry_whose_files_are_not_its_payload_is_damage(
    broken: Callable[[CommitEntry], CommitEntry],
) -> None:
    log = log_of()
    assembled = log.assemble(log.intent(Write(None, (embedded(rows(-1)),))))
    assert assembled.entry is not None
    with pytest.raises(CorruptDataError):
        decode_entry(encode_entry(broken(assembled.entry)), log.state.entry)


def test_the_key_of_an_embedded_file_is_accepted_where_it_belongs_only() -> None:
    own = keys.data_key("t-12345678", 7, "0a8b4b7e-46a4-4d0f-9c3b-3f3e1f0f5a11")
    key = keys.embedded_key(own, Place(42, 10))
    assert keys.place_of(key) == (42, 10)
    assert keys.place_of(own) is None
    assert keys.own_key(key) == keys.own_key(own) == own
    assert keys.embedded_key(key, Place(43, 0)) == keys.embedded_key(own, Place(43, 0))
    assert keys.parse_any_file_key(key) == keys.parse_any_file_key(own) == keys.parse_data_key(own)
    assert keys.born_of(key) == 7
    for wrong in (
        f"{own}@",
        f"{own}@42+0",
        f"{own}@{42:020d}+-1",
        f"{own}@{42:020d}+999999999",
        f"{key}@{42:020d}+0",
    ):
        assert keys.parse_any_file_key(wrong) is None, wrong
    assert keys.parse_data_key(key) is None
    assert keys.named_after(key) is None
