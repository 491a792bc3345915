"""Topics published from a bucket: read by engines with their own clients of S3, by two publishers at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from deltalake import DeltaTable

from tests.integration.views.published import iceberg_table, rows
from tests.integration.views.tables import SCHEMA, expected, opened, texts, write
from txnformat import keys
from txnlog import TxnLog
from txnlog_testing.stores.s3_server import S3Server, seaweedfs_server


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with seaweedfs_server() as running:
        yield running


@pytest.fixture
def log(server: S3Server, request: pytest.FixtureRequest) -> Iterator[TxnLog]:
    url = server.url(request.node.name.replace("_", "-")[:60])
    log = TxnLog.create(url, storage_options=server.storage_options)
    log.create_topic("t", SCHEMA, partitions=2)
    write(log, rows(*range(20)))
    write(log, rows(*range(20, 30)), commit=False)
    yield log
    log.close()


def of_pyiceberg(server: S3Server) -> dict[str, str]:
    options = server.storage_options
    return {
        "s3.endpoint": options["endpoint_url"],
        "s3.access-key-id": options["key"],
        "s3.secret-access-key": options["secret"],
        "s3.region": "us-east-1",
    }


def of_deltalake(server: S3Server) -> dict[str, str]:
    options = server.storage_options
    return {
        "AWS_ENDPOINT_URL": options["endpoint_url"],
        "AWS_ACCESS_KEY_ID": options["key"],
        "AWS_SECRET_ACCESS_KEY": options["secret"],
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }


@pytest.mark.parametrize("scheme", ["", "s3a"])
def test_both_formats_show_the_snapshot_at_one_entry(log: TxnLog, server: S3Server, scheme: str) -> None:
    settings = {"publish.formats": "delta,iceberg"} | ({"publish.iceberg.scheme": scheme} if scheme else {})
    log.alter_topic("t", settings=settings)
    for number in range(2):
        write(log, rows(100 + number))
        delta, iceberg = log.maintain("publish").published
        assert delta.entry == iceberg.entry
        one = log.published_tables()["t"]
        table = DeltaTable(one.path, version=one.version, storage_options=of_deltalake(server))
        assert texts(table.to_pyarrow_table()) == expected(log, one)
        two = log.published_tables(format="iceberg")["t"]
        assert two.path.startswith(f"{scheme or 's3'}://")
        assert texts(opened(two, of_pyiceberg(server)).scan().to_arrow()) == expected(log, two)
        assert len(expected(log, two)) == 21 + number


def test_of_two_publishers_each_version_is_one_ones(log: TxnLog, server: S3Server) -> None:
    log.publish(format="iceberg")
    made: list[int] = []
    failed: list[Exception] = []

    def publish(first: int) -> None:
        try:
            with TxnLog.open(log.url, storage_options=server.storage_options) as own:
                for number in range(4):
                    write(own, rows(first + number), name=str(first))
                    (one,) = own.publish(format="iceberg").topics
                    made.extend([one.version] if one.is_new else [])
        except Exception as error:  # noqa: BLE001  # the assertion below shows it
            failed.append(error)

    threads = [threading.Thread(target=publish, args=(1_000 * number,)) for number in (1, 2)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not failed
    assert sorted(made) == list(range(2, len(made) + 2))
    log.publish(format="iceberg")
    log.refresh()
    table = log.published_tables(format="iceberg")["t"]
    assert texts(opened(table, of_pyiceberg(server)).scan().to_arrow()) == expected(log, table)
    assert len(expected(log, table)) == 28
    key = keys.iceberg_hint_key(log.state.topic("t").directory)
    assert log.store.get(key) == str(iceberg_table(log).version).encode()
