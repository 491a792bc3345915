"""The options of the JVMs that tests start: quick to start, with few threads, and with Spark's classes ready
for use.

Half of the time that Spark takes to start goes to loading ten thousand classes. Java keeps such classes in an
archive (class data sharing); here the first who needs one makes it, beside the environment's packages, and
all later JVMs map it.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pyspark

__all__ = ["java_options", "spark_environment", "spark_home"]

QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xss512k -Xshare:auto"
"""One compiler, one collector: these JVMs live for seconds."""
DUMP_SECONDS_MAX = 150
"""Less than a test may take. A slower machine goes without an archive."""
_NONE = b"this Java makes no archive\n"


@functools.cache
def java_options() -> str:
    """Return them; at the first call on a machine that takes the time of two starts of Spark.

    What a killed JVM leaves is in the temporary directory of this process (``txnlog_testing.temporary``).
    """
    archive = _archive()
    options = f"{QUICK} -Djava.io.tmpdir={tempfile.gettempdir()}"
    return options if archive is None else f"{options} -XX:SharedArchiveFile={archive}"


def spark_home(folder: Path) -> Path:
    """Make a home for Spark in ``folder``, and return it; local clusters put their executors' folders into
    it.

    It has not Spark's own copy of pyspark, a zip file without bytecode: every Python that Spark starts would
    compile it again.
    """
    home = folder / "spark-home"
    if not home.exists():
        home.mkdir()
        for name in ("bin", "sbin", "jars", "data"):
            (home / name).symlink_to(Path(pyspark.__path__[0]) / name)
    return home


def spark_environment(folder: Path, arguments: str = "") -> dict[str, str]:
    """Return environment variables that give a program's Spark these options, and further arguments of
    spark-submit."""
    java = f'--conf "spark.driver.extraJavaOptions={java_options()}"'
    return {"SPARK_HOME": str(spark_home(folder)), "PYSPARK_SUBMIT_ARGS": f"{java} {arguments} pyspark-shell"}


def _archive() -> Path | None:
    """Return the archive for this Java and this Spark, made if need be; None when there can be none."""
    home = _java_home()
    release = home / "release"
    if not release.exists():
        return None
    version = f"{home}\n{release.read_text()}\n{pyspark.__version__}\n{pyspark.__file__}\n{Path(__file__).read_text()}"
    folder = Path(sys.prefix) / "spark-classes"
    path = folder / f"{hashlib.sha256(version.encode()).hexdigest()[:16]}.jsa"
    if " " in str(path) or not os.access(sys.prefix, os.W_OK):  # Spark splits its options at spaces
        return None
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            _make(path)
    return path if path.stat().st_size > len(_NONE) else None


def _java_home() -> Path:
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    return Path(java or "/nonexistent").resolve().parent.parent


def _make(path: Path) -> None:
    """Run Spark once, and have Java keep the classes that were loaded; where it cannot, say so in the file."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "made.jsa"
        own = ("SPARK_HOME", "PYSPARK_SUBMIT_ARGS", "SPARK_CONF_DIR")  # of the test that comes first
        environment = {name: value for name, value in os.environ.items() if name not in own}
        environment |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
        root = Path(__file__).resolve().parents[1]
        code = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = subprocess.run(
                [sys.executable, "-m", "tests.jvm", f"{QUICK} -XX:ArchiveClassesAtExit={made}"],
                cwd=folder,
                env={**environment, "PYTHONPATH": str(root)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=DUMP_SECONDS_MAX,
                check=False,
            ).returncode
        whole = path.with_suffix(".part")
        if code == 0 and made.exists():
            shutil.copyfile(made, whole)
        else:
            whole.write_bytes(_NONE)
        whole.replace(path)


def _load_classes(options: str) -> None:
    """Do a little of all that the tests do with Spark."""
    from pyspark.sql import SparkSession

    from spark_datasource.datasource import register
    from txnlog import TxnLog

    here = Path.cwd()
    builder = SparkSession.builder.master("local[2]").config("spark.driver.extraJavaOptions", options)
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.log.level": "OFF",
        "spark.driver.memory": "512m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.warehouse.dir": str(here / "warehouse"),
        "spark.local.dir": str(here / "local"),
        "spark.sql.shuffle.partitions": "2",
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    register(spark)
    TxnLog.create(str(here / "log")).close()
    (here / "input").mkdir()
    (here / "input" / "a.json").write_text('{"n": 1, "key": "a"}\n{"n": 2, "key": "b"}\n')
    rows = spark.readStream.schema("n long, key string").json(str(here / "input")).repartition(2, "key")
    writer = (
        rows.writeStream.format("txnlog").option("topic", "t").option("checkpointLocation", str(here / "c"))
    )
    writer.trigger(availableNow=True).start(str(here / "log")).awaitTermination()
    spark.read.format("txnlog").option("topic", "t").load(str(here / "log")).groupBy("key").count().collect()
    gateway: Any = spark.sparkContext._gateway
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()  # the archive is written as it ends


if __name__ == "__main__":
    _load_classes(sys.argv[1])
