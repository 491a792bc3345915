"""A process that is there to be killed: run by test_store_crash.py, not a test itself.

``step <root> <action> <n>`` does one action and stops for good before its n-th system call (from 1).
``stream <root>`` writes objects without end and names each one that was acknowledged.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable
from typing import Any

from txnformat.store.local import LocalStore
from txnformat.store.posix import Posix

KEY = "a/b/object"
CALLS = (
    "open_directory",
    "create_file",
    "write",
    "fsync_file",
    "fsync_directory",
    "link",
    "replace",
    "unlink",
    "mkdir",
)


def object_bytes(number: int) -> bytes:
    """Return what object ``number`` of the endless stream holds: 1 B to about 300 kB."""
    return f"{number};".encode() * (1 + number * 7919 % 50_000)


def say(line: str) -> None:
    os.write(1, line.encode() + b"\n")


class StoppingPosix(Posix):
    """Never returns from the n-th call: the call is not made, and the process waits to be killed."""

    def __init__(self, stop_before: int) -> None:
        self.left = stop_before


def _stopping(call: Callable[..., Any]) -> Callable[..., Any]:
    def stop_or_call(self: StoppingPosix, *arguments: Any) -> Any:
        self.left -= 1
        if self.left == 0:
            say(f"before {call.__name__}")
            os.read(0, 1)
        return call(self, *arguments)

    return stop_or_call


for _name in CALLS:
    setattr(StoppingPosix, _name, _stopping(getattr(Posix, _name)))


def step(root: str, action: str, number: int) -> None:
    store = LocalStore(root, posix=StoppingPosix(number))
    if action == "create":
        store.create(KEY, b"new object")
    elif action == "put":
        store.put(KEY, b"new object")
    else:
        with store.open_write(KEY) as writer:
            writer.write(b"new ")
            writer.write(b"object")
    say("done")


def stream(root: str) -> None:
    store = LocalStore(root)
    for number in itertools.count():
        data = object_bytes(number)
        if number % 2:
            store.create(f"a/{number}", data)
        else:
            with store.open_write(f"a/{number}") as writer:
                for start in range(0, len(data), 60_000):
                    writer.write(data[start : start + 60_000])
        say(str(number))


if __name__ == "__main__":
    if sys.argv[1] == "step":
        step(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        stream(sys.argv[2])
