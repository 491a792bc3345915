"""Programs that ``opentelemetry-instrument`` starts, and the spans that they and their children have
exported.

The exporter is installed as exporters are, by an entry point: a folder on PYTHONPATH has it, so that children
find it, too.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.meta.markdown import ROOT

__all__ = ["Exported", "instrumented", "spans_in"]

_MODULE = """
import json, os
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

class Lines(SpanExporter):
    def export(self, spans):
        if os.environ.get("LINES_HANG"):
            import threading
            threading.Event().wait()
        text = "".join(
            json.dumps({"pid": os.getpid(), **json.loads(span.to_json())}) + "\\n" for span in spans
        )
        with open(os.environ["LINES_FILE"], "a") as file:
            file.write(text)
        return SpanExportResult.SUCCESS
"""


@dataclass(frozen=True)
class Exported:
    """One span."""

    name: str
    kind: str
    pid: int
    span_id: str
    parent_id: str | None
    trace_id: str
    attributes: Mapping[str, Any]
    is_error: bool


def instrumented(
    folder: Path, program: str, *, delay_ms: int = 3_600_000
) -> tuple[list[str], dict[str, str]]:
    """Return the beginning of a command, and its environment; spans go to a file in ``folder``.

    ``delay_ms``: how long the processor keeps spans; by default for ever, so that only a flush and Python's
    own end hand them over.
    """
    metadata = folder / "lines_exporter-1.0.dist-info"
    metadata.mkdir(parents=True, exist_ok=True)
    (metadata / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: lines-exporter\nVersion: 1.0\n", encoding="utf-8"
    )
    (metadata / "entry_points.txt").write_text(
        "[opentelemetry_traces_exporter]\nlines = lines_exporter:Lines\n", encoding="utf-8"
    )
    (folder / "lines_exporter.py").write_text(_MODULE, encoding="utf-8")
    beside = Path(sys.executable).parent
    known = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "TRACE"))}
    environment = {
        **known,
        "PYTHONPATH": os.pathsep.join((str(folder), str(ROOT))),
        "LINES_FILE": str(folder / "spans"),
        "OTEL_TRACES_EXPORTER": "lines",
        "OTEL_METRICS_EXPORTER": "none",
        "OTEL_LOGS_EXPORTER": "none",
        "OTEL_BSP_SCHEDULE_DELAY": str(delay_ms),
    }
    return [str(beside / "opentelemetry-instrument"), str(beside / program)], environment


def spans_in(folder: Path) -> list[Exported]:
    """Return what was exported so far, in the order of export."""
    file = folder / "spans"
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return [_exported(json.loads(line)) for line in lines]


def _exported(found: dict[str, Any]) -> Exported:
    return Exported(
        found["name"],
        found["kind"].removeprefix("SpanKind."),
        found["pid"],
        found["context"]["span_id"],
        found["parent_id"],
        found["context"]["trace_id"],
        found["attributes"],
        found["status"]["status_code"] == "ERROR",
    )
