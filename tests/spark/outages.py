"""A real S3 server behind a proxy that spoils requests from a certain batch on, and streams that write
there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tests.spark.feeds import Feed
from txnformat.keys import LOG_PREFIX, entry_key
from txnformat.log import TxnLog
from txnlog_testing.stores.fault_proxy import FaultProxy, ProxyFault, ProxyFaultKind, Request, no_proxy_faults
from txnlog_testing.stores.s3_server import S3Server

__all__ = [
    "BEGUN",
    "Bucket",
    "Matches",
    "Outage",
    "answered",
    "batches",
    "is_data_put",
    "is_entry_put",
    "is_read",
]

BEGUN = -1
"""As ``after``: from the first request on."""

Matches = Callable[[Request], bool]


def is_entry_put(request: Request) -> bool:
    """Whether the request creates an entry of the log."""
    return request.is_conditional_put and f"/{LOG_PREFIX}" in request.target


def is_data_put(request: Request) -> bool:
    """Whether the request uploads records."""
    return request.is_conditional_put and "/_txnlog/" not in request.target


def is_read(request: Request) -> bool:
    """Whether the request reads an object."""
    return request.method in ("GET", "HEAD")


def answered(status: int, code: str) -> ProxyFault:
    """Return the fault of a store that does nothing and answers this."""
    return ProxyFault(ProxyFaultKind.SERVER_ERROR, status=status, code=code)


@dataclass
class Outage:
    """A plan: requests that match are spoilt once entry ``after`` is being created, the first ``count`` of
    them."""

    fault: ProxyFault
    matches: Matches
    after: int
    count: int = 1_000_000
    met: int = 0
    _begun: bool = field(default=False, repr=False)

    def __call__(self, request: Request, nth: int) -> ProxyFault | None:
        if (self._begun or self.after == BEGUN) and self.matches(request) and self.met < self.count:
            self.met += 1
            return self.fault
        # The entry's own request goes through; what comes behind it is spoilt.
        if is_entry_put(request) and request.target.partition("?")[0].endswith(entry_key(self.after)):
            self._begun = True
        return None


class Bucket:
    """A log in a bucket of a real server, written to through the proxy, and read from the server itself."""

    def __init__(self, spark: SparkSession, server: S3Server, proxy: FaultProxy, folder: Path) -> None:
        self.server = server
        self.proxy = proxy
        self.name = folder.name
        self.path = server.url(self.name)
        self.log = TxnLog.create(self.path, storage_options=server.storage_options, embedding=False)
        self.feed = Feed(spark, self.path, folder)
        proxy.plan = no_proxy_faults

    @property
    def options(self) -> dict[str, Any]:
        """What a writer is given."""
        storage = {**self.server.storage_options, "endpoint_url": self.proxy.url, "read_timeout_s": "5"}
        return {"topic": "t", **{f"storage.{name}": value for name, value in storage.items()}}

    def run(self, *frame: Any, **options: Any) -> None:
        """Write everything that is there."""
        self.feed.run(*frame, **{**self.options, **options})

    def fails(self, **options: Any) -> str:
        """Return what the user is told."""
        return self.feed.fails(**{**self.options, **options})

    def planned(self) -> list[int]:
        """Return the batches that Spark has written down before running them."""
        return batches(self.feed.checkpoint / "offsets")

    def committed(self) -> list[int]:
        """Return the batches that Spark has written down as done."""
        return batches(self.feed.checkpoint / "commits")


def batches(folder: Path) -> list[int]:
    """Return the batches that a folder of a checkpoint has files of."""
    return sorted(int(file.name) for file in folder.iterdir() if file.name.isdecimal())
