"""Every option is described in one place, and the pages say what that place and the parsers have."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import pytest

from spark_datasource.options.read import parse_read_options
from spark_datasource.options.write import parse_stream_write_options, parse_write_options
from tests.meta.markdown import codes, tables
from tests.meta.options_reference import COMMAND, OPTIONS, OPTIONS_PAGE, generated, text_of
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


@pytest.mark.parametrize("use", PARSERS)
def test_a_parser_knows_the_declared_options_and_no_other(use: str) -> None:
    declared = [name for each in OPTIONS[use].values() for name in (each.name, each.alias) if name]
    assert _known(use) == declared


@pytest.mark.parametrize("path", [OPTIONS_PAGE], ids=lambda path: str(path.name))
def test_the_pages_are_made_from_the_code(path: Any) -> None:
    assert path.read_text(encoding="utf-8") == generated()[path], f"run: {COMMAND}"


def test_another_name_of_an_option_means_the_same() -> None:
    aliases = [(use, each) for use, options in OPTIONS.items() for each in options.values() if each.alias]
    assert len(aliases) >= 2
    for use, each in aliases:
        given = {"path": "/log"} if each.name == "topic" else {"path": "/log", "topic": "orders"}
        found = PARSERS[use]({**given, str(each.alias): each.example})
        assert dataclasses.replace(found, given=frozenset()) == dataclasses.replace(
            PARSERS[use]({**given, each.name: each.example}), given=frozenset()
        )


def test_the_description_of_an_option_fits_into_a_cell() -> None:
    for options in OPTIONS.values():
        for each in options.values():
            texts = [each.kind.type, each.default, each.example, text_of(each)]
            assert not re.search(r"[|\n]", " ".join(texts)), each.name
            assert each.kind.type, each.name
            assert text_of(each).endswith("."), each.name


@pytest.mark.parametrize("cls", [ProducerSettings, ConsumerSettings])
def test_the_settings_of_python_are_all_there(cls: type[Any]) -> None:
    listed = [
        [codes(row[0])[0] for row in table.rows] for table in tables(OPTIONS_PAGE.read_text(encoding="utf-8"))
    ]
    assert [field.name for field in dataclasses.fields(cls)] in listed
