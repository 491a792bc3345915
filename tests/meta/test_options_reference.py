"""Every option is described in one place, and the pages say what that place and the parsers have."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import pytest

from spark_datasource.options.docs import OPTION_DOCS
from spark_datasource.options.read import parse_read_options
from spark_datasource.options.write import parse_stream_write_options, parse_write_options
from tests.meta.markdown import codes, tables
from tests.meta.options_reference import COMMAND, OPTIONS_PAGE, SPARK_PAGE, generated
from txnformat.consumers.settings import ConsumerSettings
from txnformat.errors import InvalidInputError
from writers.settings import ProducerSettings

PARSERS: dict[str, Callable[[dict[str, str]], Any]] = {
    "read": parse_read_options,
    "write": parse_write_options,
    "stream write": parse_stream_write_options,
}


def _known(use: str) -> list[str]:
    """Return the options that a parser knows: it lists them all when one is like none of them."""
    with pytest.raises(InvalidInputError) as caught:
        PARSERS[use]({"path": "/log", "topic": "orders", "0" * 40: "1"})
    (problem,) = caught.value.problems
    _, _, names = problem.partition("; there are ")
    return names.split(", ")


def test_every_use_is_described() -> None:
    assert set(OPTION_DOCS) == set(PARSERS)


@pytest.mark.parametrize("use", PARSERS)
def test_every_option_that_a_parser_knows_is_described_and_no_other(use: str) -> None:
    """If not: mend spark_datasource/options/docs.py."""
    assert sorted(OPTION_DOCS[use]) == sorted(_known(use))


@pytest.mark.parametrize("path", [OPTIONS_PAGE, SPARK_PAGE], ids=lambda path: str(path.name))
def test_the_pages_are_made_from_the_code(path: Any) -> None:
    assert path.read_text(encoding="utf-8") == generated()[path], f"run: {COMMAND}"


def test_another_name_of_an_option_means_the_same() -> None:
    aliases = [
        (use, name, each)
        for use, docs in OPTION_DOCS.items()
        for name, each in docs.items()
        if each.alias_of is not None
    ]
    assert len(aliases) >= 2
    for use, name, each in aliases:
        given = {"path": "/log"} if each.alias_of == "topic" else {"path": "/log", "topic": "orders"}
        parse = PARSERS[use]
        assert parse({**given, name: each.example}) == parse({**given, str(each.alias_of): each.example})


def test_the_description_of_an_option_fits_into_a_cell() -> None:
    for docs in OPTION_DOCS.values():
        for name, each in docs.items():
            texts = [text for text in dataclasses.astuple(each) if text is not None]
            assert not re.search(r"[|\n]", " ".join(texts)), name
            assert each.type, name
            assert each.meaning, name
            assert not each.meaning.endswith("."), name


@pytest.mark.parametrize("cls", [ProducerSettings, ConsumerSettings])
def test_the_settings_of_python_are_all_there(cls: type[Any]) -> None:
    listed = [
        [codes(row[0])[0] for row in table.rows] for table in tables(OPTIONS_PAGE.read_text(encoding="utf-8"))
    ]
    assert [field.name for field in dataclasses.fields(cls)] in listed
