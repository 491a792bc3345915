"""A log of two topics, whose every entry is held against the invariants."""

from __future__ import annotations

from tests.unit.core.full_state import checkpoint_of
from tests.unit.core.memory_log import ORDERS, Log, rows
from txnformat.core.assemble import assemble
from txnformat.core.fold import apply
from txnformat.core.intents import Action, EnableFeatures
from txnformat.core.invariants import check_state, check_whole
from txnformat.core.snapshot.codec import decode_snapshot, encode_snapshot
from txnformat.core.state import LIFECYCLE
from txnformat.types import TopicPartition
from txnlog_testing.strategies import make_append, make_topic

__all__ = ["AUDIT", "AUDIT_KEY", "KEY", "Checked", "both", "log_of"]

AUDIT = make_topic("audit")
KEY, AUDIT_KEY = TopicPartition(ORDERS.topic_id, 0), TopicPartition(AUDIT.topic_id, 0)


class Checked(Log):
    """A log whose every entry keeps the invariants, and whose states are the same from a snapshot."""

    def commit(self, action: Action) -> object:  # type: ignore[override]
        intent = self.intent(action)
        assembled = assemble(self.state, [intent], store_time_ms=1_700_000_000_000, write_id="write")
        if assembled.entry is not None:
            after = apply(self.state, assembled.entry, assembled.sha256)
            assert check_state(self.state, assembled.entry, after) == []
            assert check_whole(after) == []
            data = encode_snapshot(after)
            self.state = decode_snapshot(data, checkpoint_of(after, data), after.log_id)
            assert check_whole(self.state) == []
        return assembled.verdicts[intent.intent_id]


def log_of(*actions: Action) -> Checked:
    return Checked(ORDERS, AUDIT, EnableFeatures((LIFECYCLE,)), *actions)


def both(sequence: int = 0, content: str = "rows") -> tuple[object, ...]:
    return (*rows(sequence, 2, content), make_append(AUDIT, {0: (sequence, 2)}, content=content))
