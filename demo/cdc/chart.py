"""Draws what joins have seen over time: one panel for each system."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from demo.cdc.running import Run

__all__ = ["draw"]

AGREES, TORN, KILL = "#2a9d8f", "#d1495b", "#264653"
TITLES = {
    "delta": "Delta, two tables: a join of their newest versions",
    "txnlog": "txnlog, two topics: a join at one entry",
}


def draw(runs: Sequence[Run], path: Path) -> None:
    """Write a PNG. Of each run it has the reads of the first way."""
    with plt.rc_context({"font.size": 10}):
        figure, axes = plt.subplots(
            len(runs), 1, figsize=(10, 5.2), sharey=True, constrained_layout=True, squeeze=False
        )
        for run, one in zip(runs, axes[:, 0], strict=True):
            _panel(one, run)
        marks = [
            Line2D([], [], marker="o", linestyle="", color=AGREES, label="join that agrees"),
            Line2D([], [], marker="o", linestyle="", color=TORN, label="torn join"),
            Line2D([], [], linestyle="--", color=KILL, label="writer killed (kill -9)"),
        ]
        figure.legend(handles=marks, loc="outside lower center", ncols=3, frameon=False)
        figure.savefig(path, dpi=110)
        plt.close(figure)


def _panel(axes: Axes, run: Run) -> None:
    reads = next(iter(run.ways().values()))
    for is_torn, colour in ((False, AGREES), (True, TORN)):
        some = [one for one in reads if one.found.is_torn is is_torn]
        axes.scatter(
            [one.began - run.began for one in some],
            [one.found.difference / 100 for one in some],
            s=9,
            color=colour,
            linewidths=0,
            zorder=3 if is_torn else 2,
        )
    for moment in run.kills:
        axes.axvline(moment - run.began, color=KILL, linewidth=1, linestyle="--", zorder=1)
    torn = sum(one.found.is_torn for one in reads)
    axes.set_title(f"{TITLES[run.system]} — {torn:,} of {len(reads):,} torn", loc="left", fontsize=11)
    axes.set_ylabel("sum of orders less\nsum of payments\nin the join (euros)")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set_xlabel("time since the writers began (seconds)")
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlim(left=0)
