"""Weights between two ranks: as one buffer, and as a pickle of the state dict. Prints milliseconds and their ratio.

mpirun -n 2 python benchmarks/mpi_transport.py
"""

from __future__ import annotations

import statistics
import time
from collections import OrderedDict
from collections.abc import Callable

import torch
from mpi4py import MPI
from torch import Tensor

from mrtf_fedml.fedml_bridge.mpi.transport import (
    Channel,
    Parcel,
    quiet_barrier,
    wait_until,
)

#: Name, number of entries, floats an entry: a LeNet, a ResNet-18, and one as large as a small transformer.
SIZES = (("0.25 MB in 10 entries", 10, 6_170), ("45 MB in 122 entries", 122, 92_000), ("400 MB in 200", 200, 500_000))
REPEATS = 7


def by_buffer(channel: Channel, weights: OrderedDict[str, Tensor]) -> None:
    """There and back."""
    if channel.rank == 0:
        channel.send(Parcel("there", {}, weights), [1])
        channel.receive(1)
    else:
        channel.send(Parcel("back", {}, channel.receive(0).tensors), [0])


def by_pickle(channel: Channel, weights: OrderedDict[str, Tensor]) -> None:
    """There and back, as FedML's MPI messages travel, except for its threads."""
    other = 1 - channel.rank
    if channel.rank == 0:
        channel.comm.send(weights, dest=other, tag=7)
    wait_until(lambda: channel.comm.Iprobe(source=other, tag=7))
    received = channel.comm.recv(source=other, tag=7)
    if channel.rank == 1:
        channel.comm.send(received, dest=other, tag=7)


def milliseconds(
    way: Callable[[Channel, OrderedDict[str, Tensor]], None], channel: Channel, weights: OrderedDict[str, Tensor]
) -> float:
    """The median of one way, half of there and back; the first, which warms up, is left out."""
    taken = []
    for _ in range(REPEATS + 1):
        quiet_barrier(channel.comm)
        began = time.perf_counter()
        way(channel, weights)
        taken.append((time.perf_counter() - began) / 2 * 1000)
    return statistics.median(taken[1:])


def main() -> None:
    """Measure and print, by rank 0."""
    torch.set_num_threads(1)
    channel = Channel(MPI.COMM_WORLD)
    for name, entries, floats in SIZES:
        weights = OrderedDict((f"layer{index}.weight", torch.randn(floats)) for index in range(entries))
        buffer, pickle = (milliseconds(way, channel, weights) for way in (by_buffer, by_pickle))
        if channel.rank == 0:
            print(
                f"{name:<24} buffer {buffer:8.2f} ms  pickle {pickle:8.2f} ms  ratio {pickle / buffer:.2f}", flush=True
            )


if __name__ == "__main__":
    main()
