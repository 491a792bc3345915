"""An HTTP server that answers what a test says, byte by byte if it likes, and keeps what came."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self


@dataclass(frozen=True)
class Got:
    """One request as it came."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


Answer = Callable[[Got], Iterable[bytes]]


def answer(status: int, body: bytes = b"", **headers: str) -> Callable[[Got], list[bytes]]:
    """Return what answers every request alike."""

    def made(got: Got) -> list[bytes]:
        lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        head = "\r\n".join([*lines, "", ""]).encode()
        return [head if got.method == "HEAD" else head + body]

    return made


@dataclass
class HostileServer:
    """Listens on a free port of 127.0.0.1 while in its ``with`` block; each connection has a thread."""

    answer: Answer
    came: list[Got] = field(default_factory=list)
    sent_bytes: int = 0

    def __post_init__(self) -> None:
        self._ended = threading.Event()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._threads = [threading.Thread(target=self._accept)]
        self._open: list[socket.socket] = []

    def drip(self, part: bytes, seconds: float = 0.02) -> Iterator[bytes]:
        """Yield ``part`` until the client has gone, or the test is over."""
        while not self._ended.wait(seconds):
            yield part

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for each in self._open:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._socket.accept()
                self._open.append(client)
                self._threads.append(threading.Thread(target=self._serve, args=(client,)))
                self._threads[-1].start()

    def _serve(self, client: socket.socket) -> None:
        with client, client.makefile("rb") as lines, contextlib.suppress(OSError):
            while first := lines.readline():
                method, target, _ = first.decode().split(" ", 2)
                headers: dict[str, str] = {}
                while (line := lines.readline().decode("latin-1").strip()) != "":
                    name, _, value = line.partition(":")
                    headers[name.lower()] = value.strip()
                if headers.get("expect") == "100-continue":
                    client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
                got = Got(method, target, headers, lines.read(int(headers.get("content-length", 0))))
                self.came.append(got)
                for part in self.answer(got):
                    client.sendall(part)
                    self.sent_bytes += len(part)
