"""Pickles of which only arrays and plain containers are let through.

A pickle is a program: it names functions and has them called. CIFAR and MNIST-M are distributed as pickles, so
here that program is run by a machine that knows the few instructions which make numbers, texts, containers and
arrays, and that calls nothing but the functions in this file.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import UserError
from ..names import shown
from .pickled_arrays import CALLS, PendingArray, PendingType, array_of
from .reading import damaged

#: What may stand as a key of a mapping. The hash of a deep tuple would overflow the stack.
_KEYS = (str, bytes, int)
LONGEST_KEY = 1000

_SIZED = (str, bytes, bytearray, list, tuple)


class _Refused(Exception):
    """The pickle names something else than arrays and containers."""


@dataclass(frozen=True)
class _Named:
    """A name that stands for one of our own functions, or for a type that only they look at."""

    call: Callable[..., Any]


def load_pickle(content: bytes, path: Path) -> Any:
    """The arrays and containers of a pickle, with the keys of mappings as texts.

    Nothing that the pickle names is called: the names stand for functions of ours. What it makes takes no more
    room than a few times its own. `path` is where it came from, for messages.
    """
    machine = _Machine(len(content))
    try:
        for instruction, argument, _ in pickletools.genops(content):
            machine.step(instruction.name, argument)
        return machine.result()
    except _Refused as error:
        raise UserError(
            f"data file {str(path)!r} names {error}, which is neither an array nor a plain container; nothing of it "
            "was run, and you should fetch the file again from where it is published"
        ) from None
    # A damaged pickle may raise anything that its instructions stumble on.
    except Exception as error:
        raise damaged(path, error) from error


class _Machine:
    """The stack and the memory on which the instructions of a pickle work."""

    def __init__(self, size: int) -> None:
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}
        #: How many bytes calls may still copy: each byte of the pickle a few times, not as often as it likes.
        self.allowance = 4 * size + 1000

    def step(self, name: str, argument: Any) -> None:
        """One instruction."""
        if name in _PUSHES:
            self.stack.append(argument)
        elif name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name]())
        elif name in _STEPS:
            _STEPS[name](self, argument)
        elif name not in ("PROTO", "FRAME", "STOP"):
            raise ValueError(f"it holds the instruction {name}")

    def result(self) -> Any:
        """What the pickle made."""
        if len(self.stack) != 1:
            raise ValueError(f"it makes {len(self.stack)} things")
        return _value(self.stack[0])

    def pop(self) -> Any:
        """The thing on top, finished: an array and no longer the promise of one."""
        if self.marks and len(self.stack) <= self.marks[-1]:
            raise ValueError("its stack has run out")
        return _value(self.stack.pop())

    def mark(self, _: Any) -> None:
        """Remember where a container's things begin."""
        self.marks.append(len(self.stack))

    def pop_mark(self) -> list[Any]:
        """The things since the last mark."""
        start = self.marks.pop()
        things = [_value(thing) for thing in self.stack[start:]]
        del self.stack[start:]
        return things

    def last(self, number: int) -> list[Any]:
        """So many things from the top, the deepest first."""
        return [self.pop() for _ in range(number)][::-1]

    def append(self, things: list[Any]) -> None:
        """Put things into the list on top."""
        if type(self.stack[-1]) is not list:
            raise ValueError("it appends to what is no list")
        self.stack[-1].extend(things)

    def set_items(self, things: list[Any]) -> None:
        """Put keys and values into the mapping on top."""
        self.stack[-1].update(_pairs(things))

    def remember(self, place: int) -> None:
        """Keep the thing on top under a number."""
        self.memo[int(place)] = self.stack[-1]

    def name(self, module: str, name: str) -> None:
        """Push one of our own functions, where the name stands for one."""
        call = CALLS.get((module, name))
        if call is None:
            raise _Refused(f"{shown(module)[1:-1]}.{shown(name)[1:-1]}")
        self.stack.append(_Named(call))

    def call(self, _: Any) -> None:
        """Push what a function of ours makes of a row of arguments."""
        arguments, named = self.pop(), self.pop()
        if not isinstance(named, _Named) or type(arguments) is not tuple:
            raise ValueError("it calls what is no function")
        self._charge(arguments)
        self.stack.append(named.call(*arguments))

    def build(self, _: Any) -> None:
        """Finish an array or its type with what it is to hold."""
        state = self.pop()
        unfinished = self.stack[-1]
        if not isinstance(unfinished, PendingArray | PendingType):
            raise ValueError("it changes what is no array")
        self._charge(state)
        unfinished.finish(state)

    def _charge(self, things: tuple[Any, ...]) -> None:
        self.allowance -= sum(len(thing) for thing in things if isinstance(thing, _SIZED))
        if self.allowance < 0:
            raise ValueError("it copies the same bytes over and over")


def _value(thing: Any) -> Any:
    return array_of(thing) if isinstance(thing, PendingArray) else thing


def _pairs(things: list[Any]) -> dict[str, Any]:
    keys, values = things[::2], things[1::2]
    if len(keys) != len(values) or not all(isinstance(key, _KEYS) for key in keys):
        raise ValueError("it has a mapping whose keys are no texts")
    if any(isinstance(key, bytes) and len(key) > LONGEST_KEY for key in keys):
        raise ValueError("it has a mapping with an endless key")
    return {
        key.decode("latin1") if isinstance(key, bytes) else str(key): value
        for key, value in zip(keys, values, strict=True)
    }


_TEXTS = ("STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8")
_BYTES = ("SHORT_BINBYTES", "BINBYTES", "BINBYTES8", "BYTEARRAY8")
_NUMBERS = ("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT")
_PUSHES = frozenset((*_TEXTS, *_BYTES, *_NUMBERS))
_CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_LIST": list,
    "EMPTY_DICT": dict,
    "EMPTY_TUPLE": tuple,
}
_STEPS: dict[str, Callable[[_Machine, Any], Any]] = {
    "MARK": _Machine.mark,
    "POP": lambda machine, _: machine.pop(),
    "POP_MARK": lambda machine, _: machine.pop_mark(),
    "LIST": lambda machine, _: machine.stack.append(machine.pop_mark()),
    "TUPLE": lambda machine, _: machine.stack.append(tuple(machine.pop_mark())),
    "TUPLE1": lambda machine, _: machine.stack.append(tuple(machine.last(1))),
    "TUPLE2": lambda machine, _: machine.stack.append(tuple(machine.last(2))),
    "TUPLE3": lambda machine, _: machine.stack.append(tuple(machine.last(3))),
    "DICT": lambda machine, _: machine.stack.append(_pairs(machine.pop_mark())),
    "APPEND": lambda machine, _: machine.append(machine.last(1)),
    "APPENDS": lambda machine, _: machine.append(machine.pop_mark()),
    "SETITEM": lambda machine, _: machine.set_items(machine.last(2)),
    "SETITEMS": lambda machine, _: machine.set_items(machine.pop_mark()),
    "MEMOIZE": lambda machine, _: machine.remember(len(machine.memo)),
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT"), _Machine.remember),
    **{
        name: lambda machine, place: machine.stack.append(machine.memo[int(place)])
        for name in ("GET", "BINGET", "LONG_BINGET")
    },
    "GLOBAL": lambda machine, names: machine.name(*names.split(" ", 1)),
    "STACK_GLOBAL": lambda machine, _: machine.name(*machine.last(2)),
    "REDUCE": _Machine.call,
    "BUILD": _Machine.build,
}
