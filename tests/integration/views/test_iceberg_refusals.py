"""Publications as Iceberg tables that are refused, with one clear error; and what programs that write Iceberg
can do to a table: nothing to a file of the log."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.table import StaticTable, Table

from tests.integration.views.published import check, check_iceberg, fresh, iceberg_table, objects, rows
from tests.integration.views.tables import SCHEMA, write
from txnformat import keys
from txnformat.store.local import LocalStore
from txnformat.store.memory import MemoryStore
from txnlog import ConflictError, CorruptDataError, InvalidInputError, NotFoundError, StorageError, TxnLog
from txnlog_testing.stores.faulty import FaultyStore

ROWS = pa.Table.from_pylist(rows(1), SCHEMA)


def newest_file(table: Table) -> str:
    """Return the path of the file that is not a compacted one."""
    files = table.inspect.files().select(["file_path", "record_count"]).to_pylist()
    (path,) = (str(one["file_path"]) for one in files if one["record_count"] == 2)
    return path


WRITES: dict[str, Callable[[Table], Any]] = {
    "append": lambda table: table.append(ROWS),
    "overwrite": lambda table: table.overwrite(ROWS),
    "delete some": lambda table: table.delete("n > 3"),
    "delete all": lambda table: table.delete(),
    "upsert": lambda table: table.upsert(pa.Table.from_pylist(rows(77), SCHEMA), ["n"]),
    "add files": lambda table: table.add_files([newest_file(table)], check_duplicate_files=False),
    "schema": lambda table: table.update_schema().add_column("more", table.schema().find_type("n")).commit(),
    "properties": lambda table: (
        table.transaction().set_properties({"gc.enabled": "true"}).commit_transaction()
    ),
    "expire snapshots": lambda table: (
        table.maintenance.expire_snapshots().by_id(table.snapshots()[0].snapshot_id).commit()
    ),
    "tag": lambda table: (
        table.manage_snapshots().create_tag(table.snapshots()[0].snapshot_id, "mine").commit()
    ),
}


@pytest.fixture
def published(log: TxnLog) -> TxnLog:
    """A log with two versions of its table; between them the files were written together."""
    log.publish(format="iceberg")
    log.compact("t", min_lag_ms=0)
    write(log, rows(10, 11))
    log.publish(format="iceberg")
    return log


@pytest.mark.parametrize("what", WRITES)
def test_writes_to_a_table_that_was_opened_by_its_path_are_refused(published: TxnLog, what: str) -> None:
    before = objects(published)
    table = StaticTable.from_metadata(published.published_tables(format="iceberg")["t"].metadata)
    with pytest.raises((NotImplementedError, ValueError, OSError)):
        WRITES[what](table)
    assert objects(published) == before
    check_iceberg(published)


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[InMemoryCatalog]:
    catalog = InMemoryCatalog("c", warehouse=f"file://{tmp_path}/warehouse")
    catalog.create_namespace("ns")
    yield catalog
    catalog.close()


@pytest.mark.filterwarnings("ignore:No preferred file implementation for scheme. txnlog-read-only")
@pytest.mark.parametrize("what", WRITES)
def test_writes_to_a_table_in_a_catalog_are_refused(
    published: TxnLog, catalog: InMemoryCatalog, what: str
) -> None:
    """The table has no place for files and metadata of others."""
    before = objects(published)
    table = catalog.register_table("ns.t", published.published_tables(format="iceberg")["t"].metadata)
    with pytest.raises((ValueError, OSError), match="txnlog-read-only"):
        WRITES[what](table)
    assert objects(published) == before
    check_iceberg(published)


@pytest.mark.parametrize("what", WRITES)
def test_a_program_that_makes_a_place_for_itself_touches_no_object_of_the_log(
    published: TxnLog, catalog: InMemoryCatalog, tmp_path: Path, what: str
) -> None:
    """Its versions are the catalog's; those of the log go on."""
    before = objects(published)
    metadata = published.published_tables(format="iceberg")["t"].metadata
    place = f"file://{tmp_path}/place"
    copy = tmp_path / "v1.metadata.json"
    text = Path(metadata.removeprefix("file://")).read_text(encoding="utf-8")
    copy.write_text(text.replace("txnlog-read-only://the-table-is-written-by-txnlog-alone", place), "utf-8")
    table = catalog.register_table("ns.t", f"file://{copy}")
    WRITES[what](table)
    catalog.drop_table("ns.t")
    assert objects(published) == before
    write(published, rows(12))
    assert published.publish(format="iceberg").topics[0].version == 3
    check_iceberg(published)


def test_a_dropped_table_is_published_again(published: TxnLog, catalog: InMemoryCatalog) -> None:
    table = published.published_tables(format="iceberg")["t"]
    before = objects(published)
    catalog.register_table("ns.t", table.metadata)
    catalog.drop_table("ns.t")
    assert objects(published) == before
    shutil.rmtree(table.path.removeprefix("file://"))
    for log in (published, fresh(published)):
        write(log, rows(13))
        log.publish(format="iceberg")
    assert iceberg_table(published).version == 2
    published.refresh()
    check_iceberg(published)


def test_a_version_of_another_program_is_refused_and_named_and_a_rebuild_states_everything_anew(
    log: TxnLog,
) -> None:
    log.publish(format="iceberg")
    directory = log.state.topic("t").directory
    first = log.store.get(keys.iceberg_version_key(directory, 1)) or b""
    key = keys.iceberg_version_key(directory, 2)
    log.store.create(key, first)  # as a program does that changes a property, and keeps the others
    write(log, rows(20))
    for one in (log, fresh(log)):
        with pytest.raises(ConflictError, match=key) as caught:
            one.publish(format="iceberg")
        assert caught.value.kind == "view-changed"
    assert log.publish(format="iceberg", rebuild=True).topics[0].version == 3
    check_iceberg(log)
    write(log, rows(21))
    assert fresh(log).publish(format="iceberg").topics[0].version == 4
    log.refresh()
    check_iceberg(log)


@pytest.mark.parametrize("what", ["version", "list", "manifest", "no manifest"])
def test_a_damaged_object_is_named_and_a_rebuild_needs_none_of_it(log: TxnLog, what: str) -> None:
    log.publish(format="iceberg")
    table = iceberg_table(log)
    directory = log.state.topic("t").directory
    assert table.snapshot is not None
    path = {
        "version": f"{log.url}/{keys.iceberg_version_key(directory, 1)}",
        "list": table.snapshot.manifest_list,
        "manifest": table.manifests[0].listed.path,
        "no manifest": table.manifests[0].listed.path,
    }[what]
    key = path.removeprefix(f"{log.url}/")
    data = bytearray(log.store.get(key) or b"")
    log.store.delete(key)
    if what != "no manifest":
        data[len(data) // 2] ^= 0x80
        log.store.create(key, bytes(data))
    write(log, rows(20))
    with pytest.raises(CorruptDataError) as caught:
        fresh(log).publish(format="iceberg")
    assert caught.value.kind == "corrupt-view"
    assert key.rpartition("/")[2] in str(caught.value)
    with fresh(log) as other:
        assert other.publish(format="iceberg", rebuild=True).topics[0].version == 2
    log.refresh()
    check_iceberg(log)


def test_a_root_that_was_moved_needs_a_rebuild(log: TxnLog, tmp_path: Path) -> None:
    log.publish(format="iceberg")
    there = tmp_path / "there"
    shutil.copytree(log.url.removeprefix("file://"), there)
    moved = TxnLog.open(there)
    for _ in range(2):
        with pytest.raises(ConflictError, match="rebuild") as caught:
            moved.publish(format="iceberg")
        assert caught.value.kind == "view-elsewhere"
        write(moved, rows(20))
    moved.publish(format="iceberg", rebuild=True)
    shutil.rmtree(log.url.removeprefix("file://"))
    check_iceberg(moved)
    shutil.copytree(there, log.url.removeprefix("file://"))


def test_without_the_package_the_extra_is_named_and_delta_goes_on(
    log: TxnLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyiceberg.manifest", None)
    with pytest.raises(InvalidInputError, match=r"txnlog\[iceberg\]") as caught:
        log.publish(format="iceberg")
    assert caught.value.kind == "no-pyiceberg"
    log.alter_topic("t", settings={"publish.formats": "delta,iceberg"})
    report = log.maintain("publish")
    assert [one.format for one in report.published] == ["delta"]
    assert [one.kind for one in report.damaged] == ["no-pyiceberg"]
    check(log)


def test_a_scheme_that_does_not_fit_the_root_is_refused_by_topic(log: TxnLog) -> None:
    log.create_topic("odd", SCHEMA, settings={"publish.iceberg.scheme": "s3a"})
    with pytest.raises(InvalidInputError, match="s3a") as caught:
        log.publish("odd", format="iceberg")
    assert caught.value.kind == "wrong-view-scheme"
    report = log.publish(format="iceberg")
    assert [name for name, _ in report.refused] == ["odd"]
    log.alter_topic("odd", settings={"publish.iceberg.scheme": "file"})
    log.publish(format="iceberg")
    check_iceberg(log, "odd")
    inside = TxnLog.create(MemoryStore())
    inside.create_topic("t", SCHEMA)
    with pytest.raises(InvalidInputError, match="memory://"):
        inside.publish("t", format="iceberg")


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (pa.field("c", pa.duration("us")), "duration"),
        (pa.field("c", pa.list_(pa.duration("us"))), "c.element"),
    ],
)
def test_a_column_that_iceberg_does_not_have_is_refused_by_name(
    log: TxnLog, column: pa.Field, words: str
) -> None:
    log.create_topic("odd", pa.schema([column]))
    with pytest.raises(InvalidInputError, match=words) as caught:
        log.publish("odd", format="iceberg")
    assert caught.value.kind == "unsupported-view-schema"
    assert [name for name, _ in log.publish(format="iceberg").refused] == ["odd"]


def test_there_is_a_clear_answer_before_the_first_publication(log: TxnLog) -> None:
    log.publish()
    with pytest.raises(NotFoundError, match="--format iceberg") as caught:
        log.published_tables(format="iceberg")
    assert caught.value.kind == "not-published"
    with pytest.raises(InvalidInputError):
        log.published_tables(format="hudi")


@pytest.mark.parametrize("refused", [".avro", ".metadata.json", "_views/"])
def test_a_root_that_cannot_be_written_to_is_a_clear_error(log: TxnLog, refused: str) -> None:
    def before_write(key: str) -> None:
        if refused in key:
            raise StorageError("permission denied", kind="permission-denied", object=key)

    store = FaultyStore(LocalStore(log.url.removeprefix("file://")), before_create=before_write)
    log.committer.seal()
    entry = log.refresh().entry
    with pytest.raises(StorageError, match=refused) as caught:
        fresh(log, store).publish(format="iceberg")
    assert caught.value.kind == "permission-denied"
    assert log.refresh().entry == entry
    assert log.publish(format="iceberg").topics[0].version == 1
    check_iceberg(log)
