"""Messages between ranks: one flat buffer with all tensors, after a header that gives the position of each.

A pickle copies a state dict entry by entry on both sides. A buffer is filled once, and received tensors are views of
it. docs/guides/mpi.md has the measurement.
"""

from __future__ import annotations

import pickle
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ....errors import UserError
from ....process.mpi import poll_until

#: Every entry starts at a multiple of this, as newly allocated tensors do, so that kernels take the same path.
ALIGNMENT = 64
#: MPI counts in 32-bit integers; larger buffers travel in pieces.
PIECE = 2**30
ANY_RANK = -1

_TAG = 1
#: Two 64-bit numbers at the start of a buffer: its length, and that of the header after them.
_PREFIX = 16


@dataclass(frozen=True)
class Entry:
    """The position of one tensor, in bytes after the header."""

    key: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int


@dataclass(frozen=True)
class Message:
    """What one rank sends to another.

    Attributes:
        kind: what the receiver should do with it.
        header: small values, by name.
        tensors: by name; received ones are views of one buffer.
        sender: the rank that sent it.
    """

    kind: str
    header: dict[str, Any] = field(default_factory=dict)
    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    sender: int = 0


class Channel:
    """Messages to and from the other ranks. A waiting rank sleeps, so that it takes no core from ranks that compute."""

    def __init__(self, comm: Any) -> None:
        # A communicator of our own carries no messages of others.
        self.comm = comm.Dup()
        self.rank: int = self.comm.Get_rank()
        self.ranks: int = self.comm.Get_size()
        #: Called repeatedly while this rank waits for another.
        self.while_waiting: Callable[[], None] | None = None

    def send(self, message: Message, ranks: Iterable[int]) -> None:
        """Send to each of `ranks`; return when all have received it."""
        pieces = [piece.numpy() for piece in pack(message).split(PIECE)]
        requests = [self.comm.Isend(piece, dest=rank, tag=_TAG) for rank in ranks for piece in pieces]
        for request in requests:
            poll_until(request.Test, self.while_waiting)

    def receive(self, rank: int = ANY_RANK) -> Message:
        """The next message from `rank`."""
        from mpi4py import MPI

        status = MPI.Status()
        source = MPI.ANY_SOURCE if rank == ANY_RANK else rank

        poll_until(lambda: bool(self.comm.Iprobe(source=source, tag=_TAG, status=status)), self.while_waiting)
        sender = status.Get_source()
        buffer = torch.empty(status.Get_count(MPI.BYTE), dtype=torch.uint8)
        self._receive_into(buffer, sender)
        length = int(_numbers(buffer)[0])
        if length > len(buffer):
            first, buffer = buffer, torch.empty(length, dtype=torch.uint8)
            buffer[: len(first)] = first
            for piece in buffer[len(first) :].split(PIECE):
                self._receive_into(piece, sender)
        return unpack(buffer, sender)

    def _receive_into(self, piece: Tensor, sender: int) -> None:
        poll_until(self.comm.Irecv(piece.numpy(), source=sender, tag=_TAG).Test, self.while_waiting)


def pack(message: Message) -> Tensor:
    """The message as one buffer of bytes.

    >>> unpack(pack(Message("trained", {"client": 3}, {"w": torch.ones(2)}))).tensors["w"]
    tensor([1., 1.])
    """
    layout: list[Entry] = []
    end = 0
    for key, tensor in message.tensors.items():
        if not isinstance(tensor, Tensor):
            raise UserError(
                f"the message's entry {key!r} is a {type(tensor).__name__}; a trainer's get_model_params must return "
                "a dict of tensors"
            )
        start = _align(end)
        end = start + tensor.numel() * tensor.element_size()
        layout.append(Entry(key, str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), start, end))
    described = pickle.dumps((message.kind, message.header, layout))
    body = _align(_PREFIX + len(described))
    buffer = torch.empty(body + end, dtype=torch.uint8)
    _numbers(buffer).copy_(torch.tensor([len(buffer), len(described)]))
    buffer[_PREFIX : _PREFIX + len(described)] = torch.frombuffer(bytearray(described), dtype=torch.uint8)
    for entry, tensor in zip(layout, message.tensors.values(), strict=True):
        _view(entry, buffer[body:]).copy_(tensor.detach())
    return buffer


def unpack(buffer: Tensor, sender: int = 0) -> Message:
    """The message in a buffer; its tensors are views of the buffer."""
    length = int(_numbers(buffer)[1])
    # The ranks of one run trust each other: they run the same program for the same user.
    kind, header, layout = pickle.loads(buffer[_PREFIX : _PREFIX + length].numpy().tobytes())
    body = buffer[_align(_PREFIX + length) :]
    return Message(kind, header, OrderedDict((entry.key, _view(entry, body)) for entry in layout), sender)


def _view(entry: Entry, body: Tensor) -> Tensor:
    return body[entry.start : entry.stop].view(getattr(torch, entry.dtype)).view(entry.shape)


def _numbers(buffer: Tensor) -> Tensor:
    return buffer[:_PREFIX].view(torch.int64)


def _align(length: int) -> int:
    return -(-length // ALIGNMENT) * ALIGNMENT
