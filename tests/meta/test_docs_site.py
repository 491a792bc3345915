"""The documentation site is built from everything in docs/, as GitHub shows it, and fetches nothing from elsewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from tests.meta.markdown import ROOT

PAGES = sorted(path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md"))
TAGS = ("h1", "h2", "h3", "h4", "li", "ol", "ul", "table", "tr", "td", "pre", "img", "blockquote")


def _build(configuration: Path, site: Path) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
    ]  # --quiet would hide warnings from --strict as well
    return subprocess.run(
        [*command, "--config-file", str(configuration), "--site-dir", str(site)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("docs") / "site"
    done = _build(ROOT / "mkdocs.yml", folder)
    assert done.returncode == 0, f"a page without a place in the nav of mkdocs.yml, or a link:\n{done.stderr}"
    return folder


def test_every_page_is_on_the_site_and_found_by_search(site: Path) -> None:
    index = (site / "search" / "search_index.json").read_text(encoding="utf-8")
    for page in [*PAGES, Path("index.md"), Path("architecture.md")]:
        name = page.with_suffix(".html")
        assert (site / name).is_file(), name
        assert f'"location":"{name.as_posix()}' in index or page.name == "index.md", name


def test_nothing_is_fetched_from_other_hosts(site: Path) -> None:
    fetched = re.compile(
        r"<(?:link|script|img|iframe|source)\b[^>]*?(?:src|href)=[\"']?(?:https?:)?//", re.IGNORECASE
    )
    files = [path for path in site.rglob("*") if path.suffix in (".html", ".css", ".js", ".svg")]
    assert len(files) > 50
    for path in files:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".html":
            assert not [match[0] for match in fetched.finditer(text) if 'rel="canonical"' not in match[0]], (
                path
            )
        assert not re.search(r"@import|url\([\"']?(?:https?:)?//", text), path
        assert not re.search(r"unpkg\.com|jsdelivr|cdnjs|googleapis|gstatic", text), path


def _counted(html: str) -> Counter[str]:
    return Counter({tag: len(re.findall(rf"<{tag}[\s>]", html)) for tag in TAGS})


@pytest.mark.parametrize("page", [page for page in PAGES if page.parts[0] != "conformance"], ids=str)
def test_a_page_shows_what_it_shows_on_github(site: Path, page: Path) -> None:
    """Lists that lack the empty line before them, and bars in cells, are where the two differ."""
    there = (
        MarkdownIt("commonmark").enable("table").render((ROOT / "docs" / page).read_text(encoding="utf-8"))
    )
    html = (site / page.with_suffix(".html")).read_text(encoding="utf-8")
    here = html[html.index("<article") : html.index("</article>")]
    assert _counted(here) == _counted(there)


def test_a_page_without_a_place_and_a_link_to_nowhere_fail(tmp_path: Path) -> None:
    configuration = tmp_path / "mkdocs.yml"
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").replace("docs_dir: docs\n", "")
    text = re.sub(r"(?ms)^(hooks|nav|not_in_nav):.*?(?=^\w|\Z)", "", text)
    configuration.write_text(text + "nav: [index.md]\n", encoding="utf-8")
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "index.md").write_text("# A\n", encoding="utf-8")
    assert _build(configuration, tmp_path / "site").returncode == 0
    (docs / "b.md").write_text("# B\n", encoding="utf-8")
    assert "b.md" in _build(configuration, tmp_path / "site").stderr
    (docs / "b.md").unlink()
    (docs / "index.md").write_text("# A\n\n[no](#anchor)\n", encoding="utf-8")
    assert "#anchor" in _build(configuration, tmp_path / "site").stderr
