"""Bundles, which hold a hundred entries, and snapshots: both name far more than they have bytes; and what is
known by its name."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tests.limits.case import Case
from tests.limits.document_cases import LOG, MIB, entry_of, open_root, plain_entry, state_before
from tests.limits.flatbuffers import metadata_stream
from txnformat import keys
from txnformat.columns.arrow_messages import WHOLE_BYTES_MAX
from txnformat.core.app_versions.state import VersionAt
from txnformat.core.entry import sha256_hex
from txnformat.core.operations import AppVersion, Checkpoint
from txnformat.core.records.state import ABORTED, EXTENT, MARKER, SEGMENT
from txnformat.core.snapshot.codec import decode_snapshot, encode_snapshot
from txnformat.core.snapshot.state import encode_state
from txnformat.core.state import LogState
from txnformat.core.transactions.abort_index import AbortedTransaction, decode, encode
from txnformat.core.wire.bundle import BUNDLE_ENTRIES, PAYLOAD_SIZES, encode_bundle, encode_payloads
from txnformat.core.wire.document import packed, plain_json
from txnformat.core.wire.entry_bytes import encode_stored
from txnformat.core.wire.small_documents import decode_condemned
from txnformat.errors import FormatError
from txnformat.log import TxnLog
from txnformat.persistent import replace
from txnformat.protocol.follow import fold_bytes
from txnformat.protocol.tail import usable_bundle, usable_payloads
from txnformat.store.local import LocalStore

__all__ = ["CASES"]

OPERATIONS = 8_000
"""Of each entry of a bundle of less than 1 MiB."""


def _bundle(made: Callable[[], Iterator[bytes]], folder: Path) -> int:
    data = encode_bundle(list(made()))
    assert data is not None
    (folder / "object").write_bytes(data)
    return len(data)


def _of_lists() -> Iterator[bytes]:
    for _ in range(BUNDLE_ENTRIES):
        yield encode_stored(plain_entry(b"[],", 24 * MIB))


def _of_texts() -> Iterator[bytes]:
    """Yield entries that follow each other, each with 31 MiB that no reader knows."""
    state = state_before("")
    for _ in range(BUNDLE_ENTRIES):
        text = plain_entry(b'"' + b"x" * 4000 + b'",', 31 * MIB, state)
        data = encode_stored(text)
        state = fold_bytes(state, data)
        yield data


def _of_operations() -> Iterator[bytes]:
    state = state_before("")
    for entry in range(BUNDLE_ENTRIES):
        operations = (AppVersion("n", f"a{number}", entry + 1, 0) for number in range(OPERATIONS))
        data = entry_of(state, operations)
        state = fold_bytes(state, data)
        yield data


def _make_lies(folder: Path) -> int:
    data = next(iter([encode_bundle([b"x" * 10_000] * BUNDLE_ENTRIES)])) or b""
    data = data[:-10_004] + struct.pack("<I", 2**32 - 1) + bytes(10_000)
    (folder / "object").write_bytes(data)
    return len(data)


def _make_payload_lies(folder: Path) -> int:
    data = encode_payloads([b"x" * 10_000] * PAYLOAD_SIZES[0]) or b""
    data = data[:-10_004] + struct.pack("<I", 2**32 - 1) + bytes(10_000)
    (folder / "object").write_bytes(data)
    return len(data)


def _fold_payloads(folder: Path) -> object:
    """Take a payload bundle as a follower does."""
    entries = usable_payloads((folder / "object").read_bytes(), 0, PAYLOAD_SIZES[0])
    return "passed over" if entries is None else "taken"


def _fold(folder: Path) -> object:
    """Fold a bundle as a reader does that is far behind."""
    entries = usable_bundle((folder / "object").read_bytes(), 0)
    if entries is None:
        return "passed over"
    state = state_before("")
    try:
        for data in entries:
            state = fold_bytes(state, data)
    except FormatError:
        return f"passed over at its entry {state.entry + 1}"
    return "folded"


ROWS = 8_000_000
_EMPTY = LogState(log_id=LOG, entry=0, entry_sha256="0" * 64)
_CHECKPOINT = keys.snapshot_key(0, "00000000-0000-4000-8000-000000000000")


def _stream(arrays: dict[str, pa.Array], compression: str | None) -> bytes:
    fields = [pa.field(name, array.type, nullable=False) for name, array in arrays.items()]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(
        sink, pa.schema(fields), options=pa.ipc.IpcWriteOptions(compression=compression)
    ) as writer:
        writer.write_batch(pa.record_batch(list(arrays.values()), schema=pa.schema(fields)))
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _make_snapshot(sections: Mapping[str, Callable[[], bytes]], folder: Path) -> int:
    """Write the snapshot of an empty state with other sections."""
    outer = pa.ipc.open_stream(encode_snapshot(_EMPTY)).read_all()
    names = outer.column("section").to_pylist()
    data = [
        sections[name]() if name in sections else one
        for name, one in zip(names, outer.column("data").to_pylist(), strict=True)
    ]
    made = _stream({"section": pa.array(names), "data": pa.array(data, pa.large_binary())}, None)
    (folder / "object").write_bytes(made)
    return len(made)


def _zeros(dtype: np.dtype[Any], rows: int) -> bytes:
    return _stream({name: pa.array(np.zeros(rows, dtype[name])) for name in dtype.names or ()}, "zstd")


def _most(dtype: np.dtype[Any]) -> bytes:
    return _zeros(dtype, (WHOLE_BYTES_MAX - 8192) // dtype.itemsize)


def _number() -> bytes:
    return packed(b'{"x":[' + b"0," * (125 * MIB) + b"0]}")


def _versions() -> bytes:
    apps = {("n", str(number)): VersionAt(1, 0) for number in range(380_000)}
    return packed(plain_json(encode_state(replace(_EMPTY, app_versions=apps))))


_ROWS = {"extents": EXTENT, "markers": MARKER, "aborted": ABORTED, "segments": SEGMENT}


_BESIDE: dict[str, Callable[[], bytes]] = {"state": _versions, "extents": partial(_most, EXTENT)}


def _use_snapshot(folder: Path) -> object:
    data = (folder / "object").read_bytes()
    named = Checkpoint(0, _CHECKPOINT, len(data), sha256_hex(data), "0" * 64)
    return decode_snapshot(data, named, LOG)


def _make_aborted(folder: Path) -> int:
    data = encode(AbortedTransaction(1, number, number, number) for number in range(MIB // 34))
    (folder / "object").write_bytes(data)
    return len(data)


def _use_aborted(folder: Path) -> object:
    return f"read, {len(decode((folder / 'object').read_bytes())):,} transactions"


_CONDEMNED = keys.condemned_key(0, str(uuid.UUID(int=4 << 76)))


def _make_condemned(folder: Path) -> int:
    head, tail = plain_json({"entry": 0, "format": 1, "keys": [], "log_id": LOG, "timestamp_ms": 0}).split(
        b"[]"
    )
    data = packed(head + b"[" + b'"",' * 1_390_000 + b'""]' + tail)
    (folder / "object").write_bytes(data)
    return len(data)


def _use_condemned(folder: Path) -> object:
    return f"read, {len(decode_condemned((folder / 'object').read_bytes(), _CONDEMNED, LOG).keys):,} keys"


def _make_by_name(key: str, folder: Path) -> int:
    TxnLog.create(str(folder / "root")).close()
    LocalStore(folder / "root").create(key, bytes(MIB))
    return MIB


def _open_by_name(folder: Path) -> object:
    return "not fetched" if open_root(folder) == -1 else "opened"


def _make_metadata(folder: Path) -> int:
    data = metadata_stream(20_000, b"x" * 900_000)
    (folder / "object").write_bytes(data)
    return len(data)


CASES = (
    Case(
        "snapshot-metadata",
        "snapshot: a schema with one text of 900 kB 20,000 times",
        _make_metadata,
        _use_snapshot,
    ),
    Case("bundle-lies", "bundle: an entry of 4 GiB", _make_lies, _fold),
    Case("payloads-lies", "payload bundle: an entry of 4 GiB", _make_payload_lies, _fold_payloads),
    *(
        Case(f"bundle-{key}", f"bundle: {what}", partial(_bundle, made), _fold)
        for key, what, made in (
            ("lists", "100 entries of 24 MiB of empty lists", _of_lists),
            ("texts", "100 entries of 31 MiB of long texts", _of_texts),
            ("operations", f"100 entries of {OPERATIONS:,} times `app_version`", _of_operations),
        )
    ),
    *(
        Case(f"snapshot-{key}", f"snapshot: {what}", partial(_make_snapshot, sections), _use_snapshot)
        for key, what, sections in (
            ("rows", f"{ROWS:,} extents of zeros", {"extents": partial(_zeros, EXTENT, ROWS)}),
            (
                "most",
                "as many extents of zeros as are decoded",
                {"extents": partial(_most, EXTENT)},
            ),
            (
                "all",
                "as many rows of zeros as are decoded, in each of its tables",
                {name: partial(_most, dtype) for name, dtype in _ROWS.items()},
            ),
            ("versions", "380,000 versions of applications", {"state": _versions}),
            (
                "versions-tables",
                "the same, and as many extents of zeros as are decoded",
                _BESIDE,
            ),
            ("state", "250 MiB of one number", {"state": _number}),
        )
    ),
    Case("txnindex", "`.txnindex`: 1 MiB of aborted transactions", _make_aborted, _use_aborted),
    Case("condemned", "condemned: 4 MiB of empty texts", _make_condemned, _use_condemned),
    Case("boundary", "boundary: 1 MiB", partial(_make_by_name, keys.boundary_key(0)), _open_by_name),
    Case(
        "probe",
        "probe: 1 MiB",
        partial(_make_by_name, keys.probe_key(str(uuid.UUID(int=4 << 76)))),
        _open_by_name,
    ),
)
