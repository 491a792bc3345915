"""Azurite, Microsoft's emulator of Azure Blob Storage, as a process on 127.0.0.1 with everything in memory.

It is a package of npm: ``scripts/find-azurite`` installs the version that ``scripts/azurite`` pins into the
environment. Its conditional creates are atomic: one thread answers all requests, and the blob's entry is
looked for and made in one step of it.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import http.client
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from pathlib import Path

from txnlog_testing.stores.running import Command, free_ports, not_installed, running, wait_until

__all__ = ["AzureServer", "azurite_program", "azurite_server"]

ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The emulator's account and its key, which Microsoft has published for it."""
VERSION = "2021-12-02"


@dataclass(frozen=True, kw_only=True)
class AzureServer:
    """A running emulator with one empty container."""

    host_url: str
    """``http://127.0.0.1:port``."""
    account: str = ACCOUNT
    key: str = field(default=KEY, repr=False)
    container: str = "txnlog-test"

    @property
    def endpoint_url(self) -> str:
        """Return what the storage option of this name is."""
        return f"{self.host_url}/{self.account}"

    @property
    def storage_options(self) -> dict[str, str]:
        """Return the ``storage_options`` for ``TxnLog.open(url, storage_options=…)``."""
        return {"account_name": self.account, "account_key": self.key, "endpoint_url": self.endpoint_url}

    @property
    def environment(self) -> dict[str, str]:
        """Return the same as environment variables."""
        return {
            "AZURE_STORAGE_ACCOUNT_NAME": self.account,
            "AZURE_STORAGE_ACCOUNT_KEY": self.key,
            "AZURE_STORAGE_ENDPOINT": self.endpoint_url,
        }

    def url(self, path: str, scheme: str = "az") -> str:
        """Return the URL of a root in the container; ``abfss`` is the form of Hadoop."""
        if scheme == "az":
            return f"az://{self.container}/{path}"
        return f"{scheme}://{self.container}@{self.account}.dfs.core.windows.net/{path}"

    def sas_token(self, *, permissions: str = "rwdlc", expires: str = "2099-01-01T00:00:00Z") -> str:
        """Return a shared access signature for the container."""
        resource = f"/blob/{self.account}/{self.container}"
        fields = [
            *(permissions, "", expires, resource, "", "", "", VERSION, "c"),
            *([""] * 7),
        ]
        signature = self._signed("\n".join(fields))
        values = {"sv": VERSION, "sr": "c", "sp": permissions, "se": expires, "sig": signature}
        return "&".join(f"{name}={_escaped(value)}" for name, value in values.items())

    def request(self, method: str, query: Mapping[str, str], path: str = "") -> int:
        """Send one signed request about the container, or about ``path`` in it; return the HTTP status."""
        date = formatdate(usegmt=True)
        target = f"/{self.account}/{self.container}{path}"
        canonical = f"/{self.account}{target}" + "".join(f"\n{name}:{query[name]}" for name in sorted(query))
        signature = self._signed(
            f"{method}{chr(10) * 12}x-ms-date:{date}\nx-ms-version:{VERSION}\n{canonical}"
        )
        headers = {
            "x-ms-date": date,
            "x-ms-version": VERSION,
            "Authorization": f"SharedKey {self.account}:{signature}",
            "Content-Length": "0",
        }
        connection = http.client.HTTPConnection(self.host_url.partition("//")[2], timeout=20)
        try:
            given = "&".join(f"{name}={value}" for name, value in query.items())
            connection.request(method, f"{target}?{given}", headers=headers)
            answer = connection.getresponse()
            answer.read()
            return answer.status
        finally:
            connection.close()

    def _signed(self, text: str) -> str:
        return base64.b64encode(
            hmac.new(base64.b64decode(self.key), text.encode(), hashlib.sha256).digest()
        ).decode()


def _escaped(value: str) -> str:
    return (
        value.replace("%", "%25")
        .replace("+", "%2B")
        .replace("/", "%2F")
        .replace("=", "%3D")
        .replace(":", "%3A")
    )


def azurite_program() -> Path | None:
    """Return where Azurite is; None where ``scripts/find-azurite`` could not install it."""
    found = Path(sys.prefix) / "azurite" / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
    return found if found.exists() and shutil.which("node") else None


@contextlib.contextmanager
def azurite_server(*, container: str = "txnlog-test") -> Iterator[AzureServer]:
    """Run Azurite's blob service.

    Raises
    ------
    StorageError
        It is not installed, or does not start.
    """
    program = azurite_program()
    if program is None:
        raise not_installed("Azurite", "run scripts/find-azurite, which needs Node.js and npm")

    def command(_: Path) -> Command:
        (port,) = free_ports(1)
        arguments = [
            shutil.which("node") or "node",
            str(program),
            *("--blobHost", "127.0.0.1", "--blobPort", str(port)),
            *("--inMemoryPersistence", "--disableTelemetry", "--silent", "--skipApiVersionCheck"),
        ]
        return Command(arguments, port)

    def server(port: int) -> AzureServer:
        return AzureServer(host_url=f"http://127.0.0.1:{port}", container=container)

    def until_ready(port: int, has_ended: Callable[[], bool]) -> str | None:
        def attempt() -> str | None:
            try:
                status = server(port).request("PUT", {"restype": "container"})
            except OSError as error:
                return str(error)
            return None if status in (201, 409) else f"HTTP {status}"

        return wait_until(attempt, has_ended)

    with running("Azurite", command, until_ready) as port:
        yield server(port)
