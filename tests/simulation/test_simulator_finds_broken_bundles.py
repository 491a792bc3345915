"""Broken rules of payload bundles are found. Some history must notice each.

As in :mod:`tests.simulation.test_simulator_finds_broken_rules`; the seeds are those of histories that have
such bundles.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from tests.simulation.broken_rules import expect_found
from txnformat import keys
from txnformat.admin import garbage, truncation
from txnformat.admin.erasure import certificate
from txnformat.core.wire.bundle import decode_payloads
from txnformat.protocol import tail
from txnformat.reading import bundled
from txnformat.segments.payload import head_of, payload_of
from txnformat.store.base import ObjectStore

pytestmark = pytest.mark.simulation

Patch = pytest.MonkeyPatch
UPKEEP = range(8, 3_200, 16)


def rows_come_out_of_a_bundle_unseen(patch: Patch) -> None:
    patch.setattr(bundled, "has_file", lambda payload, file, place: True)


def a_damaged_bundle_stops_a_reader(patch: Patch) -> None:
    def fetched(store: ObjectStore, first: int, count: int) -> dict[int, bytes]:
        key = keys.payloads_key(first, first + count - 1)
        data = store.get(key)
        entries = [] if data is None else decode_payloads(data, key, count)
        return dict(enumerate(map(payload_of, entries), first))

    patch.setattr(bundled, "_fetched", fetched)


def a_damaged_bundle_stops_a_follower(patch: Patch) -> None:
    def heads(self: tail.Bundles, data: object, first: int) -> list[bytes] | None:
        if self is tail.HUNDREDS:
            return tail.usable_bundle(data, first)
        if not isinstance(data, bytes):
            return None
        return [head_of(entry) for entry in decode_payloads(data, self.key(first), self.count)]

    patch.setattr(tail.Bundles, "heads", heads)


class _KeysWithoutPayloads:
    """The names of objects, of which none is that of a payload bundle."""

    def __getattr__(self, name: str) -> object:
        return (lambda key: None) if name == "parse_payloads_key" else getattr(keys, name)


def nothing_deletes_bundles(patch: Patch) -> None:
    patch.setattr(truncation._Truncation, "_delete_payloads", lambda *args: None)
    patch.setattr(garbage, "keys", _KeysWithoutPayloads())


def a_certificate_does_not_look_for_bundles(patch: Patch) -> None:
    """Which nothing has deleted."""
    nothing_deletes_bundles(patch)
    original = certificate._look
    patch.setattr(
        certificate, "_look", lambda *args: dataclasses.replace(original(*args), oldest_payloads=None)
    )


MUTANTS: list[tuple[Callable[[Patch], None], str, int]] = [
    (rows_come_out_of_a_bundle_unseen, "does not have the payload", 360),
    (a_damaged_bundle_stops_a_reader, "corrupt", 456),
    (a_damaged_bundle_stops_a_follower, "corrupt", 152),
    (nothing_deletes_bundles, "never come to an end", 104),
    (a_certificate_does_not_look_for_bundles, "is complete, and _txnlog/payloads/", 136),
]


@pytest.mark.parametrize(
    ("mutate", "found", "seed"), MUTANTS, ids=lambda value: getattr(value, "__name__", "")
)
def test_a_broken_rule_of_payload_bundles_is_found(
    mutate: Callable[[Patch], None], found: str, seed: int, monkeypatch: Patch
) -> None:
    """``seed``: of a history that notices it soon; should it not any more, others are tried."""
    mutate(monkeypatch)
    expect_found((seed, *UPKEEP), mutate.__name__, found)
