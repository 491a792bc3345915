"""What an object may cost: the page has a row for each measured case, and every class of key has cases."""

from __future__ import annotations

import re

from tests.limits.cases import CASES
from tests.meta.markdown import ROOT
from txnformat import keys
from txnformat.store.requests import KeyClass

SECURITY = (ROOT / "docs" / "internals" / "security.md").read_text(encoding="utf-8")

ROWS = {
    "FORMAT_KEY": "`format.json`:",
    "LATEST_KEY": "`latest`:",
    "parse_boundary_key": "boundary:",
    "parse_bundle_key": "bundle:",
    "parse_condemned_key": "condemned:",
    "parse_data_key": "data file:",
    "parse_entry_key": "entry:",
    "parse_index_key": "`.index`:",
    "parse_markers_key": "`.markers`:",
    "parse_runs_key": "`.runs`:",
    "parse_payloads_key": "payload bundle:",
    "parse_probe_key": "probe:",
    "parse_snapshot_key": "snapshot:",
    "parse_table_key": "batch table:",
    "parse_txnindex_key": "`.txnindex`:",
}
"""Name in txnformat.keys of each kind of object: how its rows begin."""


def rows() -> list[str]:
    """Return the first cells of the rows of both tables."""
    return re.findall(r"^\| (.+?) \| [0-9,]+ \| [0-9,]+ MiB \| [0-9.]+ \| .+ \|$", SECURITY, re.MULTILINE)


def test_every_class_of_key_has_rows() -> None:
    kinds = {name for name in keys.__all__ if re.fullmatch("parse_[a-z]+_key|[A-Z]+_KEY", name)}
    assert ROWS.keys() == kinds
    assert (
        len(kinds) == len(set(KeyClass) - {KeyClass.OTHER, KeyClass.SIDECAR}) + 4
    )  # of sidecars there are four
    for name, beginning in ROWS.items():
        assert any(row.startswith(beginning) for row in rows()), name


def test_the_rows_are_the_cases() -> None:
    said = sorted(re.sub(r" \(before: .*\)$", "", row) for row in rows())
    assert said == sorted(case.what for case in CASES)
