"""A publication refuses topics, tables and roots with one clear error; other programs cannot write to a
table."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.schema import PrimitiveType

from tests.integration.views.published import actions, check, fresh, objects, rows
from tests.integration.views.tables import SCHEMA, path_of, write
from txnformat import keys
from txnformat.store.local import LocalStore
from txnlog import (
    ConflictError,
    InvalidInputError,
    NotFoundError,
    StorageError,
    TxnLog,
)
from txnlog_testing.stores.faulty import FaultyStore


def test_there_is_a_clear_answer_before_the_first_publication(log: TxnLog) -> None:
    with pytest.raises(NotFoundError, match="txnlog publish") as caught:
        log.published_tables()
    assert caught.value.kind == "not-published"
    report = log.publish()
    with pytest.raises(NotFoundError, match=str(report.entry)):
        log.published_tables(report.entry + 1)


def append(path: str) -> None:
    write_deltalake(path, pa.Table.from_pylist(rows(1), SCHEMA), mode="append")


def overwrite(path: str) -> None:
    write_deltalake(path, pa.Table.from_pylist(rows(1), SCHEMA), mode="overwrite")


FOREIGN: dict[str, Callable[[str], Any]] = {
    "append": append,
    "overwrite": overwrite,
    "optimize": lambda path: DeltaTable(path).optimize.compact(),
    "z-order": lambda path: DeltaTable(path).optimize.z_order(["n"]),
    "delete": lambda path: DeltaTable(path).delete("n > 3"),
    "update": lambda path: DeltaTable(path).update({"text": "'x'"}),
    "restore": lambda path: DeltaTable(path).restore(0),
    "properties": lambda path: DeltaTable(path).alter.set_table_properties({"delta.appendOnly": "true"}),
    "merge": lambda path: (
        DeltaTable(path)
        .merge(pa.Table.from_pylist(rows(1), SCHEMA), "a.n = b.n", source_alias="b", target_alias="a")
        .when_matched_delete()
        .execute()
    ),
    "columns": lambda path: DeltaTable(path).alter.add_columns([Field("more", PrimitiveType("string"))]),
    "vacuum": lambda path: DeltaTable(path).vacuum(0, dry_run=False, enforce_retention_duration=False),
    "checkpoint": lambda path: DeltaTable(path).create_checkpoint(),
    "cleanup": lambda path: DeltaTable(path).cleanup_metadata(),
}


HARMLESS = ("checkpoint", "cleanup")


@pytest.mark.parametrize("what", FOREIGN)
def test_what_another_program_does_is_refused_or_harmless(log: TxnLog, what: str) -> None:
    log.publish()
    log.compact("t", min_lag_ms=0)
    write(log, rows(10, 11))
    log.publish()
    before = objects(log)
    path = path_of(log.published_tables()["t"])
    if what in HARMLESS:
        FOREIGN[what](path)
    else:
        with pytest.raises(Exception, match=r"txnlog\.readOnly"):
            FOREIGN[what](path)
    after = objects(log)
    assert {key: after.get(key) for key in before} == before
    assert not {key for key in after.keys() - before.keys() if "_delta_log" not in key}
    check(log)
    write(log, rows(12))
    log.publish()
    check(log)
    assert fresh(log).publish().topics[0].version == 2


def test_a_clean_up_of_deltalake_removes_no_version_however_old(log: TxnLog) -> None:
    """The table keeps files and versions for a century, and is not cleaned up by the way."""
    log.publish()
    for number in range(3):
        write(log, rows(20 + number))
        log.publish()
    table = DeltaTable(path_of(log.published_tables()["t"]))
    assert {
        name: value for name, value in table.metadata().configuration.items() if name.startswith("delta.")
    } == {
        "delta.deletedFileRetentionDuration": "interval 36525 days",
        "delta.logRetentionDuration": "interval 36525 days",
        "delta.enableExpiredLogCleanup": "false",
    }
    before = objects(log)
    for key in before:
        if "/_delta_log/" in key:
            os.utime(log.url.removeprefix("file://") + f"/{key}", (1_000_000_000, 1_000_000_000))
    table.create_checkpoint()
    table.cleanup_metadata()
    assert {key: data for key, data in objects(log).items() if key in before} == before
    check(log)


def test_a_version_of_another_program_is_refused_and_named_and_a_rebuild_states_everything_anew(
    log: TxnLog,
) -> None:
    log.publish()
    directory = log.state.topic("t").directory
    (path,) = (
        {one["path"] for one in actions(log, 0, "add")}
        if len(actions(log, 0, "add")) == 1
        else {actions(log, 0, "add")[0]["path"]}
    )
    foreign = (
        {"commitInfo": {"engineInfo": "other/1.0", "operation": "DELETE"}},
        {"remove": {"path": path, "dataChange": True, "deletionTimestamp": 1}},
    )
    key = keys.delta_version_key(directory, 1)
    log.store.create(key, "\n".join(map(json.dumps, foreign)).encode())
    write(log, rows(20))
    for one in (log, fresh(log)):
        with pytest.raises(ConflictError, match=key) as caught:
            one.publish()
        assert caught.value.kind == "view-changed"
    report = log.publish(rebuild=True)
    assert report.topics[0].version == 2
    check(log)
    write(log, rows(21))
    assert fresh(log).publish().topics[0].version == 3
    check(log)


def test_a_damaged_version_is_named_and_a_rebuild_writes_a_checkpoint_behind_it(log: TxnLog) -> None:
    log.publish()
    directory = log.state.topic("t").directory
    log.store.create(keys.delta_version_key(directory, 1), b"{no json")
    from txnlog import CorruptDataError

    with pytest.raises(CorruptDataError) as caught:
        fresh(log).publish()
    assert caught.value.kind == "corrupt-view"
    assert log.publish(rebuild=True).topics[0].version == 2
    check(log)
    assert log.store.head(keys.delta_checkpoint_key(directory, 2)) is not None


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (pa.field("c", pa.time64("us")), "time64"),
        (pa.field("c", pa.duration("us")), "duration"),
        (pa.field("c", pa.list_(pa.field("element", pa.duration("us")))), "c.element"),
        (pa.field("a b", pa.int64()), "a b"),
    ],
)
def test_a_column_that_delta_does_not_have_is_refused_by_name(
    log: TxnLog, column: pa.Field, words: str
) -> None:
    log.create_topic("odd", pa.schema([column]))
    with pytest.raises(InvalidInputError, match=words) as caught:
        log.publish("odd")
    assert caught.value.kind == "unsupported-view-schema"
    report = log.publish()
    assert [name for name, _ in report.refused] == ["odd"]
    assert [one.topic for one in report.topics] == ["t"]


@pytest.mark.parametrize("format_", ["hudi", "", 1, None])
def test_an_unknown_format_is_refused(log: TxnLog, format_: Any) -> None:
    with pytest.raises(InvalidInputError, match="delta, iceberg") as caught:
        log.publish(format=format_)
    assert caught.value.kind == "unknown-view-format"


def test_nothing_to_publish_and_unknown_topics_are_refused(tmp_path: Path) -> None:
    log = TxnLog.create(tmp_path / "log")
    with pytest.raises(InvalidInputError) as caught:
        log.publish()
    assert caught.value.kind == "nothing-to-publish"
    with pytest.raises(NotFoundError) as missing:
        log.publish("nothing")
    assert missing.value.kind == "unknown-topic"


@pytest.mark.parametrize("refused", ["/_delta_log/", keys.VIEWS_PREFIX])
def test_a_root_that_cannot_be_written_to_is_a_clear_error(log: TxnLog, refused: str) -> None:
    def before_create(key: str) -> None:
        if refused in key:
            raise StorageError("permission denied", kind="permission-denied", object=key)

    store = FaultyStore(LocalStore(log.url.removeprefix("file://")), before_create=before_create)
    log.committer.seal()
    entry = log.refresh().entry
    with pytest.raises(StorageError, match=refused) as caught:
        fresh(log, store).publish()
    assert caught.value.kind == "permission-denied"
    assert log.refresh().entry == entry
    assert log.publish().topics[0].version == 0
    check(log)
