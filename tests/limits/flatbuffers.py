"""Arrow schemas of few bytes that stand for very many: a flatbuffer may name one table or text as often as it
likes."""

from __future__ import annotations

import struct

__all__ = ["metadata_stream", "names_file"]


class _Flatbuffer:
    """Tables are written before what they refer to; ``refer`` fills in a reference."""

    def __init__(self) -> None:
        self.data = bytearray(4)

    def table(self, numbers: dict[int, int], references: tuple[int, ...]) -> dict[int, int]:
        """Append a table of 8 bytes for each field; return where each reference is, and under -1 the
        table.
        """
        fields = sorted({*numbers, *references})
        places = {index: 8 + 8 * place for place, index in enumerate(fields)}
        offsets = [places.get(index, 0) for index in range(max(fields, default=-1) + 1)]
        self._align(8)
        vtable = len(self.data)
        self.data += struct.pack("<HH", 4 + 2 * len(offsets), 8 + 8 * len(fields))
        self.data += b"".join(struct.pack("<H", offset) for offset in offsets)
        self._align(8)
        at = len(self.data)
        self.data += struct.pack("<i4x", at - vtable) + bytes(8 * len(fields))
        for index, number in numbers.items():
            struct.pack_into("<q", self.data, at + places[index], number)
        return {-1: at, **{index: at + places[index] for index in references}}

    def vector(self, count: int) -> tuple[int, range]:
        """Append a vector of references; return it and where they are."""
        self._align(4)
        at = len(self.data)
        self.data += struct.pack("<I", count) + bytes(4 * count)
        return at, range(at + 4, at + 4 + 4 * count, 4)

    def text(self, text: bytes) -> int:
        self._align(4)
        at = len(self.data)
        self.data += struct.pack("<I", len(text)) + text + b"\0"
        return at

    def refer(self, place: int, target: int) -> None:
        struct.pack_into("<I", self.data, place, target - place)

    def _align(self, size: int) -> None:
        self.data += bytes(-len(self.data) % size)


def names_file(columns: int, name: bytes) -> bytes:
    """Return an Arrow file whose footer has one column many times."""
    made = _Flatbuffer()
    footer = made.table({0: 4}, (1,))
    made.refer(0, footer[-1])
    schema = made.table({}, (1,))
    made.refer(footer[1], schema[-1])
    vector, places = made.vector(columns)
    made.refer(schema[1], vector)
    field = made.table({2: 5}, (0,))
    for place in places:
        made.refer(place, field[-1])
    made.refer(field[0], made.text(name))
    return b"ARROW1\0\0" + bytes(made.data) + struct.pack("<i", len(made.data)) + b"ARROW1"


def metadata_stream(times: int, text: bytes) -> bytes:
    """Return an Arrow stream whose schema has no columns, and one pair of metadata many times."""
    made = _Flatbuffer()
    message = made.table({0: 4, 1: 1, 3: 0}, (2,))
    made.refer(0, message[-1])
    schema = made.table({}, (1, 2))
    made.refer(message[2], schema[-1])
    made.refer(schema[1], made.vector(0)[0])
    vector, places = made.vector(times)
    made.refer(schema[2], vector)
    pair = made.table({}, (0, 1))
    for place in places:
        made.refer(place, pair[-1])
    made.refer(pair[0], made.text(b"k"))
    made.refer(pair[1], made.text(text))
    made.data += bytes(-len(made.data) % 8)
    return b"\xff" * 4 + struct.pack("<i", len(made.data)) + bytes(made.data) + b"\xff" * 4 + bytes(4)
