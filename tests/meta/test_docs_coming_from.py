"""The pages for people from other systems name only what there is."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest

import txnlog
from spark_datasource.options import declared
from tests.meta.cli_reference import commands
from tests.meta.kinds import KINDS
from tests.meta.markdown import ROOT, codes, prose, section, tables
from txnformat.admin.groups import Groups
from txnformat.admin.subscriptions import Subscriptions
from txnformat.core.groups.checks import SESSION_TIMEOUT_MS_MAX
from txnformat.core.lifecycle.idle import (
    GROUP_RETENTION_MS,
    PRODUCER_RETENTION_MS,
    TRANSACTIONAL_ID_RETENTION_MS,
)
from txnformat.core.topics.settings import SETTINGS as TOPIC_SETTINGS
from txnformat.core.transactions.state import MAX_TRANSACTION_TIMEOUT_MS
from txnformat.core.wire.document import check_text
from txnformat.protocol.commit import CommitSettings
from txnformat.reading.rows import METADATA_FIELDS

PAGES = ["from-delta.md", "from-kafka.md"]
TEXTS = {name: (ROOT / "docs" / name).read_text(encoding="utf-8") for name in PAGES}
DELTA = TEXTS["from-delta.md"]
KAFKA = TEXTS["from-kafka.md"]

OURS = {
    "log": txnlog.TxnLog,
    "producer": txnlog.Producer,
    "txn": txnlog.Transaction,
    "consumer": txnlog.Consumer,
    "TxnLog": txnlog.TxnLog,
    "Producer": txnlog.Producer,
    "Consumer": txnlog.Consumer,
    "log.groups": Groups,
    "log.subscriptions": Subscriptions,
    "log.transactions": txnlog.Transactions,
}
"""What the pages call objects of ours."""

SETTINGS: dict[str, Any] = {
    "Producer": txnlog.Producer,
    "Consumer": txnlog.Consumer,
    "CommitSettings": CommitSettings,
    "TxnLog.open": txnlog.TxnLog.open,
    "TxnLog.create": txnlog.TxnLog.create,
    "TxnLog.create_topic": txnlog.TxnLog.create_topic,
}
"""What takes settings, as the tables of settings name it."""

WITHOUT_SETTING: dict[str, object] = {
    "transaction.max.timeout.ms": MAX_TRANSACTION_TIMEOUT_MS,  # None by default: as the log has it
    "transactional.id.expiration.ms": TRANSACTIONAL_ID_RETENTION_MS,
    "producer.id.expiration.ms": PRODUCER_RETENTION_MS,
    "offsets.retention.minutes": GROUP_RETENTION_MS // 60_000,
    "group.max.session.timeout.ms": SESSION_TIMEOUT_MS_MAX,
    "offset.metadata.max.bytes": inspect.signature(check_text).parameters["bytes_max"].default,
}
"""By Kafka's name: defaults that no argument has."""


def _named(name: str) -> list[str]:
    return codes(prose(TEXTS[name]))


@pytest.mark.parametrize("name", PAGES)
def test_every_command_that_a_page_names_exists(name: str) -> None:
    known = {command for command, _ in commands()}  # of several words where there are groups of them
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
        for owner, attribute in re.findall(r"(?<![\w.])([A-Za-z]+(?:\.[a-z]+(?=\.))?)\.([a-z_]+)", code)
        if owner in OURS
    ]
    assert len(found) > 5
    assert {(owner, attribute) for owner, attribute in found if not _has(OURS[owner], attribute)} == set()


def _has(cls: type, attribute: str) -> bool:
    """Tell whether objects of a class have it: ``log.transactions`` and the like are made by the
    constructor.
    """
    return hasattr(cls, attribute) or f"self.{attribute} = " in inspect.getsource(cls)


@pytest.mark.parametrize("name", PAGES)
def test_every_error_that_a_page_names_exists(name: str) -> None:
    for code in _named(name):
        if re.fullmatch(r"[A-Z]\w+Error", code):
            assert hasattr(txnlog, code), code
        if code.startswith("TXNLOG_"):
            assert code.removeprefix("TXNLOG_").lower().replace("_", "-") in KINDS, code
    named = re.findall(r"`[A-Z]\w+Error`(?: of kind)? \(?((?:`[a-z-]+`(?:, )?)+)", TEXTS[name])
    assert named
    assert {kind for group in named for kind in codes(group)} - KINDS == set()


def test_the_options_that_are_said_to_be_deltas_too_are_ours() -> None:
    (table,) = tables(section(DELTA, "## In one table"))
    same = {code for row in table.rows if row[1].startswith("the same option") for code in codes(row[0])}
    assert same == {"versionAsOf", "timestampAsOf", "txnAppId", "txnVersion"}
    assert same <= {*declared.READ, *declared.WRITE}


def test_what_is_said_to_be_missing_is_missing() -> None:
    """A row that says "none" has to go when the thing is built."""
    for verb in ("restore", "merge", "update", "delete", "optimize", "retention"):
        assert not hasattr(txnlog.TxnLog, verb), verb
    assert "_commit_entry" in METADATA_FIELDS
    spark = (ROOT / "docs" / "spark-read.md").read_text(encoding="utf-8")
    assert "Tables of a catalog" in section(spark, "## Not in this version")


# --- docs/from-kafka.md -------------------------------------------------------------------------------------

SETTING_ROWS = [
    row for table in tables(KAFKA) if table.header[2:4] == ["here", "default here"] for row in table.rows
]


@pytest.mark.parametrize("row", SETTING_ROWS, ids=lambda row: (codes(row[0]) or [row[2]])[0])
def test_a_setting_that_is_named_exists_and_has_the_default_that_is_named(row: list[str]) -> None:
    """``Owner(parameter=)``, a setting of topics, or "fixed" for what is a constant; else there must be no
    default."""
    match = re.fullmatch(r"`([\w.]+)\((\w+)=\)`", row[2])
    name = (codes(row[0]) or [""])[0]
    if match:
        parameter = inspect.signature(SETTINGS[match[1]]).parameters[match[2]]
        given = WITHOUT_SETTING.get(name, parameter.default)
        assert codes(row[3]) == ([] if given is inspect.Parameter.empty else [str(given)])
    elif match := re.fullmatch(r"`alter-topic --set ([\w.]+)`", row[2]):
        assert codes(row[3]) == [str(TOPIC_SETTINGS[match[1]].default)]
    elif row[2] == "fixed":
        assert codes(row[3]) == [str(WITHOUT_SETTING[name])]
    else:
        assert (row[2] in ("none", "not built"), row[3]) == (True, "")


@pytest.mark.parametrize("name", ["Producer", "Consumer"])
def test_every_setting_of_a_client_has_its_row(name: str) -> None:
    rows = {row[2] for row in SETTING_ROWS}
    assert {
        f"`{name}({one}=)`" for one in inspect.signature(SETTINGS[name]).parameters if one != "log"
    } <= rows


def test_no_setting_of_kafkas_is_named_twice_in_a_table() -> None:
    for table in tables(KAFKA):
        names = [code for row in table.rows for code in codes(row[0].split("(")[0])]
        if table.header[0] == "Kafka" and len(table.header) == 5:
            assert len(names) == len(set(names))


def test_what_is_said_to_differ_from_kafkas_default_does() -> None:
    for row in SETTING_ROWS:
        if row[4] == "another default":
            assert codes(row[1])[0].lower() != codes(row[3])[0].lower(), row
        elif codes(row[1]) and codes(row[3]):
            assert codes(row[1])[0].lower() == codes(row[3])[0].lower(), row
