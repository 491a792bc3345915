"""The documentation site is built from everything in docs/, as GitHub shows it, and fetches nothing from
elsewhere."""

from __future__ import annotations

import contextlib
import functools
import http.server
import json
import re
import shutil
import threading
from collections import Counter
from pathlib import Path

import pytest
import yaml
from markdown_it import MarkdownIt

import txnlog
from scripts.docs_site import PAGES as ROOT_PAGES
from scripts.docs_site import build, list_versions, main, pages_of
from tests.browser.chromium import PHONE, Screen, Tab, chromium, find_chromium
from tests.meta.markdown import ROOT
from tests.meta.pages import page as text_of
from txnlog import published
from txnlog import spark as facade

PAGES = sorted(path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md"))
TAGS = ("h1", "h2", "h3", "h4", "li", "ol", "ul", "table", "tr", "td", "pre", "img", "blockquote")
API = Path("api.md")
USER_PAGES = {page.stem for page in PAGES if len(page.parts) == 1} - {"api", "cli"} | {"index"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("docs") / "site" / "0.10.0"
    done = build(folder)
    assert done.returncode == 0, f"a link that leads nowhere:\n{done.stdout}{done.stderr}"
    return folder


def test_every_page_is_on_the_site_and_found_by_search(site: Path) -> None:
    index = json.loads((site / "search.json").read_text(encoding="utf-8"))
    found = {item["location"].partition("#")[0] for item in index["items"]}
    for page in [*PAGES, *map(Path, ROOT_PAGES.values())]:
        name = page.with_suffix(".html")
        assert (site / name).is_file(), name
        assert name.as_posix() in found or page.name == "index.md", name


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


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page.parts[:2] != ("internals", "conformance") and page != API],
    ids=str,
)
def test_a_page_shows_what_it_shows_on_github(site: Path, page: Path) -> None:
    """Lists that lack the empty line before them, and bars in cells, are where the two differ."""
    there = (
        MarkdownIt("commonmark").enable("table").render((ROOT / "docs" / page).read_text(encoding="utf-8"))
    )
    html = (site / page.with_suffix(".html")).read_text(encoding="utf-8")
    here = html[html.index("<article") : html.index("</article>")]
    assert _counted(here) == _counted(there)


def test_the_reference_has_every_public_name_once(site: Path) -> None:
    """Of ``txnlog``, of its Spark module, and what registers the source; each is an anchor of the page."""
    named = re.findall(r"^::: ([\w.]+)$", text_of("docs/api.md"), re.MULTILINE)
    public = [f"txnlog.{name}" for name in vars(txnlog)["__all__"] if not name.startswith("__")]
    wanted = [
        *public,
        *(f"txnlog.spark.{name}" for name in facade.__all__),
        *(f"txnlog.published.{name}" for name in published.__all__),
        "spark_datasource.datasource.register",
    ]
    assert sorted(named) == sorted(wanted)
    html = (site / "api.html").read_text(encoding="utf-8")
    assert [name for name in named if f'id="{name}"' not in html] == []
    assert "acknowledge_cumulative" in html  # what a class inherits, or has by itself, is there with it
    assert not re.search(r":(?:meth|class|func|attr|mod|exc):", html)


_WIDER = """(() => { const wide = (one) => one.scrollWidth > one.clientWidth + 1;
  return [document.documentElement.scrollWidth - innerWidth,
    ...[...document.querySelectorAll("article pre code")].filter(wide).map((one) => one.textContent)]; })()"""


def test_code_fits_its_column_and_no_page_is_wider_than_a_phone(site: Path) -> None:
    program = find_chromium()
    if program is None:
        pytest.skip("no Chromium is here, and make test could not install one: see scripts/find-chromium")
    with chromium(program) as browser:
        tab = browser.tab(PHONE)
        for name in sorted(USER_PAGES | {"internals/benchmarks", "internals/spec"}):
            tab.show_on(PHONE)
            tab.open((site / f"{name}.html").as_uri())
            beyond, *_ = tab.evaluate(_WIDER)
            assert beyond <= 0, f"{name} is wider than a phone"
            tab.show_on(Screen(1440, 900))
            beyond, *code = tab.evaluate(_WIDER)
            assert beyond <= 0, name
            assert code == [] or name not in USER_PAGES, name
        tab.close()


def test_pages_are_as_dark_as_the_system_is_also_when_it_changes(site: Path) -> None:
    """The theme notes what it shows, and without an entry for the system a note of the first visit
    would win.
    """
    program = find_chromium()
    if program is None:
        pytest.skip("no Chromium is here, and make test could not install one: see scripts/find-chromium")
    with chromium(program) as browser:
        tab = browser.tab()
        for is_dark in (False, True, False):
            tab.show_on(Screen(1440, 900, dark=is_dark))
            tab.open((site / "fit.html").as_uri())
            scheme = tab.evaluate("document.body.getAttribute('data-md-color-scheme')")
            assert scheme == ("slate" if is_dark else "default")
        tab.close()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    """Says nothing, also not of a browser that leaves before it has everything."""

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        """Answer."""
        with contextlib.suppress(ConnectionError):
            super().do_GET()


def _arrive(tab: Tab, url: str) -> None:
    """Wait until a page that leads elsewhere has led there."""
    found = ""
    while found != url:
        with contextlib.suppress(RuntimeError):  # the page goes away meanwhile
            found = tab.evaluate("document.readyState == 'complete' ? location.href : ''")


def test_a_page_offers_the_versions_that_are_there_and_the_root_leads_to_the_newest(site: Path) -> None:
    program = find_chromium()
    if program is None:
        pytest.skip("no Chromium is here, and make test could not install one: see scripts/find-chromium")
    root = site.parent
    shutil.copytree(site, root / "0.9.0", dirs_exist_ok=True)
    (root / "drafts").mkdir(exist_ok=True)
    (root / "drafts" / "index.html").touch()
    assert list_versions(root) == ["0.10.0", "0.9.0"]
    handler = functools.partial(_Quiet, directory=str(root))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server, chromium(program) as browser:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        tab = browser.tab()
        tab.open(f"{url}/index.html")
        _arrive(tab, f"{url}/0.10.0/index.html")
        tab.open(f"{url}/0.9.0/fit.html")
        links = "[...document.querySelectorAll('.md-version__link')]"
        assert tab.wait(f"{links}.length == 2")
        assert tab.evaluate("document.querySelector('.md-version__current').textContent").strip() == "0.9.0"
        assert tab.evaluate(f"{links}.map((one) => one.textContent.trim())") == ["0.10.0", "0.9.0"]
        assert tab.evaluate(f"{links}[0].href") == f"{url}/0.10.0/"
        tab.open((root / "index.html").as_uri())
        assert tab.evaluate("[...document.links].map((one) => one.textContent)") == ["0.10.0", "0.9.0"]
        tab.close()
        server.shutdown()


def test_versions_are_sorted_by_number_and_a_name_that_is_none_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("0.9.0", "0.10.0rc1", "0.10.0", "1.0"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "index.html").touch()
    assert list_versions(tmp_path) == ["1.0", "0.10.0", "0.10.0rc1", "0.9.0"]
    (tmp_path / "1.0" / "index.html").unlink()
    list_versions(tmp_path)
    first, *_ = json.loads((tmp_path / "versions.json").read_text(encoding="utf-8"))
    assert first == {"version": "0.10.0", "title": "0.10.0", "aliases": ["latest"]}
    with pytest.raises(SystemExit):
        main(["--version", "../elsewhere", "--site", str(tmp_path)])
    assert "is no version" in capsys.readouterr().err


def test_the_order_of_the_pages_begins_with_the_users() -> None:
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    titles = [title for entry in nav for title in entry]
    assert titles[0] == "txnlog"
    assert titles[-1] == "Internals"
    for name in pages_of([entry for entry in nav if "Internals" not in entry]):
        assert not name.startswith("internals/")
    assert all(name.startswith("internals/") or "/" not in name for name in pages_of(nav[-1:]))


def test_a_page_without_a_place_and_a_link_to_nowhere_fail(tmp_path: Path) -> None:
    (tmp_path / "mkdocs.yml").write_text("site_name: a\nnav: [{A: index.md}]\n", encoding="utf-8")
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "index.md").write_text("# A\n\n[there](#a)\n", encoding="utf-8")
    site = tmp_path / "site"
    assert build(site, tmp_path).returncode == 0
    assert (site / "index.html").is_file()
    (docs / "b.md").write_text("# B\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"without a place: \['b\.md'\]"):
        build(site, tmp_path)
    (docs / "b.md").unlink()
    (docs / "index.md").write_text("# A\n\n[no](#anchor)\n", encoding="utf-8")
    done = build(site, tmp_path)
    assert done.returncode != 0
    assert "anchor" in done.stdout + done.stderr
    (docs / "index.md").write_text("# A\n\n[no](nowhere.md)\n", encoding="utf-8")
    assert build(site, tmp_path).returncode != 0
