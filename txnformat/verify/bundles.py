"""Bundles compared with the entries whose bytes they repeat. Pure."""

from __future__ import annotations

from txnformat import keys
from txnformat.core.entry import decode_entry, sha256_hex
from txnformat.core.wire.bundle import BUNDLE_ENTRIES, decode_bundle
from txnformat.errors import CorruptDataError, FormatError, StorageError
from txnformat.verify.report import ProblemKind, Record

__all__ = ["check_bundle"]

HINT = "delete it: it is not needed, the entries themselves are read instead"
HINT_DELETED = "restore it from a copy, or delete it: some of its entries are deleted, and only it shows them in the history"


def check_bundle(
    record: Record, key: str, first: int, data: bytes | StorageError | None, hashes: dict[int, str]
) -> bool:
    """Check one bundle; return whether it holds what it should.

    ``hashes``: sha256 of each entry as the chain has it. Bundles are to come newest first: what a bundle says of deleted entries
    is checked against the one after it, and put in here for the one before it.
    """
    if data is None:
        return False  # deleted meanwhile; it is not needed
    if isinstance(data, StorageError):
        record.add_error(ProblemKind.UNREADABLE, key, data)
        return False
    record.checked["bundles"] += 1
    try:
        entries = decode_bundle(data, key)
    except CorruptDataError as error:
        record.add_error(ProblemKind.UNDECODABLE, key, error, HINT if first in hashes else HINT_DELETED)
        return False
    if first % BUNDLE_ENTRIES or key != keys.bundle_key(first, first + BUNDLE_ENTRIES - 1):
        record.add(ProblemKind.UNDECODABLE, key, "the key is not that of a hundred entries", hint=HINT)
        return False
    known: dict[int, str] = {}
    for number in range(first + len(entries) - 1, first - 1, -1):
        entry = entries[number - first]
        got = sha256_hex(entry)
        expected = hashes.get(number, known.get(number, got))
        if got != expected:
            what = f"the bundle holds other bytes than entry {number} has"
            record.add(
                ProblemKind.WRONG_HASH, key, what, expected, got, HINT if number in hashes else HINT_DELETED
            )
            return False
        try:
            known[number - 1] = decode_entry(entry, number).previous
        except FormatError as error:
            if number in hashes:
                return True  # what the chain has: if that cannot be decoded, the entry itself is told of
            record.add_error(ProblemKind.UNDECODABLE, key, error, HINT_DELETED)
            return False
    hashes.setdefault(first - 1, known[first - 1])
    return True
