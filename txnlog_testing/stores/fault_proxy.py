"""A small HTTP/1.1 proxy in front of a real object store that spoils requests by plan.

It stands where a network and a busy service stand: between the client's library, with its own retries,
time-outs and error mapping, and a real server. It does on the wire the same as
:class:`~txnlog_testing.stores.faulty.FaultyStore` does below our own interface.

* Bytes are passed on as they came, with the Host header that the client signed (SigV4 covers it); only a
  client's ``Expect: 100-continue``, which no signature covers, is answered here and left out.
* The plan is a function of (request, number of this request among those of the same method and target, from
  1): what one client meets does not depend on how clients interleave.
* Delays are modelled milliseconds times ``time_scale``: a delay of 30 s takes 30 ms, and one that is longer
  than the client's time-out is acted as what it comes to: no answer, and a delivery that comes later. HELD is
  the real thing for the client's own time-out.
* It counts what it did, so that a test can tell that each fault was really met.

Only plain HTTP, and only for tests: requests are held in memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from txnformat.errors import InternalError, InvalidInputError
from txnlog_testing.stores.http_wire import (
    HEAD_BYTES_MAX,
    Answer,
    Closed,
    Request,
    Stream,
    exchange,
    half,
    read_request,
    send,
)

__all__ = [
    "FaultProxy",
    "Plan",
    "ProxyCounts",
    "ProxyFault",
    "ProxyFaultKind",
    "Request",
    "no_proxy_faults",
    "seeded_plan",
]

_START_SECONDS_MAX = 120.0
_IDLE_SECONDS_MAX = 60.0


class ProxyFaultKind(StrEnum):
    """The faults of one request, named after what happened at the server."""

    DROP_BEFORE = "drop-before"
    """Never delivered; the client's connection is closed without an answer."""
    APPLY_THEN_DROP = "apply-then-drop"
    """Delivered; the connection is closed without an answer."""
    LATE = "late"
    """The connection is closed first; delivered later, whatever the client does meanwhile."""
    HELD = "held"
    """Nothing happens until the client gives up by its own time-out; then it is delivered."""
    DELAY = "delay"
    """Delivered; the answer comes ``delay_ms`` late."""
    CONFLICT_409 = "conflict-409"
    """Answered with S3's ConditionalRequestConflict; ``applied`` says whether it was delivered nevertheless.
    """
    EXISTS_412 = "exists-412"
    """Delivered twice, as by a retry below the client, which is told of the second: 412 for its own success.
    """
    SERVER_ERROR = "server-error"
    """Answered with ``status``; ``applied`` says whether it was delivered nevertheless."""
    ERROR_IN_200 = "error-in-200"
    """Answered 200 with an error document; ``applied`` says whether it was delivered nevertheless."""
    TRUNCATED = "truncated"
    """Delivered; the connection is closed in the middle of the answer."""
    DUPLICATED = "duplicated"
    """Delivered and answered; then delivered once more, and no client hears of that."""


_WITHOUT_DELIVERY = frozenset(
    {ProxyFaultKind.CONFLICT_409, ProxyFaultKind.SERVER_ERROR, ProxyFaultKind.ERROR_IN_200}
)


@dataclass(frozen=True, slots=True)
class ProxyFault:
    """One planned fault."""

    kind: ProxyFaultKind
    applied: bool = False
    """CONFLICT_409, SERVER_ERROR, ERROR_IN_200: whether the server got the request nevertheless."""
    status: int = 503
    """SERVER_ERROR."""
    code: str = ""
    """SERVER_ERROR: how S3 names it; empty: what fits the status."""
    delay_ms: int = 0
    """DELAY, LATE: modelled milliseconds, at least 0."""
    until_released: bool = False
    """LATE: delivered by :meth:`FaultProxy.release`, however long that takes."""


Plan = Callable[[Request, int], ProxyFault | None]
"""Request, number of this request among those of the same method and target (from 1) → the fault, or None."""


def no_proxy_faults(request: Request, nth: int) -> ProxyFault | None:
    """Plan nothing."""
    return None


def seeded_plan(
    seed: int,
    rate: float,
    faults: Iterable[ProxyFault],
    matches: Callable[[Request], bool] = lambda request: request.is_conditional_put,
) -> Plan:
    """Return a plan that spoils a share of the requests, each with one of ``faults``.

    Parameters
    ----------
    seed : int
        Decides everything.
    rate : float
        Share of the matching requests, 0 to 1.
    faults : iterable of ProxyFault
        Equally likely; name one twice to see it twice as often.
    matches : callable
        Which requests can be spoilt; creates by default.
    """
    choices = tuple(faults)

    def plan(request: Request, nth: int) -> ProxyFault | None:
        if not matches(request):
            return None
        # Seeded with text: the same in every process, whatever the hash seed.
        drawn = random.Random(f"{seed} {nth} {request.method} {request.target}")
        return drawn.choice(choices) if drawn.random() < rate else None

    return plan


@dataclass(slots=True)
class ProxyCounts:
    """The requests that a proxy has seen so far."""

    requests: Counter[str] = field(default_factory=Counter)
    """Requests that came, by method."""
    conditional_puts: int = 0
    faults: Counter[ProxyFault] = field(default_factory=Counter)
    """Faults that were carried out. An EXISTS_412 counts only if the second delivery was answered 412."""
    hidden_successes: Counter[ProxyFaultKind] = field(default_factory=Counter)
    """Requests that the server answered 2xx while the client heard something else, or nothing."""

    def kinds(self) -> Counter[ProxyFaultKind]:
        """Return how often each kind was carried out."""
        found: Counter[ProxyFaultKind] = Counter()
        for fault, number in self.faults.items():
            found[fault.kind] += number
        return found

    def __str__(self) -> str:
        shown = ", ".join(f"{kind} {number}" for kind, number in sorted(self.kinds().items()))
        return (
            f"{self.conditional_puts} conditional PUTs of {self.requests.total()} requests; "
            f"{shown or 'no faults'}"
        )


class FaultProxy:
    """Listens on a free port of 127.0.0.1 in a thread of its own and passes requests on to ``upstream``.

    Use as a context manager. Safe for use by many client threads and processes.

    Parameters
    ----------
    upstream : str
        ``http://host:port`` of the real server.
    plan : Plan
        What to spoil; :attr:`plan` may be replaced at any time.
    time_scale : float
        Real milliseconds per modelled millisecond.
    """

    def __init__(self, upstream: str, plan: Plan = no_proxy_faults, *, time_scale: float = 0.001) -> None:
        address = urlsplit(upstream)
        if address.scheme != "http" or address.hostname is None or address.port is None:
            raise InvalidInputError(
                "the proxy needs the server's http address with its port", hint="http://127.0.0.1:8333"
            )
        self.plan = plan
        self._host, self._port = address.hostname, address.port
        self._time_scale = time_scale
        self._lock = threading.Lock()
        self._counts = ProxyCounts()
        self._seen: Counter[tuple[str, str]] = Counter()
        self._busy = 0  # requests that came and are not done with, late deliveries included
        self._idle = threading.Condition(self._lock)
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._stop: asyncio.Event | None = None
        self._released: asyncio.Event | None = None
        self._address = 0
        self._background: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._run, name="fault-proxy", daemon=True)

    @property
    def url(self) -> str:
        """Where clients connect to."""
        return f"http://127.0.0.1:{self._address}"

    @property
    def counts(self) -> ProxyCounts:
        """Return a copy of the counts so far."""
        with self._lock:
            now = self._counts
            return ProxyCounts(
                now.requests.copy(), now.conditional_puts, now.faults.copy(), now.hidden_successes.copy()
            )

    def wait_until_idle(self) -> None:
        """Wait until everything that came is done with, late deliveries included.

        Raises
        ------
        TimeoutError
            Something is still on its way after a minute: a client that is still sending, or a HELD one that
            waits.
        """
        with self._idle:
            if not self._idle.wait_for(lambda: not self._busy, _IDLE_SECONDS_MAX):
                raise TimeoutError(f"{self._busy} requests are still on their way")

    def release(self) -> None:
        """Deliver what is held back until now, and wait until it was."""
        with self._lock:
            released, self._released = self._released, None
        if released is not None:
            self._loop.call_soon_threadsafe(released.set)
        self.wait_until_idle()

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._started.wait(_START_SECONDS_MAX) or not self._address:
            raise InternalError("the proxy did not start")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._end)
        self._thread.join()

    def _end(self) -> None:
        if self._stop is not None:
            self._stop.set()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._started.set()
            self._loop.close()

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=HEAD_BYTES_MAX)
        self._address = server.sockets[0].getsockname()[1]
        self._started.set()
        await self._stop.wait()
        server.close()
        for task in list(self._background):
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._spawn(self._connection(Stream(reader, writer)))

    async def _connection(self, client: Stream) -> None:
        """Serve one client connection with one connection to the server, request by request."""
        server: Stream | None = None
        try:
            while True:
                request = self.changed(await read_request(client))
                fault = self._begin(request)
                try:
                    if server is None or server.reader.at_eof():
                        server = await self._connect()
                    if not await self._pass_on(client, server, request, fault):
                        return
                finally:
                    self._done()
        except (Closed, OSError):
            pass  # as a network: each side sees that the connection is gone, and neither is told why
        finally:
            client.cut()
            if server is not None:
                server.cut()

    def changed(self, request: Request) -> Request:
        """Return what is passed on in place of a request: itself.

        For proxies that change what they pass on.
        """
        return request

    def _begin(self, request: Request) -> ProxyFault | None:
        with self._lock:
            self._busy += 1
            self._counts.requests[request.method] += 1
            self._counts.conditional_puts += request.is_conditional_put
            self._seen[request.method, request.target] += 1
            nth = self._seen[request.method, request.target]
        return self.plan(request, nth)

    def _done(self) -> None:
        with self._idle:
            self._busy -= 1
            self._idle.notify_all()

    def _count(self, fault: ProxyFault, answer: Answer | None) -> None:
        with self._lock:
            self._counts.faults[fault] += 1
            # The client hears of the success after all, only late or once too little.
            harmless = fault.kind in (ProxyFaultKind.DELAY, ProxyFaultKind.DUPLICATED)
            if answer is not None and answer.status // 100 == 2 and not harmless:
                self._counts.hidden_successes[fault.kind] += 1

    async def _connect(self) -> Stream:
        return Stream(*await asyncio.open_connection(self._host, self._port, limit=HEAD_BYTES_MAX))

    async def _pass_on(
        self, client: Stream, server: Stream, request: Request, fault: ProxyFault | None
    ) -> bool:
        """Deal with one request; return whether the client's connection goes on."""
        if fault is None:
            answer = await exchange(server, request)
            await send(client, answer.raw)
            return not answer.is_last
        match fault.kind:
            case ProxyFaultKind.DROP_BEFORE:
                self._count(fault, None)
            case ProxyFaultKind.APPLY_THEN_DROP:
                self._count(fault, await exchange(server, request))
            case ProxyFaultKind.LATE:
                self._deliver_later(request, fault, fault.delay_ms)
                client.cut()
            case ProxyFaultKind.HELD:
                # Nothing more comes from a client that waits for its answer, but the end of its connection.
                with contextlib.suppress(OSError):
                    await client.reader.read(1)
                self._deliver_later(request, fault, 0)
            case ProxyFaultKind.TRUNCATED:
                answer = await exchange(server, request)
                self._count(fault, answer)
                await send(client, half(answer))
                await client.close()
            case _:
                return await self._answer_otherwise(client, server, request, fault)
        return False

    async def _answer_otherwise(
        self, client: Stream, server: Stream, request: Request, fault: ProxyFault
    ) -> bool:
        """Deal with a request whose client gets a whole answer."""
        if fault.kind in _WITHOUT_DELIVERY:
            self._count(fault, await exchange(server, request) if fault.applied else None)
            await send(client, _made_up(fault, request))
            return True
        answer = await exchange(server, request)
        if fault.kind is ProxyFaultKind.DELAY:
            self._count(fault, answer)
            await self._sleep(fault.delay_ms)
        elif fault.kind is ProxyFaultKind.DUPLICATED:
            # Delivered again before the client can act on the answer: what it then does meets both
            # deliveries.
            await self._deliver(request)
            self._count(fault, answer)
        else:
            first, answer = answer, await self._deliver(request)
            if answer.status == 412:
                self._count(fault, first)
        await send(client, answer.raw)
        return not answer.is_last

    async def _sleep(self, modelled_ms: int) -> None:
        await asyncio.sleep(modelled_ms * self._time_scale / 1_000)

    async def _deliver(self, request: Request) -> Answer:
        """Deliver a request on a connection of its own."""
        server = await self._connect()
        try:
            return await exchange(server, request)
        finally:
            server.cut()

    def _deliver_later(self, request: Request, fault: ProxyFault, modelled_ms: int) -> None:
        with self._lock:
            self._busy += 1
            if fault.until_released and self._released is None:
                self._released = asyncio.Event()
            released = self._released if fault.until_released else None

        async def deliver() -> None:
            try:
                if released is not None:
                    await released.wait()
                await self._sleep(modelled_ms)
                self._count(fault, await self._deliver(request))
            except (Closed, OSError):
                pass
            finally:
                self._done()

        self._spawn(deliver())


_MADE_UP = {
    200: ("InternalError", "We encountered an internal error. Please try again."),
    409: ("ConditionalRequestConflict", "A conflicting conditional operation is in progress."),
    500: ("InternalError", "We encountered an internal error. Please try again."),
    503: ("SlowDown", "Please reduce your request rate."),
}


def _made_up(fault: ProxyFault, request: Request) -> bytes:
    """Return an error as S3 words it."""
    if fault.kind is ProxyFaultKind.CONFLICT_409:
        status = 409
    else:
        status = 200 if fault.kind is ProxyFaultKind.ERROR_IN_200 else fault.status
    code, message = _MADE_UP.get(status, ("InternalError", "An error that the proxy made up."))
    code = fault.code or code
    body = (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f"<Error><Code>{code}</Code><Message>{message}</Message><RequestId>0</RequestId></Error>"
    ).encode()
    elsewhere = "Location: http://127.0.0.1:9/elsewhere\r\n" if 300 <= status < 400 else ""
    head = (
        f"HTTP/1.1 {status} {code}\r\n{elsewhere}Content-Type: application/xml\r\nContent-Length: "
        f"{len(body)}\r\n\r\n"
    ).encode()
    return head + (b"" if request.method == "HEAD" else body)
