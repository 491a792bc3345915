"""The command line on S3: the same commands, with storage options; doctor names what is wrong there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cli.conftest import Answer, Command
from txnlog_testing.stores.s3_server import S3Server, moto_server

SECRET = "hush-hush-hush"


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with moto_server() as running:
        yield running


def _options(server: S3Server, **changed: str) -> list[str]:
    options = {**server.storage_options, **changed}
    return [part for name, value in options.items() for part in ("--storage", f"{name}={value}")]


def _store_checks(answer: Answer) -> dict[str, dict[str, str]]:
    return {check["name"]: check for check in answer.json["checks"] if check["area"] != "environment"}


def test_from_creation_to_reading(server: S3Server, txnlog: Command) -> None:
    at = ["--root", server.url("shop"), *_options(server)]
    assert txnlog("create", *at).code == 0
    assert txnlog("create-topic", "orders", "-c", "id:int64", *at).code == 0
    assert txnlog("produce", "orders", *at, stdin='{"id":1}\n{"id":2}\n').code == 0
    assert txnlog("consume", "orders", *at).lines == [{"id": 1}, {"id": 2}]
    assert txnlog("verify", "--deep", *at).code == 0
    doctor = txnlog("doctor", "--json", *at)
    assert {name: check["status"] for name, check in _store_checks(doctor).items()} == dict.fromkeys(
        [
            *(
                "reachable",
                "clock",
                "one-winner",
                "read-after-write",
                "refused-overwrite",
                "list-after-write",
            ),
            *(
                "delete",
                "latency",
                "open",
                "features",
                "snapshots",
                "old entries",
                "unsealed extents",
                "transactions",
            ),
        ],
        "ok",
    )


def test_doctor_says_what_is_wrong_with_the_store(server: S3Server, txnlog: Command) -> None:
    bucket = txnlog("doctor", "--json", "--root", "s3://no-such-bucket/log", *_options(server))
    assert bucket.code == 1
    (found,) = _store_checks(bucket).values()
    assert (found["name"], found["status"]) == ("reachable", "problem")
    assert "bucket" in found["found"]
    assert found["fix"]
    away = _options(server, endpoint_url="http://127.0.0.1:1", secret=SECRET, connect_timeout_s="1")
    unreachable = txnlog("doctor", "--json", "--root", server.url("shop"), *away)
    assert unreachable.code == 1
    assert _store_checks(unreachable)["reachable"]["status"] == "problem"
    assert SECRET not in unreachable.out + unreachable.err
    missing = ["--root", "s3://no-such-bucket/log", *_options(server, secret=SECRET)]
    plain = txnlog("topics", *missing)
    assert plain.code == 5
    assert "the bucket does not exist" in plain.err
    assert "Traceback" not in plain.err
    assert SECRET not in plain.err
