"""`make bench`: every benchmark in one run; JSON on standard output."""

from __future__ import annotations

import json
import os
import platform
import tempfile
from pathlib import Path

from bench import one_shot, spark_scan


def main() -> None:
    """Run all benchmarks and print one JSON document."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "one_shot").mkdir()
        (root / "spark_scan").mkdir()
        results = [one_shot.measure(root / "one_shot"), spark_scan.measure(root / "spark_scan")]
    machine = {"cores": os.cpu_count(), "python": platform.python_version(), "system": platform.platform()}
    print(json.dumps({"machine": machine, "results": results}, indent=2))


if __name__ == "__main__":
    main()
