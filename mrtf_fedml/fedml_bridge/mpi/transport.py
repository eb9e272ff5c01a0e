"""Weights between ranks: one flat buffer that holds all tensors, after a header that says where each lies.

A pickle of a state dict is copied into a string and out of it on either side, entry by entry; a buffer is filled once
and read where it lies. docs/mpi.md has the measurement.
"""

from __future__ import annotations

import pickle
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ...errors import UserError
from ...process.waiting import wait_until

#: Every entry starts at a multiple of this, as freshly allocated tensors do: no kernel then takes another path.
ALIGNMENT = 64
#: MPI counts in 32-bit integers; larger buffers travel in pieces.
PIECE = 2**30
ANY_RANK = -1

_TAG = 1
#: Two 64-bit numbers at the start of a buffer: its length, and that of the header after them.
_PREFIX = 16


@dataclass(frozen=True)
class Entry:
    """Where one tensor lies, counted from the end of the header."""

    key: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int


@dataclass(frozen=True)
class Parcel:
    """What one rank tells another.

    Attributes:
        kind: what it is about.
        facts: small things, by name.
        tensors: the large ones; those received are parts of one buffer.
        sender: the rank it came from.
    """

    kind: str
    facts: dict[str, Any] = field(default_factory=dict)
    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    sender: int = 0


class Channel:
    """Parcels to and from the other ranks. Who waits sleeps, so that it takes no core from those that work."""

    def __init__(self, comm: Any) -> None:
        # A communicator of our own: nobody else's messages are on it.
        self.comm = comm.Dup()
        self.rank: int = self.comm.Get_rank()
        self.ranks: int = self.comm.Get_size()
        #: Called again and again while this rank waits for another.
        self.meanwhile: Callable[[], None] | None = None
        self._posted: list[Any] = []

    def send(self, parcel: Parcel, ranks: Iterable[int]) -> None:
        """To each of `ranks`; returns when all have it."""
        pieces = [piece.numpy() for piece in pack(parcel).split(PIECE)]
        requests = [self.comm.Isend(piece, dest=rank, tag=_TAG) for rank in ranks for piece in pieces]
        for request in requests:
            wait_until(request.Test, self.meanwhile)

    def post(self, parcel: Parcel, rank: int) -> None:
        """To `rank`, which may be busy: it takes the parcel when it listens, and this rank goes on meanwhile."""
        pieces = [piece.numpy() for piece in pack(parcel).split(PIECE)]
        # A request holds its piece until it is done.
        self._posted += [self.comm.Isend(piece, dest=rank, tag=_TAG) for piece in pieces]

    def all_taken(self) -> bool:
        """Whether all that was posted has been received."""
        self._posted = [request for request in self._posted if not request.Test()]
        return not self._posted

    def receive(self, rank: int = ANY_RANK) -> Parcel:
        """The next parcel from `rank`."""
        from mpi4py import MPI

        status = MPI.Status()
        source = MPI.ANY_SOURCE if rank == ANY_RANK else rank

        def is_there() -> bool:
            self.all_taken()
            return bool(self.comm.Iprobe(source=source, tag=_TAG, status=status))

        wait_until(is_there, self.meanwhile)
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
        wait_until(self.comm.Irecv(piece.numpy(), source=sender, tag=_TAG).Test, self.meanwhile)


def pack(parcel: Parcel) -> Tensor:
    """The parcel as one buffer of bytes.

    >>> unpack(pack(Parcel("trained", {"client": 3}, {"w": torch.ones(2)}))).tensors["w"]
    tensor([1., 1.])
    """
    layout: list[Entry] = []
    end = 0
    for key, tensor in parcel.tensors.items():
        if not isinstance(tensor, Tensor):
            raise UserError(
                f"the message's entry {key!r} is a {type(tensor).__name__}; a trainer's get_model_params must return "
                "a dict of tensors"
            )
        start = _aligned(end)
        end = start + tensor.numel() * tensor.element_size()
        layout.append(Entry(key, str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), start, end))
    header = pickle.dumps((parcel.kind, parcel.facts, layout))
    body = _aligned(_PREFIX + len(header))
    buffer = torch.empty(body + end, dtype=torch.uint8)
    _numbers(buffer).copy_(torch.tensor([len(buffer), len(header)]))
    buffer[_PREFIX : _PREFIX + len(header)] = torch.frombuffer(bytearray(header), dtype=torch.uint8)
    for entry, tensor in zip(layout, parcel.tensors.values(), strict=True):
        _view(entry, buffer[body:]).copy_(tensor.detach())
    return buffer


def unpack(buffer: Tensor, sender: int = 0) -> Parcel:
    """The parcel again; its tensors are parts of the buffer."""
    length = int(_numbers(buffer)[1])
    # The ranks of one run trust each other: they run the same program for the same user.
    kind, facts, layout = pickle.loads(buffer[_PREFIX : _PREFIX + length].numpy().tobytes())
    body = buffer[_aligned(_PREFIX + length) :]
    return Parcel(kind, facts, OrderedDict((entry.key, _view(entry, body)) for entry in layout), sender)


def _view(entry: Entry, body: Tensor) -> Tensor:
    return body[entry.start : entry.stop].view(getattr(torch, entry.dtype)).view(entry.shape)


def _numbers(buffer: Tensor) -> Tensor:
    return buffer[:_PREFIX].view(torch.int64)


def _aligned(length: int) -> int:
    return -(-length // ALIGNMENT) * ALIGNMENT
