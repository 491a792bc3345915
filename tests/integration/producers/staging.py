"""Records staged for a producer's transaction from outside of it."""

from __future__ import annotations

from tests.integration.clients.failing import rows
from txnformat.core.intents import ProducerRef, Write
from txnformat.log import TxnLog
from writers.upload import TopicUpload, topic_append, with_batch_table

__all__ = ["stage"]


def stage(log: TxnLog, ref: ProducerRef, *numbers: int, topic: str = "t", partition: int = 0) -> None:
    """Stage records as somebody else than the producer, who knows the log only."""
    state = log.refresh()
    found = state.topic(topic)
    files = TopicUpload(
        log.store, log.committer.ids, directory=found.directory, schema=found.schema, born=max(state.entry, 0)
    )
    files.add(partition, rows(*numbers))
    owner = state.transactional_ids[ref.transactional_id or ""]
    window = {
        key.partition: one for key, one in owner.staged_sequences.items() if key.topic_id == found.topic_id
    }
    first = window[partition][-1].last_sequence + 1 if partition in window else 0
    append = topic_append(found.topic_id, found.partitions, files.finish(), {partition: first})
    staged = with_batch_table(log.store, log.committer.ids, 0, [append], 0)
    log.committer.commit(log.committer.intend(Write(ref, staged, deferred=True)))
