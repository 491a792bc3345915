"""txnlog groups list, describe, reset-offsets, delete, and what other commands show of groups."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tests.cli.conftest import Answer, Command
from txnformat.core.groups.operations import OffsetCommit, PositionCommit
from txnformat.core.intents import Action, GroupOffsets, JoinAsMember, OpenProducer, ProducerRef, Write
from txnlog import Producer, TxnLog


def commit(log: TxnLog, action: Action) -> None:
    log.committer.commit(log.committer.intend(action))


def offsets(log: TxnLog, group: str, *values: int) -> GroupOffsets:
    """Return positions in the first partitions of ``t``."""
    topic_id = log.refresh().topic("t").topic_id
    return GroupOffsets(
        group, tuple(OffsetCommit(topic_id, number, value) for number, value in enumerate(values))
    )


@pytest.fixture
def busy(log: TxnLog) -> TxnLog:
    """Ten records and two aborted ones; ``readers`` has a live member and positions, ``others`` a foreign
    position too."""
    log.create_topic("t", pa.schema([("id", pa.int64())]), partitions=2)
    with Producer(log, "writer", buffer="inline") as producer:
        with producer.transaction() as txn:
            txn.send("t", [{"id": n} for n in range(10)], partition=0)
        producer.begin()
        producer.send("t", [{"id": 9}, {"id": 9}], partition=0)
        producer.flush()
        producer.abort()
    commit(log, JoinAsMember("readers", "a process", 45_000))
    commit(log, Write(offsets=(offsets(log, "readers", 4, 0),)))
    commit(
        log,
        Write(
            offsets=(
                GroupOffsets("others", offsets(log, "others", 2).offsets, (PositionCommit("x/0", "7"),)),
            )
        ),
    )
    commit(log, OpenProducer("etl"))
    known = log.state.transactional_ids["etl"]
    etl = ProducerRef(known.producer_id, known.epoch, "etl")
    commit(log, Write(etl, offsets=(offsets(log, "others", 5),)))
    return log


def tables(answer: Answer) -> list[list[list[str]]]:
    """Return every table that was printed, as rows of cells."""
    assert answer.code == 0, answer.err
    return [
        [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in part.splitlines()]
        for part in answer.out.strip().split("\n\n")
    ]


def position(log: TxnLog, group: str = "others") -> int | str:
    state = log.refresh()
    (key,) = [key for key in state.groups[group].committed if not isinstance(key, str) and key.partition == 0]
    return state.groups[group].value(key)


def test_list_shows_states_members_and_counts(txnlog: Command, busy: TxnLog) -> None:
    ((header, others, readers),) = tables(txnlog("groups", "list"))
    assert header == [
        *("GROUP", "STATE", "GENERATION", "MEMBER", "LIVE-UNTIL", "POSITIONS", "PENDING-TRANSACTIONS"),
        "LAST-USED",
    ]
    assert others[:7] == ["others", "Empty", "0", "-", "-", "2", "1"]
    assert (readers[:4], readers[5:7]) == (["readers", "Stable", "1", "a process"], ["2", "0"])
    assert [
        one["group"] for one in txnlog("groups", "list", "--state", "empty", "--json").json["groups"]
    ] == ["others"]
    assert tables(txnlog("groups", "list", "--pattern", "r.*"))[0][1][0] == "readers"


def test_describe_has_kafkas_columns_and_counts_what_a_committed_reader_gets(
    txnlog: Command, busy: TxnLog
) -> None:
    """Markers at 10 and 13, aborted records at 11 and 12."""
    groups, positions, foreign = tables(txnlog("groups", "describe", "others", "readers"))
    assert groups[0] == ["GROUP", "STATE", "GENERATION", "MEMBER", "LIVE-UNTIL"]
    assert [row[:4] for row in groups[1:]] == [
        ["others", "Empty", "0", "-"],
        ["readers", "Stable", "1", "a process"],
    ]
    assert positions[0] == [
        *(
            "GROUP",
            "TOPIC",
            "PARTITION",
            "CURRENT-OFFSET",
            "LAST-STABLE-OFFSET",
            "LOG-END-OFFSET",
            "LAG",
            "PENDING",
        ),
        *("COMMITTED-ENTRY", "COMMITTED-AT", "METADATA"),
    ]
    assert [row[:8] for row in positions[1:]] == [
        ["others", "t", "0", "2", "14", "14", "8", "etl:5"],
        ["readers", "t", "0", "4", "14", "14", "6", "-"],
        ["readers", "t", "1", "0", "0", "0", "0", "-"],
    ]
    assert foreign[0][:4] == ["GROUP", "NAME", "POSITION", "PENDING"]
    assert foreign[1][:4] == ["others", "x/0", "7", "-"]
    every = txnlog("groups", "describe", "--all-groups", "--json").json["groups"]
    assert [(one["group"], one["lag"]) for one in every] == [("others", 8), ("readers", 6)]
    assert every[0]["positions"][0]["pending"][0]["transactional_id"] == "etl"
    assert every[1]["member"]["live"] is True
    assert every[0]["positions"][0]["committed"].endswith("Z")


def test_a_reset_is_shown_and_done_only_with_execute(txnlog: Command, busy: TxnLog) -> None:
    before = busy.refresh().entry
    shown = txnlog("groups", "reset-offsets", "others", "--topic", "t", "--to-latest")
    assert shown.out.splitlines()[-1] == "nothing was written: add --execute to do it"
    assert shown.out.splitlines()[1].split() == ["others", "t", "0", "2", "14"]
    assert (
        txnlog("groups", "reset-offsets", "others", "--to-earliest", "--dry-run", "--json").json["dry_run"]
        is True
    )
    assert busy.refresh().entry == before
    done = txnlog(
        "groups", "reset-offsets", "others", "--topic", "t", "--to-latest", "--execute", "--json"
    ).json
    assert (done["entry"], done["dry_run"], len(done["offsets"])) == (busy.refresh().entry, False, 2)
    assert position(busy) == 14


@pytest.mark.parametrize(
    ("way", "expected"),
    [
        (["--to-earliest"], 0),
        (["--to-latest"], 14),
        (["--to-current"], 4),
        (["--to-offset", 7], 7),
        (["--to-datetime", "2020-01-01T00:00:00"], 0),
        (["--to-datetime", "2199-01-01T00:00:00+02:00"], 14),
        (["--by-duration", "P1DT1H1M1.5S"], 0),
        (["--by-duration", "PT0S"], 14),
        (["--by-duration", "0s"], 14),
        (["--shift-by", 3], 7),
        (["--shift-by", -4], 0),
    ],
)
def test_every_way_to_say_where_to(txnlog: Command, busy: TxnLog, way: list[object], expected: int) -> None:
    answer = txnlog(
        "groups", "reset-offsets", "readers", "--topic", "t", "--partition", 0, *way, "--execute", "--force"
    )
    assert answer.code == 0, answer.err
    assert position(busy, "readers") == expected


def test_positions_go_through_a_file(txnlog: Command, busy: TxnLog, tmp_path: Path) -> None:
    exported = txnlog("groups", "reset-offsets", "readers", "--to-current", "--export", "--force").out
    assert exported == "t,0,4\nt,1,0\n"
    plan = tmp_path / "plan.csv"
    plan.write_text(exported.replace("t,0,4", "t,0,9"))
    answer = txnlog("groups", "reset-offsets", "new", "--from-file", plan, "--create", "--execute")
    assert answer.code == 0, answer.err
    assert position(busy, "new") == 9
    stdin = "\nt , 0 , 3\n"
    assert txnlog("groups", "reset-offsets", "new", "--from-file", "-", "--execute", stdin=stdin).code == 0
    marked = "\ufeff" + stdin.lstrip()
    assert txnlog("groups", "reset-offsets", "new", "--from-file", "-", "--execute", stdin=marked).code == 0
    assert position(busy, "new") == 3


@pytest.mark.parametrize(
    "text", ["", "\n", "t,0\n", "t,0,-1\n", "t,x,1\n", ",0,1\n", "t,0,1\nt,0,2\n", "t,0,1,2\n", "\0"]
)
def test_a_file_that_says_something_else_is_refused_by_line(txnlog: Command, busy: TxnLog, text: str) -> None:
    before = busy.refresh().entry
    answer = txnlog(
        "groups", "reset-offsets", "new", "--from-file", "-", "--create", "--execute", "--json", stdin=text
    )
    assert (answer.code, answer.error["kind"]) == (2, "usage")
    assert "--from-file" in answer.error["message"]
    assert all(line.strip() in answer.error["message"] for line in text.splitlines() if line.count(",") == 1)
    assert busy.refresh().entry == before


def test_a_file_that_is_no_text_is_refused(txnlog: Command, busy: TxnLog, tmp_path: Path) -> None:
    (tmp_path / "plan").write_bytes(b"t,0,1\n\xff\xfe")
    for path in (tmp_path / "plan", tmp_path / "none"):
        answer = txnlog(
            "groups", "reset-offsets", "new", "--from-file", path, "--create", "--execute", "--json"
        )
        assert (answer.code, answer.error["kind"]) == (2, "usage")


RESET = ("groups", "reset-offsets")


@pytest.mark.parametrize(
    ("arguments", "code", "kind"),
    [
        (("groups", "describe", "reader"), 3, "unknown-group"),
        (("groups", "describe", "no/name"), 2, "invalid-group-name"),
        (("groups", "describe"), 2, "usage"),
        (("groups", "describe", "readers", "--all-groups"), 2, "usage"),
        (("groups", "list", "--pattern", "("), 2, "invalid-pattern"),
        (("groups", "list", "--state", "Gone"), 2, "usage"),
        (("groups", "delete", "reader"), 3, "unknown-group"),
        (("groups", "delete", "readers"), 4, "group-active"),
        (("groups", "delete", "readers", "--dry-run"), 4, "group-active"),
        (("groups", "delete", "others", "--force"), 4, "offsets-pending"),
        ((*RESET, "reader", "--to-earliest"), 3, "unknown-group"),
        ((*RESET, "readers", "--to-earliest"), 4, "group-active"),
        ((*RESET, "readers", "--to-earliest", "--execute"), 4, "group-active"),
        ((*RESET, "others", "--topic", "u", "--to-earliest", "--execute"), 3, "unknown-topic"),
        (
            (*RESET, "others", "--topic", "t", "--partition", 7, "--to-earliest", "--execute"),
            3,
            "unknown-partition",
        ),
        ((*RESET, "others", "--topic", "t", "--partition", "x", "--to-earliest"), 2, "usage"),
        ((*RESET, "others", "--partition", 0, "--to-earliest"), 2, "usage"),
        ((*RESET, "others", "--to-offset", 15, "--execute"), 2, "offset-out-of-range"),
        ((*RESET, "others", "--to-offset", -1), 2, "usage"),
        ((*RESET, "others", "--shift-by", -1, "--execute"), 4, "offsets-pending"),
        ((*RESET, "others", "--shift-by", -3, "--topic", "t"), 2, "no-position"),
        ((*RESET, "others"), 2, "usage"),
        ((*RESET, "others", "--to-earliest", "--to-offset", 1), 2, "usage"),
        ((*RESET, "others", "--to-earliest", "--to-latest", "--execute"), 2, "usage"),
        ((*RESET, "others", "--to-earliest", "--execute", "--dry-run"), 2, "usage"),
        ((*RESET, "others", "--to-earliest", "--export"), 2, "usage"),
        ((*RESET, "others", "--to-datetime", "yesterday"), 2, "usage"),
        ((*RESET, "others", "--by-duration", "1y"), 2, "usage"),
        ((*RESET, "others", "--by-duration", "P"), 2, "usage"),
        ((*RESET, "others", "--by-duration", "PT"), 2, "usage"),
        ((*RESET, "others", "--topic", "t", "--from-file", "-"), 2, "usage"),
    ],
)
def test_bad_input_has_its_kind_and_writes_nothing(
    txnlog: Command, busy: TxnLog, arguments: tuple[object, ...], code: int, kind: str
) -> None:
    before = busy.refresh().entry
    answer = txnlog(*arguments, "--json")
    assert (answer.code, answer.error["kind"]) == (code, kind), answer.err
    assert busy.refresh().entry == before
    assert "Traceback" not in answer.err


def test_a_mistyped_group_is_answered_with_the_nearest(txnlog: Command, busy: TxnLog) -> None:
    for command in (
        ["describe", "raeders"],
        ["delete", "raeders"],
        ["reset-offsets", "raeders", "--to-latest"],
    ):
        assert "did you mean 'readers'?" in txnlog("groups", *command).err


def test_delete_says_what_went(txnlog: Command, busy: TxnLog) -> None:
    assert (
        txnlog("groups", "delete", "readers", "--force", "--dry-run").out
        == "readers: this would delete the group and 2 positions\n"
    )
    assert "readers" in busy.refresh().groups
    answer = txnlog("groups", "delete", "readers", "--force")
    assert answer.out == f"readers: deleted with 2 positions, in entry {busy.refresh().entry}\n"
    assert "readers" not in busy.state.groups


def test_history_tells_of_groups_in_words(txnlog: Command, busy: TxnLog) -> None:
    assert txnlog("groups", "reset-offsets", "others", "--to-earliest", "--execute").code == 0
    assert txnlog("groups", "delete", "readers", "--force").code == 0
    text = txnlog("history", "--all").out
    for words in (
        "readers joined by a process as generation 1",
        "readers +2 positions",
        "others +1 position in etl",
        "others without a member from generation 1 on, others +1 position",
        "readers deleted",
    ):
        assert words in text
    newest = txnlog("history", "--limit", 1, "--json").lines[0]
    assert (newest["groups"][0]["group"], newest["groups"][0]["kind"]) == ("readers", "deleted")


def test_metrics_and_describe_show_groups(txnlog: Command, busy: TxnLog) -> None:
    groups = tables(txnlog("metrics"))[1]
    assert groups[:2] == [
        ["Group", "State", "Topic", "Partition", "CommittedOffset", "LagRecords"],
        ["others", "Empty", "t", "0", "2", "8"],
    ]
    busy.maintain("seal")
    assert tables(txnlog("metrics"))[1][1][-1] == "<= 10"
    assert [one["group"] for one in txnlog("describe", "--json").json["groups"]] == ["others", "readers"]
