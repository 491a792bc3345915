"""HTTP/1.1 messages as bytes: just enough of it to pass requests and answers on unchanged."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass

__all__ = [
    "HEAD_BYTES_MAX",
    "Answer",
    "Closed",
    "Request",
    "Stream",
    "exchange",
    "half",
    "read_request",
    "send",
    "without_headers",
]

HEAD_BYTES_MAX = 1 << 20


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it came."""

    method: str
    target: str
    """Path and query, as in the request line."""
    headers: dict[str, str]
    """Names in lower case."""
    raw: bytes
    """The bytes that are passed on."""

    @property
    def is_conditional_put(self) -> bool:
        """Whether it is a create: a PUT with If-None-Match."""
        return self.method == "PUT" and "if-none-match" in self.headers


def without_headers(request: Request, *names: str) -> Request:
    """Return a request without some headers, named in lower case."""
    head, _, body = request.raw.partition(b"\r\n\r\n")
    first, *lines = head.split(b"\r\n")
    kept = [line for line in lines if line.partition(b":")[0].strip().lower().decode() not in names]
    headers = {name: value for name, value in request.headers.items() if name not in names}
    raw = b"\r\n".join([first, *kept, b"", b""]) + body
    return Request(request.method, request.target, headers, raw)


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer as it came."""

    status: int
    raw: bytes
    head_bytes: int
    """Length of its status line and headers in ``raw``."""
    is_last: bool
    """The server closes the connection after it."""


class Closed(Exception):
    """The other side closed the connection where a message was expected, or in the middle of it."""


@dataclass(frozen=True, slots=True)
class Stream:
    """Both directions of a connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def close(self) -> None:
        """Send what is left, and close."""
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()

    def cut(self) -> None:
        """Close at once: what was not sent yet never will be."""
        self.writer.transport.abort()


async def send(stream: Stream, data: bytes) -> None:
    """Send bytes."""
    stream.writer.write(data)
    await stream.writer.drain()


async def exchange(server: Stream, request: Request) -> Answer:
    """Send a request and return its answer; raises Closed or OSError when there is none."""
    await send(server, request.raw)
    return await _read_answer(server.reader, request.method)


async def _read_head(reader: asyncio.StreamReader) -> tuple[bytes, str, dict[str, str]]:
    """Return the head's bytes, its first line, and the headers by lower-case name."""
    try:
        raw = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise Closed from error
    first, *lines = raw[:-4].decode("latin-1").split("\r\n")
    pairs = (line.partition(":") for line in lines)
    return raw, first, {name.strip().lower(): value.strip() for name, _, value in pairs}


async def _read_body(reader: asyncio.StreamReader, headers: dict[str, str], *, to_end: bool) -> bytes:
    """Return the body's bytes with their framing."""
    try:
        if headers.get("transfer-encoding", "").lower() == "chunked":
            parts = []
            while True:
                line = await reader.readuntil(b"\r\n")
                size = int(line.split(b";")[0], 16)
                parts += [line, await reader.readexactly(size + 2) if size else b""]
                if not size:
                    while (line := await reader.readuntil(b"\r\n")) != b"\r\n":
                        parts.append(line)  # a trailer
                    return b"".join([*parts, line])
        if "content-length" in headers:
            return await reader.readexactly(int(headers["content-length"]))
        return await reader.read() if to_end else b""
    except asyncio.IncompleteReadError as error:
        raise Closed from error


async def read_request(client: Stream) -> Request:
    """Return the next request of a connection; raises Closed when there is none."""
    raw, first, headers = await _read_head(client.reader)
    method, target, _version = first.split(" ", 2)
    if headers.get("expect", "").lower() == "100-continue":
        await send(client, b"HTTP/1.1 100 Continue\r\n\r\n")
        kept = [line for line in raw[:-4].split(b"\r\n") if not line.lower().startswith(b"expect:")]
        raw = b"\r\n".join([*kept, b"", b""])
    body = await _read_body(client.reader, headers, to_end=False)
    return Request(method, target, headers, raw + body)


async def _read_answer(reader: asyncio.StreamReader, method: str) -> Answer:
    while True:
        raw, first, headers = await _read_head(reader)
        status = int(first.split(" ", 2)[1])
        if status >= 200:  # no request asks for interim answers
            break
    has_body = method != "HEAD" and status not in (204, 304)
    body = await _read_body(reader, headers, to_end=True) if has_body else b""
    is_framed = not has_body or "content-length" in headers or "transfer-encoding" in headers
    is_last = headers.get("connection", "").lower() == "close" or not is_framed
    return Answer(status, raw + body, len(raw), is_last)


def half(answer: Answer) -> bytes:
    """Return the head and half of the body; of an answer without a body, a part of its first line."""
    body_bytes = len(answer.raw) - answer.head_bytes
    return answer.raw[: answer.head_bytes + body_bytes // 2 if body_bytes > 1 else len(b"HTTP/1.1 ")]
