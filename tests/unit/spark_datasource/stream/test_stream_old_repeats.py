"""A micro-batch that is repeated when its entry was deleted is compared with it all the same."""

from __future__ import annotations

import pytest

from spark_datasource.worker import logs as worker_logs
from tests.unit.spark_datasource.stream_steps import Cluster, Query, table
from txnformat import keys
from txnformat.core.wire.document import encode_json
from txnlog import Producer, StaleAppVersionError, TxnLog


@pytest.mark.parametrize("is_deleted", [False, True])
def test_other_rows_under_a_deleted_version_stop_the_query(
    cluster: Cluster, query: Query, log: TxnLog, path: str, is_deleted: bool
) -> None:
    query.write(0, table(*range(20)))
    query.write(1, table(*range(20, 30)))
    with Producer(log) as producer:
        for number in range(230):
            producer.send("t", table(100_000 + number), partition=0)
            producer.flush()
            log.close()  # what a commit leaves to the background happens now
    assert log.store.get(keys.bundle_key(0, 99)) is not None
    # What a truncation leaves, once the entries are a week old.
    log.store.create(keys.boundary_key(100), encode_json({"format": 1, "log_id": log.log_id}))
    for number in range(100) if is_deleted else ():
        log.store.delete(keys.entry_key(number))
    worker_logs._logs.clear()
    copy = Query(cluster, path, run="run-2", topic="t")
    with pytest.raises(StaleAppVersionError) as caught:
        copy.write(1, table(*range(20, 40)))
    assert caught.value.kind == "different-repeat"
