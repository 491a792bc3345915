"""Tables on a terminal: no number and no time is folded or cut, long texts are, and what has no place stands
in lines."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.cli.terminals import DRAWN, on_a_terminal
from txnlog.cli.output import CELL_LENGTH_MAX, print_table, say_parts

TIME = "2026-11-27T05:53:50.216Z"
SHOW = "import json,sys; from txnlog.cli.output import print_table; print_table(*json.loads(sys.argv[1]))"


PARTS = "import json,sys; from txnlog.cli.output import say_parts; say_parts(*json.loads(sys.argv[1]))"


def test_parts_of_a_line_stay_whole_on_a_narrow_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    parts = [
        "Log: s3://shop/log",
        "LogId: 5518e804-d231-4419-a318-d4530d62f42f",
        "Entry: 10",
        f"Timestamp: {TIME}",
    ]
    command = [sys.executable, "-c", PARTS, json.dumps(parts)]
    shown = on_a_terminal(command, COLUMNS="80", PYTHONPATH=str(Path.cwd())).decode().replace("\r", "")
    assert shown.splitlines() == ["  ".join(parts[:3]), parts[3]]
    say_parts(*parts)  # in a pipe they are one line
    assert capsys.readouterr().out == "  ".join(parts) + "\n"
    say_parts("x" * 200, "y")
    assert capsys.readouterr().out == f"{'x' * 200}  y\n"


def drawn(columns: Sequence[str], rows: Sequence[Sequence[object]], width: int) -> list[str]:
    """Return the lines that a terminal of this width shows."""
    command = [sys.executable, "-c", SHOW, json.dumps([list(columns), [list(row) for row in rows]])]
    shown = on_a_terminal(command, COLUMNS=str(width), PYTHONPATH=str(Path.cwd()))
    lines = DRAWN.sub(b"", shown).decode().replace("\r", "").split("\n")
    if any("─" in line for line in lines):  # else the terminal breaks long lines itself
        assert all(len(line) <= width for line in lines)
    return [line.rstrip() for line in lines if line.strip()]


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_numbers_and_times_stay_whole(width: int) -> None:
    rows = [["orders", 123_456_789_012, TIME, "15 min", "12.5 MB", "word " * 30]]
    lines = drawn(["TOPIC", "LAST-STABLE-OFFSET", "COMMITTED-AT", "AGE", "SIZE", "TEXT"], rows, width)
    text = "\n".join(lines)
    for whole in ("orders", "123456789012", TIME, "15 min", "12.5 MB"):
        assert re.search(rf"(^|\s){re.escape(whole)}(\s|$)", text, re.MULTILINE), text


def test_a_long_text_gives_way_to_the_others() -> None:
    lines = drawn(["NAME", "COUNT", "TEXT"], [["a", 1, "x" * 300], ["b", 22, "short"]], 60)
    assert lines[-2].split() == ["a", "1", "x" * 41 + "…"] or lines[-2].endswith("…")
    assert lines[-1].split() == ["b", "22", "short"]


def test_columns_without_a_value_are_left_out_first() -> None:
    columns = ["GROUP", "NOTHING-AT-ALL", "WHEN", "NEITHER"]
    assert drawn(columns, [["g", None, TIME, None]], 44)[0].split() == ["GROUP", "WHEN"]
    assert drawn(columns, [["g", None, TIME, None]], 100)[-1].split() == ["g", "-", TIME, "-"]


def test_what_has_no_place_stands_in_lines() -> None:
    rows = [[TIME, TIME, 1], [TIME, TIME, 2]]
    assert drawn(["BEGUN", "ENDED-AT", "N"], rows, 50) == [
        f"BEGUN     {TIME}",
        f"ENDED-AT  {TIME}",
        "N         1",
        f"BEGUN     {TIME}",
        f"ENDED-AT  {TIME}",
        "N         2",
    ]


def test_a_cell_of_a_pipe_is_cut_too(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["KEY", "VALUE"], [["big", "y" * 60_000_000], ["small", "z"]])
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == f"big    {'y' * (CELL_LENGTH_MAX - 1)}…"
    assert lines[2] == "small  z"
