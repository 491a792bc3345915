"""Files that do not show a topic as they are: written anew, or left alone where that cannot help."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests.integration.views.published import actions, check, check_iceberg, data_keys, fresh, rows, slow
from tests.integration.views.tables import SCHEMA, opened, path_of, write
from txnformat import keys
from txnformat.core.intents import Write
from txnformat.segments.payload import head_of, payload_of, with_payload
from txnformat.store.local import LocalStore
from txnlog import TxnLog
from writers.upload import TopicUpload, topic_append


def test_a_file_in_the_directory_of_a_lost_creation_is_written_anew_into_the_topics_own(log: TxnLog) -> None:
    """Paths of a table are relative to the topic's directory."""
    state = log.refresh()
    topic = state.topic("t")
    directory = f"{topic.directory[:-8]}00000000"
    assert directory != topic.directory
    upload = TopicUpload(
        log.store, log.committer.ids, directory=directory, schema=topic.schema, born=state.entry
    )
    upload.add(1, pa.Table.from_pylist(rows(50, 51), SCHEMA))
    append = topic_append(topic.topic_id, topic.partitions, upload.finish())
    log.committer.commit(log.committer.intend(Write(appends=(append,))))
    (there,) = (key for key in data_keys(log) if key.startswith(f"{directory}/"))
    report = log.publish()
    assert report.compacted_parts == 1
    assert not report.held_back
    assert len(actions(log, 0, "add")) == 2
    check(log)
    log.publish(format="iceberg")
    check_iceberg(log)
    assert log.store.head(there) is not None, "a vacuum deletes it, not a publication"


@contextmanager
def held_back(log: TxnLog, between: Callable[[], object]) -> Iterator[int]:
    """Let an entry have records that cannot be read, behind an open transaction: no publication can show it,
    or a later one. ``between``: is called before that is so."""
    with slow(log) as producer:
        write(log, rows(31), partition=0)
        entry = log.refresh().entry
        between()
        key = keys.entry_key(entry)
        store = LocalStore(log.url.removeprefix("file://"))
        data = store.get(key) or b""
        store.put(key, with_payload(head_of(data), payload_of(data)[::-1]))
        yield entry
        store.put(key, data)
        producer.abort()


def test_a_file_with_records_of_before_and_behind_the_entry_is_not_written_anew_for_it(log: TxnLog) -> None:
    """That could not divide what the entry divides: an older entry is shown."""
    before = log.refresh().entry
    log.alter_topic("t", settings={"embed": "true"})
    write(log, rows(30), partition=1)

    def mix() -> None:
        write(log, rows(32), partition=1)
        log.maintain("seal")
        log.compact("t", min_lag_ms=0)

    with held_back(log, mix), fresh(log) as other:
        report = other.publish()
        assert report.entry < before, "the file has the records of that entry, too"
        assert report.held_back
        assert report.compacted_parts == 0
        check(log)


@pytest.mark.parametrize(
    "change",
    [{"add_columns": [pa.field("more", pa.string())]}, {"rename": {"text": "label"}}, {"drop": ["raw"]}],
    ids=lambda change: next(iter(change)),
)
@pytest.mark.parametrize("format_", ["delta", "iceberg"])
def test_a_table_that_shows_the_entry_already_keeps_its_columns_until_a_later_one(
    log: TxnLog, format_: str, change: dict[str, Any]
) -> None:
    log.alter_topic("t", settings={"embed": "true"})

    def columns() -> list[str]:
        table = fresh(log).published_tables(format=format_)["t"]
        if format_ == "delta":
            return [one.name for one in DeltaTable(path_of(table), version=table.version).schema().fields]
        return [one.name for one in opened(table).schema().fields]

    with held_back(log, lambda: None) as entry:
        first = fresh(log).publish(format=format_)
        assert first.entry == entry - 1
        log.alter_topic("t", **change)
        second = fresh(log).publish(format=format_)
        assert second.entry == first.entry
        (one,) = second.topics
        assert (one.version, one.is_new) == (first.topics[0].version, False)
        assert columns() == SCHEMA.names
    third = fresh(log).publish(format=format_)
    assert third.entry > entry
    assert columns() == log.refresh().topic("t").schema.arrow_schema.names != SCHEMA.names
