"""Where a consumer stands, and how it is told to go on from elsewhere: the part of its methods that groups do
not touch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TypeVar

from txnformat.consumers.positions import Names, as_pairs, check_offset, named_partitions
from txnformat.consumers.reading import Reading
from txnformat.errors import InvalidInputError, repr_of
from txnformat.log import TxnLog
from txnformat.moments import Moment, as_moment_us

__all__ = ["Placing"]

T = TypeVar("T")


class Placing(ABC):
    """Positions, seeking, lag and pausing of a :class:`~txnformat.consumers.consumer.Consumer`, which all
    users see it as.
    """

    _log: TxnLog

    @abstractmethod
    def _ask(self, name: str, body: Callable[[Reading], T]) -> T:
        """Do a call that changes no more than one thing."""

    @abstractmethod
    def _change(self, name: str, body: Callable[[Reading], T]) -> T:
        """Do a call that changes where the consumer stands."""

    def position(self, topic: str, partition: int) -> int:
        """Return the offset that a partition goes on from.

        Raises
        ------
        InvalidInputError
            Kind ``not-assigned``.
        OffsetOutOfRangeError
            As for :meth:`poll`.
        """
        names = [(topic, partition)]
        return self._ask(
            "position", lambda reading: reading.placed(reading.chosen(names)[0], self._log.state)
        )

    def positions(self) -> dict[Names, int]:
        """Return the offset that each partition goes on from; otherwise as :meth:`position`."""

        def body(reading: Reading) -> dict[Names, int]:
            state = self._log.state
            return {one.names: reading.placed(one, state) for one in reading.in_order()}

        return self._ask("positions", body)

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """Go on from another offset. Requests: none, or a look when the offset is not known to be there.

        Raises
        ------
        InvalidInputError
            Kind ``invalid-offset``: it is negative, or no whole number; kind ``not-assigned``.
        OffsetOutOfRangeError
            It lies outside of what the isolation level allows to read.
        """
        names = [(topic, partition)]
        self._change("seek", lambda reading: reading.seek(reading.chosen(names)[0], check_offset(offset)))

    def seek_to_beginning(self, *topic_partitions: Names) -> None:
        """Go on from the first records of these partitions; of all, if none is named."""

        def body(reading: Reading) -> None:
            for one in reading.chosen(topic_partitions):
                one.seek(reading.ends(one, self._log.state)[0])

        self._change("seek_to_beginning", body)

    def seek_to_end(self, *topic_partitions: Names) -> None:
        """Go on from the end of these partitions as it is now; of all, if none is named. Requests: a look.

        At ``read_committed`` it is the last stable offset.
        """

        def body(reading: Reading) -> None:
            chosen, state = reading.chosen(topic_partitions), reading.look()
            for one in chosen:
                one.seek(reading.ends(one, state)[1])

        self._change("seek_to_end", body)

    def seek_to_time(self, when: Moment, *topic_partitions: Names) -> None:
        """Go on from the first record at or after a time; from the end, where there is none.

        Requests: those of :meth:`offsets_for_times`.

        Parameters
        ----------
        when : datetime.datetime, str or int
            Without a zone it is UTC; text is ISO 8601; a number is milliseconds since the epoch.
        *topic_partitions
            All, if none is named.
        """
        time_us = as_moment_us(when, "when")

        def body(reading: Reading) -> None:
            chosen, state = reading.chosen(topic_partitions), reading.look()
            found = [reading.first_at(one.key, state, time_us) for one in chosen]
            for one, offset in zip(chosen, found, strict=True):
                one.seek(reading.ends(one, state)[1] if offset is None else offset)

        self._change("seek_to_time", body)

    def offsets_for_times(self, times: Mapping[Names, Moment]) -> dict[Names, int | None]:
        """Return of each partition the first offset whose record is at or after a time; None where there is
        none.

        As Kafka's: a record's time is the topic's timestamp column, else the time of its append; what the
        isolation level does not allow to read does not count, aborted records do. The partitions need not be
        assigned.

        Parameters
        ----------
        times : mapping of (str, int) to datetime.datetime, str or int
            As for :meth:`seek_to_time`.

        Notes
        -----
        Requests: a look; on a topic that declares a timestamp column, that column of one batch for each
        partition.
        """
        if not isinstance(times, Mapping):
            raise InvalidInputError(
                f"{repr_of(times, 80)} is not a mapping of partitions to times",
                kind="invalid-partitions",
                hint='as in {("orders", 0): datetime.datetime(2026, 1, 1)}',
            )
        pairs = as_pairs(times)
        wanted = {names: as_moment_us(when, "when") for names, when in times.items()}

        def body(reading: Reading) -> dict[Names, int | None]:
            state = reading.look()
            named = named_partitions(state, pairs)
            return {names: reading.first_at(key, state, wanted[names]) for names, key in named.items()}

        return self._ask("offsets_for_times", body)

    def lag(self) -> dict[Names, int]:
        """Return of each partition how many records are still to come: those that can be read now, exactly
        counted.

        Markers and aborted records do not count, nor does what lies behind the last stable offset at
        ``read_committed``.

        Requests: a look, and 1 GET, kept afterwards, for each partition whose position lies inside a sealed
        segment.
        """
        return self._ask("lag", lambda reading: reading.lag())

    # --- pausing --------------------------------------------------------------------------------------------

    def pause(self, *topic_partitions: Names) -> None:
        """Return no records of these partitions (all, if none is named) until they are resumed; positions
        stay.
        """

        def body(reading: Reading) -> None:
            for one in reading.chosen(topic_partitions):
                one.is_paused = True

        self._change("pause", body)

    def resume(self, *topic_partitions: Names) -> None:
        """Go on with partitions that were paused; with all, if none is named."""

        def body(reading: Reading) -> None:
            for one in reading.chosen(topic_partitions):
                one.is_paused = False

        self._change("resume", body)

    def paused(self) -> list[Names]:
        """Return the partitions that are paused."""
        return self._ask("paused", lambda reading: [one.names for one in reading.in_order() if one.is_paused])
