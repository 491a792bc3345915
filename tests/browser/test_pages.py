"""Pages in a real browser: the report's file, the page of ``txnlog ui``, and what a notebook shows."""

from __future__ import annotations

import html
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
import pytest

from tests.browser.chromium import DESKTOP, PHONE, Chromium, Tab
from tests.browser.served import HOSTILE, KILLED, busy_log, leave_open, left_behind, served
from txnlog import TxnLog

PAGES = ("timeline", "topics", "transactions", "groups", "files", "requests")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("looked-at") / "<img src=x onerror=alert(1)>"
    busy_log(path).close()
    return path


@pytest.fixture(scope="module")
def report(root: Path) -> str:
    return TxnLog.open(root).timeline().save(root.parent / "report.html").as_uri()


@pytest.fixture
def tab(browser: Chromium) -> Iterator[Tab]:
    """A tab that must have done nothing wrong when the test ends."""
    found = browser.tab()
    yield found
    assert (found.dialogs, found.faults) == ([], [])
    found.close()


def go_to(tab: Tab, page: str) -> str:
    """Go to one of the pages by its link; return its text."""
    tab.evaluate(f"document.querySelector('nav a[data-page={page}]').click()")
    assert tab.evaluate("document.querySelector('nav a[aria-current=page]').dataset.page") == page
    text: str = tab.evaluate("document.getElementById('main').innerText")
    return text


def shown_entry(tab: Tab) -> int:
    text: str = tab.evaluate("document.getElementById('status').textContent")
    return int(text.split()[1].replace(",", ""))


def test_a_report_shows_hostile_names_as_text_and_fetches_nothing(tab: Tab, report: str) -> None:
    tab.open(report)
    texts = {page: go_to(tab, page) for page in PAGES}
    assert all(HOSTILE in texts[page] for page in ("timeline", "topics", "transactions"))
    assert r"a\u{202e}b\u{200b}c\u{0}" in texts["timeline"]
    assert not {"\u202e", "\u200b", "\0"} & set("".join(texts.values()))
    assert "force-terminate" in texts["timeline"]
    assert "At this rate" not in texts["requests"]  # the window is too short to say so
    assert tab.evaluate("document.querySelectorAll('img, b b, iframe, object').length") == 0
    assert tab.requests == [report]


def test_the_pictures_tell_outcomes_without_colour(tab: Tab, report: str) -> None:
    tab.open(report)
    go_to(tab, "timeline")
    outcomes = tab.evaluate(
        "[...new Set([...document.querySelectorAll('#timeline g')].map((g) => g.dataset.outcome))].sort()"
    )
    assert outcomes == ["aborted", "committed", "open", "prepared"]
    fills = tab.evaluate(
        "new Set([...document.querySelectorAll('.legend rect')].map((one) => one.getAttribute('fill'))).size"
    )
    assert fills == 7
    assert tab.evaluate(
        "[...document.querySelectorAll('#timeline svg[role=img]')].every((one) => "
        "one.getAttribute('aria-label'))"
    )
    assert tab.evaluate(
        "[...document.querySelectorAll('#timeline text.on')].some((one) => one.textContent === 'A')"
    )


def test_keys_walk_the_slider_through_the_states(tab: Tab, report: str) -> None:
    tab.open(report)
    newest = tab.evaluate("JSON.parse(document.getElementById('document').textContent).entry")
    go_to(tab, "transactions")
    for _ in range(12):  # from the top of the page, as a reader without a mouse
        tab.press("Tab")
        if tab.evaluate("document.activeElement.id") == "slider":
            break
    assert tab.evaluate("document.activeElement.id") == "slider"
    assert shown_entry(tab) == newest
    tab.press("Home")
    assert shown_entry(tab) == 0
    assert "0 of 0" in tab.evaluate("document.querySelector('#transactions caption').textContent")
    begun = tab.evaluate(
        "JSON.parse(document.getElementById('document').textContent).transactions[0].begin_entry"
    )
    for number in range(1, begun + 1):
        tab.press("ArrowRight")
        assert shown_entry(tab) == number
        assert tab.evaluate("document.activeElement.id") == "slider"
    assert "open" in tab.evaluate("document.getElementById('transactions').innerText")
    assert tab.evaluate("document.getElementById('slider').getAttribute('aria-valuetext')").startswith(
        f"entry {begun} of"
    )
    tab.press("ArrowRight")
    assert "committed" in tab.evaluate("document.getElementById('transactions').innerText")
    tab.press("End")
    assert shown_entry(tab) == newest


def test_a_phone_scrolls_in_one_direction_and_a_dark_system_gets_a_dark_page(tab: Tab, report: str) -> None:
    tab.show_on(PHONE)
    tab.open(report)
    for page in PAGES:
        go_to(tab, page)
        assert tab.evaluate("document.documentElement.scrollWidth") <= PHONE.width, page
    light = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    tab.show_on(DESKTOP._replace(dark=True))
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") != light


def test_the_served_page_follows_and_goes_back(browser: Chromium, tab: Tab, root: Path) -> None:
    with served(root, "--every", "200") as url:
        tab.open(url)
        assert HOSTILE in go_to(tab, "timeline")
        assert KILLED not in go_to(tab, "timeline")
        tab.wait("performance.getEntriesByType('resource').length > 1")  # it asks, and nothing is new
        left_behind(root)
        tab.evaluate("1")  # what it asked before has come
        asked = len(tab.requests)
        tab.wait(
            "document.querySelector('#timeline .held.open') && "
            f"document.getElementById('main').innerText.includes('{KILLED}')"
        )
        follows = [one for one in tab.requests[asked:] if "/api/follow" in one]
        assert len(follows) <= 2  # one was under way
        assert f"txnlog transactions abort --root 'file://{root}' {KILLED}" in go_to(tab, "timeline")
        newest = TxnLog.open(root).state.entry
        assert shown_entry(tab) == newest
        # Any entry, also one that the page does not have.
        tab.evaluate("document.getElementById('slider').focus()")
        tab.press("Home")
        tab.press("ArrowRight")
        tab.press("ArrowRight")
        tab.wait("document.getElementById('status').textContent.startsWith('entry 2 of')")
        assert not tab.evaluate("document.getElementById('follow').checked")
        assert KILLED not in go_to(tab, "timeline")
        for page in PAGES:
            go_to(tab, page)
        assert "a minute" in go_to(tab, "requests")
        tab.evaluate("document.getElementById('follow').click()")
        tab.wait(f"document.getElementById('status').textContent.startsWith('entry {newest} of')")
        assert {urlsplit(one).netloc for one in tab.requests} == {urlsplit(url).netloc}
        assert urlsplit(url).hostname == "127.0.0.1"


def test_a_transaction_becomes_late_without_an_entry(tab: Tab, tmp_path: Path) -> None:
    with TxnLog.create(tmp_path / "log") as log:
        log.create_topic("payments", pa.schema([("id", pa.int64())]))
    with served(tmp_path / "log", "--every", "100") as url, TxnLog.open(tmp_path / "log") as log:
        tab.open(url)
        leave_open(log, "slow", "payments", transaction_timeout_ms=1_500)
        tab.wait("document.querySelector('#timeline .held')")
        tab.wait("document.querySelector('#timeline .held.late')")
        assert "end-expired" in go_to(tab, "timeline")


def test_a_server_that_is_gone_is_said(browser: Chromium, root: Path) -> None:
    tab = browser.tab()
    with served(root, "--every", "100") as url:
        tab.open(url)
    tab.wait("document.getElementById('fault').textContent.includes('does not answer')")
    tab.close()


def test_a_notebook_s_output_shows_the_page_in_a_frame(browser: Chromium, root: Path, tmp_path: Path) -> None:
    shown = TxnLog.open(root).timeline("orders")._repr_html_()
    outer = tmp_path / "notebook.html"
    outer.write_text(f"<!doctype html><title>{html.escape('a notebook')}</title>{shown}", encoding="utf-8")
    tab = browser.tab()
    tab.open(outer.as_uri())
    frame = tab.call("Page.getFrameTree")["frameTree"]["childFrames"][0]["frame"]["id"]
    world = tab.call("Page.createIsolatedWorld", frameId=frame)["executionContextId"]
    expression = "document.querySelectorAll('#timeline svg[role=img]').length"
    answer = tab.call("Runtime.evaluate", contextId=world, expression=expression, returnByValue=True)
    assert answer["result"]["value"] == 4  # three partitions, and the lanes
    assert (tab.dialogs, tab.faults) == ([], [])
    tab.close()
