"""Storage options of Azure and Google: names, values, and that no value ever shows."""

from __future__ import annotations

import base64
import pickle

import pytest

from txnformat.errors import InvalidInputError
from txnformat.store.cloud.azure import AzureOptions, AzureStore
from txnformat.store.cloud.gcs import GcsOptions, GcsStore
from txnformat.store.open import open_store
from txnformat.store.secrets import masked

KEY = "c2VjcmV0LWtleS1vZi1henVyZQ=="
CUSTOMER_KEY = base64.b64encode(b"k" * 32).decode()
SIGNATURE = "sv=2021-12-02&sr=c&sig=c2VjcmV0c2VjcmV0"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, AzureOptions()),
        (
            {"AZURE_STORAGE_ACCOUNT_NAME": "account", "access_key": KEY},
            AzureOptions(account_name="account", account_key=KEY),
        ),
        ({"sas_token": f"?{SIGNATURE}"}, AzureOptions(sas_token=SIGNATURE)),
        (
            {"tenant_id": "t", "client_id": "c", "client_secret": "s"},
            AzureOptions(tenant_id="t", client_id="c", client_secret="s"),
        ),
        (
            {"endpoint": "http://127.0.0.1:1/account/", "anon": "True"},
            AzureOptions(endpoint_url="http://127.0.0.1:1/account", anon=True),
        ),
        ({"AZURE_ENCRYPTION_KEY": CUSTOMER_KEY}, AzureOptions(encryption_key=CUSTOMER_KEY)),
        (
            {"account_key": "", "read_timeout_s": "2.5", "verify": "false"},
            AzureOptions(read_timeout_s=2.5, verify=False),
        ),
    ],
)
def test_names_and_values_of_azure(given: dict[str, str], expected: AzureOptions) -> None:
    assert AzureOptions.parse(given) == expected


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"acount_name": "a"}, "did you mean account_name?"),
        ({"account_name": "Not-A-Name"}, "3 to 24 of a-z and 0-9"),
        ({"account_key": "not base 64!"}, "must be base64"),
        (
            {"account_key": KEY, "sas_token": SIGNATURE},
            "give one of the storage options account_key, sas_token",
        ),
        ({"anon": "true", "token": "t"}, "anon excludes"),
        ({"client_secret": "s", "client_id": "c"}, "needs tenant_id and client_id"),
        ({"endpoint_url": "127.0.0.1:10000"}, "http://host[:port]"),
        ({"connect_timeout_s": "soon"}, "seconds"),
        ({"key": "k"}, "there is no storage option 'key'"),
        ({"encryption_key": KEY}, "a key of 32 bytes, in base64"),
        ({"encryption_scope": "a scope"}, "must be 3 to 63 of"),
        ({"encryption_scope": "mine", "account_key": KEY}, "cannot go with account_key"),
        ({"encryption_scope": "mine", "encryption_key": CUSTOMER_KEY}, "excludes encryption_key"),
    ],
)
def test_every_mistake_of_azure_is_told(given: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        AzureOptions.parse(given)
    assert caught.value.kind == "invalid-storage-option"
    assert said in str(caught.value)
    assert not any(value in str(caught.value) for value in (KEY, SIGNATURE, "not base 64!"))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"GOOGLE_APPLICATION_CREDENTIALS": "/k.json"}, GcsOptions(service_account_file="/k.json")),
        (
            {"service_account_key": '{"type": "service_account"}'},
            GcsOptions(service_account_key='{"type": "service_account"}'),
        ),
        (
            {"bearer_token": "t", "base_url": "http://127.0.0.1:1"},
            GcsOptions(token="t", endpoint_url="http://127.0.0.1:1"),
        ),
    ],
)
def test_names_and_values_of_google(given: dict[str, str], expected: GcsOptions) -> None:
    assert GcsOptions.parse(given) == expected


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"service_account_key": "/k.json"}, "must be JSON"),
        ({"token": "t", "service_account_file": "/k.json"}, "give one of"),
        ({"tokn": "t"}, "did you mean token?"),
    ],
)
def test_every_mistake_of_google_is_told(given: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        GcsOptions.parse(given)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("signature", "now_ms", "is_over"),
    [
        ("se=2030-01-01T00%3A00%3A00Z&sig=x", 1_893_456_000_000, True),
        ("se=2030-01-01T00%3A00%3A00Z&sig=x", 1_893_455_999_999, False),
        ("sv=1&se=2030-01-01&sig=x", 1_893_456_000_000, True),
        ("sv=1&se=2030-01-01T00:00Z", 1_893_456_000_000, True),
        ("sv=1&sig=x", 1_893_456_000_000, False),
        ("se=never", 1_893_456_000_000, False),
    ],
)
def test_a_signature_says_when_its_time_is_over(signature: str, now_ms: int, is_over: bool) -> None:
    assert AzureOptions(sas_token=signature).has_expired(now_ms) is is_over
    assert not AzureOptions(account_key=KEY).has_expired(now_ms)


def test_no_value_shows() -> None:
    options = {"account_name": "account", "account_key": KEY, "encryption_key": CUSTOMER_KEY}
    store = open_store("az://container/log", storage_options=options)
    again = pickle.loads(pickle.dumps(store))
    assert isinstance(again, AzureStore)
    assert again.options == AzureOptions(account_name="account", account_key=KEY, encryption_key=CUSTOMER_KEY)
    for shown in (repr(store), repr(again.options), store.url, again.place):
        assert KEY not in shown
        assert CUSTOMER_KEY not in shown
    assert again.options.mask(f"PUT {KEY} {CUSTOMER_KEY}") == "PUT *** ***"
    assert masked(f"https://account.blob.core.windows.net/c?{SIGNATURE}").endswith("sig=***")


def test_an_account_is_of_the_url_or_of_the_options() -> None:
    store = open_store("abfss://container@account.dfs.core.windows.net/a/log/")
    assert isinstance(store, AzureStore)
    assert (store.url, store.root.container, store.root.prefix) == (
        "abfss://container@account.dfs.core.windows.net/a/log",
        "container",
        "a/log",
    )
    assert store.endpoint() == "https://account.blob.core.windows.net"
    china = open_store("abfs://container@account.dfs.core.chinacloudapi.cn/log")
    assert isinstance(china, AzureStore)
    assert china.endpoint() == "https://account.blob.core.chinacloudapi.cn"
    with pytest.raises(InvalidInputError, match="another account"):
        open_store(
            "abfss://container@account.dfs.core.windows.net/log", storage_options={"account_name": "other"}
        )


@pytest.mark.parametrize(
    "location",
    [
        "gs://",
        "gs:///x",
        "gs://bucket//x",
        "gs://bucket/../x",
        "gs://user@bucket/x",
        "gs://bucket/x?token=secretsecret",
    ],
)
def test_locations_of_google_that_are_none(location: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        open_store(location)
    assert caught.value.kind == "invalid-location"
    assert "secretsecret" not in str(caught.value)


def test_buckets_of_google() -> None:
    store = open_store("gs://bucket_1.example.com/a/b/")
    assert isinstance(store, GcsStore)
    assert (store.root.container, store.root.prefix, store.endpoint()) == (
        "bucket_1.example.com",
        "a/b",
        "https://storage.googleapis.com",
    )
    assert open_store("gs://bucket").url == "gs://bucket"
