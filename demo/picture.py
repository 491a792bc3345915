"""Draws one partition: its transactions over its offsets, before and after the open one was resolved."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from txnformat.core.state import LogState
from txnformat.types import TopicPartition

__all__ = ["draw"]

COLOURS = {"committed": "#2a9d8f", "aborted": "#e76f51", "open": "#f4a261"}


def draw(before: LogState, after: LogState, topic: str, partition: int, path: Path) -> None:
    """Write a PNG with two panels.

    Parameters
    ----------
    before, after : LogState
        The log with the open transaction, and without it.
    """
    figure, axes = plt.subplots(2, 1, figsize=(13, 6.5), sharex=True, constrained_layout=True)
    figure.suptitle(f"Topic {topic}, partition {partition}: transactions over offsets", fontsize=14)
    _panel(
        axes[0],
        before,
        topic,
        partition,
        "a producer was killed with its transaction open: it holds the LSO back",
    )
    _panel(
        axes[1],
        after,
        topic,
        partition,
        "init() with the same transactional id aborted it: the LSO is the log end",
    )
    axes[1].set_xlabel("offset")
    handles = [Patch(color=colour, label=name) for name, colour in COLOURS.items()]
    handles.append(Patch(color="#e9f5f3", label="what read_committed may return"))
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _panel(axes: Axes, state: LogState, topic: str, partition: int, title: str) -> None:
    found = state.topic(topic)
    part = state.partition(TopicPartition(found.topic_id, partition))
    extents = part.extents.array()
    names = {known.producer_id: name for name, known in state.transactional_ids.items()}
    lanes = {producer: lane for lane, producer in enumerate(sorted(set(extents["producer_id"].tolist())))}
    aborted = set(
        zip(part.aborted.array()["producer_id"].tolist(), part.aborted.array()["epoch"].tolist(), strict=True)
    )
    for row in extents:
        transaction = (int(row["producer_id"]), int(row["epoch"]))
        status = "open" if transaction in part.open else "aborted" if transaction in aborted else "committed"
        axes.broken_barh(
            [(int(row["base_offset"]), int(row["records"]))],
            (lanes[transaction[0]] - 0.38, 0.76),
            facecolors=COLOURS[status],
            edgecolors="white",
            linewidth=0.6,
        )
    stable = part.last_stable_offset
    axes.axvspan(0, stable, color="#e9f5f3", zorder=0)
    axes.axvline(stable, color="#264653", linewidth=2)
    axes.axvline(part.log_end, color="#264653", linewidth=1, linestyle=":")
    if stable < part.log_end:
        axes.text(
            stable, len(lanes) - 0.45, f" LSO {stable:,}", color="#264653", fontweight="bold", va="bottom"
        )
        label = f"log end {part.log_end:,} "
    else:
        label = f"LSO = log end {part.log_end:,} "
    axes.text(part.log_end, len(lanes) - 0.45, label, color="#264653", ha="right", va="bottom")
    axes.set_ylim(-0.6, len(lanes) - 0.1)
    axes.set_xlim(0, part.log_end * 1.005)
    axes.set_yticks(np.arange(len(lanes)), [names.get(producer, "no producer") for producer in lanes])
    axes.set_title(title, loc="left", fontsize=11)
    axes.spines[["top", "right"]].set_visible(False)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
