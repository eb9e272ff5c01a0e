"""The parameters in an .mnn file: which there are, in the order in which the network uses them, and where they lie.

MNN's own reader checks that a file is a FlatBuffer, and then trusts what it says: a tensor whose dimensions promise
more numbers than the file holds is read past its end. A server must not hand it a stranger's file, so this module reads
the file itself, and MNN is not asked.

The numbers below are those of MNN's schema (schema/default/MNN.fbs, CaffeOp.fbs, Tensor.fbs), which only ever grows at
its ends, so that files of older and newer versions read alike.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from math import prod
from typing import Any

import numpy as np

from .flatbuffer import Malformed, Table

#: Net: extraInfo, oplists; ExtraInfo.version.
_EXTRA, _OPERATIONS = 2, 3
_VERSION = 2
#: Op: inputIndexes, main_type, main, outputIndexes, type.
_INPUTS, _MAIN_TYPE, _MAIN, _OUTPUTS, _TYPE = 0, 1, 2, 4, 5
#: Blob: dims, float32s.
_DIMENSIONS, _FLOATS = 0, 7
#: Convolution2D: common, weight, bias; Convolution2DCommon: kernelX, kernelY, outputCount.
_COMMON, _OWN_WEIGHT, _OWN_BIAS = 0, 1, 2
_KERNEL_X, _KERNEL_Y, _OUT = 2, 3, 10
#: MatMul.transposeB; BinaryOp.opType.
_TRANSPOSED, _WHICH = 2, 0

_BINARY, _CONST, _CONVOLUTION, _INPUT, _PRODUCT, _TRAINABLE = 7, 11, 12, 34, 39, 266
_BLOB, _CONVOLUTION_2D = 7, 9
_ADD, _MULTIPLY = 0, 2

#: No operation of a network that we exchange has more inputs, and no tensor more dimensions.
_MOST = 16
#: Nor has such a network more operations; FedML's resnet20 has 395.
_MOST_OPERATIONS = 10_000


class Role(Enum):
    """What a parameter is to the operation that uses it."""

    CONVOLUTION = "the kernel of a convolution"
    CONVOLUTION_BIAS = "the bias of a convolution"
    PRODUCT = "the matrix of a product"
    SCALE = "a factor"
    SHIFT = "a summand"


@dataclass(frozen=True)
class Parameter:
    """One parameter: its role, its shape in the file, its values, and where they begin."""

    role: Role
    shape: tuple[int, ...]
    values: np.ndarray[Any, Any]
    place: int
    #: Where the file says that it is a constant, or may be trained; None where the operation itself holds it.
    kind_place: int | None

    @property
    def stands_for_none(self) -> bool:
        """Whether it is the bias of zeros that MNN gives a convolution without one, when it saves outside training."""
        return self.role is Role.CONVOLUTION_BIAS and self.kind_place is None and not self.values.any()


@dataclass(frozen=True)
class _Operation:
    kind: int
    main_type: int
    main: Table | None
    inputs: list[int]
    outputs: list[int]
    kind_place: int | None


class MnnFile:
    """The bytes of an .mnn file, read.

    Args:
        content: the whole file.

    Raises:
        Malformed: the bytes are no MNN file, or one of another kind than a classifier's.
    """

    def __init__(self, content: bytes) -> None:
        self.content = content
        root = Table.root(content)
        operations = [_operation(table) for table in root.tables(_OPERATIONS, _MOST_OPERATIONS)]
        if not operations:
            raise Malformed("it holds no network")
        extra = root.table(_EXTRA)
        # It is the last thing in the file, and shows that nothing was cut off; old versions of MNN leave it out.
        self.version = "" if extra is None else extra.text(_VERSION)
        self.parameters = _parameters(operations)

    def with_values(self, values: Sequence[np.ndarray[Any, Any]]) -> bytes:
        """The same file with other values, one array for each parameter, in the same order."""
        changed = bytearray(self.content)
        for parameter, value in zip(self.parameters, values, strict=True):
            raw = np.ascontiguousarray(value, dtype="<f4").tobytes()
            if len(raw) != 4 * parameter.values.size:
                raise ValueError(f"{value.shape} does not fill a parameter of shape {parameter.shape}")
            changed[parameter.place : parameter.place + len(raw)] = raw
        return bytes(changed)

    def trainable(self) -> bytes:
        """The same file with its parameters marked as such.

        MNN 3 saves all of them as constants. A device that loads constants trains nothing, and FedML's own helper
        finds no parameter.
        """
        changed = bytearray(self.content)
        for parameter in self.parameters:
            if parameter.kind_place is not None:
                struct.pack_into("<i", changed, parameter.kind_place, _TRAINABLE)
        return bytes(changed)


def _operation(table: Table) -> _Operation:
    return _Operation(
        kind=table.integer(_TYPE),
        main_type=table.byte(_MAIN_TYPE),
        main=table.table(_MAIN),
        inputs=table.integers(_INPUTS, _MOST),
        outputs=table.integers(_OUTPUTS, _MOST),
        kind_place=table.place(_TYPE),
    )


def _parameters(operations: list[_Operation]) -> list[Parameter]:
    makers: dict[int, _Operation] = {}
    for operation in operations:
        for tensor in operation.outputs:
            if tensor in makers:
                raise Malformed(f"two operations make tensor {tensor}")
            makers[tensor] = operation
    found: list[Parameter] = []
    for operation in _in_order(operations, makers):
        found += _used_by(operation, makers)
    return found


def _in_order(operations: list[_Operation], makers: Mapping[int, _Operation]) -> list[_Operation]:
    """Each operation after what it needs, and first inputs first: whatever the order in which they were saved."""
    used = {tensor for operation in operations for tensor in operation.inputs}
    last = [op for op in operations if op.kind not in (_CONST, _TRAINABLE, _INPUT) and not used & set(op.outputs)]
    if len(last) != 1:
        raise Malformed(f"its network has {len(last)} outputs, not one")
    order: list[_Operation] = []
    begun: set[int] = set()
    # No recursion: a file can be deeper than Python's stack.
    waiting: list[tuple[_Operation, bool]] = [(last[0], False)]
    while waiting:
        operation, inputs_done = waiting.pop()
        if inputs_done:
            order.append(operation)
            continue
        if id(operation) in begun:
            continue
        begun.add(id(operation))
        waiting.append((operation, True))
        for tensor in reversed(operation.inputs):
            if tensor not in makers:
                raise Malformed(f"nothing makes tensor {tensor}")
            waiting.append((makers[tensor], False))
    return order


def _used_by(operation: _Operation, makers: Mapping[int, _Operation]) -> list[Parameter]:
    found = []
    if operation.kind == _CONVOLUTION and len(operation.inputs) == 1:
        found = _inside(operation)
    for slot, tensor in enumerate(operation.inputs):
        if makers[tensor].kind in (_CONST, _TRAINABLE):
            parameter = _constant(makers[tensor], operation, slot)
            if parameter is not None:
                found.append(parameter)
    return found


def _constant(maker: _Operation, user: _Operation, slot: int) -> Parameter | None:
    """The parameter behind an input; None for a number of the graph's own, such as a batch norm's epsilon."""
    floats = maker.main.floats(_FLOATS) if maker.main is not None and maker.main_type == _BLOB else None
    if floats is None or maker.main is None:
        return None
    shape = tuple(maker.main.integers(_DIMENSIONS, _MOST))
    if not shape:
        return None
    return _checked(_role(user, slot), shape, floats, maker.kind_place)


def _role(user: _Operation, slot: int) -> Role:
    if user.kind == _CONVOLUTION and slot in (1, 2):
        return (Role.CONVOLUTION, Role.CONVOLUTION_BIAS)[slot - 1]
    if user.kind == _PRODUCT and slot == 1 and user.main is not None and user.main.byte(_TRANSPOSED):
        return Role.PRODUCT
    if user.kind == _BINARY and user.main is not None:
        which = user.main.integer(_WHICH)
        if which in (_ADD, _MULTIPLY):
            return Role.SHIFT if which == _ADD else Role.SCALE
    raise Malformed(f"a parameter feeds an operation of type {user.kind}, which takes none here")


def _inside(operation: _Operation) -> list[Parameter]:
    """The kernel and the bias of a convolution that holds them itself, as MNN saves it outside training."""
    main = operation.main if operation.main_type == _CONVOLUTION_2D else None
    common = None if main is None else main.table(_COMMON)
    weight = None if main is None else main.floats(_OWN_WEIGHT)
    if main is None or common is None or weight is None or not weight[1].size:
        raise Malformed("a convolution has no plain kernel; a compressed or quantised model cannot be averaged")
    out = common.integer(_OUT)
    kernel = (common.integer(_KERNEL_Y, 1), common.integer(_KERNEL_X, 1))
    if min(out, *kernel) < 1:
        raise Malformed("a convolution has no size")
    inputs = weight[1].size // (out * prod(kernel))
    found = [_checked(Role.CONVOLUTION, (out, inputs, *kernel), weight, None)]
    bias = main.floats(_OWN_BIAS)
    if bias is not None:
        found.append(_checked(Role.CONVOLUTION_BIAS, (bias[1].size,), bias, None))
    return found


def _checked(
    role: Role, shape: tuple[int, ...], floats: tuple[int, np.ndarray[Any, Any]], kind_place: int | None
) -> Parameter:
    place, values = floats
    if min(shape) < 1 or prod(shape) != values.size:
        raise Malformed(f"{role.value} has shape {shape} and {values.size} values")
    return Parameter(role, shape, values, place, kind_place)
