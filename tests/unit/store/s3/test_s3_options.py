"""Storage options of S3: names, values, and that no value ever shows."""

from __future__ import annotations

import base64
import pickle
from pathlib import Path

import pytest

from txnformat.errors import InvalidInputError, StorageError
from txnformat.store import open_store
from txnformat.store.s3.options import S3Options
from txnformat.store.s3.store import S3Store

CUSTOMER_KEY = base64.b64encode(b"k" * 32).decode()
SECRETS = {"key": "AKIA-KEY", "secret": "SECRET-VALUE", "token": "TOKEN-VALUE"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, S3Options()),
        (SECRETS, S3Options(**SECRETS)),  # type: ignore[arg-type]  # text
        (
            {"AWS_ACCESS_KEY_ID": "k", "aws_secret_access_key": "s", "AWS_REGION": "eu-central-1"},
            S3Options(key="k", secret="s", region="eu-central-1"),
        ),
        (
            {"anon": "TRUE", "endpoint": "http://localhost:9000/"},
            S3Options(anon=True, endpoint_url="http://localhost:9000"),
        ),
        (
            {"verify": "/etc/ca.pem", "read_timeout_s": "2.5", "profile": " p "},
            S3Options(verify="/etc/ca.pem", read_timeout_s=2.5, profile="p"),
        ),
        (
            {"request_timeout_s": "90", "region_redirect": "True"},
            S3Options(request_timeout_s=90.0, region_redirect=True),
        ),
        ({"AWS_SSE_CUSTOMER_KEY_BASE64": CUSTOMER_KEY}, S3Options(sse_customer_key=CUSTOMER_KEY)),
        ({"verify": "false", "key": ""}, S3Options(verify=False)),
        ({"region": "a", "region_name": "a"}, S3Options(region="a")),
    ],
)
def test_names_and_values(given: dict[str, str], expected: S3Options) -> None:
    assert S3Options.parse(given) == expected


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"regin": "a"}, "did you mean region?"),
        ({"secretaccesskey": "a"}, "did you mean secret_access_key?"),
        ({"zzz": "a"}, "there are key, secret, token"),
        ({"key": "k"}, "key and secret both"),
        ({"token": "t"}, "needs key and secret"),
        ({"anon": "perhaps"}, "true or false"),
        ({"anon": "true", "key": "k", "secret": "s"}, "anon excludes"),
        ({"endpoint_url": "localhost:9000"}, "http://host[:port]"),
        ({"endpoint_url": "http://user:SECRET-VALUE@host"}, "http://host[:port]"),
        ({"read_timeout_s": "0"}, "seconds"),
        ({"connect_timeout_s": "soon"}, "seconds"),
        ({"request_timeout_s": "3601"}, "at most 3600"),
        ({"region_redirect": "eu-west-1"}, "true or false"),
        ({"addressing_style": "x"}, "auto, path, virtual"),
        ({"region": "x y"}, "eu-west-1"),
        ({"region": "-eu"}, "eu-west-1"),
        ({"region": "12"}, "eu-west-1"),
        ({"endpoint_url": "http://h:99999999"}, "http://host[:port]"),
        ({"endpoint_url": "http://[:"}, "http://host[:port]"),
        ({"endpoint_url": "http://:9000"}, "http://host[:port]"),
        ({"sse_customer_key": "SECRET-VALUE"}, "a key of 32 bytes, in base64"),
        ({"sse_customer_key": "QUJD"}, "a key of 32 bytes, in base64"),
        ({"sse_customer_key": "a2tr" * 10 + "a2s=", "sse_kms_key_id": "k"}, "sse_customer_key excludes"),
        ({"key": 3}, "is int; use text"),
        ({"region": "a", "aws_region": "b"}, "given twice"),
    ],
)
def test_what_is_wrong_is_said_without_the_value(given: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        S3Options.parse(given)
    assert caught.value.kind == "invalid-storage-option"
    assert said in str(caught.value)
    assert "SECRET-VALUE" not in str(caught.value)


def test_every_problem_is_told_at_once() -> None:
    with pytest.raises(InvalidInputError) as caught:
        S3Options.parse({"regin": "a", "anon": "x", "secret": "s"})
    assert len(caught.value.problems) == 3


def test_no_value_shows_and_all_travel() -> None:
    store = open_store("s3a://bucket/log", storage_options=SECRETS)
    assert isinstance(store, S3Store)
    copy = pickle.loads(pickle.dumps(store))
    assert isinstance(copy, S3Store)
    for each in (store, copy):
        assert each.options == S3Options(**SECRETS)  # type: ignore[arg-type]  # text
        shown = f"{each!r} {each} {each.options!r} {each.options} {each.url} {each.options:}"
        assert not any(value in shown for value in SECRETS.values())
    assert repr(store.options) == "S3Options(key=…, secret=…, token=…)"


def test_texts_of_others_are_masked() -> None:
    options = S3Options(**SECRETS)  # type: ignore[arg-type]  # text
    assert options.mask("the key AKIA-KEY and SECRET-VALUE are wrong") == "the key *** and *** are wrong"
    assert S3Options(sse_customer_key=CUSTOMER_KEY).mask(f"sent {CUSTOMER_KEY}") == "sent ***"


def test_a_local_path_takes_no_options() -> None:
    with pytest.raises(InvalidInputError, match="no storage option 'key' of file://"):
        open_store("/data/log", storage_options={"key": "k"})


def test_the_names_are_those_of_the_documentation() -> None:
    assert S3Options.names()[:4] == ("key", "secret", "token", "profile")


@pytest.mark.parametrize("bundle", ["nothing", "no certificate", "pipe\0"])
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_bundle_that_is_none_is_told_and_not_waited_for(tmp_path: Path, bundle: str, scheme: str) -> None:
    (tmp_path / "no certificate").write_text("SECRET-VALUE")
    options = {
        "key": "k",
        "secret": "s",
        "endpoint_url": f"{scheme}://127.0.0.1:9",
        "verify": f"{tmp_path}/{bundle}",
    }
    with pytest.raises(StorageError) as caught:
        open_store("s3://bucket/log", storage_options=options).get("x")
    assert (caught.value.kind, caught.value.transient) == ("invalid-storage-option", False)
    assert "verify" in str(caught.value)
    assert str(tmp_path) not in str(caught.value)
