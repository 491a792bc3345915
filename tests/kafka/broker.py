"""A real Kafka broker in a process of its own: one node in KRaft mode, at 127.0.0.1 with free ports.

The jars are those of :mod:`tests.kafka.jars`. The broker keeps its ports and its folder over
:meth:`Broker.kill` and :meth:`Broker.start`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from tests.kafka.jars import class_path
from txnlog.kafka.failures import client_logger

__all__ = ["Broker", "free_port", "java"]

CLUSTER = "dHhubG9ndHhubG9ndHhubA"
"""Id of every cluster of the tests, unless a test asks for another."""

JVM = ("-Xms64m", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")

START_S = 120
"""Longest wait for a broker on a machine that does much else."""

PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
log.retention.check.interval.ms=500
log.segment.delete.delay.ms=0
log.cleaner.backoff.ms=200
log.cleaner.dedupe.buffer.size=4194304
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=300
num.network.threads=1
num.io.threads=2
log.cleaner.threads=1
background.threads=2
"""


def java() -> str:
    """Return the Java to run: that of JAVA_HOME, else that of the PATH."""
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if found is None:
        raise RuntimeError("there is no Java: make test finds or installs one")
    return found


def free_port() -> int:
    """Return a port of 127.0.0.1 that is free now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


class Broker:
    """One broker; as a context manager it runs until the end of the block, and leaves no process."""

    def __init__(self, folder: Path, *, cluster: str = CLUSTER) -> None:
        self.folder = folder
        self.cluster = cluster
        self.port = 0
        self.data = folder / "data"
        self._process: subprocess.Popen[bytes] | None = None
        self._formatted = False

    @property
    def bootstrap(self) -> str:
        """Its address."""
        return f"127.0.0.1:{self.port}"

    @property
    def properties(self) -> dict[str, str]:
        """Configuration of clients."""
        return {"bootstrap.servers": self.bootstrap}

    @property
    def is_running(self) -> bool:
        """Whether its process is there."""
        return self._process is not None and self._process.poll() is None

    def admin(self, **more: Any) -> AdminClient:
        """Return a client for topics and offsets."""
        return AdminClient({**self.properties, **more}, logger=client_logger)

    def create_topic(self, name: str, partitions: int = 1, **config: str) -> str:
        """Create a topic, and return its name once the broker leads all of its partitions."""
        settings = {key.replace("_", "."): value for key, value in config.items()}
        admin = self.admin()
        admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result(60)
        return name

    def delete_topic(self, name: str) -> None:
        """Delete a topic, and wait until the broker has."""
        admin = self.admin()
        admin.delete_topics([name])[name].result(60)
        deadline = time.monotonic() + START_S
        while name in admin.list_topics(timeout=30).topics:
            assert time.monotonic() < deadline, "the topic stays"
            time.sleep(0.02)

    def delete_records(self, name: str, partition: int, before: int) -> None:
        """Remove the records of a partition below an offset, as retention does."""
        at = TopicPartition(name, partition, before)
        admin = self.admin()  # its futures end with it
        admin.delete_records([at])[at].result(60)

    def producer(self, transactional_id: str | None = None, **more: Any) -> Producer:
        """Return a producer; with a transactional id one that can begin."""
        own = {} if transactional_id is None else {"transactional.id": transactional_id}
        found = Producer({**self.properties, "linger.ms": 0, **own, **more}, logger=client_logger)
        if transactional_id is not None:
            found.init_transactions(60)
        return found

    def records(self, topic: str, *, isolation: str = "read_committed") -> list[Message]:
        """Return all records of a topic, partition by partition."""
        consumer = Consumer(
            {
                **self.properties,
                "group.id": "tests",
                "isolation.level": isolation,
                "enable.partition.eof": True,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            },
            logger=client_logger,
        )
        try:
            numbers = sorted(consumer.list_topics(topic, timeout=30).topics[topic].partitions)
            consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in numbers])
            found: list[Message] = []
            ended: set[int] = set()
            deadline = time.monotonic() + START_S
            while len(ended) < len(numbers):
                assert time.monotonic() < deadline, "the topic has no end"
                for message in consumer.consume(10_000, 0.1):
                    if message.error() is None:
                        found.append(message)
                    elif message.error().code() == KafkaError._PARTITION_EOF:
                        ended.add(message.partition())
            return sorted(found, key=lambda one: (one.partition(), one.offset()))
        finally:
            consumer.close()

    def start(self) -> None:
        """Start it and wait until it answers."""
        for _ in range(3):
            if not self.port:
                self._format()
            if self._run():
                return
            if self._formatted and self.data.exists() and any(self.data.glob("*-0")):
                break  # it has data: its ports stay
            self.port = 0  # another program may have taken a port meanwhile
            shutil.rmtree(self.data, ignore_errors=True)
        raise RuntimeError(f"the broker does not start: {self._output()}")

    def kill(self) -> None:
        """End it as a crash does: SIGKILL."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def _format(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.port, controller = free_port(), free_port()
        text = PROPERTIES.format(port=self.port, controller=controller, data=self.data)
        self._config.write_text(text)
        arguments = ["format", "--cluster-id", self.cluster, "--config", str(self._config)]
        done = subprocess.run(
            [*self._java(), "kafka.tools.StorageTool", *arguments], capture_output=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"the broker's folder cannot be formatted: {done.stdout!r} {done.stderr!r}")
        self._formatted = True

    def _run(self) -> bool:
        with (self.folder / "output").open("ab") as output:
            self._process = subprocess.Popen(
                [*self._java(), "kafka.Kafka", str(self._config)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C ends the tests, and they end it
            )
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline and self._process.poll() is None:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return self._answers()
            time.sleep(0.05)
        self.kill()
        return False

    def _answers(self) -> bool:
        admin = self.admin(**{"socket.timeout.ms": 10_000})
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            with contextlib.suppress(KafkaException):
                if admin.list_topics(timeout=10).brokers:
                    return True
        self.kill()
        return False

    def _java(self) -> list[str]:
        return [java(), *JVM, "-cp", class_path()]

    @property
    def _config(self) -> Path:
        return self.folder / "server.properties"

    def _output(self) -> str:
        path = self.folder / "output"
        return path.read_text(errors="replace")[-4000:] if path.exists() else ""
