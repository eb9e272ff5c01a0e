"""Weights between ranks: a small header, then all tensors as one flat buffer.

A pickle of a state dict is copied into a string and out of it on either side, entry by entry; a buffer is filled once
and read where it lies. docs/mpi.md has the measurement.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ..errors import UserError

#: Every entry starts at a multiple of this, as freshly allocated tensors do: no kernel then takes another path.
ALIGNMENT = 64
#: MPI counts in 32-bit integers; larger buffers travel in pieces.
PIECE = 2**30
ANY_RANK = -1

_HEADER, _BODY = 1, 2
_LONGEST_NAP = 0.002


@dataclass(frozen=True)
class Entry:
    """Where one tensor lies in the buffer."""

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

    def send(self, parcel: Parcel, ranks: Iterable[int]) -> None:
        """To each of `ranks`; returns when the tensors may be changed again."""
        layout, buffer = pack(parcel.tensors)
        for rank in ranks:
            self.comm.send((parcel.kind, parcel.facts, layout), dest=rank, tag=_HEADER)
            for piece in _pieces(buffer):
                self.comm.Send(piece, dest=rank, tag=_BODY)

    def receive(self, rank: int = ANY_RANK) -> Parcel:
        """The next parcel from `rank`."""
        from mpi4py import MPI

        source = MPI.ANY_SOURCE if rank == ANY_RANK else rank
        status = MPI.Status()
        wait_until(lambda: self.comm.Iprobe(source=source, tag=_HEADER, status=status))
        sender = status.Get_source()
        kind, facts, layout = self.comm.recv(source=sender, tag=_HEADER)
        buffer = torch.empty(layout[-1].stop if layout else 0, dtype=torch.uint8)
        for piece in _pieces(buffer):
            self.comm.Recv(piece, source=sender, tag=_BODY)
        return Parcel(kind, facts, unpack(layout, buffer), sender)


def pack(tensors: Mapping[str, Tensor]) -> tuple[list[Entry], Tensor]:
    """The tensors' bytes in one buffer, and where each lies.

    >>> layout, buffer = pack({"w": torch.ones(2), "steps": torch.tensor(3)})
    >>> [(entry.key, entry.start, entry.stop) for entry in layout]
    [('w', 0, 8), ('steps', 64, 72)]
    >>> unpack(layout, buffer)["steps"]
    tensor(3)
    """
    layout: list[Entry] = []
    end = 0
    for key, tensor in tensors.items():
        if not isinstance(tensor, Tensor):
            raise UserError(
                f"the message's entry {key!r} is a {type(tensor).__name__}; a trainer's get_model_params must return "
                "a dict of tensors"
            )
        start = -(-end // ALIGNMENT) * ALIGNMENT
        end = start + tensor.numel() * tensor.element_size()
        layout.append(Entry(key, str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), start, end))
    buffer = torch.empty(end, dtype=torch.uint8)
    for entry, tensor in zip(layout, tensors.values(), strict=True):
        _view(entry, buffer).copy_(tensor.detach())
    return layout, buffer


def unpack(layout: list[Entry], buffer: Tensor) -> OrderedDict[str, Tensor]:
    """The tensors again, as parts of the buffer."""
    return OrderedDict((entry.key, _view(entry, buffer)) for entry in layout)


def wait_until(happened: Callable[[], bool]) -> None:
    """Ask at growing intervals, asleep between: MPI's own waiting spins, and keeps a core from whoever works."""
    nap = 0.00005
    while not happened():
        time.sleep(nap)
        nap = min(nap * 1.5, _LONGEST_NAP)


def quiet_barrier(comm: Any) -> None:
    """Wait, asleep, until every rank is here."""
    request = comm.Ibarrier()
    wait_until(request.Test)


def _view(entry: Entry, buffer: Tensor) -> Tensor:
    return buffer[entry.start : entry.stop].view(getattr(torch, entry.dtype)).view(entry.shape)


def _pieces(buffer: Tensor) -> Iterable[Any]:
    return [piece.numpy() for piece in buffer.split(PIECE)] if len(buffer) else []
