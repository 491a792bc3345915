"""Values larger than one record: several records with the same key, each of which says in a header which part
it holds.

A value that is too large for a record is cut into chunks, written in order to one partition in one
transaction. Each chunk is an ordinary record: ``value`` is the part, and the header ``txnlog.chunk`` says
whose and which part it is. Rules: docs/internals/spec.md, section 6.8.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, field

from txnformat.core.wire.document import plain_json
from txnformat.core.wire.typed import Typed, fail
from txnformat.field_types import Count

__all__ = ["CHUNK_HEADER", "Chunk", "chunk_of"]

CHUNK_HEADER = "txnlog.chunk"
"""Name of the header; no other header of a record that is sent may have it."""

ID_CHARS = 36
HEADER_BYTES_MAX = 1_000


ValueId = Annotated[
    str, Meta(min_length=ID_CHARS, max_length=ID_CHARS, extra={"bytes_max": ID_CHARS}, description="uuid")
]


class Chunk(Struct, frozen=True, omit_defaults=True):
    """The header of a chunk: the part of a value that a record holds."""

    value_id: ValueId = field(name="value")
    """A uuid: whose part."""
    index: Count
    """Which part, counted from 0."""
    count: Count | None = None
    """Number of parts, ``index + 1``; only the last part has it."""
    size: Count | None = None
    """Bytes of the whole value; only the last part has it."""

    @property
    def is_last(self) -> bool:
        """Whether the value ends with this part."""
        return self.count is not None

    def encode(self) -> bytes:
        """Return the header's value: canonical JSON."""
        return plain_json(self)

    @classmethod
    def decode(cls, data: bytes, *, name: str) -> Chunk:
        """Parse a header's value, or raise CorruptDataError; ``name`` says there where it is from."""
        chunk = _CHUNK.decode(data[:HEADER_BYTES_MAX], name=name)
        if (chunk.count, chunk.size) != (None, None):
            if chunk.count != chunk.index + 1:
                fail(name, "count", f"index + 1, {chunk.index + 1}", chunk.count)
            if chunk.size is None:
                fail(name, "size", "a value", UNSET)
        return chunk


_CHUNK: Typed[Chunk] = Typed(Chunk)


def chunk_of(headers: Sequence[Any] | None, *, name: str) -> Chunk | None:
    """Return what the headers of a record (mappings with ``key`` and ``value``, as Arrow gives them) say of
    chunks; None of an ordinary record.

    Raises CorruptDataError when there is such a header, but not of its form.
    """
    for header in headers or ():
        if header["key"] == CHUNK_HEADER:
            return Chunk.decode(header["value"] or b"", name=name)
    return None
