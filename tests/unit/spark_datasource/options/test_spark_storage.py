"""Storage options of Spark jobs: their own, and below them the settings of Spark's s3a connector."""

from __future__ import annotations

import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from spark_datasource.options.hadoop import HadoopSettings
from spark_datasource.options.read import parse_read_options
from spark_datasource.options.storage import NO_STORAGE, storage_for
from spark_datasource.options.write import parse_write_options
from spark_datasource.write.transaction import SparkTransaction
from txnformat.errors import InvalidInputError

KEYS = {"access.key": "K", "secret.key": "SECRET"}


def _s3a(settings: dict[str, str]) -> HadoopSettings:
    return HadoopSettings({f"fs.s3a.{name}": value for name, value in settings.items()})


HOST = "account.dfs.core.windows.net"
OAUTH = {
    "fs.azure.account.auth.type": "OAuth",
    "fs.azure.account.oauth2.client.id": "ID",
    "fs.azure.account.oauth2.client.secret": "SECRET",
    "fs.azure.account.oauth2.client.endpoint": "https://login.microsoftonline.com/TENANT/oauth2/token",
}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, {}),
        (
            {f"fs.azure.account.key.{HOST}": "S0VZ", "fs.azure.account.key": "T1RIRVI="},
            {"account_key": "S0VZ"},
        ),
        ({"fs.azure.account.key": "S0VZ"}, {"account_key": "S0VZ"}),
        ({"fs.azure.account.key.other.dfs.core.windows.net": "S0VZ"}, {}),
        (
            {
                f"fs.azure.account.auth.type.{HOST}": "SAS",
                f"fs.azure.sas.fixed.token.{HOST}": "?sv=1&sig=x",
                "fs.azure.account.key": "S0VZ",
            },
            {"sas_token": "?sv=1&sig=x"},
        ),
        (
            OAUTH,
            {
                "client_id": "ID",
                "client_secret": "SECRET",
                "tenant_id": "TENANT",
                "authority_host": "https://login.microsoftonline.com",
            },
        ),
        ({name: value for name, value in OAUTH.items() if "secret" not in name}, {}),
        ({"fs.azure.account.auth.type": "Custom"}, {}),
    ],
)
def test_settings_of_azure(settings: dict[str, str], expected: dict[str, str]) -> None:
    found = storage_for(f"abfss://container@{HOST}/log", {}, HadoopSettings(settings))
    assert found.options() == expected
    own = storage_for(f"abfss://container@{HOST}/log", {"token": "OWN"}, HadoopSettings(settings))
    assert own.options() == {"token": "OWN"}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"fs.gs.auth.service.account.json.keyfile": "/k.json"}, {"service_account_file": "/k.json"}),
        (
            {
                "google.cloud.auth.service.account.json.keyfile": "/k.json",
                "fs.gs.storage.root.url": "http://127.0.0.1:9/",
            },
            {"service_account_file": "/k.json", "endpoint_url": "http://127.0.0.1:9/"},
        ),
        ({"fs.gs.storage.root.url": "https://storage.googleapis.com/"}, {}),
        ({"fs.gs.auth.type": "APPLICATION_DEFAULT"}, {}),
    ],
)
def test_settings_of_google(settings: dict[str, str], expected: dict[str, str]) -> None:
    assert storage_for("gs://bucket/log", {}, HadoopSettings(settings)).options() == expected


def test_credentials_of_the_connectors_go_to_no_other_endpoint() -> None:
    for path, settings in (
        (f"abfss://container@{HOST}/log", {"fs.azure.account.key": "S0VZ"}),
        ("gs://bucket/log", {"fs.gs.auth.service.account.json.keyfile": "/k.json"}),
    ):
        with pytest.raises(InvalidInputError, match="other than"):
            storage_for(path, {"endpoint_url": "http://evil:9"}, HadoopSettings(settings))
    assert "S0VZ" not in repr(HadoopSettings({"fs.azure.account.key": "S0VZ"}))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, {}),
        (KEYS, {"key": "K", "secret": "SECRET"}),
        ({**KEYS, "session.token": "T"}, {"key": "K", "secret": "SECRET", "token": "T"}),
        ({"access.key": "K"}, {}),
        ({"session.token": "T"}, {}),
        ({"endpoint": "minio:9000"}, {"endpoint_url": "https://minio:9000"}),
        (
            {"endpoint": "minio:9000", "connection.ssl.enabled": "false"},
            {"endpoint_url": "http://minio:9000"},
        ),
        (
            {"endpoint": "http://minio:9000", "connection.ssl.enabled": "true"},
            {"endpoint_url": "http://minio:9000"},
        ),
        ({"endpoint": "s3.eu-central-1.amazonaws.com"}, {"region": "eu-central-1"}),
        ({"endpoint": "s3.amazonaws.com"}, {}),
        (
            {"endpoint": "https://s3.us-west-2.amazonaws.com", "endpoint.region": "us-west-2"},
            {"region": "us-west-2"},
        ),
        ({"path.style.access": "true"}, {"addressing_style": "path"}),
        ({"path.style.access": "false"}, {}),
        (
            {"aws.credentials.provider": "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"},
            {"anon": "true"},
        ),
        (
            {**KEYS, "bucket.b.access.key": "K2", "bucket.b.secret.key": "S2"},
            {"key": "K2", "secret": "S2"},
        ),
        ({**KEYS, "bucket.other.access.key": "K2"}, {"key": "K", "secret": "SECRET"}),
        ({"bucket.b.endpoint.region": "x", "endpoint.region": "y", "threads.max": "9"}, {"region": "x"}),
    ],
)
def test_settings_of_s3a(settings: dict[str, str], expected: dict[str, str]) -> None:
    assert storage_for("s3a://b/log", {}, _s3a(settings)).options() == expected


def test_a_bucket_may_have_dots_in_its_name() -> None:
    settings = _s3a({"bucket.a.b.c.access.key": "K", "bucket.a.b.c.secret.key": "S"})
    assert storage_for("s3://a.b.c/log", {}, settings).options() == {"key": "K", "secret": "S"}
    assert storage_for("s3://a.b/log", {}, settings).options() == {}


def test_a_jobs_own_options_go_first_and_credentials_are_never_mixed() -> None:
    settings = _s3a({**KEYS, "session.token": "T", "endpoint": "http://minio:9000"})
    own = {"aws_access_key_id": "OWN", "aws_secret_access_key": "OWN2"}
    assert storage_for("s3://b/x", own, settings).options() == {
        "key": "OWN",
        "secret": "OWN2",
        "endpoint_url": "http://minio:9000",
    }


@pytest.mark.parametrize(
    ("own", "s3as", "refused"),
    [
        ("http://evil:9000", "http://minio:9000", True),
        ("http://minio:9001", "http://minio:9000", True),
        ("https://minio:9000", "http://minio:9000", True),
        ("http://evil", "", True),
        ("https://s3.amazonaws.com.evil", "", True),
        ("http://minio:9000/", "http://MINIO:9000", False),
        ("https://s3.eu-west-1.amazonaws.com", "", False),
    ],
)
def test_a_job_that_names_its_own_endpoint_does_not_inherit_credentials_of_another(
    own: str, s3as: str, refused: bool
) -> None:
    settings = _s3a({**KEYS, "session.token": "T", **({"endpoint": s3as} if s3as else {})})
    if refused:
        with pytest.raises(InvalidInputError, match=r"storage\.key and storage\.secret") as caught:
            storage_for("s3://b/x", {"endpoint": own}, settings)
        assert caught.value.kind == "invalid-storage-option"
    else:
        assert storage_for("s3://b/x", {"endpoint": own}, settings).options()["token"] == "T"
    given = {"endpoint": own, "key": "OWN", "secret": "OWN2"}
    assert storage_for("s3://b/x", given, settings).options()["key"] == "OWN"
    assert storage_for("s3://b/x", {"endpoint": own}, _s3a({})).options() == {"endpoint_url": own}


def test_settings_of_s3a_are_nothing_to_a_local_log() -> None:
    assert storage_for("/data/log", {}, _s3a(KEYS)) == NO_STORAGE


def test_options_are_parsed_for_reads_and_writes_and_nothing_shows() -> None:
    given = {"path": "s3://b/log", "topic": "t", "storage.key": "KEYVALUE", "storage.SECRET": "SECRETVALUE"}
    for parsed in (parse_read_options(given), parse_write_options(given)):
        assert parsed.storage.options() == {"key": "KEYVALUE", "secret": "SECRETVALUE"}
        assert pickle.loads(pickle.dumps(parsed)) == parsed
        assert "VALUE" not in f"{parsed!r} {parsed.storage!r} {parsed.storage}"
    assert "SECRET" not in repr(_s3a(KEYS))


@pytest.mark.parametrize(
    ("path", "name", "said"),
    [
        ("s3://b/log", "storage.regin", "did you mean region?"),
        ("s3://b/log", "storage.key", "key and secret both"),
        ("/log", "storage.key", "is for s3://"),
    ],
)
def test_what_is_wrong_is_said_without_the_value(path: str, name: str, said: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse_read_options({"path": path, "topic": "t", name: "SECRETVALUE"})
    assert caught.value.kind == "invalid-option"
    assert said in str(caught.value)
    assert "SECRETVALUE" not in str(caught.value)


@pytest.mark.parametrize("given", [np.array([1, 2]), ["region"], "region=CANARY", {5: "CANARY"}])
def test_storage_options_of_a_transaction_that_are_no_mapping_are_refused(given: Any, tmp_path: Path) -> None:
    session = SimpleNamespace(createDataFrame=None, conf=None)
    with pytest.raises(InvalidInputError, match="storage_options") as caught:
        SparkTransaction(session, tmp_path, "app", storage_options=given)
    assert caught.value.kind == "invalid-storage-option"
    assert "CANARY" not in str(caught.value)
