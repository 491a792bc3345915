"""Bytes compared with the size and hash that an entry names. Pure."""

from __future__ import annotations

from txnformat.core.entry import sha256_hex
from txnformat.errors import CorruptDataError, FormatError
from txnformat.verify.report import ProblemKind, Record

__all__ = ["check_bytes", "decode_problem"]


def decode_problem(error: FormatError) -> ProblemKind:
    """Return what kind of problem it is that bytes cannot be decoded."""
    if error.kind == "wrong-checksum":
        return ProblemKind.WRONG_HASH
    return ProblemKind.UNDECODABLE if isinstance(error, CorruptDataError) else ProblemKind.UNSUPPORTED


def check_bytes(record: Record, key: str, data: bytes, size: int, sha256: str, hint: str) -> bool:
    """Return whether bytes have the size and hash that an entry names; else note the problem."""
    if len(data) != size:
        what = "the object has another size than its entry says"
        record.add(ProblemKind.WRONG_SIZE, key, what, f"{size} bytes", len(data), hint)
        return False
    if sha256_hex(data) != sha256:
        what = "the object has another hash than its entry says"
        record.add(ProblemKind.WRONG_HASH, key, what, sha256, sha256_hex(data), hint)
        return False
    return True
