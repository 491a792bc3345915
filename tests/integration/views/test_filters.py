"""Filters of other engines over NaN and -0.0: statistics leave out no record that the engine itself takes
when it judges all of them one by one."""

from __future__ import annotations

import pytest

from tests.integration.views.filters import ENGINES
from tests.integration.views.tables import FILTERS, floats
from txnlog import TxnLog


@pytest.fixture(scope="module", params=["as written", "compacted"])
def published(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TxnLog:
    """A topic of floats in both formats."""
    log = floats(tmp_path_factory.mktemp("floats") / "log")
    if request.param == "compacted":
        log.maintain("seal")
        log.compact("t", min_lag_ms=0)
    for name in ("delta", "iceberg"):
        assert not log.publish("t", format=name).held_back
    return log


@pytest.mark.parametrize("filter_", FILTERS)
@pytest.mark.parametrize("name", ENGINES)
def test_a_filter_takes_the_records_that_the_engine_takes_one_by_one(
    published: TxnLog, name: str, filter_: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    engine = ENGINES[name]
    table = published.published_tables(format=engine.format)["t"]
    found = engine.filtered(table, filter_)
    assert found == engine.judged(table, filter_)
    if engine.is_as_the_log:
        shown = published.read("t", isolation="snapshot", version_as_of=table.entry, where=filter_)
        assert found == shown.read_all().num_rows
