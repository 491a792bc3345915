"""The process in which ``verify(deep=True)`` decodes data files: what a file does to a decoder, it does to
this one only.

``txnformat.verify.deep_files`` starts it and reads its answers. Requests are pickles, which the parent makes;
answers are JSON, which cannot make the parent run anything. A thread reads requests for as long as there are
any, so the end of the parent ends this process at once.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import signal
import struct
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from txnformat.clock import SystemClock
from txnformat.store.base import ObjectStore
from txnformat.verify.files import check_patiently
from txnformat.verify.references import FileUse
from txnformat.verify.report import Record

try:
    import resource
except ImportError:  # no such limits there
    resource = None  # type: ignore[assignment,unused-ignore]

__all__ = ["AT_ONCE", "LENGTH", "Asked", "Limits", "Start", "check", "serve"]

AT_ONCE = 8
"""Files that the process holds at a time: their requests overlap."""

LENGTH = struct.Struct(">I")
"""The length of an answer, before its bytes."""

PARENT_LOOKED_FOR_S = 2.0
MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of the process."""

    memory_bytes: int = 6 * 1024 * MIB
    """Address space."""
    cpu_s: int = 60
    """Seconds of the processor for a file, and one more for each MiB that it has."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One file to be checked."""

    number: int
    use: FileUse
    size: int | None
    """Bytes of the object as listed; None when there is none."""
    schema: pa.Schema | None


@dataclass(frozen=True, slots=True)
class Start:
    """The first request."""

    parent: int
    """Process id."""
    limits: Limits
    open_store: Callable[[], ObjectStore]


Check = Callable[[ObjectStore, Asked], Record]


def check(store: ObjectStore, asked: Asked) -> Record:
    """Return the findings about a file."""
    key = asked.use.record.key
    sizes = {} if asked.size is None else {key: asked.size}
    return check_patiently(store, SystemClock(), asked.use, sizes, asked.schema, deep=True)


def serve(checking: Check = check) -> None:
    """Answer requests on stdin until there are no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that asked decides
    answers = os.dup(1)
    os.dup2(2, 1)  # what a library prints is no answer
    requests = sys.stdin.buffer
    start: Start = pickle.load(requests)
    threading.Thread(target=_end_with, args=(start.parent,), daemon=True).start()
    _bound(start.limits)
    store = start.open_store()
    lock = threading.Lock()

    def answer(document: dict[str, Any]) -> None:
        data = json.dumps(document).encode()
        with lock, os.fdopen(os.dup(answers), "wb") as file:
            file.write(LENGTH.pack(len(data)) + data)

    def work(asked: Asked) -> None:
        try:
            record = checking(store, asked)
        except MemoryError:
            answer({"number": asked.number, "ended": "memory"})
        except Exception as error:  # noqa: BLE001 - all of them are the file's
            answer({"number": asked.number, "ended": f"{type(error).__name__}: {error}"[:300]})
        else:
            problems = [asdict(problem) for problem in record.problems]
            answer({"number": asked.number, "problems": problems, "checked": dict(record.checked)})

    try:
        answer({"ready": True})
        pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="txnlog-verify")
        while True:
            asked: Asked = pickle.load(requests)
            _bound_time(start.limits.cpu_s + asked.use.record.size // MIB)
            pool.submit(work, asked)
    finally:
        os._exit(0)  # at once, whatever the threads do: their answers are read no more


def _end_with(parent: int) -> None:
    """End this process when its parent has ended: others may hold the pipe open that tells it, such as a fork
    of the parent.
    """
    never = threading.Event()
    while os.getppid() == parent:
        never.wait(PARENT_LOOKED_FOR_S)
    os._exit(0)


def _bound(limits: Limits) -> None:
    if resource is not None:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # it would hold rows and credentials
        _lower(resource.RLIMIT_AS, limits.memory_bytes)


def _bound_time(seconds: int) -> None:
    """Give the process so many more seconds of the processor, unless it has more left."""
    if resource is not None:
        used = resource.getrusage(resource.RUSAGE_SELF)
        end = int(used.ru_utime + used.ru_stime) + 1 + seconds
        soft, _ = resource.getrlimit(resource.RLIMIT_CPU)
        if soft == resource.RLIM_INFINITY or soft < end:
            _lower(resource.RLIMIT_CPU, end)


def _lower(what: int, wanted: int) -> None:
    """Set a limit, as far as the one that the system sets allows."""
    _, hard = resource.getrlimit(what)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    with contextlib.suppress(OSError, ValueError):  # macOS takes no limit of the address space
        resource.setrlimit(what, (most, hard))
