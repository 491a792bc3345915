"""Roles on Azurite: it judges shared access signatures, and knows neither role definitions nor conditions.

A signature that creates and does not write is the writer's right on the chain: with it, as with
``blobs/add/action`` alone, a taken name is refused for lack of a right, and not because it is taken.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from txnformat.errors import TxnLogError
from txnformat.store.base import CreateOutcome
from txnformat.store.cloud.azure import AzureStore
from txnlog import Producer, TxnLog
from txnlog_testing.stores.azurite import AzureServer, azurite_program, azurite_server

if azurite_program() is None:
    pytest.skip("Azurite is not here: see scripts/find-azurite", allow_module_level=True)

NUMBERS = pa.schema([("n", pa.int64())])
_numbers = itertools.count()


@pytest.fixture(scope="module")
def server() -> Iterator[AzureServer]:
    with azurite_server() as running:
        yield running


def options(server: AzureServer, permissions: str) -> dict[str, str]:
    return {
        **server.storage_options,
        "account_key": "",
        "sas_token": server.sas_token(permissions=permissions),
    }


@pytest.fixture
def url(server: AzureServer) -> str:
    """Return the URL of a log with a topic."""
    url = server.url(f"rights-{next(_numbers)}")
    log = TxnLog.create(url, storage_options=server.storage_options)
    log.create_topic("t", NUMBERS)
    log.close()
    return url


def send(log: TxnLog, number: int) -> None:
    with Producer(log) as producer:
        producer.send("t", pa.table({"n": [number]}, schema=NUMBERS))


def denied(call: Callable[[], object]) -> bool:
    with pytest.raises(TxnLogError) as caught:
        call()
    return caught.value.kind == "permission-denied"


def test_a_taken_name_is_taken_for_a_client_that_may_not_replace(server: AzureServer, url: str) -> None:
    store = AzureStore(url, options(server, "rlc"))
    assert store.create("one", b"first").outcome is CreateOutcome.CREATED
    again = store.create("one", b"second")
    assert (again.outcome, again.error) == (CreateOutcome.EXISTS, None)
    assert store.get("one") == b"first"
    reader = AzureStore(url, options(server, "rl"))
    assert reader.create("two", b"").outcome is CreateOutcome.REFUSED
    assert store.get("two") is None


def test_writers_that_may_only_create_commit_beside_each_other(server: AzureServer, url: str) -> None:
    logs = [TxnLog.open(url, storage_options=options(server, "rlc")) for _ in range(2)]
    for number in range(6):
        send(
            logs[number % 2], number
        )  # the other log has moved on, so that the slot that this one knows is taken
    for log in logs:
        log.close()
    reader = TxnLog.open(url, storage_options=options(server, "rl"))
    assert sorted(reader.read("t").read_all()["n"].to_pylist()) == [*range(6)]
    assert reader.verify().ok
    assert denied(lambda: send(reader, 7))
    (entry, *_) = [info.key for info in logs[0].store.list("_txnlog/log/")]
    assert denied(lambda: logs[0].store.put(entry, b"forged"))
    assert denied(lambda: logs[0].store.delete(entry))


def test_the_role_that_keeps_the_log_deletes(server: AzureServer, url: str) -> None:
    log = TxnLog.open(url, storage_options=options(server, "rlcwd"))
    send(log, 1)
    log.maintain("seal")
    assert log.vacuum(dry_run=True).notes == ()
    log.store.put("_txnlog/latest", b"")
    log.store.delete("_txnlog/latest")
