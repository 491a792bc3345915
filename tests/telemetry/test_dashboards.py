"""The dashboard and the alert rules in deploy/ are Prometheus' language, and name metrics, labels and values
that txnlog exports."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import promql_parser as promql
import pytest
import yaml

from tests.meta.markdown import ROOT, codes, section, tables
from txnformat.admin.erasure.status import ErasureStage
from txnformat.admin.maintenance import METRICS as UPKEEP
from txnformat.admin.metrics import METRICS
from txnformat.admin.prometheus import Metric
from txnformat.client.commit_counts import CommitOutcome

DASHBOARD = json.loads((ROOT / "deploy" / "grafana" / "txnlog.json").read_text(encoding="utf-8"))
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
RULES = yaml.safe_load((ROOT / "deploy" / "prometheus" / "alerts.yml").read_text(encoding="utf-8"))
ALERTS = [rule for group in RULES["groups"] for rule in group["rules"]]
VALUES = {"outcome": {one.value for one in CommitOutcome}, "stage": {one.value for one in ErasureStage}}


def exported() -> dict[str, Metric]:
    """Return every name that a sample may have."""
    return {
        name + suffix: metric
        for name, metric in {**METRICS, **UPKEEP}.items()
        for suffix in (("_sum", "_count") if metric.type == "summary" else ("",))
    }


def selectors(expression: str) -> Iterator[Any]:
    """Yield the selectors of an expression. Raises ValueError: it is not Prometheus' language."""
    waiting = [promql.parse(expression)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, promql.VectorSelector):
            yield node
        elif isinstance(node, promql.MatrixSelector):
            yield node.vector_selector
        elif isinstance(node, promql.BinaryExpr):
            waiting += [node.lhs, node.rhs]
        elif isinstance(node, promql.Call):
            waiting += node.args
        elif isinstance(node, promql.ParenExpr | promql.AggregateExpr | promql.UnaryExpr):
            waiting.append(node.expr)
        else:
            assert isinstance(node, promql.NumberLiteral | promql.StringLiteral), type(node)


def checked(expression: str) -> set[str]:
    """Return the metrics that an expression names; each is exported, with each label that is compared or
    kept."""
    known = exported()
    named = set()
    labels = set()
    for selector in selectors(expression):
        metric = known[selector.name]
        labels |= {"log", *metric.labels}
        for matcher in selector.matchers.matchers:
            assert matcher.name in {"log", *metric.labels}, (expression, matcher.name)
            if "$" not in matcher.value and matcher.name in VALUES:
                assert matcher.value in VALUES[matcher.name], (expression, matcher.value)
        named.add(selector.name)
    for grouped in re.findall(r"\b(?:by|without) \(([^)]*)\)", expression):
        assert set(grouped.split(", ")) <= labels, expression
    return named


def expressions() -> list[tuple[str, str, str]]:
    return [
        (one["title"], target["expr"], target["legendFormat"]) for one in PANELS for target in one["targets"]
    ]


@pytest.mark.parametrize(("title", "expression", "legend"), expressions())
def test_a_panel_names_metrics_and_labels_that_are_exported(title: str, expression: str, legend: str) -> None:
    named = checked(expression.replace("$__rate_interval", "5m"))
    assert named
    labels = {label for name in named for label in exported()[name].labels} | {"log"}
    assert set(re.findall(r"\{\{(\w+)\}\}", legend)) <= labels
    counters = {name for name in named if exported()[name].type != "gauge"}
    for name in counters:  # a counter that is not a rate says how old the process is
        assert re.search(rf"\b(?:rate|increase)\({name}", expression), (title, expression)
    for name in named - counters:
        assert not re.search(rf"\b(?:rate|increase)\({name}", expression), (title, expression)


def test_the_dashboard_is_one_that_grafana_loads() -> None:
    assert DASHBOARD.keys() >= {"title", "uid", "schemaVersion", "panels", "templating", "time"}
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
    places = [panel["gridPos"] for panel in DASHBOARD["panels"]]
    cells = [
        (x, y)
        for at in places
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(cells) == len(set(cells))
    assert all(at["x"] >= 0 and at["x"] + at["w"] <= 24 for at in places)
    variables = {one["name"]: one for one in DASHBOARD["templating"]["list"]}
    assert variables.keys() == {"datasource", "log", "topic"}
    for one in ("log", "topic"):
        name, label = re.fullmatch(
            r"label_values\((\w+)(?:\{.*\})?, (\w+)\)", variables[one]["definition"]
        ).groups()  # type: ignore[union-attr]
        assert label in {"log", *METRICS[name].labels}
    text = json.dumps(DASHBOARD)
    assert set(re.findall(r"\$\{?(\w+)\}?", text)) <= {*variables, "__rate_interval", "__all"}
    assert {panel["datasource"]["uid"] for panel in PANELS} == {"${datasource}"}


def test_every_metric_that_people_watch_is_on_the_dashboard_or_in_a_rule() -> None:
    named = {
        name
        for _, expression, _ in expressions()
        for name in checked(expression.replace("$__rate_interval", "5m"))
    }
    named |= {name for rule in ALERTS for name in checked(rule["expr"])}
    seen = {name.removesuffix("_sum").removesuffix("_count") for name in named}
    left = {*METRICS, *UPKEEP} - seen
    assert left == {
        *(
            f"txnlog_partition_{name}"
            for name in ("log_start_offset", "log_end_offset", "last_stable_offset")
        ),
        *(
            f"txnlog_partition_{name}"
            for name in ("open_transactions", "late_transactions", "prepared_transactions")
        ),
        "txnlog_partition_oldest_transaction_first_offset",
        *("txnlog_groups", "txnlog_group_committed_offset", "txnlog_topics", "txnlog_transactional_ids"),
        *("txnlog_commit_group_size", "txnlog_commit_group_size_max"),
        *("txnlog_maintain_rounds_total", "txnlog_maintain_seconds_total", "txnlog_maintain_skipped"),
    }


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_a_rule_is_prometheus_s_and_names_labels_that_its_alert_has(rule: Mapping[str, Any]) -> None:
    assert rule.keys() <= {"alert", "expr", "for", "labels", "annotations"}
    assert re.fullmatch(r"[A-Z][A-Za-z]+", rule["alert"])
    assert re.fullmatch(r"\d+[smh]", rule.get("for", "1m"))
    named = checked(rule["expr"])
    labels = set.intersection(*({"log", *exported()[name].labels} for name in named))
    assert set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"])) <= labels


def test_the_page_has_the_rules() -> None:
    (table,) = tables(section((ROOT / "docs" / "operate.md").read_text(encoding="utf-8"), "### Alerts"))
    listed = {codes(row[0])[0]: row[1] for row in table.rows}
    spoken = {"15m": "15 minutes", "5m": "5 minutes", "1h": "an hour", "": ""}
    assert listed == {rule["expr"]: spoken[rule.get("for", "")] for rule in ALERTS}


def test_what_is_wrong_is_found() -> None:
    with pytest.raises(ValueError, match="unclosed"):
        checked("rate(txnlog_entries_total[5m]")
    with pytest.raises(KeyError):
        checked("txnlog_entries")
    with pytest.raises(AssertionError):
        checked('txnlog_topics{topic="a"}')
    with pytest.raises(AssertionError):
        checked('txnlog_commits_total{outcome="lost"}')
