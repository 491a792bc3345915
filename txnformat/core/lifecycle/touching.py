"""Which undecided transactions touch a topic. Pure."""

from __future__ import annotations

from txnformat.core.state import LogState

__all__ = ["touching"]


def touching(state: LogState, topic_id: str) -> list[str]:
    """Return the transactional ids, ascending, of the undecided transactions with records, positions or acknowledgements in a topic."""
    return sorted(name for name in state.undecided if _touches(state, name, topic_id))


def _touches(state: LogState, name: str, topic_id: str) -> bool:
    known = state.transactional_ids[name]
    return (
        any(key.topic_id == topic_id for key in known.partitions)
        or any(flush.topic_id == topic_id for flush in known.staged)
        or any(of == topic_id for of, _ in known.subscriptions)
        or any(
            not isinstance(key, str) and key.topic_id == topic_id
            for group in known.groups
            for key in state.groups[group].pending[name]
        )
    )
