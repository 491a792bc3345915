"""Recording histories: JSON lines, one file per process; read and merged by time.

    with HistoryWriter("history/writer-1.jsonl") as history:
        with history.operation("w1", "txn", [Send("orders/0", 17)], transaction=TransactionTag("etl-1",
        epoch=3)) as op:
            producer.commit()
            op.ok()

A line is written in one piece when its event happens. A process that is killed leaves a file that can be
read, but for a last line that may be cut, which is passed over: its operation is unknown then, as that of any
process that died.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from txnformat.errors import InvalidInputError
from txnlog_testing.checker.codec import event_from_json, event_to_json
from txnlog_testing.checker.vocabulary import (
    Event,
    EventType,
    Function,
    Key,
    MicroOperation,
    TransactionTag,
    Value,
    invalid,
    partition_key,
)

__all__ = ["HistoryWriter", "Recording", "files_of", "merge_histories", "read_history", "records_of"]

SUFFIX = ".jsonl"


class HistoryWriter:
    """Appends events to a file of one process. Any of its threads may write.

    Parameters
    ----------
    path : str or Path
        Of the file; its folder is made. Each process has a file of its own: see :meth:`in_directory`. An
        unfinished last line of a dead process is cut off. All writers of a history share the clock; the
        default is the machine's since its start, which all processes on it have in common.
    """

    def __init__(self, path: str | Path, *, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._clock = clock
        self._lock = threading.Lock()
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        _cut_last_line(self._file)

    @classmethod
    def in_directory(cls, folder: str | Path, *, clock: Callable[[], int] = time.monotonic_ns) -> Self:
        """Return a writer to a new file of this process in a folder, which all processes of a history
        share.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(1_000_000):
            path = folder / f"{os.getpid()}-{number}{SUFFIX}"
            try:
                os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0o644))
            except FileExistsError:
                continue
            return cls(path, clock=clock)
        raise invalid("the folder is full of histories of this process id", folder=folder)

    def now_ns(self) -> int:
        """Return the time, as events have it."""
        return self._clock()

    def write(self, event: Event) -> None:
        """Append an event as it is."""
        line = json.dumps(event_to_json(event), ensure_ascii=False, separators=(",", ":")) + "\n"
        with self._lock:
            os.write(self._file, line.encode())

    def event(
        self, process: str, f: Function | str, type_: EventType | str = EventType.OK, **members: Any
    ) -> Event:
        """Append an event that happens now, such as a ``crash`` or an ``assign``, and return it."""
        event = Event(process=process, f=Function(f), type=EventType(type_), time_ns=self._clock(), **members)
        self.write(event)
        return event

    def operation(
        self,
        process: str,
        f: Function | str,
        value: Iterable[MicroOperation] = (),
        *,
        transaction: TransactionTag | None = None,
        interleaved: bool = False,
        unordered: bool = False,
        fails: tuple[type[BaseException], ...] = (),
    ) -> Recording:
        """Append the ``invoke`` of an operation, and return what takes its completion.

        Parameters
        ----------
        process : str
        f : Function or str
        value : iterable of MicroOperation
            What is going to be sent and committed.
        transaction : TransactionTag, optional
        interleaved, unordered : bool
            See :class:`Event`.
        fails : tuple of exception classes
            Those that say that the operation definitely did not happen; used by the ``with`` statement.
        """
        invoked = self.event(
            process,
            f,
            EventType.INVOKE,
            value=tuple(value) or None,
            transaction=transaction,
            interleaved=interleaved,
            unordered=unordered,
        )
        return Recording(self, invoked, fails)

    def close(self) -> None:
        """Close the file. Twice is once."""
        with self._lock:
            if self._file >= 0:
                os.close(self._file)
                self._file = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Recording:
    """An operation that is under way: exactly one of ``ok``, ``fail`` and ``info`` ends it.

    As a context manager it is ended, unless the block did so, by ``ok`` with what :meth:`add` was given; by
    ``fail``, if an exception of ``fails`` leaves the block; by ``info`` with any other. The exception goes
    on.
    """

    def __init__(self, writer: HistoryWriter, invoked: Event, fails: tuple[type[BaseException], ...]) -> None:
        self._writer = writer
        self._fails = fails
        self._added: list[MicroOperation] = []
        self._rebalanced: list[Key] = []
        self.invoked = invoked
        self.transaction = invoked.transaction
        """May be set before the end, where it is known only then."""
        self.is_ended = False

    def add(self, *micro: MicroOperation) -> None:
        """Note what has happened.

        Sends that are noted replace those that were invoked; so do commits of offsets.
        """
        self._added += micro

    def rebalanced(self, *keys: Key) -> None:
        """Note that keys came or went while the operation was under way."""
        self._rebalanced += keys

    def ok(self, value: Sequence[MicroOperation] | None = None) -> None:
        """Say that it happened: what is given is all that did; by default, what was invoked and added."""
        self._end(EventType.OK, value, None)

    def fail(self, error: object = None, value: Sequence[MicroOperation] | None = None) -> None:
        """Say that it definitely did not happen. The records that it polled count all the same."""
        self._end(EventType.FAIL, value, error)

    def info(self, error: object = None, value: Sequence[MicroOperation] | None = None) -> None:
        """Say that it is unknown whether it happened."""
        self._end(EventType.INFO, value, error)

    def _end(self, type_: EventType, value: Sequence[MicroOperation] | None, error: object) -> None:
        if self.is_ended:
            raise invalid("an operation ends once", process=self.invoked.process, f=self.invoked.f)
        self.is_ended = True
        said = tuple(value) if value is not None else None
        if said is None and self._added:
            noted = {type(one) for one in self._added}
            said = (*(one for one in self.invoked.value or () if type(one) not in noted), *self._added)
        self._writer.event(
            self.invoked.process,
            self.invoked.f,
            type_,
            value=said,
            transaction=self.transaction,
            interleaved=self.invoked.interleaved,
            unordered=self.invoked.unordered,
            rebalanced=tuple(self._rebalanced),
            error=None if error is None else _shown(error),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, cls: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if self.is_ended:
            return
        if error is None:
            self.ok()
        elif isinstance(error, self._fails):
            self.fail(error)
        else:
            self.info(error)


def _shown(error: object) -> str:
    name = f"{type(error).__name__}: " if isinstance(error, BaseException) else ""
    return f"{name}{error}"[:300]


def _cut_last_line(file: int) -> None:
    """Cut off what follows the last end of a line."""
    size = os.fstat(file).st_size
    end, step = size, 1 << 16
    while end > 0:
        start = max(0, end - step)
        found = os.pread(file, end - start, start).rfind(b"\n")
        if found >= 0:
            end = start + found + 1
            break
        end = start
    if end < size:
        os.ftruncate(file, end)


def records_of(rows: Iterable[Mapping[str, Any]], value: str) -> dict[Key, tuple[tuple[int, Value], ...]]:
    """Return the records of a :class:`Poll` from rows with the columns ``_topic``, ``_partition`` and
    ``_offset``.

    Parameters
    ----------
    rows : iterable of mapping
        As ``Consumer.poll_dicts`` returns them, ``pyarrow.Table.to_pylist`` or ``Row.asDict`` of Spark.
    value : str
        The column that names a record: strings or whole numbers.
    """
    found: dict[Key, list[tuple[int, Value]]] = {}
    for row in rows:
        key = partition_key(row["_topic"], row["_partition"])
        found.setdefault(key, []).append((row["_offset"], row[value]))
    return {key: tuple(records) for key, records in found.items()}


def read_history(path: str | Path) -> list[Event]:
    """Read a history: a file, or all ``*.jsonl`` of a folder.

    Raises
    ------
    InvalidInputError
        There is nothing, or a line is no event (kind ``invalid-history``): the message names file and line.
    """
    return merge_histories(files_of(path))


def files_of(path: str | Path) -> list[Path]:
    """Return the files of a history: one, or all ``*.jsonl`` of a folder.

    Raises
    ------
    InvalidInputError
        There are none (kind ``invalid-history``).
    """
    path = Path(path)
    files = sorted(path.glob(f"*{SUFFIX}")) if path.is_dir() else [path]
    if not files or not files[0].is_file():
        raise invalid("there is no history", path=path)
    return files


def merge_histories(paths: Iterable[str | Path]) -> list[Event]:
    """Return the events of several files by time, with their indexes.

    Events of one file stay in their order; of events at the same time those of an earlier file come first. A
    last line that its process did not finish is passed over.

    Raises
    ------
    InvalidInputError
        A line is no event; or the times of a file go back by more than threads can mix them up (1 s): another
        clock.
    """
    events: list[tuple[int, Event]] = []
    for path in paths:
        latest = None
        for event in _events(Path(path)):
            # Threads take the time before they take their turn to write.
            if latest is not None and event.time_ns < latest - 1_000_000_000:
                raise invalid("times go back", path=path, time_ns=event.time_ns, after=latest)
            latest = event.time_ns if latest is None else max(latest, event.time_ns)
            events.append((event.time_ns, event))
    events.sort(key=lambda pair: pair[0])
    return [replace(event, index=index) for index, (_, event) in enumerate(events)]


def _events(path: Path) -> Iterable[Event]:
    *lines, rest = path.read_bytes().split(b"\n")
    del rest  # empty, or a line that was not finished
    for number, line in enumerate(lines, start=1):
        try:
            yield event_from_json(json.loads(line))
        except ValueError as error:  # of JSON, of UTF-8, and InvalidInputError
            what = str(error) if isinstance(error, InvalidInputError) else "not JSON"
            raise invalid(f"{path}:{number}: {what}", line=line.decode(errors="replace")) from error
