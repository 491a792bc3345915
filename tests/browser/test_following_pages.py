"""The page of ``txnlog ui`` while a log changes under it: what a reader has picked, typed and scrolled to
stays."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tests.browser.chromium import Chromium, Tab
from tests.browser.served import busy_log, served
from tests.cli.left_open import left_open, prepare
from txnlog import Producer, TxnLog

SCHEMA = pa.schema([("id", pa.int64())])


@pytest.fixture
def tab(browser: Chromium) -> Iterator[Tab]:
    """A tab whose page must have made no mistake when the test ends."""
    found = browser.tab()
    yield found
    assert (found.dialogs, found.faults) == ([], [])
    found.close()


@pytest.fixture
def log(tmp_path: Path) -> TxnLog:
    """A log with five appends of one producer in each of two topics."""
    log = TxnLog.create(tmp_path / "log")
    for name in ("a", "b"):
        log.create_topic(name, SCHEMA)
    with Producer(log) as producer:
        for number in range(5):
            append(producer, number)
    return log


def append(producer: Producer, number: int) -> None:
    for name in ("a", "b"):
        producer.send(name, [{"id": number}], partition=0)
    producer.flush()


def go_to(tab: Tab, page: str) -> None:
    tab.evaluate(f"document.querySelector('nav a[data-page={page}]').click()")


PICKED = (
    "[...document.querySelectorAll('#transactions tr.picked')].map((one) => one.cells[3].textContent).join()"
)
NEWEST = "Number(document.getElementById('status').textContent.split(' ')[1])"


def test_a_pick_and_the_focus_stay_with_their_append(tab: Tab, log: TxnLog, tmp_path: Path) -> None:
    with served(tmp_path / "log", "--every", "100") as url, Producer(log) as producer:
        tab.open(url)
        go_to(tab, "transactions")
        assert tab.evaluate(PICKED) == ""
        tab.evaluate("document.querySelectorAll('#transactions tbody tr')[4].querySelector('button').focus()")
        tab.press("Enter")
        picked = tab.evaluate(PICKED)
        assert picked.split(" ")[0].isdigit()
        assert "," not in picked
        pictured = "document.querySelectorAll('#timeline .picked').length"
        go_to(tab, "timeline")
        before = tab.evaluate(pictured)
        go_to(tab, "transactions")
        tab.evaluate("document.querySelector('#transactions tr.picked button').focus()")
        for number in range(3):
            append(producer, number)
            tab.wait(f"{NEWEST} >= {log.refresh().entry}")
            assert tab.evaluate(PICKED) == picked
            assert tab.evaluate("document.activeElement.closest('tr').className") == "picked"
        log.create_topic("0-sorts-first", SCHEMA)
        tab.wait(f"{NEWEST} >= {log.refresh().entry}")
        assert tab.evaluate(PICKED) == picked
        go_to(tab, "timeline")
        assert tab.evaluate(pictured) == before
        # Also over an older state that does not have it.
        tab.evaluate("document.getElementById('slider').focus()")
        tab.press("Home")
        tab.wait(f"{NEWEST} === 0")
        tab.press("End")
        tab.wait(f"{NEWEST} >= {log.state.entry}")
        go_to(tab, "transactions")
        assert tab.evaluate(PICKED) == picked


def test_the_place_on_the_page_stays(tab: Tab, tmp_path: Path) -> None:
    log = busy_log(tmp_path / "log")
    with served(tmp_path / "log", "--every", "100") as url:
        tab.open(url)
        tab.evaluate("window.scrollTo(0, document.body.scrollHeight)")
        before = tab.evaluate("window.scrollY")
        assert before > 0
        log.create_topic("more", SCHEMA)
        tab.wait(f"{NEWEST} >= {log.refresh().entry}")
        assert tab.evaluate("window.scrollY") == before


def test_what_was_given_up_has_an_outcome_of_its_own(tab: Tab, tmp_path: Path) -> None:
    log = TxnLog.create(tmp_path / "log")
    log.create_topic("t", SCHEMA, partitions=2)
    left_open(log, "bank")
    prepare(log, "bank")
    before = log.refresh().entry
    log.delete_records("t", {0: log.offsets("t")[0].log_end}, force=["bank"])
    with Producer(log) as producer:
        producer.send("t", [{"id": 1}], partition=0)
    tab.open(log.timeline().save(tmp_path / "report.html").as_uri())
    lane = (
        "[...document.querySelectorAll('#timeline g')].map((one) => one.dataset.outcome + ': ' + "
        "one.textContent).filter((one) => one.includes('bank'))"
    )
    assert any(one.startswith("given-up: ") and "given up, began" in one for one in tab.evaluate(lane))
    assert "given up (G)" in tab.evaluate("document.querySelector('.legend').innerText")
    go_to(tab, "transactions")
    assert "given up" in tab.evaluate("document.querySelector('#transactions table').innerText")
    go_to(tab, "timeline")
    for _ in range(log.refresh().entry - before):
        tab.evaluate("document.getElementById('earlier').click()")
    assert tab.evaluate("document.getElementById('status').textContent").startswith(f"entry {before} of")
    assert {one.partition(":")[0] for one in tab.evaluate(lane)} == {"prepared"}


@pytest.mark.parametrize("page", ["topics", "files"])
def test_among_500_topics_one_is_found_by_typing_its_name(tab: Tab, tmp_path: Path, page: str) -> None:
    log = TxnLog.create(tmp_path / "log")
    for number in range(500):
        log.create_topic(f"Topic-{number:03}", SCHEMA)
    rows = f"document.querySelector('#{page} table').tBodies[0].rows"
    with served(tmp_path / "log", "--every", "100") as url:
        tab.open(f"{url}#{page}")
        assert tab.evaluate(f"{rows}.length") == 100
        assert "400 more topics, filter by name" in tab.evaluate(
            f"document.getElementById('{page}').innerText"
        )
        for _ in range(20):  # from the top of the page, as a reader without a mouse
            tab.press("Tab")
            if tab.evaluate("document.activeElement.getAttribute('aria-label')") == "Filter topics by name":
                break
        tab.call("Input.insertText", text="topic-4")
        assert tab.evaluate(f"{rows}.length") == 100
        log.create_topic("another", SCHEMA)  # and the page follows while a reader types
        tab.wait(f"{NEWEST} >= {log.refresh().entry}")
        tab.call("Input.insertText", text="99")
        assert tab.evaluate("document.activeElement.value") == "topic-499"
        assert tab.evaluate(f"[...{rows}].map((one) => one.cells[0].textContent)") == ["Topic-499"]
        assert "more topics" not in tab.evaluate(f"document.getElementById('{page}').innerText")


@pytest.mark.parametrize(
    ("is_replaced", "sentence"),
    [(False, "the log is no longer there"), (True, "another log is at this place now")],
)
def test_a_log_that_is_gone_or_replaced_is_said(
    browser: Chromium, log: TxnLog, tmp_path: Path, is_replaced: bool, sentence: str
) -> None:
    tab = browser.tab()
    with served(tmp_path / "log", "--every", "100") as url:
        tab.open(url)
        tab.wait("performance.getEntriesByType('resource').length > 1")
        (tmp_path / "log").rename(tmp_path / "aside")
        if is_replaced:
            TxnLog.create(tmp_path / "log")
        tab.wait(f"document.getElementById('fault').textContent.startsWith('{sentence}')")
        told = tab.evaluate("performance.getEntriesByType('resource').length")
        tab.wait(f"performance.getEntriesByType('resource').length > {told + 3}")
        assert "start txnlog ui again" in tab.evaluate("document.getElementById('fault').textContent")
    tab.close()
