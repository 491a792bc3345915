"""The page holds what hostile names cannot leave, and runs nothing but its own script."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from html.parser import HTMLParser

import msgspec
import pytest

from txnformat.looking.model import Document, Partition, Place, Sample, StorageView, Transaction
from txnformat.looking.page import frame, page, policy

HOSTILE = (
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "<img src=x onerror=alert(1)>",
    "\"'><svg onload=alert(1)>",
    "\u2028\u2029&lt;",
)


def document(name: str) -> Document:
    return Document(
        url=f"file:///{name}",
        log_id="1",
        topic=name,
        version="0",
        entry=0,
        newest=0,
        earliest=0,
        first=0,
        timestamp_ms=0,
        now_ms=0,
        notes=(name,),
        partitions=(Partition(name, 0, 0),),
        transactions=(Transaction(name, 1, 0, 0, 0, (), 0, 0),),
        samples=(Sample(0, 0, (Place(0, 1, 2, 0),), (), (), 0, 0),),
        entries=(),
        group_names=(name,),
        topics=(),
        open=(),
        groups=(),
        storage=StorageView((), 0, 0, (), (), 0, 0, 0, 0, 0),
        objects=(),
        requests=(),
        prices={},
    )


class Elements(HTMLParser):
    """The elements of a page, with what a browser takes for scripts and styles."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.inside: str | None = None
        self.content: dict[str, list[str]] = {"script": [], "style": []}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self.inside = tag if tag in self.content else None
        if self.inside is not None:
            self.content[self.inside].append("")

    def handle_endtag(self, tag: str) -> None:
        self.inside = None

    def handle_data(self, data: str) -> None:
        if self.inside is not None:
            self.content[self.inside][-1] += data


def parsed(text: str) -> Elements:
    found = Elements()
    found.feed(text)
    return found


@pytest.mark.parametrize("name", HOSTILE)
def test_no_name_adds_an_element_or_changes_the_data(name: str) -> None:
    shown = document(name)
    harmless, hostile = parsed(page(document("x"))), parsed(page(shown))
    assert [tag for tag, _ in hostile.found] == [tag for tag, _ in harmless.found]
    assert json.loads(hostile.content["script"][0]) == json.loads(msgspec.json.encode(shown))
    assert len(re.findall("</script", page(shown))) == 2


def test_the_policy_allows_the_page_s_own_script_and_style_alone() -> None:
    found = parsed(page(document("x")))
    (data, script), (style,) = found.content["script"], found.content["style"]
    assert json.loads(data)["entry"] == 0

    def allowed(text: str) -> str:
        return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"

    (said,) = [attributes["content"] for tag, attributes in found.found if attributes.get("http-equiv")]
    assert said == policy()
    rules = dict(rule.split(" ", 1) for rule in policy().split("; "))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == allowed(script)
    assert rules["style-src"] == allowed(style)
    assert "connect-src" not in rules
    assert "unsafe" not in policy()
    assert policy(live=True) == policy() + "; connect-src 'self'"


def test_the_page_names_no_other_place() -> None:
    text = page(document("x"))
    found = parsed(text)
    places = [
        value
        for _, attributes in found.found
        for name, value in attributes.items()
        if name in ("src", "href", "action", "srcset")
    ]
    assert [one for one in places if one and not one.startswith(("#", "data:"))] == []
    assert not any(
        name.startswith("on") or name == "style" for _, attributes in found.found for name in attributes
    )
    assert set(re.findall(r"https?://[^\"'`\s]+", text)) == {
        "http://www.w3.org/2000/svg"
    }  # the name of a vocabulary
    assert not re.search(r"url\((?!#)", text)


def test_a_frame_keeps_the_page_apart() -> None:
    text = page(document(HOSTILE[0]))
    ((tag, attributes),) = parsed(frame(text)).found
    assert tag == "iframe"
    assert attributes["sandbox"] == "allow-scripts"
    assert attributes["srcdoc"] == text
    assert html.unescape(html.escape(text)) == text


def test_without_a_script_the_newest_offsets_are_there() -> None:
    text = page(document("<b>"))
    assert "<noscript>" in text
    assert "<td>&lt;b&gt;</td><td>0</td><td>0</td><td>1</td><td>2</td>" in text
