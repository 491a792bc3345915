"""The pictures of docs/concepts.md are drawn from the code, show what the page's blocks find, and can be
read."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.meta import pictures
from tests.meta.drawing import SCHEMES, contrast
from tests.meta.markdown import ROOT
from tests.meta.pictures import FOLDER, PICTURES
from tests.meta.runner import in_directory, run_blocks

PAGE = ROOT / "docs" / "concepts.md"


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_what_the_code_draws(name: str) -> None:
    assert (FOLDER / f"{name}.svg").read_text(encoding="utf-8") == PICTURES[name]().svg(), (
        "run: python -m tests.meta.pictures"
    )


def test_every_picture_is_on_the_page_and_described() -> None:
    shown = re.findall(r"!\[([^\]]+)\]\(img/([\w-]+)\.svg\)", PAGE.read_text(encoding="utf-8"))
    assert (
        sorted(name for _, name in shown)
        == sorted(PICTURES)
        == sorted(path.stem for path in FOLDER.glob("*.svg"))
    )
    assert all(len(text) > 40 for text, _ in shown)


def test_every_screenshot_is_on_its_page_described_and_small() -> None:
    """``make screenshots`` draws them; they are not compared, for fonts differ between machines."""
    page = (PAGE.parent / "operate.md").read_text(encoding="utf-8") + (ROOT / "README.md").read_text(
        encoding="utf-8"
    )
    shown = dict(re.findall(r"!\[([^\]]+)\]\((?:docs/)?img/([\w-]+)\.png\)", page))
    files = list(FOLDER.glob("*.png"))
    assert len(files) >= 3
    assert sorted(shown.values()) == sorted(path.stem for path in files)
    assert all(len(text) > 20 for text in shown)
    assert all(path.stat().st_size < 150_000 for path in files)


def test_the_pictures_show_what_the_blocks_of_the_page_find(tmp_path: Path) -> None:
    found: dict[str, Any] = {}
    with in_directory(tmp_path):
        run_blocks("docs/concepts.md", found, with_spark=False)
    assert found["while_open"] == pictures.WHILE_OPEN
    assert found["committed"] == pictures.COMMITTED
    assert (found["first_batch"], found["second_batch"]) == pictures.BY_COMMIT
    stable = pictures.WHILE_OPEN["read_committed"]
    assert (stable, pictures.COMMITTED["read_committed"][len(stable) :]) == pictures.BY_OFFSET
    log = found["log"]
    rows = log.read("t", columns=["_offset", "who"], isolation="read_uncommitted").read_all().to_pylist()
    records = {offset: what for offset, what in enumerate(pictures.PARTITION) if " " not in what}
    assert {row["_offset"]: row["who"] for row in rows} == records
    drawn = pictures.order()
    assert {f"d commits (entry {found['second']})", f"b commits (entry {found['third']})"} <= {
        text for _, _, text in drawn.texts
    }


@pytest.mark.parametrize("scheme", SCHEMES)
def test_texts_stand_out_from_what_they_stand_on(scheme: str) -> None:
    """WCAG 2 asks for 4.5."""
    colours = SCHEMES[scheme]
    on = {
        "ink": ("ground", "plain", "a", "b", "c", "d"),
        "pale": ("ground",),
        "good": ("ground",),
        "bad": ("ground",),
    }
    for text, grounds in on.items():
        for ground in grounds:
            assert contrast(colours[text], colours[ground]) >= 4.5, (text, ground)


def test_the_contrast_is_that_of_the_definition() -> None:
    assert contrast("#ffffff", "#000000") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("name", PICTURES)
def test_texts_are_inside_the_picture_and_nothing_is_fetched(name: str) -> None:
    canvas = PICTURES[name]()
    for left, right, text in canvas.texts:
        assert left >= 8, text
        assert right <= canvas.width - 8, text
    root = ElementTree.fromstring(canvas.svg())  # drawn here
    assert not [each for each in root.iter() if "href" in " ".join(each.attrib)]
    assert "http" not in canvas.svg().replace('xmlns="http://www.w3.org/2000/svg"', "")
