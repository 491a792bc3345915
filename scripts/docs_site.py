"""Hooks of the documentation site (mkdocs.yml): pages from outside docs/, and nothing from other hosts."""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]

PAGES = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "reporting.md",
}
"""Files of the root of the checkout, and which pages they are."""

_LINK = re.compile(r"\[([^\]]*)\]\(([^)#\s]+)(#[^)\s]*)?\)")
_FENCE = re.compile(r"^(`{3,}\w+) .+$", re.MULTILINE)
_FOREIGN = re.compile(rb"https://unpkg\.com/[\w@./-]+")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that lie outside docs/."""
    for source, name in PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, name, content=_LINK.sub(_moved, text)))
    return files


def _moved(match: re.Match[str]) -> str:
    """Return a link of such a page as it has to be on the site; without its address where the site has no such page."""
    text, target, anchor = match[1], match[2], match[3] or ""
    if re.match(r"[a-z]+:", target):
        return match[0]
    page = target.removeprefix("docs/") if target.startswith("docs/") else PAGES.get(target)
    return text if page is None else f"[{text}]({page}{anchor})"


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Leave of the words behind an opening fence, which the tests read, only the language."""
    return _FENCE.sub(r"\1", markdown)


def on_post_build(config: MkDocsConfig) -> None:
    """Take out the addresses of scripts that the theme would fetch elsewhere, for very old browsers and for diagrams.

    Raises
    ------
    ValueError
        None was found: the theme has changed, and this has to be looked at.
    """
    assets = Path(config.site_dir, "assets")
    for path in assets.rglob("*.map"):  # for those who develop the theme
        path.unlink()
    count = 0
    for path in assets.glob("javascripts/bundle.*.js"):
        changed, found = _FOREIGN.subn(b"data:text/javascript,", path.read_bytes())
        path.write_bytes(changed)
        count += found
    if not count:
        raise ValueError(
            "the theme's bundle names no foreign script; see whether it fetches any in another way"
        )
