"""A server that speaks the part of Google Cloud Storage's XML interface that obstore uses: moto's S3 under
Google's names.

Google's XML interface is that of S3 but for the condition (``x-goog-if-generation-match``) and the
credentials. Emulators of Google's JSON interface (fake-gcs-server, gcp-storage-emulator) do not take a PUT of
the XML interface. So this shows that requests are right and what the adapter makes of answers; it says
nothing about Google's own service.
"""

from __future__ import annotations

import contextlib
import http.client
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from txnlog_testing.stores.running import Command, free_ports, installed, running, wait_until

__all__ = ["GcsServer", "gcs_server"]


@dataclass(frozen=True, kw_only=True)
class GcsServer:
    """A running server with one empty bucket."""

    endpoint_url: str
    """``http://127.0.0.1:port``."""
    bucket: str = "txnlogtest"
    """Letters and digits: obstore writes others as escapes, which moto does not read in the name of a bucket.
    """

    @property
    def storage_options(self) -> dict[str, str]:
        """Return the ``storage_options`` for ``TxnLog.open(url, storage_options=…)``."""
        return {"token": "any-token", "endpoint_url": self.endpoint_url}

    @property
    def environment(self) -> dict[str, str]:
        """Return the same as environment variables."""
        return {"GOOGLE_BEARER_TOKEN": "any-token", "GOOGLE_BASE_URL": self.endpoint_url}

    def url(self, path: str) -> str:
        """Return the URL of a root in the bucket."""
        return f"gs://{self.bucket}/{path}"


@contextlib.contextmanager
def gcs_server(*, bucket: str = "txnlogtest") -> Iterator[GcsServer]:
    """Run the server. It keeps everything in memory.

    Raises
    ------
    StorageError
        It is not installed, or does not start.
    """
    installed("moto_server", "moto")

    def command(_: Path) -> Command:
        (port,) = free_ports(1)
        program = ["-m", "txnlog_testing.stores.moto_program", "--google", str(port)]
        return Command([sys.executable, *program], port)

    def until_ready(port: int, has_ended: Callable[[], bool]) -> str | None:
        def attempt() -> str | None:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
            try:
                connection.request("PUT", f"/{bucket}", headers={"Authorization": "Bearer x"})
                status = connection.getresponse().status
            except OSError as error:
                return str(error)
            finally:
                connection.close()
            return None if status in (200, 409) else f"HTTP {status}"

        return wait_until(attempt, has_ended)

    with running("moto", command, until_ready) as port:
        yield GcsServer(endpoint_url=f"http://127.0.0.1:{port}", bucket=bucket)
