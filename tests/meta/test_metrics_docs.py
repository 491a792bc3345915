"""docs/operate.md lists exactly the metrics that the code has."""

from __future__ import annotations

import re

from tests.meta.markdown import ROOT, codes, section, tables
from txnformat.admin.maintenance import METRICS as UPKEEP
from txnformat.admin.metrics import METRICS
from txnformat.client.commit_counts import CommitOutcome

TEXT = (ROOT / "docs" / "operate.md").read_text(encoding="utf-8")


def test_the_table_of_metrics_is_the_codes() -> None:
    (table,) = tables(section(TEXT, "### Every metric"))
    documented = [(codes(name), type_, codes(labels), help_) for name, type_, labels, help_ in table.rows]
    assert documented == [([m.name], m.type, list(m.labels), m.help) for m in METRICS.values()]


def test_every_outcome_is_explained() -> None:
    (paragraph,) = [part for part in TEXT.split("\n\n") if part.startswith("Outcomes of commits:")]
    explained = re.findall(r"`([a-z-]+)`", paragraph)
    assert explained == [outcome.value for outcome in CommitOutcome]


def test_alerts_name_metrics_that_exist() -> None:
    named = re.findall(r"txnlog_[a-z_]+", section(TEXT, "### Alerts"))
    assert len(named) > 5
    assert set(named) <= {*METRICS, *UPKEEP}
