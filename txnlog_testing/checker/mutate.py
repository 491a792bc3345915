"""Seeded anomalies: each mutation makes one thing wrong in a valid history, and says which class must be
found.

They know the histories of :mod:`txnlog_testing.checker.generate`, whose values are unique, and nothing of the
checker but its vocabulary and its classes. A mutation that a history gives no occasion for returns None.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from txnlog_testing.checker import mutated_reads, mutated_writes
from txnlog_testing.checker.history_view import HistoryView
from txnlog_testing.checker.mutation_list import MUTATIONS
from txnlog_testing.checker.vocabulary import Event

__all__ = ["MUTATIONS", "mutate", "mutated_reads", "mutated_writes"]


def mutate(events: Sequence[Event], name: str, rng: random.Random) -> list[Event] | None:
    """Return a history with one thing wrong, or None: it gives no occasion.

    Parameters
    ----------
    events : sequence of Event
        A history that was generated.
    name : str
        One of MUTATIONS.
    rng : random.Random
        Chooses where.
    """
    return MUTATIONS[name][0](HistoryView(events, rng))
