"""Consumer: reads topics on and on, as they grow, from positions that it keeps.

This is what users call: it checks what is asked. How it stands and waits is in :mod:`writers.reading`; what is fetched,
and in which turn, in :mod:`writers.fetching`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from txnformat.errors import InvalidInputError, InvalidTransactionStateError
from txnformat.log import TxnLog
from txnformat.time_lookup import microseconds_of
from txnformat.types import IsolationLevel, TopicPartition
from writers.consumer_settings import ConsumerSettings, OffsetReset
from writers.ownership import OneThread
from writers.positions import Names, as_pairs, check_offset, named_partitions
from writers.reading import Reading

__all__ = ["Consumer"]

TIMEOUT_MS = 1_000
"""How long a poll waits for records unless it is told otherwise."""


class Consumer:
    """Reads partitions of topics, in the order of their offsets, as far as its isolation level allows.

    Of one thread at a time: a call while another thread's is under way raises InvalidTransactionStateError of kind
    ``concurrent-use``. A process that was forked since it was made cannot use it (kind ``forked``), and ``close`` does
    nothing there.

    Parameters
    ----------
    log : TxnLog
        Where from.
    isolation : str
        "read_committed": up to the last stable offset, without aborted records; nothing is buffered that may still be
        aborted. "read_uncommitted": everything, up to the end.
    auto_offset_reset : str
        Where a partition without a position is begun: "earliest", "latest" (as of then), or "none": it is an error.
    max_poll_records : int
        Most records of a batch.
    columns : sequence of str, optional
        What batches have: names of the topics' own and of metadata columns. By default all own ones, then ``_topic``,
        ``_partition``, ``_offset`` and ``_timestamp``.

    Notes
    -----
    The constructor does no input or output. Requests: a look at the log is 1 GET when nothing is new, else 1 more for
    each new entry; a poll that returns records costs the column chunks that it asks for, each footer once, and, once a
    second at most, a look.
    """

    def __init__(
        self,
        log: TxnLog,
        *,
        isolation: str | IsolationLevel = IsolationLevel.READ_COMMITTED,
        auto_offset_reset: str | OffsetReset = OffsetReset.EARLIEST,
        max_poll_records: int = 500,
        columns: Sequence[str] | None = None,
    ) -> None:
        self.settings = ConsumerSettings(
            isolation=isolation,  # type: ignore[arg-type]  # checked and converted there, as the others
            auto_offset_reset=auto_offset_reset,  # type: ignore[arg-type]
            max_poll_records=max_poll_records,
            columns=columns,  # type: ignore[arg-type]
        )
        if not isinstance(log, TxnLog):
            raise InvalidInputError(
                f"{log!r:.80} is not a log",
                kind="not-a-log",
                hint="open it first: Consumer(TxnLog.open(path), …)",
            )
        self._log = log
        self._lock = OneThread("consumer")
        self._reading = Reading(log, self.settings)
        self._is_closed = False

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else f"{len(self._reading.assigned)} partitions"
        return f"{type(self).__name__}({self._log.url!r}, {state})"

    def __reduce__(self) -> Any:
        # Pickle would say that a lock inside cannot be pickled, and copy would share all of it.
        raise InvalidInputError(
            f"{self!r:.200} cannot be pickled or copied: a consumer stays in the process that made it",
            kind="not-picklable",
            hint="make a consumer in the process that reads; give it the path of the log",
        )

    # --- what is read ------------------------------------------------------------------------------------------------

    def assign(self, topic_partitions: Iterable[Names]) -> None:
        """Read exactly these partitions. Requests: a look.

        A partition that was assigned before keeps its position and goes on; none: nothing is read any more.

        Parameters
        ----------
        topic_partitions : iterable of (str, int)
            Topics and partitions, as in ``[("orders", 0), ("orders", 1)]``.

        Raises
        ------
        InvalidInputError, NotFoundError
            No such pairs; no such topics, partitions or columns. Nothing has changed.
        InvalidTransactionStateError
            Kind ``already-subscribed``: call :meth:`unsubscribe` first.
        """
        with self._open() as reading:
            if reading.topics:
                raise _both("it is subscribed to topics", "already-subscribed")
            pairs = as_pairs(topic_partitions)
            state = reading.look()
            named = named_partitions(state, pairs)
            reading.check_columns(state.topic(name) for name in dict.fromkeys(name for name, _ in named))
            reading.replace(named.values(), state)

    def subscribe(self, topics: Iterable[str]) -> None:
        """Read all partitions of these topics, also those that they get later: those from their beginning on.

        Requests: a look.

        Raises
        ------
        InvalidInputError, NotFoundError
            Not a list of names; no such topics or columns. Nothing has changed.
        InvalidTransactionStateError
            Kind ``already-assigned``: call :meth:`unsubscribe` first.
        """
        with self._open() as reading:
            if reading.assigned and not reading.topics:
                raise _both("partitions are assigned to it", "already-assigned")
            names = _topic_names(topics)
            state = reading.look()
            found = [state.topic(name) for name in names]
            reading.check_columns(found)
            reading.topics = frozenset(topic.topic_id for topic in found)
            reading.replace(
                [
                    TopicPartition(topic.topic_id, number)
                    for topic in found
                    for number in range(topic.partitions)
                ],
                state,
            )

    def unsubscribe(self) -> None:
        """Read nothing any more, and forget all positions."""
        with self._open() as reading:
            reading.topics = frozenset()
            reading.replace((), self._log.state)

    def assignment(self) -> list[Names]:
        """Return what is read, by topic and partition."""
        with self._open() as reading:
            return [one.names for one in reading.in_order()]

    def poll(self, timeout_ms: int = TIMEOUT_MS, max_records: int | None = None) -> pa.RecordBatch | None:
        """Return the next records; None when there are none by then.

        Those of one topic, each partition's in the order of their offsets; partitions and topics take turns. Positions
        move behind what is returned, and past markers and aborted records.

        Parameters
        ----------
        timeout_ms : int
            How long to wait for records; 0 looks once.
        max_records : int, optional
            Most records, instead of ``max_poll_records``.

        Raises
        ------
        InvalidTransactionStateError
            Kind ``nothing-assigned``.
        OffsetOutOfRangeError
            A partition has no position, or none that is there, and ``auto_offset_reset`` is "none".
        CorruptDataError, StorageError
            Records cannot be read: positions are as before, and the other partitions have the next turns.
        """
        with self._open() as reading:
            _check_count("timeout_ms", timeout_ms, 0)
            if max_records is not None:
                _check_count("max_records", max_records, 1)
            if not reading.assigned:
                raise InvalidTransactionStateError(
                    "the consumer has nothing to read",
                    kind="nothing-assigned",
                    hint="call subscribe or assign first",
                )
            return reading.poll(timeout_ms, max_records or self.settings.max_poll_records)

    def poll_dicts(
        self, timeout_ms: int = TIMEOUT_MS, max_records: int | None = None
    ) -> list[dict[str, Any]]:
        """Return the next records as dicts by column name; none: an empty list. Otherwise as :meth:`poll`."""
        batch = self.poll(timeout_ms, max_records)
        found: list[dict[str, Any]] = [] if batch is None else batch.to_pylist()
        return found

    def batches(self, max_records: int | None = None) -> Iterator[pa.RecordBatch]:
        """Yield batches until there is nothing left: poll without waiting, again and again."""
        while (batch := self.poll(0, max_records)) is not None:
            yield batch

    # --- where ------------------------------------------------------------------------------------------------------

    def position(self, topic: str, partition: int) -> int:
        """Return the offset that a partition goes on from.

        Raises
        ------
        InvalidInputError
            Kind ``not-assigned``.
        OffsetOutOfRangeError
            As for :meth:`poll`.
        """
        with self._open() as reading:
            (one,) = reading.chosen([(topic, partition)])
            return reading.placed(one, self._log.state)

    def positions(self) -> dict[Names, int]:
        """Return the offset that each partition goes on from; otherwise as :meth:`position`."""
        with self._open() as reading:
            state = self._log.state
            return {one.names: reading.placed(one, state) for one in reading.in_order()}

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """Go on from another offset. Requests: none, or a look when the offset is not known to be there.

        Raises
        ------
        InvalidInputError
            Kind ``invalid-offset``: it is negative, or no whole number; kind ``not-assigned``.
        OffsetOutOfRangeError
            It lies outside of what the isolation level allows to read.
        """
        with self._open() as reading:
            (one,) = reading.chosen([(topic, partition)])
            reading.seek(one, check_offset(offset))

    def seek_to_beginning(self, *topic_partitions: Names) -> None:
        """Go on from the first records of these partitions; of all, if none is named."""
        with self._open() as reading:
            for one in reading.chosen(topic_partitions):
                one.seek(reading.ends(one, self._log.state)[0])

    def seek_to_end(self, *topic_partitions: Names) -> None:
        """Go on from the end of these partitions as it is now; of all, if none is named. Requests: a look.

        At ``read_committed`` it is the last stable offset.
        """
        with self._open() as reading:
            chosen, state = reading.chosen(topic_partitions), reading.look()
            for one in chosen:
                one.seek(reading.ends(one, state)[1])

    def seek_to_time(self, when: Any, *topic_partitions: Names) -> None:
        """Go on from the first record at or after a time; from the end, where there is none.

        Requests: those of :meth:`offsets_for_times`.

        Parameters
        ----------
        when : datetime.datetime or int
            A naive datetime is UTC; an int is milliseconds since the epoch.
        *topic_partitions
            All, if none is named.
        """
        with self._open() as reading:
            time_us = microseconds_of(when)
            chosen, state = reading.chosen(topic_partitions), reading.look()
            found = [reading.first_at(one.key, state, time_us) for one in chosen]
            for one, offset in zip(chosen, found, strict=True):
                one.seek(reading.ends(one, state)[1] if offset is None else offset)

    def offsets_for_times(self, times: Mapping[Names, Any]) -> dict[Names, int | None]:
        """Return of each partition the first offset whose record is at or after a time; None where there is none.

        As Kafka's: a record's time is the topic's timestamp column, else the time of its append; what the isolation
        level does not allow to read does not count, aborted records do. The partitions need not be assigned.

        Parameters
        ----------
        times : mapping of (str, int) to datetime.datetime or int
            As for :meth:`seek_to_time`.

        Notes
        -----
        Requests: a look; on a topic that declares a timestamp column, that column of one batch for each partition.
        """
        with self._open() as reading:
            if not isinstance(times, Mapping):
                raise InvalidInputError(
                    f"{times!r:.80} is not a mapping of partitions to times",
                    kind="invalid-partitions",
                    hint='as in {("orders", 0): datetime.datetime(2026, 1, 1)}',
                )
            pairs = as_pairs(times)
            wanted = {names: microseconds_of(when) for names, when in times.items()}
            state = reading.look()
            named = named_partitions(state, pairs)
            return {names: reading.first_at(key, state, wanted[names]) for names, key in named.items()}

    def lag(self) -> dict[Names, int]:
        """Return of each partition how many records are still to come: those that can be read now, exactly counted.

        Markers and aborted records do not count, nor does what lies behind the last stable offset at
        ``read_committed``.

        Requests: a look, and 1 GET, kept afterwards, for each partition whose position lies inside a sealed segment.
        """
        with self._open() as reading:
            return reading.lag()

    # --- pausing and closing -----------------------------------------------------------------------------------------

    def pause(self, *topic_partitions: Names) -> None:
        """Return no records of these partitions (all, if none is named) until they are resumed; positions stay."""
        with self._open() as reading:
            for one in reading.chosen(topic_partitions):
                one.is_paused = True

    def resume(self, *topic_partitions: Names) -> None:
        """Go on with partitions that were paused; with all, if none is named."""
        with self._open() as reading:
            for one in reading.chosen(topic_partitions):
                one.is_paused = False

    def paused(self) -> list[Names]:
        """Return the partitions that are paused."""
        with self._open() as reading:
            return [one.names for one in reading.in_order() if one.is_paused]

    def close(self) -> None:
        """Let go of everything. Idempotent; every other call then raises, of kind ``consumer-closed``."""
        if self._lock.is_foreign:
            return
        with self._lock:
            for one in self._reading.assigned.values():
                one.drop()
            self._is_closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def _open(self) -> Iterator[Reading]:
        """Let one thread use what is open."""
        with self._lock:
            if self._is_closed:
                raise InvalidTransactionStateError(
                    "the consumer is closed", kind="consumer-closed", hint="make a new one"
                )
            yield self._reading


def _both(what: str, kind: str) -> InvalidTransactionStateError:
    return InvalidTransactionStateError(
        f"a consumer is either subscribed or assigned, and {what}",
        kind=kind,
        hint="call unsubscribe first, or make another consumer",
    )


def _topic_names(topics: object) -> list[str]:
    if isinstance(topics, str) or not isinstance(topics, Iterable):
        raise InvalidInputError(
            f"topics is {topics!r:.80}, not a list of names",
            kind="invalid-topics",
            hint='name them as in ["orders"]',
        )
    names = list(topics)
    odd = [name for name in names if not isinstance(name, str)]
    if odd or not names:
        raise InvalidInputError(
            [f"{name!r:.80} is not the name of a topic" for name in odd] or "topics is empty",
            kind="invalid-topics",
            hint='name them as in ["orders"]',
        )
    return list(dict.fromkeys(names))


def _check_count(name: str, value: object, minimum: int) -> None:
    if type(value) is not int or value < minimum:
        raise InvalidInputError(
            f"{name} is {value!r:.80}, not a whole number from {minimum} on", kind="invalid-poll"
        )
