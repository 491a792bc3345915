"""One HTML file with document, style and script in it.

It fetches nothing: its policy lets it run its own script and no other. Pure.

Names of topics, ids and groups may hold anything. They are in the file as JSON, in which ``<`` is escaped,
and the script puts them on the page as text.
"""

from __future__ import annotations

import base64
import hashlib
import html
from functools import cache
from pkgutil import get_data

import msgspec

from txnformat.errors import InternalError
from txnformat.looking.model import Document

__all__ = ["frame", "page", "policy"]

FRAME_HEIGHT = 760
"""Height of the frame in a notebook, in pixels."""
PAGES = (
    ("timeline", "Timeline"),
    ("topics", "Topics"),
    ("transactions", "Transactions"),
    ("groups", "Groups"),
    ("files", "Files"),
    ("requests", "Requests & cost"),
)


@cache
def _asset(name: str) -> str:
    data = get_data(__package__ or "", name)
    if data is None:
        raise InternalError(f"the package lacks {name}")
    return data.decode()


@cache
def _script() -> str:
    return f'"use strict";\n(() => {{\n{_asset("drawing.js")}\n{_asset("page.js")}\n}})();\n'


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def policy(*, live: bool = False) -> str:
    """Return the Content-Security-Policy of the page: its own style and script, by their hashes, and
    (``live``) its own server.
    """
    rules = [
        "default-src 'none'",
        f"script-src '{_hash(_script())}'",
        f"style-src '{_hash(_asset('page.css'))}'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    return "; ".join([*rules, "connect-src 'self'"] if live else rules)


def script_json(document: Document) -> str:
    """Return the document as JSON that cannot end the script element that it is in."""
    text = msgspec.json.encode(document).decode()
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def page(document: Document, *, every_ms: int | None = None) -> str:
    """Return the page.

    ``every_ms``: it asks its server for news so often; None: it is a file, and asks nothing.
    """
    live = every_ms is not None
    follow = '<label><input type="checkbox" id="follow" checked> Follow</label>' if live else ""
    links = "".join(f'<a href="#{name}" data-page="{name}">{html.escape(title)}</a>' for name, title in PAGES)
    sections = "".join(f'<section id="{name}" hidden><div class="body"></div></section>' for name, _ in PAGES)
    topic = f", topic {document.topic}" if document.topic is not None else ""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{html.escape(policy(live=live))}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>txnlog: {html.escape(document.url)}</title>
<link rel="icon" href="data:,">
<style>{_asset("page.css")}</style>
</head>
<body data-live="{"yes" if live else "no"}" data-every="{every_ms or 0}">
<a class="skip" href="#main">Skip to the content</a>
<header>
<h1>txnlog</h1>
<p class="where">{html.escape(document.url + topic)}</p>
<nav aria-label="Pages">{links}</nav>
</header>
<div class="controls"><div>
<button type="button" id="earlier" aria-label="Earlier">&#9664;</button>
<input type="range" id="slider" aria-label="Entry" step="1">
<button type="button" id="later" aria-label="Later">&#9654;</button>
<select id="topic" aria-label="Topic"></select>
{follow}
<output id="status" for="slider"></output>
<span id="fault" class="fault" role="alert"></span>
</div></div>
<main id="main" tabindex="-1">
<div id="notes"></div>
{sections}
<noscript>{_table(document)}</noscript>
</main>
<footer id="foot"></footer>
<script type="application/json" id="document">{script_json(document)}</script>
<script>{_script()}</script>
</body>
</html>
"""


def _table(document: Document) -> str:
    """Return the newest sample as a table, for readers whose program runs no script."""
    places = document.samples[-1].places if document.samples else ()
    rows = "".join(
        f"<tr><td>{html.escape(one.topic)}</td><td>{one.partition}</td><td>{place.log_start}</td>"
        f"<td>{place.last_stable_offset}</td><td>{place.log_end}</td></tr>"
        for one, place in zip(document.partitions, places, strict=True)
    )
    heads = "".join(f"<th>{head}</th>" for head in ("Topic", "Partition", "Log start", "LSO", "Log end"))
    return f"<p>The pictures need a script.</p><table><tr>{heads}</tr>{rows}</table>"


def frame(text: str) -> str:
    """Return a page in a frame of its own: its script can reach nothing of the page around it."""
    return (
        f'<iframe title="txnlog timeline" sandbox="allow-scripts" width="100%" height="{FRAME_HEIGHT}" '
        f'frameborder="0" srcdoc="{html.escape(text)}"></iframe>'
    )
