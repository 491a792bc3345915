"""Quotes of CSV: what is not closed, or has text behind it, is told once and by its place; a header may end
the input."""

from __future__ import annotations

import csv
import io
import itertools

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cli.conftest import Command
from txnlog import TxnLog
from txnlog.cli.records.csv_quotes import Quotes

OPEN = "its quote is not closed, so the rest of the input is in one value"


@pytest.fixture
def topics(log: TxnLog) -> TxnLog:
    log.create_topic("one", pa.schema([("id", pa.int64())]))
    log.create_topic("two", pa.schema([("id", pa.int64()), ("note", pa.string())]))
    return log


@pytest.mark.parametrize(
    ("topic", "text", "problems"),
    [
        ("one", 'id\n"1\n', [f"row 2: {OPEN}"]),
        ("one", 'id\n1\n"x\n2\n', [f"row 3: {OPEN}"]),
        ("one", '"id\n1\n', [f"row 1, the header: {OPEN}"]),
        ("two", 'id,note\n"1\n', [f"row 2: {OPEN}"]),
        ("two", 'id,note\nx,y\n1,"', [("row 2, column 'id': 'x' is not a value of int64; write digits, "
                                      "such as 42 or -42"), f"row 3: {OPEN}"]),
        ("two", 'id,note\n1,"a"b\n', ["""line 2: text stands behind a closing quote: '"a"b'; write a quote inside a value twice"""]),
        ("two", 'id,note\n1,"a\nb" \n2,x\n"3"4,\n', [
            """line 2: text stands behind a closing quote: '"a\\nb" '; write a quote inside a value twice""",
            """line 5: text stands behind a closing quote: '"3"4'; write a quote inside a value twice""",
        ]),
    ],
)  # fmt: skip
def test_what_is_wrong_with_quotes_is_told_and_no_mark_of_the_reader(
    txnlog: Command, topics: TxnLog, topic: str, text: str, problems: list[str]
) -> None:
    before = topics.refresh().entry
    answer = txnlog("produce", topic, "--format", "csv", "--json", stdin=text)
    assert (answer.code, answer.error["kind"]) == (2, "invalid-record")
    assert answer.error["problems"] == problems
    assert topics.refresh().entry == before


@pytest.mark.parametrize("end", ["", "\n", "\r\n", "\r"])
@pytest.mark.parametrize(
    ("topic", "header"), [("one", "id"), ("one", '"id"'), ("two", "id,note"), ("one", "\ufeffid")]
)
def test_a_header_alone_is_no_record(
    txnlog: Command, topics: TxnLog, topic: str, header: str, end: str
) -> None:
    answer = txnlog("produce", topic, "--format", "csv", "--json", stdin=header + end)
    assert (answer.code, answer.json["records"]) == (0, 0)


def test_quotes_inside_values_are_characters(txnlog: Command, topics: TxnLog) -> None:
    text = '\ufeff"id","note"\n1,"a""b"\n2,a"b\n3," ""\n"\n'
    assert txnlog("produce", "two", "--format", "csv", stdin=text).code == 0
    assert [one["note"] for one in txnlog("consume", "two").lines] == ['a"b', 'a"b', ' "\n']


def told(pieces: list[str]) -> tuple[list[str], bool]:
    quotes = Quotes(",")
    for piece in pieces:
        quotes.feed(piece)
    return quotes.problems, quotes.is_open


@given(st.text('a",\n', max_size=40), st.lists(st.integers(0, 40), max_size=4))
def test_pieces_are_as_the_whole(text: str, cuts: list[int]) -> None:
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    whole = told([text])
    pieces = told([text[start:end] for start, end in itertools.pairwise(places)])
    assert pieces[1] == whole[1]
    # What is shown of a value may be cut where a piece is.
    assert [one.partition(":")[0] for one in pieces[0]] == [one.partition(":")[0] for one in whole[0]]


@given(st.text('a",\n', min_size=1, max_size=30))
def test_text_behind_a_quote_is_found_where_a_strict_reader_finds_it(text: str) -> None:
    problems, is_open = told([text])
    why = ""
    try:
        list(csv.reader(io.StringIO(text, newline=""), strict=True))
    except csv.Error as error:
        why = str(error)
    assert bool(problems) == ("expected after" in why)
    assert is_open or not why or problems
    assert why or not is_open
