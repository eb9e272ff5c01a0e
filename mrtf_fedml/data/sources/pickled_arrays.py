"""What the names in a pickle of arrays stand for: functions of our own, in place of NumPy's.

NumPy's own would believe a pickle that describes its arrays wrongly, and then read or write outside of them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .source import Array

#: Numbers of one kind and of a known size: no objects, records or texts.
_NUMBERS = re.compile(r"(b1|[iu][1248]|f[248])")


@dataclass
class PendingType:
    """A kind of number, whose order of bytes is told after its name."""

    code: str
    order: str = "="

    def finish(self, state: Any) -> None:
        """Take the order of bytes from what NumPy keeps of a type; all else of it describes records."""
        order, described = state[1], state[2:5]
        if order not in ("<", ">", "|", "=") or described != (None, None, None):
            raise ValueError("it holds an array of records")
        self.order = order

    def dtype(self) -> np.dtype[Any]:
        """NumPy's own."""
        return np.dtype(self.order + self.code)


@dataclass
class PendingArray:
    """An array that is announced, and gets its numbers afterwards."""

    array: Array | None = None

    def finish(self, state: Any) -> None:
        """Take shape, type, order of axes and bytes."""
        _, shape, kind, fortran, raw = state
        self.array = _from_bytes(raw, kind, shape, "F" if fortran else "C")


def array_of(pending: PendingArray) -> Array:
    """The array, which must have come by now."""
    if pending.array is None:
        raise ValueError("it announces an array that does not come")
    return pending.array


def _from_bytes(raw: Any, kind: Any, shape: Any, order: str) -> Array:
    # Python 2 wrote bytes as text.
    data = raw.encode("latin1") if isinstance(raw, str) else raw
    if not isinstance(kind, PendingType) or not isinstance(data, bytes | bytearray):
        raise ValueError("it holds an array of something else than numbers")
    plain = type(shape) is tuple and all(type(axis) is int and axis >= 0 for axis in shape)
    if not plain or order not in ("C", "F"):
        raise ValueError("it holds an array without a shape")
    dtype = kind.dtype()
    if math.prod(shape) * dtype.itemsize != len(data):
        raise ValueError(f"it promises an array of shape {shape} and has {len(data)} bytes for it")
    return np.frombuffer(data, dtype=dtype).reshape(shape, order=order)  # type: ignore[call-overload]


def _type(code: Any, *_: Any) -> PendingType:
    text = code.decode("latin1") if isinstance(code, bytes) else code
    if not isinstance(text, str) or not _NUMBERS.fullmatch(text):
        raise ValueError("it holds an array of something else than numbers")
    return PendingType(text)


def _scalar(kind: Any, raw: Any) -> Any:
    return _from_bytes(raw, kind, (), "C")[()]


def _encode(text: Any, encoding: Any = "latin1") -> bytes:
    """How Python 3 writes bytes in protocol 2. Other codecs than this one may unpack a bomb."""
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
        raise ValueError("it encodes text in an unusual way")
    return text.encode("latin1")


def _bytes(given: Any = b"", *encoding: Any) -> bytes:
    """`bytes` and `bytearray`, but for a number: that would be so many zeros."""
    if isinstance(given, str):
        return _encode(given, *encoding)
    if not isinstance(given, bytes | bytearray):
        raise ValueError("it asks for empty bytes")
    return bytes(given)


def _row(given: Any = ()) -> list[Any]:
    """`list`, `tuple` and `set`, of a list or a tuple."""
    if not isinstance(given, list | tuple):
        raise ValueError("it makes a row of what is none")
    return list(given)


def _mapping(given: Any = None) -> dict[str, Any]:
    """`dict` and `OrderedDict`, which are filled afterwards."""
    if given:
        raise ValueError("it makes a mapping in an unusual way")
    return {}


def _never(*_: Any) -> Any:
    raise ValueError("it calls a type")


_BUILTINS: dict[str, Callable[..., Any]] = {
    **{"bytes": _bytes, "bytearray": _bytes, "dict": _mapping},
    **{"list": _row, "tuple": _row, "set": _row},
}

#: Every name that a pickle may have, and what it stands for.
CALLS: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy", "ndarray"): _never,
    ("numpy", "dtype"): _type,
    **{
        (f"numpy.{core}.{module}", name): call
        for core in ("core", "_core")
        for module, name, call in (
            ("multiarray", "_reconstruct", lambda *_: PendingArray()),
            ("multiarray", "scalar", _scalar),
            ("numeric", "_frombuffer", _from_bytes),
        )
    },
    **{(module, name): call for module in ("builtins", "__builtin__") for name, call in _BUILTINS.items()},
    ("collections", "OrderedDict"): _mapping,
    ("_codecs", "encode"): _encode,
}
