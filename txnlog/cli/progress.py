"""A progress bar on stderr, if that is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from txnlog.cli.output import is_terminal, printable, unguarded

__all__ = ["Advance", "progress"]


Advance = Callable[[int, int | None, str], None]
"""Moves the bar to how much is done, of how much (None: not known), with a text."""


@contextmanager
def progress(*, wanted: bool = True) -> Iterator[Advance]:
    """Give what moves the bar; it goes away at the end."""
    if not (wanted and is_terminal(sys.stderr)):
        yield lambda done, total, text: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.description}", markup=False),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(file=unguarded(sys.stderr)), transient=True) as bar:
        task = bar.add_task("", total=None)

        def advance(done: int, total: int | None, text: str) -> None:
            bar.update(task, completed=done, total=total, description=printable(text))

        yield advance
