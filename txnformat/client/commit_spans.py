"""The attributes of a commit's span."""

from __future__ import annotations

from collections.abc import Sequence

from txnformat.client.commit_counts import outcome_of
from txnformat.core.intents import CommitResult, Intent, Write
from txnformat.core.state import LogState
from txnformat.errors import TxnLogError
from txnformat.spans import Span

__all__ = ["tell"]


def tell(
    one: Span, state: LogState, intents: Sequence[Intent], answers: Sequence[CommitResult | TxnLogError]
) -> None:
    """Say in a span what was committed, and what came of it."""
    appends = [
        append for intent in intents if isinstance(intent.action, Write) for append in intent.action.appends
    ]
    named = {topic.topic_id: topic.name for topic in state.topics.values()} if appends else {}
    one.set(
        intents=len(intents),
        topics=sorted({named.get(append.topic_id, append.topic_id) for append in appends}),
        records=sum(part.records for append in appends for part in append.partitions),
        outcomes=sorted({outcome_of(answer).value for answer in answers}),
    )
    for answer in answers:
        if isinstance(answer, TxnLogError):
            one.failed(answer)
        else:
            one.set(entry=answer.entry)
