"""Text that is not UTF-8 has no door into a log; ``verify`` finds what an older version let in."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from txnformat.client.committer import Committer
from txnformat.clock import SystemIds
from txnformat.core.intents import Write
from txnformat.store.memory import MemoryStore
from txnlog import (
    Consumer,
    CorruptDataError,
    InvalidInputError,
    OffsetAndMetadata,
    Producer,
    Subscription,
    TxnLog,
)
from txnlog.cli.app import run
from writers.bulk import BulkAppend
from writers.upload import TopicUpload, topic_append

HALF = "\ud800"
PLAIN = pa.schema([("n", pa.int64()), ("text", pa.string()), ("tags", pa.list_(pa.string()))])


def strings(*values: bytes) -> Any:
    return pa.array(values, pa.binary()).view(pa.string())


def rows(*values: bytes) -> pa.Table:
    """Return rows whose text, and whose only tag, is each of these bytes."""
    tags = pa.ListArray.from_arrays(list(range(len(values) + 1)), strings(*values))
    return pa.table({"n": list(range(len(values))), "text": strings(*values), "tags": tags})


@pytest.fixture
def log() -> TxnLog:
    log = TxnLog.create(MemoryStore())
    log.create_topic("t", PLAIN, partitions=3, key_columns=["text"])
    log.create_topic("k", "kafka")
    return log


@pytest.fixture
def producer(log: TxnLog) -> Iterator[Producer]:
    with Producer(log, "p") as producer:
        producer.begin()
        yield producer


Call = Callable[[Producer], Any]


@pytest.mark.parametrize(
    "call",
    [
        lambda p: p.send("t", rows(b"a", b"\xff")),
        lambda p: p.send("t", rows(b"a", b"\xff").to_batches()[0]),
        lambda p: p.send("t", rows(b"\xff").slice(0, 1), 2),
        lambda p: p.send("t", rows(b"\xff").cast(pa.schema([PLAIN[0], ("text", pa.large_string()), PLAIN[2]]))),
        lambda p: p.send("t", [{"n": 1, "text": HALF, "tags": None}]),
        lambda p: p.send("t", [{"n": 1, "text": "a", "tags": [HALF]}]),
        lambda p: p.send("t", [{"n": 1, "text": b"\xff", "tags": None}]),
        lambda p: p.send("t", [{"n": 1, "text": "a", "tags": None, HALF: 1}]),
        lambda p: p.send("k", key=HALF),
        lambda p: p.send("k", value=HALF),
        lambda p: p.send("k", value="v", headers={HALF: "a"}),
        lambda p: p.send("k", value="v", headers={"a": HALF}),
        lambda p: p.send("k", [{"key": HALF, "value": b"v"}]),
        lambda p: p.send("k", [{"key": b"k", "value": b"v", "headers": [{"key": HALF, "value": b"v"}]}]),
        lambda p: p.send_offsets("g", {("k", 0): OffsetAndMetadata(0, HALF)}),
        lambda p: p.send_offsets(HALF, {("k", 0): 0}),
        lambda p: p.send_offsets("g", positions={HALF: "a"}),
        lambda p: p.send_offsets("g", positions={"a": HALF}),
        lambda p: p.send_offsets("g", positions={"a": "b"}, expected_positions={"a": HALF}),
    ],
)  # fmt: skip
def test_no_call_of_a_producer_takes_what_is_not_text(producer: Producer, log: TxnLog, call: Call) -> None:
    with pytest.raises(InvalidInputError) as caught:
        call(producer)
    str(caught.value).encode()
    producer.send("t", rows(b"good"))
    producer.commit()
    assert log.read("t", columns=["text"]).read_all().to_pylist() == [{"text": "good"}]


@pytest.mark.parametrize(
    "call",
    [
        lambda log: log.create_topic(HALF, PLAIN),
        lambda log: log.create_topic("u", PLAIN, key_columns=[HALF]),
        lambda log: log.create_topic("u", PLAIN, timestamp_column=HALF),
        lambda log: log.read("t", columns=[HALF]),
        lambda log: log.read("t", where=f"`{HALF}` = 1").read_all(),
        lambda log: log.outcome(HALF, 0),
        lambda log: Producer(log, HALF),
    ],
)
def test_no_call_of_a_log_takes_a_name_that_is_not_text(log: TxnLog, call: Callable[[TxnLog], Any]) -> None:
    entry = log.refresh().entry
    with pytest.raises(InvalidInputError) as caught:
        call(log)
    str(caught.value).encode()
    assert log.refresh().entry == entry


def test_a_bulk_append_refuses_what_is_not_text(log: TxnLog) -> None:
    with BulkAppend(log) as append:
        with pytest.raises(InvalidInputError, match=r"column 'text', row 1: b'\\xff' is not UTF-8"):
            append.send("t", rows(b"a", b"\xff"))
        append.send("t", rows(b"a"))
        append.commit()
    assert log.read("t").read_all().num_rows == 1


def append_as_of_old(log: TxnLog, *tables: pa.Table) -> str:
    """Append rows that nothing looks at, a batch each; return the file's key."""
    topic = log.refresh().topic("t")
    upload = TopicUpload(
        log.store, SystemIds(), directory=topic.directory, schema=topic.schema, born=log.state.entry
    )
    for table in tables:
        upload.add(0, table.cast(topic.schema.arrow_schema))
    uploaded = upload.finish()
    append = topic_append(topic.topic_id, topic.partitions, uploaded)
    log.committer.commit(log.committer.intend(Write(None, (append,))))
    (file,) = uploaded.files
    return file.key


def test_verify_names_file_column_and_row_of_old_text(log: TxnLog) -> None:
    append_as_of_old(log, rows(b"good"))
    key = append_as_of_old(log, rows(b"good", b"\xff"), rows(*[b"g"] * 5, b"\xfe", b"g"))
    assert log.verify().ok, "what is in files is looked at with deep only"
    report = log.verify(deep=True)
    assert [(problem.kind, problem.object) for problem in report.problems] == [("invalid-text", key)] * 2
    tags, text = report.problems
    assert tags.what == (
        "column 'tags' holds text that is not UTF-8 in row 1 (a text in it is not UTF-8), "
        "row 7 (a text in it is not UTF-8)"
    )
    assert text.what == (
        r"column 'text' holds text that is not UTF-8 in row 1 (b'\xff' is not UTF-8), row 7 (b'\xfe' is "
        r"not UTF-8)"
    )
    # What the hint says.
    column = log.read("t").read_all().column("text")
    assert sorted(column.cast("binary").to_pylist())[-2:] == [b"\xfe", b"\xff"]


def test_verify_counts_what_it_does_not_name(log: TxnLog) -> None:
    append_as_of_old(log, rows(*[b"\xff"] * 1_005))
    what = log.verify(deep=True).problems[1].what
    assert what.endswith(r"row 4 (b'\xff' is not UTF-8) and 1,000 more")


def test_python_values_of_old_text_are_one_clear_error_and_arrow_data_can_be_had(log: TxnLog) -> None:
    append_as_of_old(log, rows(b"good", b"\xff"))
    log.subscriptions.create("t", "s")
    with Consumer(log) as consumer, Subscription(log, "t", "s") as subscription:
        consumer.subscribe(["t"])
        for call in (consumer.poll_dicts, subscription.receive_dicts):
            with pytest.raises(CorruptDataError, match="not UTF-8") as caught:
                call()
            assert caught.value.kind == "invalid-text"
            assert caught.value.values["column"] in ("text", "tags")
            assert (caught.value.values["partition"], caught.value.values["offset"]) == (0, 1)
            assert caught.value.__cause__ is None
        batch = consumer.poll()  # the records that no call has handed out
        assert batch is not None
        assert batch.column("text").cast("binary").to_pylist() == [b"good", b"\xff"]


@pytest.mark.parametrize("form", ["json", "csv", "table"])
def test_the_command_says_which_record_it_is(
    tmp_path: Path, form: str, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    with TxnLog.create(str(tmp_path)) as log:
        log.create_topic("t", PLAIN.remove(2) if form == "csv" else PLAIN)
        table = rows(b"good", b"\xff")
        append_as_of_old(log, table.drop_columns("tags") if form == "csv" else table)
    arguments = ["consume", "--root", str(tmp_path), "t", "--format", form]
    assert run([*arguments, *(["--no-formulas"] if form == "csv" else [])]) != 0
    said = capsysbinary.readouterr().err.decode()
    assert "a text column holds bytes that are not UTF-8" in " ".join(said.split())


@pytest.mark.parametrize("make", [pickle.dumps, copy.copy, copy.deepcopy])
@pytest.mark.parametrize(
    "part",
    [
        lambda log: log,
        lambda log: log.snapshot(),
        lambda log: log.transactions,
        lambda log: log.committer,
        BulkAppend,
    ],
    ids=["log", "snapshot", "transactions", "committer", "bulk append"],
)
def test_an_open_log_cannot_be_pickled_and_says_what_to_do(
    log: TxnLog, part: Callable[[TxnLog], Any], make: Callable[[Any], Any]
) -> None:
    held = part(log)
    if make is copy.copy and not isinstance(held, TxnLog | Committer):
        return  # shares what it holds, and is as good
    with pytest.raises(InvalidInputError, match=r"open it where it is used.*TxnLog.open\(path\)") as caught:
        make(held)
    assert caught.value.kind == "not-picklable"
