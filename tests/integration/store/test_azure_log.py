"""A log in a container of Azure: what people meet when something is wrong with credentials, names or
processes."""

from __future__ import annotations

import base64
import itertools
import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from txnformat.errors import InvalidInputError, StorageError, UnsupportedStoreError
from txnformat.store.open import open_store
from txnlog import Producer, TxnLog
from txnlog_testing.stores.azurite import AzureServer, azurite_program, azurite_server
from txnlog_testing.stores.running import dead_endpoint

if azurite_program() is None:
    pytest.skip("Azurite is not here: see scripts/find-azurite", allow_module_level=True)

NUMBERS = pa.schema([("n", pa.int64())])
_roots = itertools.count()


@pytest.fixture(scope="module")
def server() -> Iterator[AzureServer]:
    with azurite_server() as running:
        yield running


@pytest.fixture
def url(server: AzureServer) -> str:
    """A log with one topic and ten records."""
    root = server.url(f"log-{next(_roots)}")
    with TxnLog.create(root, storage_options=server.storage_options) as log:
        log.create_topic("t", NUMBERS)
        with Producer(log) as producer:
            producer.send("t", pa.table({"n": range(10)}, schema=NUMBERS))
    return root


def test_a_log_reads_and_writes_by_either_name_and_any_credentials(server: AzureServer, url: str) -> None:
    same = server.url(url.rpartition("/")[2], "abfss")
    options = server.storage_options
    by_signature = {name: value for name, value in options.items() if name != "account_key"}
    by_signature["sas_token"] = "?" + server.sas_token()
    for location, given in ((same, options), (url, by_signature), (same, by_signature)):
        with TxnLog.open(location, storage_options=given) as log, Producer(log, "x") as producer:
            producer.begin()
            producer.send("t", pa.table({"n": [1]}, schema=NUMBERS))
            producer.commit()
    assert TxnLog.open(url, storage_options=options).read("t").read_all().num_rows == 13


def test_credentials_of_the_environment(
    server: AzureServer, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    assert TxnLog.open(url).read("t").read_all().num_rows == 10
    with dead_endpoint() as endpoint, pytest.raises(StorageError) as caught:
        TxnLog.open(url, storage_options={"endpoint_url": f"{endpoint}/devstoreaccount1"})
    assert caught.value.kind == "credentials-missing"
    assert "belong to an endpoint other" in str(caught.value)


@pytest.mark.parametrize(
    ("changed", "kind"),
    [
        ({"account_key": base64.b64encode(b"another key").decode()}, "credentials-invalid"),
        ({"account_key": "", "token": "no-token-at-all"}, "credentials-invalid"),
        (
            {"account_key": "", "sas_token": "sv=2021-12-02&sr=c&sp=rl&se=2099-01-01&sig=c2VjcmV0c2VjcmV0"},
            "credentials-invalid",
        ),
        (
            {
                "account_key": "",
                "sas_token": "sv=2021-12-02&sr=c&sp=rl&se=2020-01-01T00%3A00Z&sig=c2VjcmV0c2VjcmV0",
            },
            "credentials-expired",
        ),
    ],
    ids=["key", "token", "signature", "expired"],
)
def test_wrong_credentials(server: AzureServer, url: str, changed: dict[str, str], kind: str) -> None:
    options = {**server.storage_options, **changed}
    with pytest.raises(StorageError) as caught:
        TxnLog.open(url, storage_options=options)
    assert caught.value.kind == kind
    secret = next(value for value in changed.values() if value)
    assert secret not in str(caught.value)
    assert "c2VjcmV0c2VjcmV0" not in str(caught.value)


def test_no_credentials(server: AzureServer, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last resort is the machine's identity; where there is none, the error says what to pass."""
    with dead_endpoint() as endpoint:
        monkeypatch.setenv("AZURE_MSI_ENDPOINT", f"{endpoint}/msi")
        store = open_store(
            url, storage_options={"account_name": server.account, "endpoint_url": server.endpoint_url}
        )
        with pytest.raises(StorageError) as caught:
            store.get("a")
    assert caught.value.kind == "credentials-missing"
    assert "account_key" in (caught.value.hint or "")


def test_a_signature_that_may_only_read_reads(server: AzureServer, url: str) -> None:
    options = {**server.storage_options, "account_key": "", "sas_token": server.sas_token(permissions="rl")}
    log = TxnLog.open(url, storage_options=options)
    assert log.read("t").read_all().num_rows == 10
    with pytest.raises(StorageError) as caught:
        log.create_topic("u", NUMBERS)
    assert caught.value.kind in ("permission-denied", "credentials-invalid")


def test_credentials_that_end_in_mid_transaction_lose_nothing_and_commit_nothing(
    server: AzureServer, url: str
) -> None:
    end = datetime.now(UTC) + timedelta(seconds=4)
    token = server.sas_token(expires=end.strftime("%Y-%m-%dT%H:%M:%SZ"))
    options = {**server.storage_options, "account_key": "", "sas_token": token}
    log = TxnLog.open(url, storage_options=options)
    producer = Producer(log, "ends")
    producer.init()
    producer.begin()
    producer.send("t", pa.table({"n": [77]}, schema=NUMBERS))
    while datetime.now(UTC) < end + timedelta(seconds=1):
        time.sleep(0.1)
    with pytest.raises(StorageError) as caught:
        producer.commit()
    assert caught.value.kind == "credentials-expired"
    assert "committed data is safe" in (caught.value.hint or "")
    again = TxnLog.open(url, storage_options=server.storage_options)
    assert again.read("t").read_all().num_rows == 10
    with Producer(again, "ends") as heir:
        heir.begin()
        heir.send("t", pa.table({"n": [77]}, schema=NUMBERS))
        heir.commit()
    assert again.read("t").read_all().num_rows == 11


def test_a_missing_container_is_named_and_not_made(server: AzureServer) -> None:
    for call in (TxnLog.create, TxnLog.open):
        with pytest.raises(StorageError) as caught:
            call("az://no-such-container/log", storage_options=server.storage_options)
        assert caught.value.kind == "bucket-missing"
        assert "the container does not exist" in str(caught.value)


def test_an_endpoint_that_does_not_answer(server: AzureServer, url: str) -> None:
    with dead_endpoint() as endpoint:
        store = open_store(
            url, storage_options={**server.storage_options, "endpoint_url": f"{endpoint}/devstoreaccount1"}
        )
        with pytest.raises(StorageError) as caught:
            store.get("a")
        assert caught.value.kind == "endpoint-unreachable"
        with pytest.raises(StorageError) as caught:
            store.store_time_ms()
        assert caught.value.kind == "endpoint-unreachable"
    plain = {**server.storage_options, "endpoint_url": server.endpoint_url.replace("http:", "https:")}
    with pytest.raises(StorageError) as caught:
        open_store(url, storage_options=plain).get("a")
    assert caught.value.kind == "tls-failed"


def test_no_account(server: AzureServer, url: str) -> None:
    store = open_store(url, storage_options={"account_key": server.key, "endpoint_url": server.endpoint_url})
    with pytest.raises(StorageError) as caught:
        store.get("a")
    assert caught.value.kind == "invalid-storage-option"
    assert "account_name" in (caught.value.hint or "")


def test_a_forked_child_is_told_in_place_of_waiting_for_ever(server: AzureServer, url: str) -> None:
    """In a process of its own: one with threads may not fork."""
    program = f"""
import os, sys
from txnformat.errors import StorageError
from txnformat.store.open import open_store
store = open_store({url!r}, storage_options={server.storage_options!r})
assert store.get("_txnlog/format.json")
child = os.fork()
if not child:
    try:
        store.get("_txnlog/format.json")
    except StorageError as error:
        os._exit(7 if error.kind == "client-forked" else 1)
    os._exit(2)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 7, done.stderr


def test_a_store_travels_to_another_process(server: AzureServer, url: str) -> None:
    store = open_store(url, storage_options=server.storage_options)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        found = pool.apply(store.get, ("_txnlog/format.json",))
    assert json.loads(found or b"{}")


def test_mounts_and_other_names_are_answered_with_the_uri_to_use() -> None:
    for location, said in (
        ("/Volumes/main/sales/raw/log", "DESCRIBE VOLUME `main`.`sales`.`raw`"),
        ("/dbfs/mnt/log", "abfss://container@account"),
        ("wasbs://c@a.blob.core.windows.net/log", "abfss://"),
    ):
        with pytest.raises(UnsupportedStoreError) as caught:
            open_store(location)
        assert said in (caught.value.hint or "")


@pytest.mark.parametrize(
    "location",
    [
        "az://",
        "az:///path",
        "az://UPPER/path",
        "az://container//path",
        "az://container/a/../b",
        "az://container/log?sig=secretsecret",
        "abfss://container@evil.example.com/log",
        "abfss://container@account.dfs.core.windows.net.evil.example.com/log",
        "abfss://container:secret@account.dfs.core.windows.net/log",
    ],
)
def test_locations_that_are_none(location: str) -> None:
    """Credentials go to hosts of Azure only, and to what endpoint_url names."""
    with pytest.raises(InvalidInputError) as caught:
        open_store(location)
    assert caught.value.kind == "invalid-location"
    assert "secretsecret" not in str(caught.value)
    assert "abfss://container@account" in (caught.value.hint or "")


def test_the_probe_refuses_an_emulator_without_conditions(server: AzureServer) -> None:
    """Old emulators answer a conditional create as a plain one."""
    from txnlog_testing.stores.fault_proxy import FaultProxy, Request
    from txnlog_testing.stores.http_wire import without_headers

    class Unconditional(FaultProxy):
        def changed(self, request: Request) -> Request:
            return without_headers(request, "if-none-match")

    with Unconditional(server.host_url) as proxy:
        options = {**server.storage_options, "endpoint_url": f"{proxy.url}/{server.account}"}
        # The signature covers the header, so the account's key does not go with a changed request.
        options |= {"account_key": "", "sas_token": server.sas_token()}
        root = server.url(f"log-{next(_roots)}")
        with pytest.raises(UnsupportedStoreError) as caught:
            TxnLog.create(root, storage_options=options)
        assert caught.value.kind == "unsupported-store"
    left = open_store(root, storage_options=server.storage_options).list("")
    assert [info.key for info in left] == []


def test_the_environment_of_this_test_names_no_azure() -> None:
    assert not [name for name in os.environ if name.startswith("AZURE_")]
