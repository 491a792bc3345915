"""Tables of one publication, opened by other engines: they show the same entry, whatever was published
meanwhile."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from txnformat.errors import InvalidInputError, NotFoundError
from txnlog import Producer, TxnLog
from txnlog.published import deltalake_tables, iceberg_tables, spark_tables

SCHEMA = pa.schema([("id", pa.int64())])


def _commit(log: TxnLog, number: int) -> None:
    with Producer(log, "shop") as producer, producer.transaction() as transaction:
        for topic in ("orders", "payments"):
            transaction.send(topic, [{"id": number}])


@pytest.fixture
def log(tmp_path: Path) -> TxnLog:
    """Two topics, published after each of two transactions over both, below a directory with a space."""
    log = TxnLog.create(tmp_path / "a b")
    for topic in ("orders", "payments"):
        log.create_topic(topic, SCHEMA)
    for number in (1, 2):
        _commit(log, number)
        for format_ in ("delta", "iceberg"):
            log.publish(format=format_)
    return log


def test_deltalake_joins_at_each_publication(log: TxnLog) -> None:
    newest = log.published_tables()["orders"].entry
    for entry, ids in ((None, [1, 2]), (newest, [1, 2])):
        tables = deltalake_tables(log, entry)
        found = {topic: sorted(table.to_pyarrow_table()["id"].to_pylist()) for topic, table in tables.items()}
        assert found == {"orders": ids, "payments": ids}
    _commit(log, 3)
    log.publish("orders")
    tables = deltalake_tables(log, newest)
    assert {len(table.to_pyarrow_table()) for table in tables.values()} == {2}
    assert list(deltalake_tables(log)) == ["orders"]


def test_pyiceberg_joins_at_each_publication(log: TxnLog) -> None:
    newest = log.published_tables(format="iceberg")["orders"].entry
    _commit(log, 3)
    log.publish("orders", format="iceberg")
    tables = iceberg_tables(log, newest)
    assert {topic: len(table.scan().to_arrow()) for topic, table in tables.items()} == {
        "orders": 2,
        "payments": 2,
    }


class _Reads:
    """Notes what Spark is asked to load."""

    def __init__(self) -> None:
        self.loads: list[tuple[str, ...]] = []
        self._asked: tuple[str, ...] = ()

    @property
    def read(self) -> _Reads:
        return self

    def format(self, name: str) -> _Reads:
        self._asked = (name,)
        return self

    def option(self, name: str, value: Any) -> _Reads:
        self._asked += (name, str(value))
        return self

    def load(self, path: str) -> SimpleNamespace:
        self.loads.append((*self._asked, path))
        return SimpleNamespace(schema=None)


def test_spark_is_asked_for_the_versions_of_one_publication(log: TxnLog) -> None:
    """With the jars of Delta and Iceberg `make engines` reads them."""
    spark = _Reads()
    of_delta, of_iceberg = log.published_tables(), log.published_tables(format="iceberg")
    assert (
        set(spark_tables(spark, log))
        == set(spark_tables(spark, log, format="iceberg"))
        == {"orders", "payments"}
    )
    assert spark.loads == [
        *(("delta", "versionAsOf", str(table.version), table.path) for table in of_delta.values()),
        *(("iceberg", table.metadata) for table in of_iceberg.values()),
    ]


def test_roots_in_s3_are_named_as_sparks_connector_names_them(
    log: TxnLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark = _Reads()
    table = log.published_tables()["orders"]._replace(path="s3://bucket/log/t-1")
    monkeypatch.setattr(TxnLog, "published_tables", lambda *_: {"orders": table})
    assert list(spark_tables(spark, log)) == ["orders"]
    assert spark.loads == [("delta", "versionAsOf", str(table.version), "s3a://bucket/log/t-1")]


def test_a_wrong_format_entry_or_log_is_one_clear_error(log: TxnLog) -> None:
    with pytest.raises(InvalidInputError, match="deltalake does not read") as wrong:
        deltalake_tables(log, format="iceberg")
    assert wrong.value.kind == "unknown-view-format"
    for call in (deltalake_tables, iceberg_tables, lambda *given: spark_tables(SimpleNamespace(), *given)):
        with pytest.raises(NotFoundError) as missing:
            call(log, 1_000)
        assert missing.value.kind == "not-published"
        with pytest.raises(InvalidInputError):
            call("not a log")  # type: ignore[arg-type]  # a user's mistake


def test_an_entry_that_is_no_number_is_told_as_such(log: TxnLog) -> None:
    for entry in ("8", 8.0, True, -1):
        with pytest.raises(InvalidInputError, match=r"entry is .*, not a whole number"):
            log.published_tables(entry)  # type: ignore[arg-type]  # a user's mistake
    with pytest.raises(NotFoundError, match="has no tables of format delta-offsets") as nothing:
        log.published_tables(format="delta-offsets")
    assert nothing.value.kind == "not-published"


def test_a_table_of_delta_has_no_metadata_file(log: TxnLog) -> None:
    with pytest.raises(InvalidInputError, match="one of Delta") as refused:
        _ = log.published_tables()["orders"].metadata
    assert refused.value.kind == "unknown-view-format"


@pytest.mark.parametrize(
    "names", [["orders", "payments"], ("orders",), {"orders"}, 5, None, [1], []], ids=repr
)
def test_names_that_are_not_passed_one_by_one_are_refused(log: TxnLog, names: object) -> None:
    with pytest.raises(InvalidInputError, match=r"pass each name by itself: publish\('") as refused:
        log.publish(names)  # type: ignore[arg-type]  # a user's mistake
    assert refused.value.kind == "invalid-argument"


@pytest.mark.parametrize("name", ["orders,payments", "orders, payments", "orders payments"])
def test_several_names_in_one_text_are_told_as_such(log: TxnLog, name: str) -> None:
    with pytest.raises(NotFoundError, match="these are several names: give each by itself"):
        log.publish(name)
    with pytest.raises(NotFoundError, match="create it with create_topic"):
        log.publish(f"{name},none")


@pytest.mark.parametrize(
    ("call", "package", "extra"),
    [(deltalake_tables, "deltalake", "delta"), (iceberg_tables, "pyiceberg", "iceberg")],
)
def test_a_missing_package_is_told_with_its_extra(
    call: Any, package: str, extra: str, log: TxnLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ModuleNotFoundError, match=rf"txnlog\[{extra}\]"):
        call(log)
