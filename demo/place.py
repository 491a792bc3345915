"""Where the demo's log is: a directory, or a bucket or container of a server that lives as long as the
demo.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["bucket", "container", "directory", "google_bucket"]


@contextmanager
def directory(path: Path) -> Iterator[str]:
    """Yield the location of a log in a directory."""
    yield str(path.resolve())


@contextmanager
def bucket() -> Iterator[str]:
    """Start a server, yield the location of a log in a bucket of it, and stop the server, however the demo
    ends.

    Credentials and endpoint are in the environment, as on a machine in a cloud: nothing in the demo names
    them, and the processes that it starts (Spark and its Python workers, the producer that is killed) have
    them, too.

    Raises
    ------
    StorageError
        The server is not installed, or does not start.
    """
    from txnlog_testing.stores.s3_server import REGION, seaweedfs_server

    _forget("AWS_")
    with seaweedfs_server(bucket="demo") as server:
        settings = {
            "AWS_ACCESS_KEY_ID": server.key,
            "AWS_SECRET_ACCESS_KEY": server.secret,
            "AWS_ENDPOINT_URL": server.endpoint_url,
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
        }
        os.environ.update(settings)
        yield server.url("log")


@contextmanager
def container() -> Iterator[str]:
    """Start Azurite, and yield the location of a log in a container of it, as :func:`bucket` does for S3.

    Raises
    ------
    StorageError
        The server is not installed, or does not start.
    """
    from txnlog_testing.stores.azurite import azurite_server

    _forget("AZURE_")
    with azurite_server(container="demo") as server:
        os.environ.update(server.environment)
        yield server.url("log", "abfss")


@contextmanager
def google_bucket() -> Iterator[str]:
    """Start moto in Google's place, and yield the location of a log in a bucket of it, as :func:`bucket` does
    for S3.

    Raises
    ------
    StorageError
        The server is not installed, or does not start.
    """
    from txnlog_testing.stores.gcs import gcs_server

    _forget("GOOGLE_")
    with gcs_server(bucket="demo") as server:
        os.environ.update(server.environment)
        yield server.url("log")


def _forget(prefix: str) -> None:
    """Remove what the environment has for a cloud: nothing of the user's own may reach the demo."""
    for name in [name for name in os.environ if name.startswith(prefix)]:
        del os.environ[name]
