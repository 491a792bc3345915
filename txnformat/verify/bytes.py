"""What the store answers for an object, compared with what an entry names. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from txnformat.core.entry import sha256_hex
from txnformat.core.operations import Checkpoint
from txnformat.errors import CorruptDataError, FormatError, StorageError
from txnformat.types import ObjectRecord
from txnformat.verify.report import ProblemKind, Record

__all__ = ["check_bytes", "decode_problem", "decoded", "present"]
T = TypeVar("T")


def decode_problem(error: FormatError) -> ProblemKind:
    """Return what kind of problem it is that bytes cannot be decoded."""
    if error.kind == "wrong-checksum":
        return ProblemKind.WRONG_HASH
    return ProblemKind.UNDECODABLE if isinstance(error, CorruptDataError) else ProblemKind.UNSUPPORTED


def present(
    record: Record, key: str, answer: bytes | StorageError | None, what: str, hint: str
) -> bytes | None:
    """Return an object's bytes, or note why there are none; ``what`` and ``hint`` are about one that is gone."""
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
    """Return what an object holds, or note why nothing can be told: other bytes than were named, or none that can be decoded."""
    if check_bytes(record, named, data, hint):
        try:
            return decode(data)
        except FormatError as error:
            record.add_error(decode_problem(error), named.key, error, hint)
    return None
