"""The parameters of an .mnn file: their order of use in the network, and their positions in the file.

MNN's own reader checks that a file is a FlatBuffer, and then trusts its contents: a tensor whose dimensions promise
more numbers than the file holds is read past its end. A server must not give it a file of unknown origin, so this
module parses the file itself, without MNN.

A FlatBuffer is a graph of tables. A table begins with the distance back to its vtable, which lists the position of each
field in the table; strings, vectors and other tables are reached by offsets. The author of a file chooses all of these
numbers, so every read is checked against the buffer's end. Format: https://flatbuffers.dev/internals/

The field numbers below are those of MNN's schema (schema/default/MNN.fbs, CaffeOp.fbs, Tensor.fbs). New versions only
append fields, so files of older and newer versions are parsed alike.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from math import prod
from typing import Any

import numpy as np

_VTABLE_HEADER = 4
_OFFSET = struct.Struct("<I")
_DISTANCE = struct.Struct("<i")
_SHORT = struct.Struct("<H")

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

#: Most inputs of an operation, and most dimensions of a tensor.
_MAX_ENTRIES = 16
#: Most operations; FedML's resnet20 has 395.
_MAX_OPERATIONS = 10_000


class MalformedFile(ValueError):
    """The bytes are not a FlatBuffer of a classifier; the message says why."""


class Table:
    """A FlatBuffer table; fields are identified by their number in the schema."""

    __slots__ = ("at", "buffer")

    def __init__(self, buffer: bytes, at: int) -> None:
        self.buffer = buffer
        self.at = at

    @classmethod
    def root(cls, buffer: bytes) -> Table:
        """The root table of the buffer."""
        return cls(buffer, _follow_offset(buffer, 0))

    def position(self, field: int) -> int | None:
        """The position of the field's value in the buffer; None if the field is absent."""
        vtable = self.at - _unpack(_DISTANCE, self.buffer, self.at)
        entry = _VTABLE_HEADER + _SHORT.size * field
        if entry + _SHORT.size > _unpack(_SHORT, self.buffer, vtable):
            return None
        offset = _unpack(_SHORT, self.buffer, vtable + entry)
        return self.at + offset if offset else None

    def integer(self, field: int, default: int = 0) -> int:
        """A field of type int."""
        position = self.position(field)
        return default if position is None else _unpack(_DISTANCE, self.buffer, position)

    def byte(self, field: int) -> int:
        """A field of type bool, ubyte, or of an enumeration of bytes."""
        position = self.position(field)
        if position is None:
            return 0
        _check(self.buffer, position, 1)
        return self.buffer[position]

    def text(self, field: int) -> str:
        """A field of type string."""
        start, count = self._vector(field, 1)
        # A zero byte terminates it.
        _check(self.buffer, start, count + 1)
        return self.buffer[start : start + count].decode(errors="replace")

    def table(self, field: int) -> Table | None:
        """A field that is a table, or a union's value."""
        position = self.position(field)
        return None if position is None else Table(self.buffer, _follow_offset(self.buffer, position))

    def tables(self, field: int, max_count: int) -> list[Table]:
        """A field that is a vector of tables."""
        start, count = self._vector(field, _OFFSET.size)
        if count > max_count:
            raise MalformedFile(f"it lists {count} entries, more than {max_count}")
        positions = range(start, start + _OFFSET.size * count, _OFFSET.size)
        return [Table(self.buffer, _follow_offset(self.buffer, position)) for position in positions]

    def integers(self, field: int, max_count: int) -> list[int]:
        """A field that is a vector of ints."""
        start, count = self._vector(field, _DISTANCE.size)
        if count > max_count:
            raise MalformedFile(f"it lists {count} numbers, more than {max_count}")
        return list(struct.unpack_from(f"<{count}i", self.buffer, start))

    def floats(self, field: int) -> tuple[int, np.ndarray[Any, Any]] | None:
        """A field that is a vector of floats: its position and a view of it; None if the field is absent."""
        if self.position(field) is None:
            return None
        start, count = self._vector(field, 4)
        return start, np.frombuffer(self.buffer, dtype="<f4", count=count, offset=start)

    def _vector(self, field: int, size: int) -> tuple[int, int]:
        position = self.position(field)
        if position is None:
            return 0, 0
        start = _follow_offset(self.buffer, position)
        count = _unpack(_OFFSET, self.buffer, start)
        _check(self.buffer, start + _OFFSET.size, size * count)
        return start + _OFFSET.size, count


def _follow_offset(buffer: bytes, position: int) -> int:
    return position + _unpack(_OFFSET, buffer, position)


def _unpack(layout: struct.Struct, buffer: bytes, position: int) -> int:
    # Python counts a negative position from the end.
    _check(buffer, position, layout.size)
    value: int = layout.unpack_from(buffer, position)[0]
    return value


def _check(buffer: bytes, position: int, size: int) -> None:
    if position < 0 or position + size > len(buffer):
        raise MalformedFile(f"it refers to byte {position} of {len(buffer)}")


class Role(Enum):
    """The role of a parameter in the operation that uses it."""

    CONVOLUTION = "the kernel of a convolution"
    CONVOLUTION_BIAS = "the bias of a convolution"
    PRODUCT = "the matrix of a product"
    SCALE = "a factor"
    SHIFT = "a summand"


@dataclass(frozen=True)
class Parameter:
    """One parameter: its role, its shape in the file, its values and their position."""

    role: Role
    shape: tuple[int, ...]
    values: np.ndarray[Any, Any]
    position: int
    #: Position of its kind (constant or trainable); None if the operation itself holds the parameter.
    kind_position: int | None

    @property
    def is_implicit_bias(self) -> bool:
        """Whether it is the zero bias that MNN adds to a convolution without bias when it saves outside training."""
        return self.role is Role.CONVOLUTION_BIAS and self.kind_position is None and not self.values.any()


@dataclass(frozen=True)
class _Operation:
    kind: int
    main_type: int
    main: Table | None
    inputs: list[int]
    outputs: list[int]
    kind_position: int | None


class MnnFile:
    """A parsed .mnn file.

    Args:
        content: the whole file.

    Raises:
        MalformedFile: the bytes are not an MNN file of a classifier.
    """

    def __init__(self, content: bytes) -> None:
        self.content = content
        root = Table.root(content)
        operations = [_read_operation(table) for table in root.tables(_OPERATIONS, _MAX_OPERATIONS)]
        if not operations:
            raise MalformedFile("it contains no network")
        extra = root.table(_EXTRA)
        # It is the last part of the file, so it shows that the file is complete; old versions of MNN omit it.
        self.version = "" if extra is None else extra.text(_VERSION)
        self.parameters = _find_parameters(operations)

    def replace_values(self, values: Sequence[np.ndarray[Any, Any]]) -> bytes:
        """The same file with other values, one array per parameter, in the same order."""
        changed = bytearray(self.content)
        for parameter, value in zip(self.parameters, values, strict=True):
            raw = np.ascontiguousarray(value, dtype="<f4").tobytes()
            if len(raw) != 4 * parameter.values.size:
                raise ValueError(f"{value.shape} does not have the size of a parameter of shape {parameter.shape}")
            changed[parameter.position : parameter.position + len(raw)] = raw
        return bytes(changed)

    def mark_trainable(self) -> bytes:
        """The same file with its parameters marked as trainable.

        MNN 3 saves all of them as constants. A device that loads constants trains nothing, and FedML's own helper
        finds no parameters.
        """
        changed = bytearray(self.content)
        for parameter in self.parameters:
            if parameter.kind_position is not None:
                struct.pack_into("<i", changed, parameter.kind_position, _TRAINABLE)
        return bytes(changed)


def _read_operation(table: Table) -> _Operation:
    return _Operation(
        kind=table.integer(_TYPE),
        main_type=table.byte(_MAIN_TYPE),
        main=table.table(_MAIN),
        inputs=table.integers(_INPUTS, _MAX_ENTRIES),
        outputs=table.integers(_OUTPUTS, _MAX_ENTRIES),
        kind_position=table.position(_TYPE),
    )


def _find_parameters(operations: list[_Operation]) -> list[Parameter]:
    producers: dict[int, _Operation] = {}
    for operation in operations:
        for tensor in operation.outputs:
            if tensor in producers:
                raise MalformedFile(f"two operations produce tensor {tensor}")
            producers[tensor] = operation
    parameters: list[Parameter] = []
    for operation in _topological_order(operations, producers):
        parameters += _parameters_of(operation, producers)
    return parameters


def _topological_order(operations: list[_Operation], producers: Mapping[int, _Operation]) -> list[_Operation]:
    """Each operation after its inputs, in the order of the inputs; independent of the order in the file."""
    used = {tensor for operation in operations for tensor in operation.inputs}
    last = [op for op in operations if op.kind not in (_CONST, _TRAINABLE, _INPUT) and not used & set(op.outputs)]
    if len(last) != 1:
        raise MalformedFile(f"its network has {len(last)} outputs, not one")
    order: list[_Operation] = []
    visited: set[int] = set()
    # Not recursive: a graph can be deeper than Python's stack.
    stack: list[tuple[_Operation, bool]] = [(last[0], False)]
    while stack:
        operation, inputs_done = stack.pop()
        if inputs_done:
            order.append(operation)
            continue
        if id(operation) in visited:
            continue
        visited.add(id(operation))
        stack.append((operation, True))
        for tensor in reversed(operation.inputs):
            if tensor not in producers:
                raise MalformedFile(f"nothing produces tensor {tensor}")
            stack.append((producers[tensor], False))
    return order


def _parameters_of(operation: _Operation, producers: Mapping[int, _Operation]) -> list[Parameter]:
    parameters = []
    if operation.kind == _CONVOLUTION and len(operation.inputs) == 1:
        parameters = _own_parameters(operation)
    for slot, tensor in enumerate(operation.inputs):
        if producers[tensor].kind in (_CONST, _TRAINABLE):
            parameter = _constant_parameter(producers[tensor], operation, slot)
            if parameter is not None:
                parameters.append(parameter)
    return parameters


def _constant_parameter(producer: _Operation, user: _Operation, slot: int) -> Parameter | None:
    """The parameter of an input; None for a scalar constant of the graph, such as a batch norm's epsilon."""
    floats = producer.main.floats(_FLOATS) if producer.main is not None and producer.main_type == _BLOB else None
    if floats is None or producer.main is None:
        return None
    shape = tuple(producer.main.integers(_DIMENSIONS, _MAX_ENTRIES))
    if not shape:
        return None
    return _make_parameter(_role(user, slot), shape, floats, producer.kind_position)


def _role(user: _Operation, slot: int) -> Role:
    if user.kind == _CONVOLUTION and slot in (1, 2):
        return (Role.CONVOLUTION, Role.CONVOLUTION_BIAS)[slot - 1]
    if user.kind == _PRODUCT and slot == 1 and user.main is not None and user.main.byte(_TRANSPOSED):
        return Role.PRODUCT
    if user.kind == _BINARY and user.main is not None:
        which = user.main.integer(_WHICH)
        if which in (_ADD, _MULTIPLY):
            return Role.SHIFT if which == _ADD else Role.SCALE
    raise MalformedFile(f"a parameter is an input of an operation of type {user.kind}, which has none")


def _own_parameters(operation: _Operation) -> list[Parameter]:
    """The kernel and the bias that a convolution holds itself, as MNN saves it outside training."""
    main = operation.main if operation.main_type == _CONVOLUTION_2D else None
    common = None if main is None else main.table(_COMMON)
    weight = None if main is None else main.floats(_OWN_WEIGHT)
    if main is None or common is None or weight is None or not weight[1].size:
        raise MalformedFile("a convolution has no plain kernel; a compressed or quantised model cannot be averaged")
    out = common.integer(_OUT)
    kernel = (common.integer(_KERNEL_Y, 1), common.integer(_KERNEL_X, 1))
    if min(out, *kernel) < 1:
        raise MalformedFile("a convolution has no size")
    inputs = weight[1].size // (out * prod(kernel))
    parameters = [_make_parameter(Role.CONVOLUTION, (out, inputs, *kernel), weight, None)]
    bias = main.floats(_OWN_BIAS)
    if bias is not None:
        parameters.append(_make_parameter(Role.CONVOLUTION_BIAS, (bias[1].size,), bias, None))
    return parameters


def _make_parameter(
    role: Role, shape: tuple[int, ...], floats: tuple[int, np.ndarray[Any, Any]], kind_position: int | None
) -> Parameter:
    position, values = floats
    if min(shape) < 1 or prod(shape) != values.size:
        raise MalformedFile(f"{role.value} has shape {shape} and {values.size} values")
    return Parameter(role, shape, values, position, kind_position)
