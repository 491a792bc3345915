"""What the producers say of their records, from the history that they wrote."""

from __future__ import annotations

from collections.abc import Iterable

from tests.pipeline.judge import Ledger
from tests.pipeline.topics import ORDERS
from txnlog_testing.checker import Event, EventType, Send

__all__ = ["ledger_of"]


def ledger_of(history: Iterable[Event]) -> Ledger:
    """Return which records were committed, given up, and of which nobody knows."""
    known: dict[int, EventType] = {}
    under_way: dict[str, list[int]] = {}
    for event in history:
        if event.type is EventType.INVOKE:
            sent = [
                int(one.value) for one in event.value or () if isinstance(one, Send) and one.key == ORDERS
            ]
            under_way[event.process] = sent
            known.update(dict.fromkeys(sent, EventType.INFO))
        else:
            known.update(dict.fromkeys(under_way.pop(event.process, ()), event.type))
    return Ledger(
        committed=frozenset(n for n, type_ in known.items() if type_ is EventType.OK),
        given_up=frozenset(n for n, type_ in known.items() if type_ is EventType.FAIL),
        unknown=frozenset(n for n, type_ in known.items() if type_ is EventType.INFO),
    )
