"""A Spark cluster of real processes on several loopback addresses: only between hosts does Spark
speculate.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.chaos import processes
from tests.chaos.drivers import ROOT, Cluster
from tests.chaos.faults import wait_until
from tests.jvm import java_options

__all__ = ["HOSTS", "standalone"]

HOSTS = ("127.0.0.2", "127.0.0.3")
_MASTER = ("org.apache.spark.deploy.master.Master",)
_WORKER = ("org.apache.spark.deploy.worker.Worker", "--cores", "1", "--memory", "1g")
_PORT = re.compile(r"Starting Spark master at (spark://[0-9.]+:[0-9]+)")
_REGISTERED = "Successfully registered with master"


@contextlib.contextmanager
def standalone(place: Cluster, hosts: Sequence[str] = HOSTS) -> Iterator[str]:
    """Yield the URL of a master with one worker on each host, one slot each; all of it ends with the block.

    Executors that are left end with the block of ``place``.
    """
    folder = place.folder / "standalone"
    folder.mkdir()
    (folder / "log4j2.properties").write_text(_LOGGING)
    with contextlib.ExitStack() as running:
        master_log = _start(
            place, folder, "master", running, [*_MASTER, "--host", "127.0.0.1", "--port", "0"]
        )
        url = wait_until(lambda: _found(master_log), "the master to start")
        logs = [
            _start(
                place,
                folder,
                f"worker-{number}",
                running,
                [*_WORKER, "--host", host, "--work-dir", str(folder / f"work-{number}"), url],
            )
            for number, host in enumerate(hosts)
        ]
        wait_until(lambda: all(_REGISTERED in log.read_text() for log in logs), "the workers to register")
        yield url


_LOGGING = """\
rootLogger.level = info
rootLogger.appenderRef.stdout.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c{1}: %m%n
"""


def _start(
    place: Cluster, folder: Path, name: str, running: contextlib.ExitStack, arguments: Sequence[str]
) -> Path:
    """Start a master or a worker; return what it prints to."""
    log = folder / f"{name}.log"
    environment: Mapping[str, str] = {
        **os.environ,
        **place.environment,
        "PYTHONPATH": str(ROOT),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": f"{java_options()} -Dlog4j2.configurationFile={folder}/log4j2.properties",
    }
    command = ["bash", str(Path(place.environment["SPARK_HOME"]) / "bin" / "spark-class"), *arguments]
    with log.open("ab") as out:
        process = subprocess.Popen(
            [*command, "--webui-port", "0"],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    running.callback(process.wait, processes.GONE_SECONDS_MAX)
    running.callback(process.kill)
    return log


def _found(log: Path) -> str | None:
    found = _PORT.search(log.read_text(errors="replace"))
    return None if found is None else found[1]
