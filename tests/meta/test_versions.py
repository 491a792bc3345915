"""docs/internals/versions.md is what its record says, and the record is of the features and versions that the
code names."""

from __future__ import annotations

import json
import re

from packaging.utils import canonicalize_name

from tests.meta.markdown import ROOT
from tests.requirements import closure, own
from tests.smoke.features import FEATURES, OFFERS
from tests.smoke.versions import KINDS, PAGE, RECORD, VERSIONS, constraints, lock, render, worse

FOUND = json.loads(RECORD.read_text(encoding="utf-8"))


def test_the_page_is_made_from_the_record() -> None:
    assert PAGE.read_text(encoding="utf-8") == render(FOUND), "run make versions"


def test_the_record_has_every_feature_with_every_version() -> None:
    assert tuple(FOUND["runs"]) == VERSIONS
    for version, found in FOUND["runs"].items():
        assert found["versions"]["pyspark"] == version
        assert list(found["offers"]) == list(OFFERS)
        assert list(found["features"]) == list(KINDS)
        for features in found["features"].values():
            assert list(features) == [feature.name for feature in FEATURES]


def test_everything_works_with_the_version_of_the_tests_and_it_is_the_last_one() -> None:
    pins = (ROOT / "requirements-dev.txt").read_text(encoding="utf-8")
    assert f"\npyspark=={VERSIONS[-1]}\n" in pins
    for features in FOUND["runs"][VERSIONS[-1]]["features"].values():
        assert set(features.values()) == {"yes"}


def test_the_oldest_version_is_the_one_that_is_promised_and_checked() -> None:
    minor = ".".join(VERSIONS[0].split(".")[:2])
    assert f"pyspark>={minor}\n" in (ROOT / "setup.cfg").read_text(encoding="utf-8")
    assert f"--check {VERSIONS[0]}\n" in (ROOT / "Makefile").read_text(encoding="utf-8")
    assert not re.search(r"(?m)^(pyspark|py4j)==", constraints())


def test_the_oldest_environment_has_all_that_txnlog_requires() -> None:
    """It is installed with ``--no-deps``: what is not named in its lock is not there."""
    named = {
        canonicalize_name(found)
        for found in re.findall(r"(?m)^([\w.-]+)==", lock(VERSIONS[0]).replace("\\", ""))
    }
    assert {*closure(own()), "pyspark", "py4j"} <= named


def test_what_worked_and_does_not_any_more_is_told() -> None:
    version = VERSIONS[-1]
    found = json.loads(json.dumps(FOUND["runs"][version]))
    assert worse(version, found, FOUND) == []
    found["features"]["connect"][FEATURES[0].name] = "Error: broken"
    assert worse(version, found, FOUND) == [f"pyspark {version} connect: {FEATURES[0].name}: Error: broken"]


def test_the_page_shows_what_does_not_work() -> None:
    record = json.loads(json.dumps(FOUND))
    record["runs"][VERSIONS[0]]["features"]["classic"][FEATURES[0].name] = "Error: broken"
    page = render(record)
    note = re.search(rf"(\d+)\. {re.escape(VERSIONS[0])}, classic: Error: broken", page)
    assert note is not None
    assert f"| {FEATURES[0].name} | classic: no ({note[1]}), connect: " in page
