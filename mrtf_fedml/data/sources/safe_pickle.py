"""A reader of pickles that supports only arrays and plain containers.

A pickle is a program: it names functions and calls them. CIFAR and MNIST-M are distributed as pickles. Here an
interpreter runs only the instructions for numbers, strings, containers and arrays, and calls only the functions of this
module. NumPy's own functions would trust a pickle that describes its arrays wrongly, and then access memory outside of
them.
"""

from __future__ import annotations

import math
import pickletools
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import UserError
from ..formatting import quote
from .files import damaged_file_error
from .source import Array

#: Types of keys in a mapping. The hash of a deeply nested tuple would overflow the stack.
_KEY_TYPES = (str, bytes, int)
MAX_KEY_LENGTH = 1000

_SIZED = (str, bytes, bytearray, list, tuple)


class _UnsupportedNameError(Exception):
    """The pickle names something other than arrays and containers."""


@dataclass(frozen=True)
class _Callable:
    """A name in the pickle, replaced by a function of this module."""

    call: Callable[..., Any]


def load_pickle(content: bytes, path: Path) -> Any:
    """The arrays and containers of a pickle, with the keys of mappings as strings.

    Nothing that the pickle names is called: functions of this module replace the names. The result needs at most a
    few times the memory of the pickle. `path` is for messages.
    """
    interpreter = _Interpreter(len(content))
    try:
        for instruction, argument, _ in pickletools.genops(content):
            interpreter.step(instruction.name, argument)
        return interpreter.result()
    except _UnsupportedNameError as error:
        raise UserError(
            f"data file {str(path)!r} names {error}, which is neither an array nor a plain container; nothing was "
            "run; download the file again from where it is published"
        ) from None
    # A damaged pickle may raise any exception.
    except Exception as error:
        raise damaged_file_error(path, error) from error


def integer_array(values: Any) -> Array | None:
    """A list of integers as an int64 array; None for anything else.

    >>> integer_array([3, 4]).tolist()
    [3, 4]
    """
    if not isinstance(values, list | tuple) or not all(isinstance(value, int | np.integer) for value in values):
        return None
    if not all(-(2**63) <= int(value) < 2**63 for value in values):
        return None
    return np.array([int(value) for value in values], dtype=np.int64)


class _Interpreter:
    """The stack and the memo on which the instructions of a pickle operate."""

    def __init__(self, size: int) -> None:
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}
        #: The bytes that calls may still copy: a few times the size of the pickle.
        self.copy_budget = 4 * size + 1000

    def step(self, name: str, argument: Any) -> None:
        """Run one instruction."""
        if name in _PUSH_OPCODES:
            self.stack.append(argument)
        elif name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name]())
        elif name in _OPCODES:
            _OPCODES[name](self, argument)
        elif name not in ("PROTO", "FRAME", "STOP"):
            raise ValueError(f"it holds the instruction {name}")

    def result(self) -> Any:
        """The result of the pickle."""
        if len(self.stack) != 1:
            raise ValueError(f"it has {len(self.stack)} results")
        return _finish_value(self.stack[0])

    def pop(self) -> Any:
        """Remove and return the top of the stack, with an announced array finished."""
        if self.marks and len(self.stack) <= self.marks[-1]:
            raise ValueError("its stack is empty")
        return _finish_value(self.stack.pop())

    def mark(self, _: Any) -> None:
        """Remember where the items of a container begin."""
        self.marks.append(len(self.stack))

    def pop_mark(self) -> list[Any]:
        """Remove and return the items since the last mark."""
        start = self.marks.pop()
        items = [_finish_value(item) for item in self.stack[start:]]
        del self.stack[start:]
        return items

    def pop_many(self, number: int) -> list[Any]:
        """Remove and return this many items, the deepest first."""
        return [self.pop() for _ in range(number)][::-1]

    def append(self, items: list[Any]) -> None:
        """Append to the list on top of the stack."""
        if type(self.stack[-1]) is not list:
            raise ValueError("it appends to something that is not a list")
        self.stack[-1].extend(items)

    def set_items(self, items: list[Any]) -> None:
        """Add keys and values to the mapping on top of the stack."""
        self.stack[-1].update(_to_mapping(items))

    def memoize(self, index: int) -> None:
        """Store the top of the stack in the memo."""
        self.memo[int(index)] = self.stack[-1]

    def push_function(self, module: str, name: str) -> None:
        """Push the function of this module that replaces a name."""
        call = _REPLACEMENTS.get((module, name))
        if call is None:
            raise _UnsupportedNameError(f"{quote(module)[1:-1]}.{quote(name)[1:-1]}")
        self.stack.append(_Callable(call))

    def call_function(self, _: Any) -> None:
        """Call a function of this module with a tuple of arguments and push the result."""
        arguments, function = self.pop(), self.pop()
        if not isinstance(function, _Callable) or type(arguments) is not tuple:
            raise ValueError("it calls something that is not a function")
        self._charge(arguments)
        self.stack.append(function.call(*arguments))

    def build(self, _: Any) -> None:
        """Complete an array or its type with its state."""
        state = self.pop()
        pending = self.stack[-1]
        if not isinstance(pending, _PendingArray | _PendingType):
            raise ValueError("it changes something that is not an array")
        self._charge(state)
        pending.finish(state)

    def _charge(self, values: tuple[Any, ...]) -> None:
        self.copy_budget -= sum(len(value) for value in values if isinstance(value, _SIZED))
        if self.copy_budget < 0:
            raise ValueError("it copies the same bytes too often")


def _finish_value(value: Any) -> Any:
    return _array_content(value) if isinstance(value, _PendingArray) else value


def _to_mapping(items: list[Any]) -> dict[str, Any]:
    keys, values = items[::2], items[1::2]
    if len(keys) != len(values) or not all(isinstance(key, _KEY_TYPES) for key in keys):
        raise ValueError("it has a mapping whose keys are not strings")
    if any(isinstance(key, bytes) and len(key) > MAX_KEY_LENGTH for key in keys):
        raise ValueError("it has a mapping with a key that is too long")
    return {
        key.decode("latin1") if isinstance(key, bytes) else str(key): value
        for key, value in zip(keys, values, strict=True)
    }


#: Type codes of numbers: no objects, records or strings.
_NUMBER_TYPE = re.compile(r"(b1|[iu][1248]|f[248])")


@dataclass
class _PendingType:
    """A number type, whose byte order follows after its name."""

    code: str
    order: str = "="

    def finish(self, state: Any) -> None:
        """Set the byte order from NumPy's state of a type; the other entries describe records."""
        order, fields = state[1], state[2:5]
        if order not in ("<", ">", "|", "=") or fields != (None, None, None):
            raise ValueError("it holds an array of records")
        self.order = order

    def dtype(self) -> np.dtype[Any]:
        """The type for NumPy."""
        return np.dtype(self.order + self.code)


@dataclass
class _PendingArray:
    """An array whose content follows after its announcement."""

    array: Array | None = None

    def finish(self, state: Any) -> None:
        """Set the array from shape, type, order of axes and bytes."""
        _, shape, number_type, is_fortran, raw = state
        self.array = _array_from_bytes(raw, number_type, shape, "F" if is_fortran else "C")


def _array_content(pending: _PendingArray) -> Array:
    """The content of an announced array."""
    if pending.array is None:
        raise ValueError("it announces an array without content")
    return pending.array


def _array_from_bytes(raw: Any, number_type: Any, shape: Any, order: str) -> Array:
    # Python 2 wrote bytes as strings.
    data = raw.encode("latin1") if isinstance(raw, str) else raw
    if not isinstance(number_type, _PendingType) or not isinstance(data, bytes | bytearray):
        raise ValueError("it holds an array of other items than numbers")
    is_shape = type(shape) is tuple and all(type(axis) is int and axis >= 0 for axis in shape)
    if not is_shape or order not in ("C", "F"):
        raise ValueError("it holds an array without a valid shape")
    dtype = number_type.dtype()
    if math.prod(shape) * dtype.itemsize != len(data):
        raise ValueError(f"it announces an array of shape {shape} and has {len(data)} bytes for it")
    return np.frombuffer(data, dtype=dtype).reshape(shape, order=order)  # type: ignore[call-overload]


def _number_type(code: Any, *_: Any) -> _PendingType:
    name = code.decode("latin1") if isinstance(code, bytes) else code
    if not isinstance(name, str) or not _NUMBER_TYPE.fullmatch(name):
        raise ValueError("it holds an array of other items than numbers")
    return _PendingType(name)


def _scalar(number_type: Any, raw: Any) -> Any:
    return _array_from_bytes(raw, number_type, (), "C")[()]


def _encode(value: Any, encoding: Any = "latin1") -> bytes:
    """Replaces `_codecs.encode`, with which protocol 2 writes bytes. Other codecs than latin1 may decompress a bomb."""
    if not isinstance(value, str) or encoding not in ("latin1", "latin-1"):
        raise ValueError("it encodes a string in an unsupported way")
    return value.encode("latin1")


def _bytes(value: Any = b"", *encoding: Any) -> bytes:
    """Replaces `bytes` and `bytearray`, without integers, which would allocate that many zeros."""
    if isinstance(value, str):
        return _encode(value, *encoding)
    if not isinstance(value, bytes | bytearray):
        raise ValueError("it allocates bytes")
    return bytes(value)


def _list(value: Any = ()) -> list[Any]:
    """Replaces `list`, `tuple` and `set` of a list or a tuple."""
    if not isinstance(value, list | tuple):
        raise ValueError("it makes a list of something that is not one")
    return list(value)


def _empty_mapping(value: Any = None) -> dict[str, Any]:
    """Replaces `dict` and `OrderedDict`, which are filled afterwards."""
    if value:
        raise ValueError("it makes a mapping in an unsupported way")
    return {}


def _reject_call(*_: Any) -> Any:
    raise ValueError("it calls a type")


_BUILTINS: dict[str, Callable[..., Any]] = {
    **{"bytes": _bytes, "bytearray": _bytes, "dict": _empty_mapping},
    **{"list": _list, "tuple": _list, "set": _list},
}

#: The names that a pickle may have, and the functions that replace them.
_REPLACEMENTS: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy", "ndarray"): _reject_call,
    ("numpy", "dtype"): _number_type,
    **{
        (f"numpy.{core}.{module}", name): call
        for core in ("core", "_core")
        for module, name, call in (
            ("multiarray", "_reconstruct", lambda *_: _PendingArray()),
            ("multiarray", "scalar", _scalar),
            ("numeric", "_frombuffer", _array_from_bytes),
        )
    },
    **{(module, name): call for module in ("builtins", "__builtin__") for name, call in _BUILTINS.items()},
    ("collections", "OrderedDict"): _empty_mapping,
    ("_codecs", "encode"): _encode,
}


_STRING_OPCODES = ("STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8")
_BYTES_OPCODES = ("SHORT_BINBYTES", "BINBYTES", "BINBYTES8", "BYTEARRAY8")
_NUMBER_OPCODES = ("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT")
_PUSH_OPCODES = frozenset((*_STRING_OPCODES, *_BYTES_OPCODES, *_NUMBER_OPCODES))
_CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_LIST": list,
    "EMPTY_DICT": dict,
    "EMPTY_TUPLE": tuple,
}
_OPCODES: dict[str, Callable[[_Interpreter, Any], Any]] = {
    "MARK": _Interpreter.mark,
    "POP": lambda interpreter, _: interpreter.pop(),
    "POP_MARK": lambda interpreter, _: interpreter.pop_mark(),
    "LIST": lambda interpreter, _: interpreter.stack.append(interpreter.pop_mark()),
    "TUPLE": lambda interpreter, _: interpreter.stack.append(tuple(interpreter.pop_mark())),
    "TUPLE1": lambda interpreter, _: interpreter.stack.append(tuple(interpreter.pop_many(1))),
    "TUPLE2": lambda interpreter, _: interpreter.stack.append(tuple(interpreter.pop_many(2))),
    "TUPLE3": lambda interpreter, _: interpreter.stack.append(tuple(interpreter.pop_many(3))),
    "DICT": lambda interpreter, _: interpreter.stack.append(_to_mapping(interpreter.pop_mark())),
    "APPEND": lambda interpreter, _: interpreter.append(interpreter.pop_many(1)),
    "APPENDS": lambda interpreter, _: interpreter.append(interpreter.pop_mark()),
    "SETITEM": lambda interpreter, _: interpreter.set_items(interpreter.pop_many(2)),
    "SETITEMS": lambda interpreter, _: interpreter.set_items(interpreter.pop_mark()),
    "MEMOIZE": lambda interpreter, _: interpreter.memoize(len(interpreter.memo)),
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT"), _Interpreter.memoize),
    **{
        name: lambda interpreter, index: interpreter.stack.append(interpreter.memo[int(index)])
        for name in ("GET", "BINGET", "LONG_BINGET")
    },
    "GLOBAL": lambda interpreter, names: interpreter.push_function(*names.split(" ", 1)),
    "STACK_GLOBAL": lambda interpreter, _: interpreter.push_function(*interpreter.pop_many(2)),
    "REDUCE": _Interpreter.call_function,
    "BUILD": _Interpreter.build,
}
