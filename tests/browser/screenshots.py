"""Draws the pictures of docs/operate.md: ``python -m tests.browser.screenshots`` (``make screenshots``)."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from PIL import Image

from tests.browser.chromium import Chromium, Screen, chromium, find_chromium
from tests.cli.left_open import prepare
from tests.meta.markdown import ROOT
from txnlog import Consumer, Producer, TxnLog

__all__ = ["COLOURS_MAX", "main"]

FOLDER = ROOT / "docs" / "img"
COLOURS_MAX = 256
"""Colours of a picture: a page has few, and the file is small."""
WIDE, NARROW = Screen(1000, 700), Screen(390, 700, mobile=True)


def _log(root: Path) -> TxnLog:
    """Return a log as an operator may find it: three workers, a killed one that holds a partition back, and a
    prepared import."""
    import pyarrow as pa

    log = TxnLog.create(root)
    schema = pa.schema([("id", pa.int64())])
    log.create_topic("orders", schema, partitions=3)
    log.create_topic("payments", schema, partitions=1)
    workers = [Producer(log, f"worker-{number}", buffer="inline") for number in range(4)]
    for worker in workers:
        worker.init()
        worker.begin()
    for number in range(36):
        worker = workers[number % 3]
        for partition in range(3):
            worker.send(
                "orders", [{"id": number}] * (3 + (number * 7 + partition * 5) % 13), partition=partition
            )
        if number % 4 == 1:
            worker.send("payments", [{"id": number}] * 6, partition=0)
        worker.flush()
        if number % 7 == 3:
            worker.abort()
        else:
            worker.commit()
        worker.begin()
        if number == 24:
            workers[3].send("orders", [{"id": 0}] * 14, partition=1)
            workers[3].flush()
        if number == 30:
            other = Producer(log, "import-7", buffer="inline")
            other.init()
            other.begin()
            other.send("payments", [{"id": 0}] * 9, partition=0)
            other.flush()
            prepare(log, "import-7")
    with Consumer(log, "billing", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["payments"])
        consumer.poll()
        consumer.commit()
    return log


def _draw(browser: Chromium, report: Path, screen: Screen, name: str, height: int) -> Path:
    tab = browser.tab(screen)
    tab.open(report.as_uri())
    tab.evaluate("document.querySelector('.where').textContent = 's3://shop/log'")
    tab.evaluate(
        "document.querySelectorAll('code.command').forEach((one) => { one.textContent = "
        "one.textContent.replace(/file:\\S+/, 's3://shop/log'); })"
    )
    path = FOLDER / f"look-{name}.png"
    tab.picture(path, height=height)
    tab.close()
    with Image.open(path) as picture:
        picture.convert("RGB").quantize(COLOURS_MAX).save(path, optimize=True)
    return path


def main() -> int:
    """Draw them."""
    program = find_chromium()
    if program is None:
        print("txnlog: no Chromium is here: see scripts/find-chromium", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder, chromium(program) as browser:
        report = Path(folder) / "report.html"
        with _log(Path(folder) / "log") as log:
            log.timeline().save(report)
        for screen, name, height in (
            (WIDE, "desktop", 1_250),
            (WIDE._replace(dark=True), "desktop-dark", 640),
            (NARROW, "phone", 900),
        ):
            path = _draw(browser, report, screen, name, height)
            print(f"{path.relative_to(ROOT)}: {path.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
