"""From the messages of tasks to the write that is committed: the same for a DataFrame and for a batch of a
stream.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from spark_datasource.worker.logs import COMMIT_TRIES_MAX
from spark_datasource.write.messages import Destination, TaskUpload, check_uploads
from spark_datasource.write.repeats import content_of, rows_of
from spark_datasource.write.routing import ROUTED_TOPICS_MAX
from txnformat.core.intents import AppRef, CommitResult, Intent, Write
from txnformat.core.operations import CreateTopic
from txnformat.core.records.batch_table import BATCHES_IN_ENTRY_MAX
from txnformat.core.state import LogState
from txnformat.core.topics.settings import value_of
from txnformat.errors import CommitStateUnknownError, InvalidInputError, StorageError
from txnformat.log import TxnLog
from txnformat.persistent import replace
from txnformat.segments.segment_object import together
from txnformat.types import TopicPartition
from writers.job import Delegation
from writers.settings import EMBED_BYTES
from writers.upload import Uploaded, combine, topic_append, upload_held, with_batch_table

__all__ = ["Target", "commit_intent", "write_of"]


UPLOADS_AT_ONCE = 16
"""Files that tasks have handed over, and that the driver uploads at once."""


@dataclass(frozen=True, slots=True)
class Target:
    """A topic of a write, as the log has it, or is to get it."""

    topic_id: str
    destination: Destination
    """The required form of the tasks' files."""
    partition_count: int
    """Number of partitions of the topic now; the tasks may have known of fewer."""
    create: CreateTopic | None
    """The topic is missing: created in the entry that appends."""


def write_of(
    log: TxnLog,
    tasks: Sequence[TaskUpload],
    born: int,
    targets: Mapping[str, Target],
    app: AppRef | None,
    advice: str,
    delegation: Delegation | None = None,
) -> Write:
    """Return what to commit.

    Requests: 1 PUT above 1,000 batches, else none; with a ``delegation`` 1 PUT. 1 PUT for each file that was
    handed over and is not embedded, several at a time.

    ``born``: entry that had been folded before any upload. ``targets``: of all topics of the tasks, and of
    one that is made even without rows. ``app``: the version that the write stands for; it gets the content of
    the rows. ``advice``: what to do about too many topics. Raises InternalError of kind
    ``invalid-commit-message``: the messages say what no task of this write can say; InvalidInputError of kind
    ``unroutable-rows``: too many topics.
    """
    if len(targets) > ROUTED_TOPICS_MAX:
        raise InvalidInputError(
            f"the rows name {len(targets):,} topics; one write may go to {ROUTED_TOPICS_MAX:,} at most",
            kind="unroutable-rows",
            hint=f"nothing was written; {advice}",
        )
    destinations = {name: target.destination for name, target in targets.items()}
    uploads = _settled(log, check_uploads(tasks, born, destinations, compared=app is not None))
    combined = [
        (targets[name], combine(found)) for name, found in uploads if any(one.batches for one in found)
    ]
    appends = with_batch_table(
        log.store,
        log.committer.ids,
        born,
        [
            topic_append(
                target.topic_id,
                target.partition_count,
                found,
                _sequences(log.state, delegation, target, found),
            )
            for target, found in combined
        ],
        # A stage has its batches in a table, however few.
        BATCHES_IN_ENTRY_MAX if delegation is None else 0,
    )
    if app is not None:
        ids = {name: target.topic_id for name, target in targets.items()}
        app = replace(app, content=content_of(rows_of(tasks) or {}, ids))
    create = tuple(target.create for target in targets.values() if target.create is not None)
    write = Write(appends=appends, app=app, create=create)
    if delegation is None:
        return write
    return replace(write, producer=delegation.producer, follows=delegation.follows, deferred=True)


def _settled(log: TxnLog, uploads: Sequence[tuple[str, list[Uploaded]]]) -> list[tuple[str, list[Uploaded]]]:
    """Return the uploads with the files that tasks have handed over uploaded, where the entry cannot have
    them: of topics with other files, or if they are too many.
    """
    handed = sum(one.size for _, found in uploads for one in found if one.payload)
    many = (
        not log.embeds
        or handed > EMBED_BYTES
        or sum(len(one.batches) for _, found in uploads for one in found) > BATCHES_IN_ENTRY_MAX
    )
    settled = []
    for name, found in uploads:
        known = log.state.topic_ids.get(name)
        forbidden = known is not None and value_of(log.state.topics[known].settings, "embed") != "true"
        if many or forbidden or not all(one.payload for one in found if one.files):
            found = together(
                lambda one: (
                    upload_held(log.store, log.committer.ids, one, log.committer.clock)
                    if one.payload
                    else one
                ),
                found,
                threads=UPLOADS_AT_ONCE,
            )
        settled.append((name, found))
    return settled


def _sequences(
    state: LogState, delegation: Delegation | None, target: Target, uploaded: Uploaded
) -> dict[int, int] | None:
    """Return the sequence of the first record of each partition: behind what the transaction has staged so
    far.
    """
    if delegation is None:
        return None
    owner = state.transactional_ids.get(delegation.producer.transactional_id or "")
    # Of another epoch, or staged already: the commit tells, whatever the numbers are.
    staged = {} if owner is None else owner.staged_sequences
    bases = {}
    for partition in {batch.partition for batch in uploaded.batches}:
        window = staged.get(TopicPartition(target.topic_id, partition))
        bases[partition] = window[-1].last_sequence + 1 if window else 0
    return bases


def commit_intent(log: TxnLog, intent: Intent) -> CommitResult:
    """Commit an intent; while the outcome is unknown hand the same one in again, which never applies it
    twice.
    """
    unknown: CommitStateUnknownError | None = None
    for _ in range(COMMIT_TRIES_MAX):
        try:
            return log.committer.commit(intent)
        except CommitStateUnknownError as error:
            unknown = error
        except StorageError as error:
            # A refusal is about this try: what was sent before may have landed, or still land.
            raise unknown or error from None
    assert unknown is not None
    raise unknown
