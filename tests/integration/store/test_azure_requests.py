"""The requests of the adapter of clouds, and its judgement of answers: Azurite behind a proxy that spoils
requests."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.integration.store.wire import Wire
from txnformat.errors import NotFoundError, StorageError
from txnformat.store.base import CreateOutcome, ObjectInfo
from txnformat.store.cloud.azure import AzureStore
from txnformat.store.uploads import PART_BYTES
from txnlog_testing.stores.azurite import AzureServer, azurite_program, azurite_server
from txnlog_testing.stores.fault_proxy import FaultProxy, ProxyFault, ProxyFaultKind, Request

if azurite_program() is None:
    pytest.skip("Azurite is not here: see scripts/find-azurite", allow_module_level=True)

KEY = "_txnlog/log/00000000000000000000.json"
_numbers = itertools.count()
DROPPED = ProxyFault(ProxyFaultKind.APPLY_THEN_DROP)


@pytest.fixture(scope="module")
def server() -> Iterator[AzureServer]:
    with azurite_server() as running:
        yield running


@pytest.fixture
def wire(server: AzureServer, request: pytest.FixtureRequest) -> Iterator[Wire[AzureStore]]:
    with FaultProxy(server.host_url) as proxy:
        seconds = "20" if "large" in request.node.name else "1"
        options = {
            **server.storage_options,
            "endpoint_url": f"{proxy.url}/{server.account}",
            "read_timeout_s": seconds,
        }
        wire = Wire(proxy, AzureStore(server.url(f"wire-{next(_numbers)}"), options))
        wire.store.create("warm", b"")  # a connection is kept from here on, of either client
        wire.store.get("warm")
        wire.store.delete("warm")
        wire.begin()
        yield wire


@pytest.mark.parametrize(
    ("fault", "landed"),
    [
        (DROPPED, True),
        (ProxyFault(ProxyFaultKind.DROP_BEFORE), False),
        (ProxyFault(ProxyFaultKind.TRUNCATED), True),
        (ProxyFault(ProxyFaultKind.HELD), None),
        (ProxyFault(ProxyFaultKind.LATE), None),
        (ProxyFault(ProxyFaultKind.CONFLICT_409), False),
        (ProxyFault(ProxyFaultKind.CONFLICT_409, applied=True), True),
        (ProxyFault(ProxyFaultKind.SERVER_ERROR, status=503), False),
        (ProxyFault(ProxyFaultKind.SERVER_ERROR, status=429), False),
        (ProxyFault(ProxyFaultKind.SERVER_ERROR, status=408), False),
        (ProxyFault(ProxyFaultKind.SERVER_ERROR, status=500, applied=True), True),
        (ProxyFault(ProxyFaultKind.ERROR_IN_200), False),
    ],
    ids=lambda value: (
        f"{value.kind}-{value.status}-{value.applied}" if isinstance(value, ProxyFault) else str(value)
    ),
)
def test_a_create_is_sent_once_and_an_unclear_answer_is_called_unclear(
    wire: Wire[AzureStore], fault: ProxyFault, landed: bool | None
) -> None:
    wire.faults["PUT", 1] = fault
    answer = wire.store.create(KEY, b"ours")
    assert wire.sent == {"PUT": 1}
    assert answer.outcome is CreateOutcome.AMBIGUOUS
    assert answer.error is not None
    assert answer.error.transient
    wire.proxy.wait_until_idle()
    assert wire.proxy.counts.conditional_puts == 2  # the one before, too: as many as calls
    if landed is not None:
        assert wire.store.get(KEY) == (b"ours" if landed else None)


def test_a_create_that_waits_long_is_sent_once(wire: Wire[AzureStore]) -> None:
    wire.faults["PUT", 1] = ProxyFault(ProxyFaultKind.DELAY, delay_ms=500_000)  # half a second
    assert wire.store.create(KEY, b"ours").outcome is CreateOutcome.CREATED
    assert wire.sent == {"PUT": 1}


def test_a_hundred_creates_on_connections_that_break_are_a_hundred_requests(wire: Wire[AzureStore]) -> None:
    """A kept connection that the server has closed meanwhile is where HTTP clients like to send again."""
    wire.faults.update({("PUT", number): DROPPED for number in range(2, 101, 3)})
    outcomes = [wire.store.create(f"a/{number}", b"x").outcome for number in range(1, 101)]
    assert wire.sent == {"PUT": 100}
    assert Counter(outcomes) == {CreateOutcome.AMBIGUOUS: 33, CreateOutcome.CREATED: 67}


def test_a_create_that_meets_an_object_says_so(wire: Wire[AzureStore]) -> None:
    wire.store.create(KEY, b"theirs")
    assert wire.store.create(KEY, b"ours").outcome is CreateOutcome.EXISTS
    assert wire.sent == {"PUT": 2}
    wire.faults["PUT", 3] = ProxyFault(ProxyFaultKind.EXISTS_412)
    assert wire.store.create("own", b"ours").outcome is CreateOutcome.EXISTS  # its own success
    assert wire.store.get("own") == b"ours"


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_not_followed(wire: Wire[AzureStore], status: int) -> None:
    """The request was not carried out where it went, and goes nowhere else."""
    wire.faults["PUT", 1] = ProxyFault(ProxyFaultKind.SERVER_ERROR, status=status)
    answer = wire.store.create(KEY, b"ours")
    assert wire.sent == {"PUT": 1}
    assert answer.outcome is CreateOutcome.REFUSED
    assert answer.error is not None
    assert answer.error.kind == "endpoint-redirects"


@pytest.mark.parametrize(
    "fault",
    [
        DROPPED,
        ProxyFault(ProxyFaultKind.TRUNCATED),
        ProxyFault(ProxyFaultKind.HELD),
        ProxyFault(ProxyFaultKind.SERVER_ERROR, status=503),
        ProxyFault(ProxyFaultKind.SERVER_ERROR, status=500),
    ],
    ids=lambda fault: f"{fault.kind}-{fault.status}",
)
def test_reads_and_listings_are_repeated(wire: Wire[AzureStore], fault: ProxyFault) -> None:
    wire.store.create("a/x", b"0123456789")
    wire.faults.update({("GET", number): fault for number in (1, 3, 5)} | {("HEAD", 1): fault})
    assert wire.store.get("a/x") == b"0123456789"
    assert wire.store.get_range("a/x", 2, 3) == b"234"
    assert list(wire.store.list("a/")) == [ObjectInfo("a/x", 10)]
    assert wire.store.head("a/x") == ObjectInfo("a/x", 10)
    assert wire.sent["GET"] == 6
    assert wire.sent["HEAD"] == 2
    wire.store.delete("a/x")
    assert wire.store.get("a/x") is None


def test_a_large_upload_is_parts_and_shows_nothing_before_its_end(wire: Wire[AzureStore]) -> None:
    data = bytes(range(256)) * (PART_BYTES * 2 // 256 + 3)
    writer = wire.store.open_write("a/large")
    for start in range(0, len(data), 5_000_000):
        writer.write(data[start : start + 5_000_000])
    assert wire.store.head("a/large") is None
    writer.close()
    assert wire.store.head("a/large") == ObjectInfo("a/large", len(data))
    assert wire.store.get_range("a/large", PART_BYTES - 5, 10) == data[PART_BYTES - 5 : PART_BYTES + 5]


def test_a_large_upload_whose_last_answer_is_lost_is_there(wire: Wire[AzureStore]) -> None:
    writer = wire.store.open_write("a/large")
    writer.write(b"x" * (PART_BYTES + 10))
    while_closing = wire.proxy.plan

    def plan(request: Request, nth: int) -> ProxyFault | None:
        spoilt = "comp=blocklist" in request.target and nth == 1
        return DROPPED if spoilt else while_closing(request, nth)

    wire.proxy.plan = plan
    writer.close()
    assert wire.proxy.counts.kinds()[ProxyFaultKind.APPLY_THEN_DROP] == 1
    assert wire.store.head("a/large") == ObjectInfo("a/large", PART_BYTES + 10)


def test_a_large_upload_that_is_dropped_leaves_no_object(wire: Wire[AzureStore]) -> None:
    writer = wire.store.open_write("a/large")
    writer.write(b"x" * (PART_BYTES + 10))
    writer.abort()
    assert wire.store.head("a/large") is None
    assert list(wire.store.list("")) == []


def test_a_large_upload_does_not_replace(wire: Wire[AzureStore]) -> None:
    writer = wire.store.open_write("a/large")
    writer.write(b"x" * (PART_BYTES + 10))
    wire.store.create("a/large", b"theirs")
    with pytest.raises(StorageError) as caught:
        writer.close()
    assert caught.value.kind == "object-exists"
    assert wire.store.get("a/large") == b"theirs"


def test_a_range_of_a_missing_object(wire: Wire[AzureStore]) -> None:
    with pytest.raises(NotFoundError):
        wire.store.get_range("a/none", 0, 1)


def test_the_time_is_asked_for_once_a_minute(wire: Wire[AzureStore]) -> None:
    first = wire.store.store_time_ms()
    assert wire.store.store_time_ms() >= first
    assert wire.sent == {"HEAD": 1}
