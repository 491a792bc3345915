"""Prometheus' text format, version 0.0.4. Pure.

Source: https://prometheus.io/docs/instrumenting/exposition_formats/ and
https://prometheus.io/docs/practices/naming/ (base units, ``_total`` for counters).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

__all__ = ["Metric", "Sample", "declared", "render"]


class Metric(NamedTuple):
    """A metric as Prometheus is told of it."""

    name: str
    type: str
    """``counter``, ``gauge`` or ``summary``."""
    labels: tuple[str, ...]
    """Besides ``log``."""
    help: str


class Sample(NamedTuple):
    """One value of a metric."""

    name: str
    """Name of the metric."""
    labels: tuple[tuple[str, str], ...]
    value: float
    suffix: str = ""
    """``_sum`` or ``_count`` of a summary."""


def declared(table: str) -> dict[str, Metric]:
    """Return metrics by name from lines such as ``requests_total{object} counter: Requests to the store.``
    (name, labels, type, help).
    """
    found = re.findall(r"^(\w+)(?:\{(.*)\})? (\w+): (.+)$", table, re.MULTILINE)
    return {
        name: Metric(name, kind, tuple(labels.split(", ")) if labels else (), text)
        for name, labels, kind, text in found
    }


def render(metrics: Mapping[str, Metric], samples: Iterable[Sample]) -> str:
    """Return samples as text, grouped by metric in the order of ``metrics``; one without samples is
    left out.
    """
    lines: dict[str, list[str]] = {}
    for sample in samples:
        lines.setdefault(sample.name, []).append(_line(sample))
    text = ""
    for name, metric in metrics.items():
        if name in lines:
            text += f"# HELP {name} {_escape(metric.help)}\n# TYPE {name} {metric.type}\n"
            text += "".join(lines[name])
    return text


def _line(sample: Sample) -> str:
    labels = ",".join(f'{name}="{_escape(value, quotes=True)}"' for name, value in sample.labels)
    return f"{sample.name}{sample.suffix}{{{labels}}} {sample.value!r}\n"


def _escape(text: str, *, quotes: bool = False) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quotes else text
