"""The S3 servers of the tests answer while they are wanted, and are gone afterwards, whatever happens."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from txnlog_testing.stores.s3_server import S3Server, free_ports, moto_server, seaweedfs_server

HOLDER = """
import sys
from txnlog_testing.stores.s3_server import seaweedfs_server
with seaweedfs_server() as server:
    print(server.endpoint_url, flush=True)
    sys.stdin.read()
"""


def _local_sockets(directory: Path) -> list[Path]:
    """Return the sockets of the server that keeps its data below a directory."""
    processes = subprocess.run(["ps", "-axww", "-o", "args"], capture_output=True, text=True, check=True)
    ports = {
        port
        for line in processes.stdout.splitlines()
        if str(directory) in line
        for port in re.findall(r"\.(?:port|grpc)=(\d+)", line)
    }
    return [path for path in Path("/tmp").glob("seaweedfs-*.sock") if path.stem.rpartition("-")[2] in ports]


def _is_gone(server: S3Server) -> bool:
    client = server.client()
    try:
        client.list_buckets()
    except EndpointConnectionError:
        return True
    finally:
        client.close()
    return False


def _left(server: S3Server, paths: list[Path]) -> list[str]:
    found = [str(path) for path in paths if path.exists()]
    return found if _is_gone(server) else [*found, server.endpoint_url]


def test_seaweedfs_knows_its_identities_and_is_gone_after_an_exception() -> None:
    reader = {
        "name": "reader",
        "credentials": [{"accessKey": "r", "secretKey": "s"}],
        "actions": ["Read", "List"],
    }
    with pytest.raises(KeyError), seaweedfs_server(identities=[reader]) as server:  # noqa: PT012  # what stands after start
        assert server.secret not in repr(server)
        client = server.client(key="r", secret="s")
        with pytest.raises(ClientError, match="AccessDenied"):
            client.put_object(Bucket=server.bucket, Key="x", Body=b"")
        assert client.list_objects_v2(Bucket=server.bucket)["KeyCount"] == 0
        raise KeyError
    assert _is_gone(server)


def test_moto_answers_and_is_gone_after_the_block() -> None:
    with moto_server(bucket="other") as server:
        assert server.client().list_objects_v2(Bucket="other")["KeyCount"] == 0
    assert _is_gone(server)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_server_does_not_outlive_its_process(number: signal.Signals, tmp_path: Path) -> None:
    others = set(Path("/tmp").glob("seaweedfs-*.sock"))  # also of servers that were killed long ago
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={"TMPDIR": str(tmp_path), "PYTHONPATH": str(Path(__file__).parents[3]), "PATH": "/usr/bin:/bin"},
    )
    try:
        assert holder.stdout is not None
        endpoint = holder.stdout.readline().strip()
        assert endpoint
        assert len(list(tmp_path.iterdir())) == 1
        sockets = [path for path in _local_sockets(tmp_path) if path not in others]
        assert sockets
        holder.send_signal(number)
        holder.wait(300)
    finally:
        holder.kill()
        holder.communicate()
    server = S3Server(endpoint_url=endpoint, key="k", secret="s")
    deadline = time.monotonic() + 300
    while left := _left(server, [*tmp_path.iterdir(), *sockets]):
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


def test_free_ports_are_different() -> None:
    assert len(set(free_ports(20))) == 20
