"""The pages for people from other systems name only what there is."""

from __future__ import annotations

import inspect
import re

import pytest

import txnlog
from spark_datasource import options
from tests.meta.cli_reference import commands
from tests.meta.markdown import ROOT, codes, prose, section, tables
from tests.meta.test_docs import KINDS
from txnformat.reader import METADATA_FIELDS
from txnlog.cli.app import application

PAGES = ["from-delta.md"]
TEXTS = {name: (ROOT / "docs" / name).read_text(encoding="utf-8") for name in PAGES}
DELTA = TEXTS["from-delta.md"]

OURS = {
    "log": txnlog.TxnLog,
    "producer": txnlog.Producer,
    "txn": txnlog.Transaction,
    "consumer": txnlog.Consumer,
    "TxnLog": txnlog.TxnLog,
    "Producer": txnlog.Producer,
    "Consumer": txnlog.Consumer,
}
"""What the pages call objects of ours."""


def _named(name: str) -> list[str]:
    return codes(prose(TEXTS[name]))


@pytest.mark.parametrize("name", PAGES)
def test_every_command_that_a_page_names_exists(name: str) -> None:
    known = {command for command, _ in commands()} | set(application.commands)
    named = [code for code in _named(name) if code.startswith("txnlog ")]
    assert named
    for code in named:
        words = code.split()
        assert words[1] in known or " ".join(words[1:3]) in known, code


@pytest.mark.parametrize("name", PAGES)
def test_every_call_that_a_page_names_exists(name: str) -> None:
    found = [
        (owner, attribute)
        for code in _named(name)
        for owner, attribute in re.findall(r"(?<![\w.])([A-Za-z]+)\.([a-z_]+)", code)
        if owner in OURS
    ]
    assert len(found) > 5
    assert {(owner, attribute) for owner, attribute in found if not _has(OURS[owner], attribute)} == set()


def _has(cls: type, attribute: str) -> bool:
    """Tell whether objects of a class have it: ``log.transactions`` and the like are made by the constructor."""
    return hasattr(cls, attribute) or f"self.{attribute} = " in inspect.getsource(cls)


@pytest.mark.parametrize("name", PAGES)
def test_every_error_that_a_page_names_exists(name: str) -> None:
    for code in _named(name):
        if re.fullmatch(r"[A-Z]\w+Error", code):
            assert hasattr(txnlog, code), code
        if code.startswith("TXNLOG_"):
            assert code.removeprefix("TXNLOG_").lower().replace("_", "-") in KINDS, code
    for kind in re.findall(r"`[A-Z]\w+Error`(?: of kind)? \(?`([a-z-]+)`", TEXTS[name]):
        assert kind in KINDS, kind


def test_the_options_that_are_said_to_be_deltas_too_are_ours() -> None:
    (table,) = tables(section(DELTA, "## In one table"))
    same = {code for row in table.rows if row[1].startswith("the same option") for code in codes(row[0])}
    assert same == {"versionAsOf", "timestampAsOf", "txnAppId", "txnVersion"}
    assert same <= {*options._READ, *options._WRITE}


def test_what_is_said_to_be_missing_is_missing() -> None:
    """A row that says "none" has to go when the thing is built."""
    for verb in ("restore", "merge", "update", "delete", "optimize", "compact", "vacuum", "retention"):
        assert not hasattr(txnlog.TxnLog, verb), verb
    assert "_commit_entry" in METADATA_FIELDS
    spark = (ROOT / "docs" / "spark.md").read_text(encoding="utf-8")
    assert "Reading and writing streams" in section(spark, "## Not in this version")
