"""The specification's text, and operations of every form, for the tests that hold one against the other."""

from __future__ import annotations

import json
from typing import Any

from tests.integration.golden_entries import FILE, FORMS, INDEX, MARKERS, SHA, TXNINDEX, UUID
from tests.meta.markdown import ROOT, Table, blocks, codes, section, tables
from txnformat.core.operation_codec import decode_operation
from txnformat.core.operations import Operation
from txnformat.types import SegmentRecord

__all__ = [
    "FILE",
    "JSON_BLOCKS",
    "OPERATIONS",
    "SAMPLES",
    "SEGMENT_RECORD",
    "SHA",
    "SPEC",
    "UUID",
    "decoded",
    "fields_of_operations",
    "names_in",
    "one_table",
]

SPEC = (ROOT / "docs" / "internals" / "spec.md").read_text(encoding="utf-8")
OPERATIONS = section(SPEC, "## 5. Operations")
JSON_BLOCKS = [block for block in blocks(SPEC) if block.info.startswith("json")]

SEGMENT_RECORD = SegmentRecord(UUID, INDEX, MARKERS, TXNINDEX)

SAMPLES: list[Operation] = [form for forms in FORMS.values() for form in forms]
"""Every operation, in every form that it has."""


def one_table(text: str, first_cell: str) -> Table:
    """Return the only table whose header begins with ``first_cell``."""
    (found,) = [table for table in tables(text) if table.header[0] == first_cell]
    return found


def names_in(table: Table, column: int = 0) -> list[str]:
    return [name for row in table.rows for name in codes(row[column])]


def fields_of_operations() -> dict[str, list[str]]:
    return {codes(row[0])[0]: codes(row[1]) for row in one_table(OPERATIONS, "operation").rows}


def decoded(value: dict[str, Any]) -> Operation:
    return decode_operation(json.loads(json.dumps(value)), 2, path="sample")
