"""Histories are written as they happen, also by processes that are killed, and read back as they were."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from txnformat.errors import InvalidInputError
from txnformat.types import IsolationLevel
from txnlog_testing.checker import (
    CommitOffsets,
    Event,
    EventType,
    Function,
    HistoryWriter,
    Order,
    Poll,
    ReadOffsets,
    Send,
    StableOffset,
    TransactionTag,
    event_from_json,
    event_to_json,
    merge_histories,
    partition_key,
    read_history,
    records_of,
    topic_of,
)

FULL = Event(
    process="w1",
    type=EventType.OK,
    f=Function.TXN,
    time_ns=12,
    value=(
        Send("orders/0", 17, offset=3, sequence=0),
        Send("audit", "é"),
        Poll(
            {"in/0": ((4, "a"), (6, 7)), "in/1": ()},
            isolation=IsolationLevel.READ_UNCOMMITTED,
            whole=True,
            ranges={"in/0": (4, 7)},
        ),
        Poll({"in/0": ((4, "a"),)}, order=Order.COMMIT),
        CommitOffsets("etl", {"in/0": 7}),
        ReadOffsets("etl", {"in/0": 7, "in/1": None}),
        StableOffset("in/0", 7, 9),
    ),
    transaction=TransactionTag("etl-1", epoch=3, version=4),
    keys=("in/0",),
    interleaved=True,
    rebalanced=("in/1",),
    error="it was slow",
)


def test_an_event_survives_the_way_through_json() -> None:
    text = json.dumps(event_to_json(FULL))
    assert event_from_json(json.loads(text)) == FULL
    plain = Event(process="w1", type=EventType.INVOKE, f=Function.POLL, time_ns=0)
    assert event_to_json(plain) == {"process": "w1", "type": "invoke", "f": "poll", "time_ns": 0}
    assert event_from_json(event_to_json(plain)) == plain


SMALL = {"process": "w1", "type": "ok", "f": "poll", "time_ns": 0}


@pytest.mark.parametrize(
    "change",
    [
        {"process": 1},
        {"process": None},
        {"type": "done"},
        {"f": "read"},
        {"time_ns": "now"},
        {"time_ns": True},
        {"other": 1},
        {"value": {}},
        {"value": [{"do": "fly"}]},
        {"value": [{"do": "send", "key": "t/0"}]},
        {"value": [{"do": "send", "key": "t/0", "value": 1.5}]},
        {"value": [{"do": "send", "key": "t/0", "value": 1, "offset": -1}]},
        {"value": [{"do": "poll", "records": {"t/0": [[1]]}}]},
        {"value": [{"do": "poll", "records": {}, "ranges": {"t/0": [3, 2]}}]},
        {"value": [{"do": "poll", "records": {}, "ranges": {"t/0": [1, 2]}, "order": "commit"}]},
        {"value": [{"do": "poll", "records": {}, "isolation": "serializable"}]},
        {"transaction": {"epoch": 1}},
        {"interleaved": 1},
    ],
    ids=str,
)
def test_what_is_no_event_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError) as caught:
        event_from_json({**SMALL, **change})
    assert caught.value.kind == "invalid-history"


def test_keys() -> None:
    assert partition_key("a.b-1", 2) == "a.b-1/2"
    assert (topic_of("a.b-1/2"), topic_of("a.b-1")) == ("a.b-1", "a.b-1")


def test_records_of_rows() -> None:
    rows = [
        {"_topic": "t", "_partition": 1, "_offset": 4, "n": 8},
        {"_topic": "t", "_partition": 0, "_offset": 0, "n": 9},
        {"_topic": "t", "_partition": 1, "_offset": 5, "n": 1},
    ]
    assert records_of(rows, "n") == {"t/1": ((4, 8), (5, 1)), "t/0": ((0, 9),)}


def test_an_operation_is_an_invoke_and_its_completion(tmp_path: Path) -> None:
    ticks = itertools.count()
    with HistoryWriter(tmp_path / "h.jsonl", clock=lambda: next(ticks)) as history:
        with history.operation("p", "txn", [Send("t/0", 1)], transaction=TransactionTag("a", 1)):
            pass
        with history.operation("p", "poll") as op:
            op.add(Poll({"t/0": ((0, 1),)}))
            op.rebalanced("t/1")
        with pytest.raises(KeyError), history.operation("p", "send", fails=(KeyError,)):
            raise KeyError
        with pytest.raises(OSError, match="away"), history.operation("p", "send", fails=(KeyError,)):
            raise OSError("away")
        with history.operation("p", "send") as op:
            op.fail("refused")
            with pytest.raises(InvalidInputError, match="ends once"):
                op.ok()
        history.event("p", "crash")
    events = read_history(tmp_path / "h.jsonl")
    assert [event.index for event in events] == [event.time_ns for event in events] == list(range(11))
    assert [(event.f.value, event.type.value) for event in events] == [
        ("txn", "invoke"),
        ("txn", "ok"),
        ("poll", "invoke"),
        ("poll", "ok"),
        ("send", "invoke"),
        ("send", "fail"),
        ("send", "invoke"),
        ("send", "info"),
        ("send", "invoke"),
        ("send", "fail"),
        ("crash", "ok"),
    ]
    assert events[0].value == (Send("t/0", 1),)
    assert events[1].value is None
    assert events[3].value == (Poll({"t/0": ((0, 1),)}),)
    assert events[3].rebalanced == ("t/1",)
    assert events[7].error == "OSError: away"


CHILD = """
import sys
from txnlog_testing.checker import HistoryWriter, Send
history = HistoryWriter.in_directory(sys.argv[1])
number = 0
while True:
    with history.operation(f"w{sys.argv[2]}", "send", [Send("t/0", f"{sys.argv[2]}-{number}")]):
        number += 1
    if number == 50:
        print("ready", flush=True)
"""


def test_files_of_processes_that_are_killed_are_merged(tmp_path: Path) -> None:
    """Times are of one clock; each process has a file; all but a last line of the dead is there."""
    children = [
        subprocess.Popen(
            [sys.executable, "-c", CHILD, str(tmp_path), str(number)], stdout=subprocess.PIPE, text=True
        )
        for number in range(2)
    ]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    for child in children:
        child.send_signal(signal.SIGKILL)
        child.wait()
        assert child.stdout is not None
        child.stdout.close()
    assert len(list(tmp_path.glob("*.jsonl"))) == 2
    events = read_history(tmp_path)
    for number in range(2):
        own = [event for event in events if event.process == f"w{number}"]
        assert len(own) >= 100
        assert [event.type for event in own[:100]] == [EventType.INVOKE, EventType.OK] * 50
        sent = [event.value[0] for event in own if event.type is EventType.INVOKE and event.value]
        assert sent == [Send("t/0", f"{number}-{place}") for place in range(len(sent))]


@pytest.mark.parametrize("rest", [b'{"process": "p', b"", b"\xc3", b"{" * 200_000])
def test_a_line_that_was_not_finished_is_passed_over_and_cut_off(rest: bytes, tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    with HistoryWriter(path) as history:
        first = history.event("p", "crash")
    with path.open("ab") as file:
        file.write(rest)
    assert [event.time_ns for event in read_history(path)] == [first.time_ns]
    with HistoryWriter(path) as history:
        second = history.event("p", "crash")
    assert [event.time_ns for event in read_history(path)] == [first.time_ns, second.time_ns]


def test_what_is_no_history_is_refused_with_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    with pytest.raises(InvalidInputError, match="there is no history"):
        read_history(path)
    with pytest.raises(InvalidInputError, match="there is no history"):
        read_history(tmp_path)
    path.write_text(json.dumps(SMALL) + "\n" + "{}\n")
    with pytest.raises(InvalidInputError, match=rf"{path}:2: an event has no 'process'"):
        read_history(path)
    path.write_text("x\n")
    with pytest.raises(InvalidInputError, match=rf"{path}:1: not JSON"):
        read_history(path)
    path.write_text("".join(json.dumps({**SMALL, "time_ns": time}) + "\n" for time in (5_000_000_000, 1)))
    with pytest.raises(InvalidInputError, match="times go back"):
        merge_histories([path])


def test_the_folder_of_a_history_gives_each_writer_a_file(tmp_path: Path) -> None:
    with HistoryWriter.in_directory(tmp_path / "a") as one, HistoryWriter.in_directory(tmp_path / "a") as two:
        assert one.path != two.path
        assert {path.name.split("-")[0] for path in (tmp_path / "a").iterdir()} == {str(os.getpid())}
