"""How a consumer reads and commits its group's positions: the part of its methods that needs a group."""

from __future__ import annotations

from collections.abc import Iterable

from txnformat.clock import Instant
from txnformat.consumers.group_offsets import GroupMetadata, Offsets, group_offsets
from txnformat.consumers.membership import Membership
from txnformat.consumers.placing import Placing
from txnformat.consumers.positions import Names, as_pairs, named_partitions
from txnformat.consumers.reading import Reading
from txnformat.consumers.settings import ConsumerSettings, OffsetReset
from txnformat.core.intents import GroupOffsets
from txnformat.errors import InvalidInputError, InvalidTransactionStateError, NotFoundError
from txnformat.types import TopicPartition

__all__ = ["Committing", "nothing_to_read"]


class Committing(Placing):
    """Committing and fetching positions of a :class:`~txnformat.consumers.consumer.Consumer`, which all users
    see it as.
    """

    settings: ConsumerSettings
    _reading: Reading
    _group: Membership | None
    _touched: Instant
    """When positions were last committed, or begun."""

    @property
    def group_metadata(self) -> GroupMetadata:
        """The group and the generation in which this consumer reads: what a producer commits offsets with."""
        return self._member().metadata

    def committed(self, topic: str, partition: int) -> int | None:
        """Return the offset that the group has committed, once it is not pending in a transaction; None:
        none.

        Requests: a look, and more while it is pending.

        Raises
        ------
        ConflictError
            Kind ``offsets-pending``: it is, still after ``default_api_timeout_ms``.
        InvalidTransactionStateError
            Kind ``no-group``.
        """

        def body(reading: Reading) -> int | None:
            group = self._member()
            (key,) = self._named([(topic, partition)])
            return group.fetch([key]).get(key)

        return self._ask("committed", body)

    def commit(self, offsets: Offsets | None = None) -> None:
        """Commit positions in the group's name. Requests: 1 entry; none when there are no positions.

        Parameters
        ----------
        offsets : mapping of (str, int) to int or OffsetAndMetadata, optional
            The *next* offset to read of each partition; by default where the consumer stands in all that it
            reads.

        Raises
        ------
        ConflictError
            Kind ``member-fenced``: a newer consumer has joined the group; nothing was committed. Stop. Kind
            ``offsets-held``: a prepared transaction holds what it has compared.
        OffsetOutOfRangeError
            An offset lies behind the last stable offset (at ``read_uncommitted``: behind the end).
        CommitStateUnknownError
            They may be committed. The same commit may be repeated: it lands once.
        InvalidInputError, NotFoundError, StorageError
            Nothing was committed.

        Notes
        -----
        A commit that is interrupted may be repeated, too. Records that an interrupted poll has not handed out
        are not behind any position, so no commit covers them.
        """

        def body(reading: Reading) -> None:
            group = self._member()
            texts: dict[TopicPartition, str] = {}
            positions = reading.positions()
            if offsets is not None:
                given = group_offsets(self._log, group.metadata, offsets)
                texts = {one.key: one.metadata for one in given.offsets}
                positions = {one.key: one.offset for one in given.offsets}
            if positions:
                group.commit(group.offsets(positions, texts, compared=False))
            self._touched = self._now()

        self._ask("commit", body)

    def seek_to_committed(self) -> None:
        """Go back to where the group has committed, in all that is read: after a transaction that was
        aborted.

        Where nothing is committed, a partition is begun anew as ``auto_offset_reset`` says; one that its
        topic got later from its beginning.

        Requests and errors: as :meth:`committed`.
        """

        def body(reading: Reading) -> None:
            starts = self._member().fetch(reading.assigned)
            for key, one in reading.assigned.items():
                one.seek(starts.get(key, reading.later.get(key)))
            if self.settings.auto_offset_reset is not OffsetReset.NONE:
                for one in reading.assigned.values():
                    reading.placed(one, self._log.state)

        self._change("seek_to_committed", body)

    def group_offsets(self, log_id: str) -> GroupOffsets:
        """Return the positions that have changed, for a producer's transaction; compared with those last
        committed.

        ``txn.send_offsets(consumer)`` calls it.

        Raises
        ------
        InvalidInputError
            Kind ``other-log``: the group is not in the log that the producer writes to.
        """

        def body(reading: Reading) -> GroupOffsets:
            group = self._member()
            if log_id != group.log.log_id:
                raise InvalidInputError(
                    "the consumer's group is not in the log that the producer writes to",
                    kind="other-log",
                    hint="make the consumer with offsets_log= that log: positions are then committed there",
                    log_id=log_id,
                    group_log_id=group.log.log_id,
                )
            positions = reading.positions()
            if not positions:
                raise nothing_to_read()
            return group.offsets(group.changed(positions) or positions, {}, compared=True)

        return self._ask("group_offsets", body)

    def offsets_committed(self, offsets: GroupOffsets) -> None:
        """Take note that a transaction has committed positions. A producer calls it."""
        self._member().note(offsets)

    # --- how they are done ----------------------------------------------------------------------------------

    def _now(self) -> Instant:
        return self._log.committer.clock.now()

    def _member(self) -> Membership:
        if self._group is None:
            raise InvalidTransactionStateError(
                "the consumer has no group",
                kind="no-group",
                hint='name a group: Consumer(log, "a-group")',
            )
        return self._group

    def _named(self, pairs: Iterable[Names]) -> list[TopicPartition]:
        """Return partitions by their names, whether they are read or not."""
        checked = as_pairs(pairs)
        try:
            return list(named_partitions(self._log.state, checked).values())
        except NotFoundError:
            return list(named_partitions(self._log.refresh(), checked).values())

    def _commit_changed(self) -> None:
        """Commit positions without being told, if that is wanted, any has changed, and no newer consumer has
        taken over.
        """
        group = self._group
        if group is None or not self.settings.enable_auto_commit:
            return
        if group.generation is not None and not group.is_member():
            return
        try:
            self._commit_there(group)
        except NotFoundError as error:
            if error.kind != "topic-gone":
                raise
            self._commit_there(group)  # the log knows by now which topics were deleted

    def _commit_there(self, group: Membership) -> None:
        """Commit the positions that have changed, but for those in topics that were deleted: reads tell of
        these.
        """
        positions, topics = self._reading.positions(), self._log.state.topics
        changed = group.changed({key: one for key, one in positions.items() if key.topic_id in topics})
        if changed:
            group.commit(group.offsets(changed, {}, compared=False))
            self._touched = self._now()


def nothing_to_read() -> InvalidTransactionStateError:
    """Return what a consumer without partitions is told."""
    return InvalidTransactionStateError(
        "the consumer has nothing to read", kind="nothing-assigned", hint="call subscribe or assign first"
    )
