"""Blocks of producer ids in the form in which Kafka's controllers keep them, for tools that know it. Pure.

    {"version":1,"broker":35,"block_start":"4000","block_end":"4999"}

Both ends are inclusive, and texts, because they have 64 bits. ``broker`` says whose the block is: a number in
Kafka, here the text that the process gave when it asked for the block. A log itself holds blocks as its
operations and its snapshots do (docs/internals/spec.md); this form is shown, never stored.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Any, Self

from msgspec import Meta, Struct

from txnformat.core.wire.document import plain_text
from txnformat.core.wire.typed import Typed, fail
from txnformat.digits import whole
from txnformat.errors import InvalidInputError
from txnformat.field_types import INT64_MAX, Count, Text

__all__ = ["IdBlock"]

VERSION = 1


@dataclass(frozen=True, slots=True)
class IdBlock:
    """Producer ids that one process may hand out, from 0 to 2^63 - 1; others raise InvalidInputError of kind
    ``invalid-id-block``.
    """

    owner: str | int
    """Owner of the ids: a text, or the number of a Kafka broker."""
    first: int
    """Inclusive."""
    last: int
    """Inclusive."""

    def __post_init__(self) -> None:
        """Refuse what is no block."""
        if not 0 <= self.first <= self.last <= INT64_MAX:
            raise InvalidInputError(
                f"{self.first} to {self.last} is not a block of producer ids",
                kind="invalid-id-block",
                hint=f"both ends are inclusive and from 0 to {INT64_MAX}",
            )

    def to_dict(self) -> dict[str, Any]:
        """Return the block as plain values of the form."""
        return {
            "version": VERSION,
            "broker": self.owner,
            "block_start": str(self.first),
            "block_end": str(self.last),
        }

    def encode(self) -> bytes:
        """Return the form's JSON, byte for byte as Kafka writes it."""
        return json.dumps(self.to_dict(), separators=(",", ":"), ensure_ascii=False).encode()

    @classmethod
    def decode(cls, data: bytes, *, name: str = "id block") -> Self:
        """Parse the form, or raise CorruptDataError. Other fields are left alone."""
        said = _BLOCK.decode(plain_text(data, name=name), name=name)
        first, last = (
            _number(said.block_start, "block_start", name),
            _number(said.block_end, "block_end", name),
        )
        if last < first:
            fail(name, "block_end", f"a number from {first}", said.block_end)
        return cls(said.broker, first, last)


class _Block(Struct, frozen=True):
    version: Annotated[int, Meta(ge=VERSION, le=VERSION)]
    broker: Count | Text
    block_start: Text
    block_end: Text


_BLOCK: Typed[_Block] = Typed(_Block)


def _number(text: str, field: str, name: str) -> int:
    number = whole(text)
    if number is None or number > INT64_MAX or text != str(number):
        fail(name, field, f"digits of a number from 0 to {INT64_MAX}", text)
    return number
