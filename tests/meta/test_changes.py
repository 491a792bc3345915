"""Fragments of the changelog have names that towncrier takes, and make one text."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib

from tests.meta.markdown import ROOT

CONFIGURATION = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["towncrier"]
FRAGMENTS = sorted(path for path in (ROOT / "changes").iterdir() if path.name != "README.md")


def test_every_fragment_has_a_kind() -> None:
    kinds = "|".join(kind["directory"] for kind in CONFIGURATION["type"])
    for path in FRAGMENTS:
        assert re.fullmatch(rf"(\d+|\+[\w-]+)(\.\d+)?\.({kinds})\.md", path.name), path.name
        assert path.read_text(encoding="utf-8").strip(), path.name


def test_the_fragments_are_one_text() -> None:
    """A draft: nothing is written."""
    command = [sys.executable, "-m", "towncrier", "build", "--draft", "--version", "next", "--dir", str(ROOT)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout.startswith("## [next]")
    for path in FRAGMENTS:
        words = path.read_text(encoding="utf-8").split()
        assert " ".join(words[:5]) in " ".join(done.stdout.split()), path.name


def test_a_release_is_written_above_what_was_there() -> None:
    text = (ROOT / CONFIGURATION["filename"]).read_text(encoding="utf-8")
    assert text.count(CONFIGURATION["start_string"]) == 1
    assert text.index(CONFIGURATION["start_string"]) < text.index("\n## ")
