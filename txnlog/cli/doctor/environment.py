"""Checks of the environment for ``doctor``: Python, packages, Java. They import nothing heavy."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from txnlog.cli.doctor.diagnosis import Area, Check

__all__ = [
    "UI_MIN",
    "check_environment",
    "check_java",
    "check_packages",
    "check_python",
    "check_spark_python",
]

AREA = Area("environment")
PYTHON_MIN = (3, 11)
PYARROW_MIN = 24
PYSPARK_MIN = (4, 1)
JAVA_MIN = 17
"""Oldest Java that Spark 4 runs on."""
JAVA_SECONDS_MAX = 30
UI_MIN = {"starlette": (0, 40), "uvicorn": (0, 30)}
"""Oldest versions of the extra ``ui``."""

Versions = Callable[[str], str | None]


def check_environment(root: str | None) -> list[Check]:
    """Return the checks of this process's environment, for a log at ``root``."""
    checks = [check_python(sys.version_info[:3]), *check_packages(_version, root)]
    if _version("pyspark") is not None:
        checks.append(check_java(os.environ))
        checks.append(_check_registration())
        checks.append(check_spark_python(os.environ))
    return checks


def check_python(version: tuple[int, ...]) -> Check:
    """Return the check of Python's version."""
    text = ".".join(map(str, version))
    if version < PYTHON_MIN:
        return AREA.problem("python", text, "use Python 3.11 or later")
    return AREA.ok("python", f"{text} ({sys.executable})")


def check_packages(version_of: Versions, root: str | None) -> list[Check]:
    """Return the checks of installed packages; ``version_of`` gives None for one that is missing."""
    checks = [_check_pyarrow(version_of("pyarrow"))]
    pyspark, pandas = version_of("pyspark"), version_of("pandas")
    if pyspark is None:
        checks.append(AREA.ok("pyspark", "not installed; Spark needs it: pip install 'txnlog[spark]'"))
    elif _numbers(pyspark) < PYSPARK_MIN:
        fix = "pip install 'pyspark>=4.1'; everything except Spark works without it"
        checks.append(AREA.problem("pyspark", pyspark, fix))
    else:
        checks.append(AREA.ok("pyspark", pyspark))
    if pyspark is not None and pandas is not None and _numbers(pandas) >= (3,):
        found = f"{pandas}: PySpark does not fully support pandas 3 yet"
        fix = "for toPandas() and pandas UDFs: pip install 'pandas<3'; txnlog itself hands Spark Arrow data"
        checks.append(AREA.warning("pandas", found, fix))
    checks += [_check_client(version_of, root, *client) for client in _CLIENTS]
    return [*checks, _check_ui(version_of)]


def _check_pyarrow(version: str | None) -> Check:
    if version is None or _numbers(version) < (PYARROW_MIN,):
        return AREA.problem("pyarrow", version or "not installed", f"pip install 'pyarrow>={PYARROW_MIN}'")
    return AREA.ok("pyarrow", version)


_CLIENTS = (
    ("s3fs", "s3", r"s3[an]?://", "s3://"),
    ("obstore", "azure", r"(?:abfss?|az|gs)://", "abfss:// or gs://"),
)
"""Package, an extra that brings it, and which roots need it, as a pattern and for people."""


def _check_client(
    version_of: Versions, root: str | None, package: str, extra: str, schemes: str, shown: str
) -> Check:
    version = version_of(package)
    needed = root is not None and re.match(schemes, root) is not None
    extra = "gcs" if needed and root is not None and root.startswith("gs:") else extra
    install = f"pip install 'txnlog[{extra}]'"
    if version is None and needed:
        return AREA.problem(package, f"not installed; {shown} needs it", install)
    return AREA.ok(package, version or f"not installed; {shown} needs it: {install}")


def _check_ui(version_of: Versions) -> Check:
    """Return the check of what serves the page of ``txnlog ui``."""
    found = {name: version_of(name) for name in UI_MIN}
    if None in found.values():
        return AREA.ok("ui", "not installed; txnlog ui needs it: pip install 'txnlog[ui]'")
    shown = ", ".join(f"{name} {version}" for name, version in found.items())
    if any(_numbers(version or "") < UI_MIN[name] for name, version in found.items()):
        return AREA.warning("ui", f"{shown}: too old", "for txnlog ui: pip install --upgrade 'txnlog[ui]'")
    return AREA.ok("ui", f"txnlog ui runs: {shown}")


def check_java(environment: Mapping[str, str]) -> Check:
    """Return the check of the Java that Spark would start: ``JAVA_HOME``'s, else the one on the PATH."""
    fix = "install Java 17 or 21 and set JAVA_HOME to its directory"
    home = environment.get("JAVA_HOME")
    program = str(Path(home, "bin", "java")) if home else shutil.which("java", path=environment.get("PATH"))
    if program is None:
        return AREA.problem("java", "not found: Spark needs it", fix)
    try:
        done = subprocess.run(
            [program, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            check=False,
            timeout=JAVA_SECONDS_MAX,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return AREA.problem("java", f"{program} does not run: {error}", fix)
    match = re.search(r"^ *java\.specification\.version = (\S+)", done.stderr + done.stdout, re.MULTILINE)
    version = match[1] if match else "of unknown version"
    if not re.fullmatch("[0-9]{1,9}", version) or int(version) < JAVA_MIN:  # Java 8 calls itself 1.8
        return AREA.problem("java", f"{version} at {program}: Spark 4 needs 17 or later", fix)
    return AREA.ok("java", f"{version} at {program}")


def _check_registration() -> Check:
    if find_spec("pyspark_txnlog") is None:
        found = 'the module pyspark_txnlog is missing: Spark does not find format("txnlog")'
        fix = "install the package into the Python that Spark runs: pip install txnlog"
        return AREA.problem("data source", found, fix)
    return AREA.ok("data source", 'format("txnlog") registers itself')


def check_spark_python(environment: Mapping[str, str]) -> Check:
    """Return the check of the Python that Spark starts: ``PYSPARK_PYTHON``'s, else ``python3`` on the
    PATH.
    """
    name = environment.get("PYSPARK_PYTHON") or "python3"
    program = shutil.which(name, path=environment.get("PATH"))
    fix = f"activate this environment, or: export PYSPARK_PYTHON={shlex.quote(sys.executable)}"
    if program is None:
        return AREA.warning("spark python", f"Spark starts {name}, which is not there", fix)
    code = "import sys; from importlib.util import find_spec; sys.exit(find_spec('pyspark_txnlog') is None)"
    try:
        done = subprocess.run(
            [Path(program).absolute(), "-c", code],
            cwd=Path(program).parent,  # the checkout as the current directory would count as installed
            env={**environment},
            capture_output=True,
            check=False,
            timeout=JAVA_SECONDS_MAX,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return AREA.warning("spark python", f"{program} does not run: {error}", fix)
    if done.returncode:
        return AREA.warning("spark python", f"Spark starts {program}, which does not have txnlog", fix)
    return AREA.ok("spark python", program)


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])
