"""The jars of the broker of the tests: fetched once into ``.venv/kafka``, each checked against its SHA-256 in
``jars.lock``.

Ivy fetches them from Maven Central; it is one of the jars of pyspark, which the environment has. ``python -m
tests.kafka.jars`` fetches them; with ``--lock`` it resolves what a broker of VERSION depends on, and writes
``jars.lock``.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

__all__ = ["VERSION", "Jar", "class_path", "fetch", "locked"]

ROOT = Path(__file__).resolve().parents[2]
LOCK = Path(__file__).with_name("jars.lock")
FOLDER = ROOT / ".venv" / "kafka"

VERSION = "4.4.0"
"""Version of the broker."""

SETTINGS = """<ivysettings>
  <settings defaultResolver="central"/>
  <resolvers><ibiblio name="central" m2compatible="true" usepoms="{poms}"/></resolvers>
</ivysettings>"""
MODULE = """<ivy-module version="2.0"><info organisation="txnlog" module="broker"/>
<configurations><conf name="default"/></configurations><dependencies>
{dependencies}
</dependencies></ivy-module>"""
DEPENDENCY = '<dependency org="{0}" name="{1}" rev="{2}" conf="default->{3}" transitive="{4}"/>'

HEAD = (
    "# Jars of the broker, each with its SHA-256. Made by `python -m tests.kafka.jars --lock`. Do not edit.\n"
)


class Jar(NamedTuple):
    """One jar, as the lock has it."""

    group: str
    name: str
    version: str
    sha256: str

    @property
    def file(self) -> str:
        """Name of its file."""
        return f"{self.name}-{self.version}.jar"


def locked() -> list[Jar]:
    """Return the jars of the lock."""
    found = []
    for line in LOCK.read_text().splitlines():
        if line and not line.startswith("#"):
            where, sha256 = line.split()
            group, name, version = where.split(":")
            found.append(Jar(group, name, version, sha256))
    return found


@functools.cache
def class_path() -> str:
    """Return Java's class path of the broker, after fetching what is missing."""
    return os.pathsep.join(str(path) for path in fetch())


def fetch() -> list[Path]:
    """Return the jars; those that are missing or differ from the lock are fetched first. Processes take
    turns."""
    jars = locked()
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / "lock").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        if not all(_is_sound(jar, FOLDER / jar.file) for jar in jars):
            with tempfile.TemporaryDirectory(dir=FOLDER) as scratch:
                lines = [DEPENDENCY.format(*jar[:3], "default(compile)(*)", "false") for jar in jars]
                _ivy(Path(scratch), lines, poms=False)
                for jar in jars:
                    found = Path(scratch) / "jars" / jar.file
                    if not _is_sound(jar, found):
                        raise RuntimeError(
                            f"{jar.file} is missing, or its SHA-256 is not that of {LOCK.name}"
                        )
                    found.replace(FOLDER / jar.file)
    return [FOLDER / jar.file for jar in jars]


def _is_sound(jar: Jar, path: Path) -> bool:
    return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == jar.sha256


def _ivy(scratch: Path, dependencies: Sequence[str], *, poms: bool) -> str:
    """Have Ivy fetch jars into ``scratch/jars``, and return what it printed. Its cache goes with
    ``scratch``.
    """
    spark = find_spec("pyspark")
    if spark is None or spark.origin is None:
        raise RuntimeError("pyspark is not installed: its jars have Ivy")
    (ivy,) = Path(spark.origin).with_name("jars").glob("ivy-*.jar")
    settings, module = scratch / "settings.xml", scratch / "ivy.xml"
    settings.write_text(SETTINGS.format(poms=str(poms).lower()))
    module.write_text(MODULE.format(dependencies="\n".join(dependencies)))
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java") or "java"
    pattern = f"{scratch}/jars/[artifact]-[revision].[ext]"
    done = subprocess.run(
        [
            *(java, "-XX:TieredStopAtLevel=1", "-jar", str(ivy), "-settings", str(settings)),
            *("-cache", str(scratch / "cache"), "-ivy", str(module), "-confs", "default"),
            *("-retrieve", pattern, "-types", "jar", "bundle"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(
            f"the jars of the broker could not be fetched: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        )
    return done.stdout


def lock() -> None:
    """Resolve what a broker depends on, and write the lock."""
    with tempfile.TemporaryDirectory() as scratch:
        wanted = DEPENDENCY.format("org.apache.kafka", "kafka_2.13", VERSION, "default", "true")
        said = _ivy(Path(scratch), [wanted], poms=True)
        lines = []
        for where, name, version in re.findall(
            r"downloading \S*/maven2/(\S+)/([^/\s]+)/([^/\s]+)/[^/\s]+\.jar", said
        ):
            data = (Path(scratch) / "jars" / f"{name}-{version}.jar").read_bytes()
            lines.append(f"{where.replace('/', '.')}:{name}:{version} {hashlib.sha256(data).hexdigest()}\n")
    LOCK.write_text(HEAD + "".join(sorted(lines)))


if __name__ == "__main__":
    if "--lock" in sys.argv[1:]:
        lock()
    print(len(fetch()), "jars in", FOLDER)
