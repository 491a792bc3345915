"""Builds a release into dist/: sdist, wheel, SBOM; tries the wheel in empty environments, alone and as a new
user does; tags.

``python -m scripts.release`` (``make release``) builds and tries only. With ``--tag`` (``make release
VERSION=0.2.0``) the version has to be txnformat.version's, CHANGELOG.md has to have it, nothing may be
uncommitted, and the commit gets the tag ``v0.2.0``. Nothing is uploaded.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

from scripts.newcomer import main as newcomer
from txnformat.version import __version__

__all__ = ["build", "main", "problems", "try_wheel"]

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"

PACKAGES = frozenset(
    {"pyspark_txnlog", "spark_datasource", "txnformat", "txnlog", "txnlog_testing", "writers"}
)
"""All that a wheel puts beside other people's packages."""

SOURCES = (
    "docs/internals/spec.md",
    "tests/conftest.py",
    "bench/__main__.py",
    "notebooks",
    "deploy/Dockerfile",
    ".github/workflows/ci.yml",
    "CHANGELOG.md",
    "LICENSE",
    "Makefile",
)
"""Some of the files that an sdist has beside the packages."""

TRIAL = """
import sys
import pyarrow as pa
from txnlog import Producer, TxnLog
with TxnLog.create(sys.argv[1]) as log:
    log.create_topic("t", pa.schema([("n", pa.int64())]))
    with Producer(log, "trial") as producer, producer.transaction() as txn:
        txn.send("t", [{"n": 1}])
    assert log.read("t", columns=["n"]).read_all().to_pylist() == [{"n": 1}]
"""


def build(source: Path, target: Path) -> tuple[Path, Path]:
    """Build the sdist of a checkout, and the wheel from nothing but that sdist; return their paths."""
    target.mkdir(parents=True, exist_ok=True)
    sdist = target / _built("sdist", source, target)
    with tempfile.TemporaryDirectory(prefix="txnlog-sdist-") as name:
        shutil.unpack_archive(sdist, name)
        wheel = target / _built("wheel", Path(name) / sdist.name.removesuffix(".tar.gz"), target)
    return sdist, wheel


def _built(kind: str, source: Path, target: Path) -> str:
    code = (
        f"import sys; from setuptools import build_meta; name = build_meta.build_{kind}(sys.argv[1]); "
        f"print('\\n' + name)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, target], cwd=source, check=True, stdout=subprocess.PIPE, text=True
    )
    return done.stdout.splitlines()[-1]


def problems(sdist: Path, wheel: Path) -> list[str]:
    """Return what is wrong with what was built."""
    found = []
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    tops = {name.partition("/")[0] for name in names if ".dist-info/" not in name}
    if tops != PACKAGES:
        found.append(f"{wheel.name} has {sorted(tops)} instead of {sorted(PACKAGES)}")
    found += [
        f"{wheel.name} has no {name}"
        for name in ("txnlog/__init__.pyi", "txnlog/py.typed")
        if name not in names
    ]
    with tarfile.open(sdist) as archive:
        inside = [name.partition("/")[2] for name in archive.getnames()]
    found += [f"{sdist.name} has no {name}" for name in SOURCES if name not in inside]
    return found + [
        f"{sdist.name} has {name}"
        for name in inside
        if "__pycache__" in name or name.startswith((".venv", ".git/"))
    ]


def try_wheel(wheel: Path) -> None:
    """Install the wheel, with what it requires, into an environment of its own; write a log and read it
    there.
    """
    with tempfile.TemporaryDirectory(prefix="txnlog-release-") as name:
        folder = Path(name)
        subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
        python = folder / "venv" / "bin" / "python"
        subprocess.run(
            [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel)], check=True
        )
        subprocess.run([python, "-c", TRIAL, folder / "log"], check=True, cwd=folder)
        subprocess.run(
            [folder / "venv" / "bin" / "txnlog", "topics", "--root", folder / "log"], check=True, cwd=folder
        )


def _check_tag(version: str) -> None:
    if version != __version__:
        sys.exit(f"txnformat/version.py says {__version__}, not {version}: change it first")
    if f"## [{version}]" not in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"):
        sys.exit(f"CHANGELOG.md has no section of {version}: make changelog VERSION={version}, and commit it")
    if subprocess.run(["git", "status", "--porcelain"], cwd=ROOT, check=True, capture_output=True).stdout:
        sys.exit("there are changes that are not committed: commit them first")


def main() -> None:
    """Build, check, try, and tag."""
    parser = argparse.ArgumentParser(prog="make release", description=__doc__)
    parser.add_argument("--tag", metavar="VERSION")
    version = parser.parse_args().tag
    if version:
        _check_tag(version)
    sdist, wheel = build(ROOT, DIST)
    if wrong := problems(sdist, wheel):
        sys.exit("\n".join(wrong))
    try_wheel(wheel)
    newcomer([str(wheel)])
    subprocess.run([sys.executable, "scripts/sbom.py"], cwd=ROOT, check=True)
    (ROOT / "txnlog.cdx.json").replace(DIST / f"txnlog-{__version__}.cdx.json")
    if version:
        subprocess.run(
            ["git", "tag", "--annotate", f"v{version}", "--message", f"txnlog {version}"],
            cwd=ROOT,
            check=True,
        )
        print(f"tagged v{version}; push it to publish: git push origin v{version}")
    print(*(path.name for path in sorted(DIST.glob(f"txnlog-{__version__}*"))), sep="\n")


if __name__ == "__main__":
    main()
