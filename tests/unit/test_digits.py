"""Numbers from outside are digits of ASCII: in options, in answers of a store, in arguments of the
command.
"""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from txnformat.digits import seconds, whole
from txnformat.errors import InvalidInputError
from txnformat.store.s3.options import S3Options
from txnlog.cli.options import Integer, IntegerRange

ROOT = Path(__file__).resolve().parents[2]
ODD = ["\u0663", "1\uff10", "\u00b2", "1_0", " 1", "1 ", "1\n", "", "0x1", "\u0967", "1" * 20, "9" * 5_000]


@pytest.mark.parametrize("text", [*ODD, "-1", "+1", "1.0"])
def test_what_is_no_whole_number(text: str) -> None:
    assert whole(text) is None


def test_whole_numbers() -> None:
    assert [whole(text) for text in ("0", "007", "9" * 19)] == [0, 7, int("9" * 19)]
    assert [whole("12", 1), whole("1", 1)] == [None, 1]


@pytest.mark.parametrize("text", [*ODD, "-1", ".", "1e3", "nan", "inf", "1.0.0", "1.\u0663"])
def test_what_is_no_number_of_seconds(text: str) -> None:
    assert seconds(text) is None
    if text == text.strip() and text:
        with pytest.raises(InvalidInputError, match="number of seconds"):
            S3Options.parse({"request_timeout_s": text})


def test_seconds() -> None:
    assert [seconds(text) for text in ("0", "2.5", ".5", "3.")] == [0.0, 2.5, 0.5, 3.0]


@pytest.mark.parametrize("type_", [Integer(), IntegerRange(min=0)])
@pytest.mark.parametrize("text", ODD)
def test_the_command_takes_digits_of_ascii_only(type_: click.ParamType[int], text: str) -> None:
    @click.command()
    @click.option("--number", type=type_)
    def command(number: int) -> None:
        click.echo(repr(number))

    assert CliRunner().invoke(command, ["--number", "12"]).output == "12\n"
    assert CliRunner().invoke(command, ["--number", text]).exit_code == 2


def test_nothing_else_judges_digits() -> None:
    """``isdigit`` and its like take digits of every script, ``click.IntRange`` what ``int`` takes."""
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for folder in ("txnformat", "writers", "spark_datasource", "txnlog", "pyspark_txnlog")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if "testing" not in path.parts
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if re.search(
            r"\.is(digit|decimal|numeric)\(|click\.(IntRange|INT|FLOAT|FloatRange)\(|type=(int|float)\b", line
        )
    ]
    assert found == []
