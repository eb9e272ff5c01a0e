"""Reading FlatBuffers, the format of .mnn files, without believing a single offset in them.

A buffer is a graph of tables. A table begins with the distance back to its vtable, which lists for each field where in
the table it lies; strings, vectors and other tables are reached by offsets. Whoever writes the file chooses all of
these numbers, so every read here is checked against the buffer's end.

Format: https://flatbuffers.dev/internals/
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

_VTABLE_HEADER = 4
_OFFSET = struct.Struct("<I")
_DISTANCE = struct.Struct("<i")
_SHORT = struct.Struct("<H")


class Malformed(ValueError):
    """The bytes are no FlatBuffer, or one whose offsets lead out of it."""


class Table:
    """A table at a place in a buffer; fields are known by their number in the schema."""

    __slots__ = ("at", "buffer")

    def __init__(self, buffer: bytes, at: int) -> None:
        self.buffer = buffer
        self.at = at

    @classmethod
    def root(cls, buffer: bytes) -> Table:
        """The table that the buffer begins with."""
        return cls(buffer, _followed(buffer, 0))

    def place(self, field: int) -> int | None:
        """Where the field's value lies; None where it was left out."""
        vtable = self.at - _unpack(_DISTANCE, self.buffer, self.at)
        entry = _VTABLE_HEADER + _SHORT.size * field
        if entry + _SHORT.size > _unpack(_SHORT, self.buffer, vtable):
            return None
        offset = _unpack(_SHORT, self.buffer, vtable + entry)
        return self.at + offset if offset else None

    def integer(self, field: int, default: int = 0) -> int:
        """A field of type int."""
        place = self.place(field)
        return default if place is None else _unpack(_DISTANCE, self.buffer, place)

    def byte(self, field: int) -> int:
        """A field of type bool, ubyte, or of an enumeration of bytes."""
        place = self.place(field)
        if place is None:
            return 0
        _check(self.buffer, place, 1)
        return self.buffer[place]

    def text(self, field: int) -> str:
        """A field of type string."""
        start, count = self._vector(field, 1)
        # A zero ends it.
        _check(self.buffer, start, count + 1)
        return self.buffer[start : start + count].decode(errors="replace")

    def table(self, field: int) -> Table | None:
        """A field that is a table, or a union's value."""
        place = self.place(field)
        return None if place is None else Table(self.buffer, _followed(self.buffer, place))

    def tables(self, field: int, at_most: int) -> list[Table]:
        """A field that is a vector of tables."""
        start, count = self._vector(field, _OFFSET.size)
        if count > at_most:
            raise Malformed(f"it lists {count} entries where at most {at_most} are expected")
        places = range(start, start + _OFFSET.size * count, _OFFSET.size)
        return [Table(self.buffer, _followed(self.buffer, place)) for place in places]

    def integers(self, field: int, at_most: int) -> list[int]:
        """A field that is a vector of ints."""
        start, count = self._vector(field, _DISTANCE.size)
        if count > at_most:
            raise Malformed(f"it lists {count} numbers where at most {at_most} are expected")
        return list(struct.unpack_from(f"<{count}i", self.buffer, start))

    def floats(self, field: int) -> tuple[int, np.ndarray[Any, Any]] | None:
        """A field that is a vector of floats: its first byte's place, and a view of it; None where it was left out."""
        if self.place(field) is None:
            return None
        start, count = self._vector(field, 4)
        return start, np.frombuffer(self.buffer, dtype="<f4", count=count, offset=start)

    def _vector(self, field: int, size: int) -> tuple[int, int]:
        place = self.place(field)
        if place is None:
            return 0, 0
        start = _followed(self.buffer, place)
        count = _unpack(_OFFSET, self.buffer, start)
        _check(self.buffer, start + _OFFSET.size, size * count)
        return start + _OFFSET.size, count


def _followed(buffer: bytes, place: int) -> int:
    return place + _unpack(_OFFSET, buffer, place)


def _unpack(layout: struct.Struct, buffer: bytes, place: int) -> int:
    # A negative place would be counted from the end.
    _check(buffer, place, layout.size)
    value: int = layout.unpack_from(buffer, place)[0]
    return value


def _check(buffer: bytes, place: int, size: int) -> None:
    if place < 0 or place + size > len(buffer):
        raise Malformed(f"it points to byte {place}, and has {len(buffer)} bytes")
