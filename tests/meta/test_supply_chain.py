"""What is installed is pinned, hashed and audited, and what users may install was run."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.lowest import TESTS, lowest
from tests.requirements import EXTRAS, own

ROOT = Path(__file__).resolve().parents[2]


def _script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"scripts_{name}", ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _locked(file: str) -> list[tuple[str, str]]:
    text = (ROOT / file).read_text(encoding="utf-8")
    blocks = [block for block in re.split(r"\n(?=\S)", text) if not block.startswith("#")]
    assert all(re.fullmatch(r"\S+==\S+( \\\n    --hash=sha256:[0-9a-f]{64})+\s*", block) for block in blocks)
    return [tuple(block.split()[0].split("==")) for block in blocks]


def test_the_locks_have_the_pins_and_a_hash_for_each() -> None:
    for file, wanted in _script("lock").locks().items():
        assert sorted(_locked(file)) == sorted(wanted), f"{file}: make lock"


def test_what_ci_installs_has_hashes_and_nothing_is_resolved() -> None:
    """A lock is complete. Without ``--no-deps`` pip 23 asks the index for the newest ``coverage[toml]`` and
    stops there."""
    installs = [
        line
        for file in ("scripts/setup", "scripts/audit.py", "tests/smoke/versions.py", "Makefile")
        for line in (ROOT / file).read_text(encoding="utf-8").splitlines()
        if "--require-hashes" in line and "--requirement" not in line
    ]
    assert len(installs) == 5
    assert all("--no-deps" in line for line in installs)
    setup = (ROOT / "scripts" / "setup").read_text(encoding="utf-8")
    assert all(
        "--require-hashes" in line or "--no-deps --editable ." in line
        for line in re.findall(r"-m pip install .*", setup)
    )


def test_the_lock_has_all_that_its_packages_require() -> None:
    done = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_pip_refuses_a_file_with_another_hash(tmp_path: Path) -> None:
    """The form of the locks is what pip checks: an archive beside them, with its hash and with another."""
    wheel = tmp_path / "harmless-1.0-py3-none-any.whl"
    shutil.make_archive(str(wheel.with_suffix("")), "zip", tmp_path)
    wheel.with_suffix(".zip").rename(wheel)
    lock = tmp_path / "lock.txt"
    lock.write_text(_script("lock").render([("harmless", "1.0", ["0" * 64])]), encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--dry-run",
        "--no-index",
        "--find-links",
        str(tmp_path),
    ]
    done = subprocess.run(
        [*command, "--require-hashes", "-r", str(lock)], capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "DO NOT MATCH THE HASHES" in done.stderr


def test_every_dependency_has_a_lower_bound_and_they_are_run() -> None:
    assert len(lowest()) == len(own(EXTRAS)), "each needs name>=version"
    assert {"aiohttp", "botocore", "aiobotocore", "fsspec", "s3fs", "obstore", "numpy"} <= lowest().keys()
    assert all((ROOT / test).exists() for test in TESTS)
    assert "tests.lowest" in (ROOT / "Makefile").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("package", "expected"),
    [
        ({"name": "a", "version": "1", "vulns": []}, (0, 0, 0)),
        ({"name": "a", "version": "1", "vulns": [{"id": "X-1", "fix_versions": ["2"]}]}, (1, 0, 0)),
        ({"name": "a", "version": "1", "vulns": [{"id": "X-1", "fix_versions": []}]}, (0, 1, 0)),
        ({"name": "a", "skip_reason": "not found"}, (0, 0, 1)),
    ],
)
def test_the_audit_fails_only_for_what_has_a_mended_version(
    package: dict[str, Any], expected: tuple[int, int, int]
) -> None:
    found = _script("audit").judge({"dependencies": [package]})
    assert tuple(len(each) for each in found) == expected
    assert not any(found[0]) or "mended in 2" in found[0][0]


def test_the_sbom_names_what_txnlog_runs_with() -> None:
    made = _script("sbom").document()
    names = {each["name"] for each in made["components"]}
    assert lowest().keys() <= names
    assert (made["bomFormat"], made["specVersion"]) == ("CycloneDX", "1.5")
    assert not names & {"pytest", "pyspark", "mkdocs"}
    references = {each["bom-ref"] for each in (*made["components"], made["metadata"]["component"])}
    assert {each["ref"] for each in made["dependencies"]} == references
    assert all(set(each["dependsOn"]) <= references for each in made["dependencies"])
    assert all(re.fullmatch(r"pkg:pypi/[a-z0-9-]+@\S+", each["purl"]) for each in made["components"])
