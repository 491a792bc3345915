"""The store's answer for an object, compared with the entry that names it; bundles, with the entries whose
bytes they repeat; the hint, with the snapshots that entries name.

Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from txnformat import keys
from txnformat.core.entry import decode_entry, sha256_hex
from txnformat.core.operations import Checkpoint
from txnformat.core.wire.bundle import BUNDLE_ENTRIES, PAYLOAD_SIZES, decode_bundle, decode_payloads
from txnformat.core.wire.small_documents import decode_latest
from txnformat.errors import CorruptDataError, FormatError, StorageError
from txnformat.protocol.follow import parse_hint
from txnformat.segments.payload import head_of, payload_problem
from txnformat.types import ObjectRecord
from txnformat.verify.report import ProblemKind, Record, VerifyNote

__all__ = [
    "check_bundle",
    "check_bytes",
    "check_hint",
    "check_payloads",
    "decode_problem",
    "decoded",
    "is_control",
    "present",
]
T = TypeVar("T")

BUNDLE_HINT = "delete it: it is not needed, the entries themselves are read instead"
BUNDLE_HINT_DELETED = (
    "restore it from a copy, or delete it: some of its entries are deleted, and only it "
    "shows them in the history"
)


def decode_problem(error: FormatError) -> ProblemKind:
    """Return what kind of problem it is that bytes cannot be decoded."""
    if error.kind == "wrong-checksum":
        return ProblemKind.WRONG_HASH
    return ProblemKind.UNDECODABLE if isinstance(error, CorruptDataError) else ProblemKind.UNSUPPORTED


def present(
    record: Record, key: str, answer: bytes | StorageError | None, what: str, hint: str
) -> bytes | None:
    """Return an object's bytes, or note why there are none; ``what`` and ``hint`` are about one that is
    gone.
    """
    if answer is None:
        record.add(ProblemKind.MISSING, key, what, hint=hint)
    elif isinstance(answer, StorageError):
        record.add_error(ProblemKind.UNREADABLE, key, answer)
    else:
        return answer
    return None


def check_bytes(record: Record, named: ObjectRecord | Checkpoint, data: bytes, hint: str) -> bool:
    """Return whether bytes have the size and hash that an entry names; else note the problem."""
    if len(data) != named.size:
        what = "the object differs in size from its entry"
        record.add(ProblemKind.WRONG_SIZE, named.key, what, f"{named.size} bytes", len(data), hint)
        return False
    if sha256_hex(data) != named.sha256:
        what = "the object differs in hash from its entry"
        record.add(ProblemKind.WRONG_HASH, named.key, what, named.sha256, sha256_hex(data), hint)
        return False
    return True


def decoded(
    record: Record, named: ObjectRecord | Checkpoint, data: bytes, hint: str, decode: Callable[[bytes], T]
) -> T | None:
    """Return what an object holds, or note why nothing can be told: other bytes than were named, or none that
    can be decoded.
    """
    if check_bytes(record, named, data, hint):
        try:
            return decode(data)
        except FormatError as error:
            record.add_error(decode_problem(error), named.key, error, hint)
    return None


def check_bundle(
    record: Record, key: str, first: int, data: bytes | StorageError | None, hashes: dict[int, str]
) -> bool:
    """Check one bundle; return whether it holds what it should.

    ``hashes``: sha256 of each entry as the chain has it. Bundles are to come newest first: what a bundle says
    of deleted entries is checked against the one after it, and put in here for the one before it.
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
        record.add_error(
            ProblemKind.UNDECODABLE, key, error, BUNDLE_HINT if first in hashes else BUNDLE_HINT_DELETED
        )
        return False
    if first % BUNDLE_ENTRIES or key != keys.bundle_key(first, first + BUNDLE_ENTRIES - 1):
        record.add(ProblemKind.UNDECODABLE, key, "the key is not that of a hundred entries", hint=BUNDLE_HINT)
        return False
    known: dict[int, str] = {}
    for number in range(first + len(entries) - 1, first - 1, -1):
        entry = entries[number - first]
        got = sha256_hex(entry)
        expected = hashes.get(number, known.get(number, got))
        if got != expected:
            what = f"the bundle holds other bytes than entry {number} has"
            record.add(
                ProblemKind.WRONG_HASH,
                key,
                what,
                expected,
                got,
                BUNDLE_HINT if number in hashes else BUNDLE_HINT_DELETED,
            )
            return False
        try:
            known[number - 1] = decode_entry(entry, number).previous
        except FormatError as error:
            if number in hashes:
                return True  # what the chain has: if that cannot be decoded, the entry itself is told of
            record.add_error(ProblemKind.UNDECODABLE, key, error, BUNDLE_HINT_DELETED)
            return False
    hashes.setdefault(first - 1, known[first - 1])
    return True


def is_control(key: str) -> bool:
    """Return whether a key is that of an entry, a bundle, a boundary or a list of condemned objects."""
    bundles = (keys.parse_bundle_key, keys.parse_payloads_key)
    parsers = (keys.parse_entry_key, keys.parse_boundary_key, *bundles, keys.parse_condemned_key)
    return any(parse(key) is not None for parse in parsers)


def check_payloads(
    record: Record,
    listed: Iterable[str],
    last: int,
    hashes: dict[int, str],
    fetch: Callable[[Sequence[str]], Iterable[bytes | StorageError | None]],
) -> None:
    """Check the listed payload bundles of entries up to ``last`` (inclusive).

    ``hashes``: sha256 of each head as the chain has it.
    """
    found = {key: entries for key in sorted(listed) if (entries := keys.parse_payloads_key(key)) is not None}
    wanted = [key for key, entries in found.items() if entries[1] <= last]
    for key, data in zip(wanted, fetch(wanted), strict=True):
        if isinstance(data, StorageError):
            record.add_error(ProblemKind.UNREADABLE, key, data)
        elif data is not None:  # else deleted meanwhile; it is not needed
            record.checked["bundles"] += 1
            _check_payloads(record, key, found[key], data, hashes)


def _check_payloads(
    record: Record, key: str, entries: tuple[int, int], data: bytes, hashes: dict[int, str]
) -> None:
    first, count = entries[0], entries[1] - entries[0] + 1
    if count not in PAYLOAD_SIZES or first % count:
        record.add(ProblemKind.UNDECODABLE, key, "the key is not that of a payload bundle", hint=BUNDLE_HINT)
        return
    try:
        found = decode_payloads(data, key, count)
    except CorruptDataError as error:
        record.add_error(ProblemKind.UNDECODABLE, key, error, BUNDLE_HINT)
        return
    for number, one in enumerate(found, first):
        head = head_of(one)
        expected, got = hashes.get(number), sha256_hex(head)
        if expected is None:
            continue  # an entry that is deleted: nothing reads this any more
        problem = None if got == expected else got
        if problem is None:
            try:
                problem = payload_problem(decode_entry(head, number).payload, one)
            except FormatError:
                continue  # the entry itself is told of
        if problem is not None:
            what = f"the payload bundle holds other bytes than entry {number} has"
            record.add(ProblemKind.WRONG_HASH, key, what, expected, problem, BUNDLE_HINT)
            return


def check_hint(
    record: Record, data: bytes | StorageError | None, checkpoints: Sequence[Checkpoint], *, is_known: bool
) -> None:
    """Compare the hint with the snapshots that entries name.

    ``is_known``: the fold has come to the end, so these are all.
    """
    if isinstance(data, StorageError):
        record.add_error(ProblemKind.UNREADABLE, keys.LATEST_KEY, data)
    elif data is None:
        if checkpoints:
            what = "the hint `latest` is missing: opening takes a listing more, until the next snapshot"
            record.notes.append(VerifyNote("hint-missing", what, 1, 0, (keys.LATEST_KEY,)))
    else:
        hint = parse_hint(data)
        named = {one.key: one for one in checkpoints}.get(hint.key) if hint is not None else None
        if named is None and hint is not None and not is_known:
            return  # what names it may be among what cannot be read
        expected = "a snapshot that an entry names" if named is None else f"sha256 {named.sha256}"
        got = (
            "nothing usable"
            if hint is None
            else hint.key
            if named is None
            else (decode_latest(data).sha256 or "no sha256")
        )
        if named is None or got != named.sha256:
            what = "the hint belongs to no snapshot that the log names"
            advice = "delete it: the next snapshot writes it again, and no reader depends on it"
            record.add(ProblemKind.HINT_WRONG, keys.LATEST_KEY, what, expected, got, advice)
