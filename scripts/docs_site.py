"""Builds the documentation site: ``python -m scripts.docs_site`` (``make docs``).

The pages are those of docs/ and some of the checkout's root, as the site needs them, in a temporary
directory; Zensical makes the site of it, and mkdocstrings the API reference. mkdocs.yml has the settings and
the order of the pages. A page without a place, a link that leads nowhere, and an address at another host fail
the build.

Each version has a folder of its own, ``site/0.1.0``. ``site/versions.json`` lists the folders that are there,
and the theme shows the list at the top of each page, where a server delivers them; ``site/index.html`` leads
to the newest one, and shows the list to readers of a disk.
"""

from __future__ import annotations

import argparse
import fnmatch
import html
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from txnformat.version import __version__

__all__ = ["PAGES", "build", "list_versions", "main", "pages_of"]

ROOT = Path(__file__).resolve().parents[1]

PAGES = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "reporting.md",
}
"""Files of the root of the checkout, and which pages they are."""

WITHOUT_PLACE = ("internals/conformance/*.md", "internals/adr/template.md")
"""Pages that another page lists, and the order of the pages does not."""

DECISIONS = "internals/adr"
"""Folder whose pages follow ``index.md`` in the order of their numbers, under their headings."""

_LINK = re.compile(r"\[([^\]]*)\]\(([^)#\s]+)(#[^)\s]*)?\)")
_FENCE = re.compile(r"^( *`{3,}\w+) .+$", re.MULTILINE)
_FOREIGN = re.compile(rb"https://(?:unpkg\.com|cdn\.jsdelivr\.net)/[\w@./+-]+")
_VERSION = re.compile(r"\d+(?:\.\d+)*(?:[.-]?[a-z]+\d*)?")
_CHOICE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>txnlog: versions of the documentation</title>
<body style="font: 1.1rem/1.6 system-ui, sans-serif; margin: 3rem auto; max-width: 40rem; padding: 0 1rem">
<h1>txnlog</h1>
<p>Versions of the documentation, the newest first:</p>
<ul>
{rows}
</ul>
<script>if (location.protocol.startsWith("http")) location.replace("{newest}/index.html")</script>
"""
_WIDE = re.compile(r"^(?:# )(.+)$", re.MULTILINE)


def build(site: Path, root: Path = ROOT, repository: str | None = None) -> subprocess.CompletedProcess[str]:
    """Build the site.

    Parameters
    ----------
    site : Path
        Where it goes; what is there is deleted.
    root : Path
        The checkout: its mkdocs.yml, docs/ and pages of its root.
    repository : str, optional
        Address of a public repository that the pages link to.

    Returns
    -------
    subprocess.CompletedProcess
        Of Zensical, with what it says; the site is there if its code is 0.

    Raises
    ------
    ValueError
        A page has no place in mkdocs.yml, or a place no page; or the theme has changed, and it has to be
        looked at again what it fetches.
    """
    with tempfile.TemporaryDirectory(prefix="txnlog-docs-") as name:
        stage = Path(name)
        settings = yaml.safe_load((root / "mkdocs.yml").read_text(encoding="utf-8"))
        stage_pages(root, stage / "docs")
        settings["nav"] = list(_with_decisions(settings["nav"], stage / "docs"))
        _check_places(settings["nav"], stage / "docs")
        settings |= {"docs_dir": "docs", "site_dir": "site"} | (
            {"repo_url": repository} if repository else {}
        )
        for plugin in settings.get("plugins", []):
            if isinstance(plugin, dict) and "mkdocstrings" in plugin:
                python = plugin["mkdocstrings"]["handlers"]["python"]
                python["paths"] = [str(root)]
                python["options"]["extensions"] = [str(ROOT / "scripts" / "docs_roles.py")]
        (stage / "mkdocs.yml").write_text(yaml.safe_dump(settings, sort_keys=False), encoding="utf-8")
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "zensical",
                "build",
                "--strict",
                "--config-file",
                str(stage / "mkdocs.yml"),
            ],
            cwd=stage,
            env={**os.environ, "NO_COLOR": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode == 0:
            _fetch_nothing(stage / "site")
            shutil.rmtree(site, ignore_errors=True)
            shutil.copytree(stage / "site", site)
        return done


def stage_pages(root: Path, target: Path) -> None:
    """Copy the pages, with what the site needs otherwise than a reader of the checkout."""
    shutil.copytree(root / "docs", target, ignore=shutil.ignore_patterns("*.toml", "*.json"))
    for source, name in PAGES.items():
        if (root / source).exists():
            text = (root / source).read_text(encoding="utf-8")
            (target / name).write_text(_LINK.sub(_moved, text), encoding="utf-8")
    for path in target.rglob("*.md"):
        text = path.read_text(encoding="utf-8")
        path.write_text(
            _FENCE.sub(r"\1", text), encoding="utf-8"
        )  # what stands behind a language is for tests


def _moved(match: re.Match[str]) -> str:
    """Return a link of a page of the root as it has to be on the site; its text where the site has no such
    page.
    """
    text, target, anchor = match[1], match[2], match[3] or ""
    if re.match(r"[a-z]+:", target):
        return match[0]
    page = target.removeprefix("docs/") if target.startswith("docs/") else PAGES.get(target)
    return text if page is None else f"[{text}]({page}{anchor})"


def _with_decisions(nav: list[Any], docs: Path) -> Iterator[Any]:
    """Yield the entries, with the pages of the decisions behind their list."""
    for entry in nav:
        ((title, value),) = entry.items()
        if isinstance(value, list):
            yield {title: list(_with_decisions(value, docs))}
        elif value == f"{DECISIONS}/index.md":
            pages = sorted((docs / DECISIONS).glob("[0-9]*.md"))
            yield {
                title: [
                    {"All decisions": value},
                    *({_title(path): f"{DECISIONS}/{path.name}"} for path in pages),
                ]
            }
        else:
            yield entry


def _title(path: Path) -> str:
    """Return the heading of a page, without the mark of code."""
    found = _WIDE.search(path.read_text(encoding="utf-8"))
    assert found is not None, path
    return found[1].replace("`", "")


def pages_of(nav: list[Any]) -> Iterator[str]:
    """Yield the pages of an order, with those of its groups."""
    for entry in nav:
        for value in entry.values():
            if isinstance(value, list):
                yield from pages_of(value)
            else:
                yield value


def _check_places(nav: list[Any], docs: Path) -> None:
    there = {path.relative_to(docs).as_posix() for path in docs.rglob("*.md")}
    placed = list(pages_of(nav))
    homeless = sorted(
        name for name in there - {*placed} if not any(fnmatch.fnmatch(name, each) for each in WITHOUT_PLACE)
    )
    missing = sorted({*placed} - there)
    if homeless or missing or len(placed) != len(set(placed)):
        raise ValueError(f"mkdocs.yml: pages without a place: {homeless}; places without a page: {missing}")


def _fetch_nothing(site: Path) -> None:
    """Take out the addresses of scripts that the theme would fetch elsewhere, for very old browsers and for
    diagrams.
    """
    for path in site.rglob("*.map"):  # for those who develop the theme
        path.unlink()
    count = 0
    for path in site.glob("assets/javascripts/bundle.*.js"):
        changed, found = _FOREIGN.subn(b"data:text/javascript,", path.read_bytes())
        path.write_bytes(changed)
        count += found
    if not count:
        raise ValueError(
            "the theme's bundle names no foreign script; see whether it fetches any in another way"
        )


def list_versions(site: Path) -> list[str]:
    """Write the list of the versions that are there, and the page that leads to the newest one.

    Parameters
    ----------
    site : Path
        The folder of the versions; one without an ``index.html`` does not count.

    Returns
    -------
    list of str
        Their names, the newest first.
    """
    found = sorted(
        (path.parent.name for path in site.glob("*/index.html") if _VERSION.fullmatch(path.parent.name)),
        key=_age,
        reverse=True,
    )
    listed = [
        {"version": name, "title": name, "aliases": ["latest"] if name == found[0] else []} for name in found
    ]
    (site / "versions.json").write_text(json.dumps(listed), encoding="utf-8")
    rows = "\n".join(
        f'<li><a href="{html.escape(name)}/index.html">{html.escape(name)}</a></li>' for name in found
    )
    (site / "index.html").write_text(_CHOICE.format(rows=rows, newest=found[0]), encoding="utf-8")
    return found


def _age(version: str) -> tuple[tuple[int, ...], bool, str]:
    """Return what versions are sorted by; 0.2.0rc1 is older than 0.2.0."""
    numbers = re.match(r"[\d.]+", version)
    assert numbers is not None
    rest = version[numbers.end() :]
    return tuple(int(part) for part in numbers[0].split(".") if part), not rest, rest


def main(arguments: list[str] | None = None) -> int:
    """Build it, and say what is wrong."""
    parser = argparse.ArgumentParser(description="Build the documentation site.")
    parser.add_argument(
        "--site",
        type=Path,
        default=ROOT / "site",
        help="where the folders of the versions are; other versions stay, the folder of this one is deleted",
    )
    parser.add_argument(
        "--version", default=__version__, help=f"name of the folder; {__version__} without it"
    )
    parser.add_argument("--repository", help="address of a public repository that the pages link to")
    given = parser.parse_args(arguments)
    if not _VERSION.fullmatch(given.version):
        parser.error(f"{given.version!r} is no version, such as 0.2.0 or 0.2.0rc1")
    done = build(given.site / given.version, repository=given.repository)
    if done.returncode == 0:
        list_versions(given.site)
    print(done.stdout + done.stderr, file=sys.stderr if done.returncode else sys.stdout)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
