"""Values larger than one record: several records with the same key, each of which says in a header which part it holds.

A value that is too large for a record is cut into chunks, written in order to one partition in one transaction. Each
chunk is an ordinary record: ``value`` is the part, and the header ``txnlog.chunk`` says whose and which part it is.
Rules: docs/spec.md, section 6.8.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from txnformat.document import Document, decode_json, plain_json

__all__ = ["CHUNK_HEADER", "Chunk", "chunk_of"]

CHUNK_HEADER = "txnlog.chunk"
"""Name of the header; no other header of a record that is sent may have it."""

ID_CHARS = 36
HEADER_BYTES_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Chunk:
    """What the header says: the part of a value that a record holds."""

    value_id: str
    """A uuid: whose part."""
    index: int
    """Which part, counted from 0."""
    count: int | None = None
    """Of the last part only: how many there are, ``index + 1``."""
    size: int | None = None
    """Of the last part only: bytes of the whole value."""

    @property
    def is_last(self) -> bool:
        """Whether the value ends with this part."""
        return self.count is not None

    def encode(self) -> bytes:
        """Return the header's value: canonical JSON."""
        fields: dict[str, object] = {"value": self.value_id, "index": self.index}
        if self.is_last:
            fields |= {"count": self.count, "size": self.size}
        return plain_json(fields)

    @classmethod
    def decode(cls, data: bytes, *, name: str) -> Self:
        """Parse a header's value; ``name`` says in errors where it is from.

        Raises
        ------
        CorruptDataError
        """
        is_plain = data.lstrip()[:1] == b"{"  # a few compressed bytes may stand for many
        document = decode_json(data[:HEADER_BYTES_MAX] if is_plain else b"", name=name)
        index = document.integer("index")
        count = size = None
        if document.has("count") or document.has("size"):
            count = document.integer("count", minimum=index + 1, maximum=index + 1)
            size = document.integer("size")
        return cls(_value_id(document), index, count, size)


def _value_id(document: Document) -> str:
    value_id = document.text("value", bytes_max=ID_CHARS)
    if len(value_id) != ID_CHARS:
        document.fail("value", "uuid")
    return value_id


def chunk_of(headers: Sequence[Any] | None, *, name: str) -> Chunk | None:
    """Return what the headers of a record say of chunks; None of an ordinary record.

    Parameters
    ----------
    headers : sequence of mapping, or None
        Each with ``key`` and ``value``, as Arrow gives them.

    Raises
    ------
    CorruptDataError
        There is such a header, but not of its form.
    """
    for header in headers or ():
        if header["key"] == CHUNK_HEADER:
            return Chunk.decode(header["value"] or b"", name=name)
    return None
