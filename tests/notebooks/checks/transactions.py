"""Checks of `notebooks/02_transactions.ipynb`: each function runs after the cell that it is named after, on
the notebook's names."""

from __future__ import annotations

from typing import Any


def after_cell_05(n: Any) -> None:
    assert n.inline.waiting == []
    assert n.inline.received() == ["one", "two", "three"]
    assert n.deferred.waiting == ["two", "three"]
    assert n.deferred.received() == ["two", "three", "one"]


def after_cell_07(n: Any) -> None:
    assert n.inline.held
    assert not n.deferred.held
    assert n.inline.received()[-2:] == ["four", "plain"]
    assert n.deferred.received()[-1] == "four"
    assert n.log.outcome("inline-late", 0).cause == "timeout"


def after_cell_09(n: Any) -> None:
    assert len(n.figure.axes) == 4  # two panels, each with a second axis
    labels = [tick.get_text() for tick in n.figure.axes[0].get_yticklabels()]
    assert labels == list(n.inline.spans)  # each bar has its name


def after_cell_11(n: Any) -> None:
    assert n.offsets.held_by is None
    for worker in range(4):
        assert n.log.outcome(f"inline-job-{worker}", 0).outcome == "abort"
