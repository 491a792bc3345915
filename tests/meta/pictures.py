"""The pictures of docs/concepts.md.

``python -m tests.meta.pictures`` draws them anew. The numbers in them are those of the blocks of that page,
which run.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.meta.drawing import Canvas
from tests.meta.markdown import ROOT

__all__ = ["BY_COMMIT", "BY_OFFSET", "COMMITTED", "FOLDER", "PARTITION", "PICTURES", "WHILE_OPEN"]

FOLDER = ROOT / "docs" / "img"
WIDTH = 760

PARTITION = ["a", "a", "b", "a commit", "c", "c", "c abort", "b", "d", "d commit"]
"""The partition of the page, offset by offset: whose record, or whose marker."""
WHILE_OPEN = {"read_committed": (0, 1), "read_uncommitted": (0, 1, 2, 4, 5, 7, 8), "snapshot": (0, 1, 8)}
COMMITTED = {
    "read_committed": (0, 1, 2, 7, 8),
    "read_uncommitted": (0, 1, 2, 4, 5, 7, 8),
    "snapshot": (0, 1, 2, 7, 8),
}
"""The offsets that each isolation level shows, before and after b's commit. The blocks of the page have these
names, too."""
BY_OFFSET = ((0, 1), (2, 7, 8))
BY_COMMIT = ((0, 1, 8), (2, 7))
"""The micro-batches of both orders."""


def _cells(
    canvas: Canvas, x: float, y: float, content: list[str], *, side: float = 52, offsets: bool = True
) -> None:
    """Draw a partition: a cell for each offset; markers are plain, with the end that they are."""
    for offset, what in enumerate(content):
        whose, _, end = what.partition(" ")
        role = "plain" if end else whose or "open"
        lines = [whose, end] if end else [whose] if whose else []
        canvas.box(x + offset * side, y, side - 4, 40, *lines, role=role, size=11 if end else 15)
        if offsets:
            canvas.text(
                x + offset * side + side / 2 - 2, y + 56, str(offset), role="pale", size=11, anchor="middle"
            )


def one_step() -> Canvas:
    """Draw a commit: files first, then one conditional PUT; who comes second decides again."""
    canvas = Canvas(
        "Two writers upload files and compete for slot 42: one creates it, the other takes slot 43",
        WIDTH,
        330,
    )
    canvas.text(20, 30, "1  Upload. No reader sees a file before an entry names it.", bold=True)
    canvas.box(20, 45, 130, 40, "writer X")
    canvas.box(20, 100, 130, 40, "writer Y")
    canvas.box(260, 45, 150, 40, "x.parquet", role="a")
    canvas.box(260, 100, 150, 40, "y.parquet", role="b")
    canvas.line((150, 65), (258, 65), arrow=True)
    canvas.line((150, 120), (258, 120), arrow=True)
    canvas.text(430, 70, "no offsets in it", role="pale", size=12)
    canvas.text(430, 125, "no offsets in it", role="pale", size=12)
    canvas.text(20, 180, "2  Create the next entry, if it is not there: one PUT.", bold=True)
    for number, (x, role) in enumerate(((20, "plain"), (150, "plain"), (280, "a"), (470, "b"))):
        wide = 110 if number < 2 else 170
        lines = (
            [f"entry {40 + number}"]
            if number < 2
            else [f"entry {40 + number}", "names x.parquet" if number == 2 else "names y.parquet"]
        )
        canvas.box(x, 195, wide, 50, *lines, role=role, size=12)
        if number:
            canvas.line((x, 220), (x - 18, 220), arrow=True)
    canvas.text(365, 265, "X: created", role="good", size=12, anchor="middle")
    canvas.text(365, 283, "Y: is there already", role="bad", size=12, anchor="middle")
    canvas.text(555, 265, "Y reads entry 42, decides again,", role="good", size=12, anchor="middle")
    canvas.text(555, 283, "and creates 43; its file stays", role="good", size=12, anchor="middle")
    canvas.text(
        20,
        312,
        "Each entry holds the hash of the one before. Entries are never changed.",
        role="pale",
        size=12,
    )
    return canvas


def topics() -> Canvas:
    """Draw one entry that appends to three partitions of two topics."""
    canvas = Canvas(
        "One entry appends records to two partitions of one topic and to one of another", WIDTH, 300
    )
    canvas.box(20, 110, 150, 70, "entry 5", "3 partitions,", "all or nothing", role="d", size=12)
    rows = (("orders, partition 0", 30, 4), ("orders, partition 1", 115, 2), ("audit, partition 0", 200, 5))
    for name, y, before in rows:
        canvas.text(240, y + 12, name, size=12)
        for offset in range(8):
            new = before <= offset < before + 2
            there = offset < before
            canvas.box(240 + offset * 42, y + 20, 38, 28, role="d" if new else "plain" if there else "open")
            canvas.text(259 + offset * 42, y + 62, str(offset), role="pale", size=11, anchor="middle")
        end = before + 2
        canvas.text(590, y + 39, f"log end {before} → {end}", role="pale", size=12)
        canvas.line((170, 145), (234, y + 34), arrow=True)
    canvas.text(
        20,
        285,
        "An offset is a position in one partition. Partitions of one topic may be at different ends.",
        role="pale",
        size=12,
    )
    return canvas


def partition() -> Canvas:
    """Draw the partition of the page while b is open."""
    canvas = Canvas(
        "Offsets 0 to 9 of a partition: records of transactions a, b, c and d, and the markers that end "
        "a, c and d",
        WIDTH,
        190,
    )
    canvas.text(20, 30, "A partition with four transactions. b is open.", bold=True)
    _cells(canvas, 20, 60, PARTITION)
    canvas.box(20 + len(PARTITION) * 52, 60, 48, 40, role="open")
    canvas.line((122, 48), (122, 128))
    canvas.text(20, 145, "last stable offset: 2, where the oldest open transaction begins", size=12)
    canvas.line((538, 48), (538, 128))
    canvas.text(546, 145, "log end: 10", size=12)
    canvas.text(
        20,
        172,
        "A marker takes an offset and is no record: offsets 3, 6 and 9 are gaps for readers.",
        role="pale",
        size=12,
    )
    return canvas


def isolation() -> Canvas:
    """Draw what each isolation level shows of that partition, before and after b's commit."""
    canvas = Canvas(
        "What read_committed, read_uncommitted and snapshot show of the partition, before and after b "
        "commits",
        WIDTH,
        400,
    )

    def shown(title: str, y: float, rows: dict[str, tuple[int, ...]], content: list[str]) -> None:
        canvas.text(20, y, title, bold=True)
        for number, (name, offsets) in enumerate(rows.items()):
            top = y + 14 + number * 48
            canvas.text(20, top + 22, name, size=12)
            for offset, what in enumerate(content):
                seen = offset in offsets
                canvas.box(
                    160 + offset * 52,
                    top,
                    46,
                    34,
                    *([what] if seen else []),
                    role=what if seen else "open",
                    size=14,
                )

    shown("b is open: last stable offset 2, log end 10", 30, WHILE_OPEN, PARTITION)
    shown("b has committed: last stable offset and log end 11", 205, COMMITTED, [*PARTITION, "b commit"])
    for offset in range(11):
        canvas.text(183 + offset * 52, 365, str(offset), role="pale", size=11, anchor="middle")
    canvas.text(
        20,
        388,
        "Dashed: not shown. c was aborted; its records stay where they are, and only read_uncommitted "
        "gives them.",
        role="pale",
        size=12,
    )
    return canvas


def abort_index() -> Canvas:
    """Draw how a reader leaves aborted records out."""
    canvas = Canvas(
        "The abort index names producer, first and last offset of the aborted transaction; the reader "
        "drops its batch",
        WIDTH,
        250,
    )
    _cells(canvas, 20, 30, [*PARTITION, "b commit"])
    canvas.line((228, 22), (378, 22))
    canvas.line((228, 22), (228, 28))
    canvas.line((378, 22), (378, 28))
    canvas.box(
        20, 120, 330, 50, "abort index: producer of c,", "first offset 4, last offset 6", role="c", size=12
    )
    canvas.line((300, 118), (300, 92), arrow=True)
    canvas.text(380, 140, "A batch is dropped if its producer is c's", size=12)
    canvas.text(380, 158, "and it begins at 4 or behind, before 6.", size=12)
    canvas.text(
        20,
        205,
        "read_committed of 0 … 11 goes through the batches in offset order: a a, b, (c c), b, d.",
        size=12,
    )
    canvas.text(
        20,
        230,
        "The index is small: one entry for each aborted transaction and partition, none for commits.",
        role="pale",
        size=12,
    )
    return canvas


def order() -> Canvas:
    """Draw the micro-batches of both orders over the same history."""
    canvas = Canvas(
        "Micro-batches by order=offset wait for b and give 2, 7, 8 together; by order=commit d comes "
        "first, then b",
        WIDTH,
        330,
    )
    canvas.text(20, 30, "d commits (entry 18)", role="pale", size=12)
    canvas.text(400, 30, "b commits (entry 19)", role="pale", size=12)
    canvas.line((20, 42), (738, 42), arrow=True)
    for x in (25, 405):
        canvas.line((x, 36), (x, 48))
    for title, y, batches, note in (
        (
            "order=offset",
            70,
            BY_OFFSET,
            "A partition's records in the order of their offsets: d waits behind b.",
        ),
        (
            "order=commit",
            195,
            BY_COMMIT,
            "By the entry that committed them, then offset: nothing waits, no transaction is split.",
        ),
    ):
        canvas.text(20, y + 8, title, bold=True)
        for x, batch, label in zip(
            (20, 400), batches, ("first micro-batch", "second micro-batch"), strict=True
        ):
            canvas.box(x, y + 20, 330, 68, role="open")
            for number, offset in enumerate(batch):
                whose = PARTITION[offset]
                canvas.box(x + 14 + number * 60, y + 28, 48, 34, whose, role=whose, size=14)
                canvas.text(x + 38 + number * 60, y + 78, str(offset), role="pale", size=11, anchor="middle")
            canvas.text(x + 320, y + 50, label, role="pale", size=11, anchor="end")
        canvas.text(20, y + 108, note, size=12)
    return canvas


def stream() -> Canvas:
    """Draw a batch of a stream, and its repetition after a crash."""
    canvas = Canvas(
        "A batch of a stream is one entry with the number of the batch; its repetition finds the number "
        "and adds nothing",
        WIDTH,
        350,
    )
    canvas.text(20, 30, "Batch 5, first try", bold=True)
    steps = (
        ("checkpoint:", "offsets of batch 5"),
        ("tasks upload", "files"),
        ("one entry: rows,", "query Q, batch 5"),
        ("checkpoint:", "batch 5 is done"),
    )
    for top, outcome in ((45, "crash"), (190, "done")):
        for number, lines in enumerate(steps):
            x = 20 + number * 186
            crashed = outcome == "crash" and number == 3
            role = "open" if crashed else ("d" if number == 2 and outcome == "crash" else "plain")
            if outcome == "done" and number == 2:
                lines = ("batch 5 of Q is there:", "nothing is added")
            canvas.box(x, top, 160, 54, *lines, role=role, size=12)
            if number:
                canvas.line((x - 26, top + 27), (x - 2, top + 27), arrow=True, dashed=crashed)
    canvas.text(578, 118, "the driver dies first", role="bad", size=12)
    canvas.text(392, 118, "all its rows are visible", role="good", size=12)
    canvas.text(
        20,
        175,
        "Batch 5 again, after the start from the checkpoint: the same offsets, the same rows",
        bold=True,
    )
    canvas.text(206, 263, "new files, which no", role="pale", size=12)
    canvas.text(206, 279, "entry names", role="pale", size=12)
    canvas.text(578, 263, "and on to batch 6", role="good", size=12)
    canvas.text(
        20,
        320,
        "Two queries on one checkpoint: each run has an id of its own in the entry, and the older one is "
        "refused.",
        role="pale",
        size=12,
    )
    return canvas


PICTURES: dict[str, Callable[[], Canvas]] = {
    "one-step": one_step,
    "topics": topics,
    "partition": partition,
    "isolation": isolation,
    "abort-index": abort_index,
    "order": order,
    "stream": stream,
}


def _draw(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    for name, picture in PICTURES.items():
        (folder / f"{name}.svg").write_text(picture().svg(), encoding="utf-8")


if __name__ == "__main__":
    _draw(FOLDER)
