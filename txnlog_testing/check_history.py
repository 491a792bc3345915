"""Checks a recorded history: ``python -m txnlog_testing.check_history FILE_OR_FOLDER… [--json] [--kafka]``.

Exit codes: 0 clean, 1 anomalies, 2 no history.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from txnformat.errors import InvalidInputError
from txnlog_testing.checker.anomalies import KAFKA, TXNLOG
from txnlog_testing.checker.check import check_history
from txnlog_testing.checker.recording import files_of, merge_histories

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Check, print the report, and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m txnlog_testing.check_history", description="Check a recorded history."
    )
    parser.add_argument(
        "paths", nargs="+", type=Path, help="files, or folders of *.jsonl; they are merged by time"
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--kafka", action="store_true", help="allow what Kafka does not promise")
    given = parser.parse_args(arguments)
    try:
        events = merge_histories(file for path in given.paths for file in files_of(path))
        report = check_history(events, KAFKA if given.kafka else TXNLOG)
    except InvalidInputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(json.dumps(report.to_json(), ensure_ascii=False, indent=2) if given.json else report)
    return 0 if report.ok else 1


if __name__ == "__main__":
    sys.exit(main())
