"""A truncation in a bucket, through a network that spoils each of its requests once: it ends as without, or
with one error, and another run completes it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.upkeep.truncation_world import (
    BOUNDARY,
    HOUR_S,
    TruncationWorld,
    entries_in,
    one_by_one,
)
from tests.rounds import rounds
from txnformat import keys
from txnformat.core.snapshot.codec import state_digest
from txnformat.store.base import ObjectStore
from txnformat.store.open import open_store
from txnformat.store.wrapped import WrappedStore
from txnlog import StorageError, TxnLog
from txnlog_testing.stores.fault_proxy import FaultProxy, Plan, ProxyFault, ProxyFaultKind, Request
from txnlog_testing.stores.s3_server import S3Server, seaweedfs_server

READS = [
    ProxyFault(ProxyFaultKind.SERVER_ERROR, status=503),
    ProxyFault(ProxyFaultKind.APPLY_THEN_DROP),
    ProxyFault(ProxyFaultKind.TRUNCATED),
]
WRITES = [
    ProxyFault(ProxyFaultKind.SERVER_ERROR, status=503),
    ProxyFault(ProxyFaultKind.SERVER_ERROR, status=503, applied=True),
    ProxyFault(ProxyFaultKind.APPLY_THEN_DROP),
    ProxyFault(ProxyFaultKind.DROP_BEFORE),
    ProxyFault(ProxyFaultKind.DUPLICATED),
]
RUNS_MAX = 6


class DaysLater(WrappedStore):
    """A store that is ahead of its own time: what is there was made days ago."""

    def __init__(self, inner: ObjectStore, ahead_ms: int, made_ahead_ms: int) -> None:
        super().__init__(inner)
        self._ahead_ms, self._made_ahead_ms = ahead_ms, made_ahead_ms

    def store_time_ms(self) -> int:
        return self._inner.store_time_ms() + self._ahead_ms

    def created_ms(self, key: str) -> int | None:
        found = super().created_ms(key)
        return None if found is None else found + self._made_ahead_ms


def spoiled_once(share: int) -> Plan:
    """Spoil every request the first time; ``share``: which of the faults each gets."""
    seen: dict[str, int] = {}

    def plan(request: Request, nth: int) -> ProxyFault | None:
        if nth > 1:
            return None
        number = seen.setdefault(request.method, share)
        seen[request.method] += 1
        faults = READS if request.method in ("GET", "HEAD") else WRITES
        return faults[number % len(faults)]

    return plan


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with seaweedfs_server() as running:
        yield running


@pytest.mark.parametrize("share", rounds((0,), (0, 1, 2)))
def test_a_truncation_ends_though_each_request_fails_once(server: S3Server, share: int) -> None:
    with one_by_one():
        world = TruncationWorld()
    expected = state_digest(world.opened().state)
    history = [one.sha256 for one in world.opened().history(limit=None)]
    url = server.url(f"truncated-{share}")
    direct = open_store(url, storage_options=server.storage_options)
    for info in world.store.list("_txnlog/"):
        direct.create(info.key, world.store.get(info.key) or b"")
    world.age()
    ahead_ms = world.clock.now().wall_ms - direct.store_time_ms()
    with FaultProxy(server.endpoint_url, spoiled_once(share)) as proxy:
        options = {**server.storage_options, "endpoint_url": proxy.url, "read_timeout_s": "5"}
        spoiled = open_store(url, storage_options=options)
        errors: list[StorageError] = []
        for run in range(RUNS_MAX):
            store = DaysLater(spoiled, ahead_ms + run * 2 * HOUR_S * 1_000, ahead_ms)
            try:
                report = TxnLog.open(store, clock=world.clock).truncate()
            except StorageError as error:
                errors.append(error)
                continue
            if report.deleted_below and not report.rows:
                break
        assert len(errors) <= 2
        assert all(error.transient for error in errors), errors
        assert len(proxy.counts.kinds()) >= 4
    assert entries_in(direct)[0] == BOUNDARY
    log = TxnLog.open(direct, clock=world.clock)
    assert state_digest(log.state) == expected
    assert [one.sha256 for one in log.history(limit=None)] == history
    assert direct.get(keys.boundary_key(BOUNDARY)) is not None
