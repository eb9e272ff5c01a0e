"""Transfer of weights between two MPI ranks: as one buffer, and as a pickle of the state dict.

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

from mrtf_fedml.fedml_bridge.backends.mpi.transport import Channel, Message
from mrtf_fedml.process.mpi import poll_until, sleeping_barrier

#: Name, number of entries, floats an entry: a LeNet, a ResNet-18, and one as large as a small transformer.
SIZES = (("0.25 MB in 10 entries", 10, 6_170), ("45 MB in 122 entries", 122, 92_000), ("400 MB in 200", 200, 500_000))
REPEATS = 7


def by_buffer(channel: Channel, weights: OrderedDict[str, Tensor]) -> None:
    """Send and return one buffer."""
    if channel.rank == 0:
        channel.send(Message("there", {}, weights), [1])
        channel.receive(1)
    else:
        channel.send(Message("back", {}, channel.receive(0).tensors), [0])


def by_pickle(channel: Channel, weights: OrderedDict[str, Tensor]) -> None:
    """Send and return a pickle, as FedML's MPI messages do, but without its threads."""
    other = 1 - channel.rank
    if channel.rank == 0:
        channel.comm.send(weights, dest=other, tag=7)
    poll_until(lambda: channel.comm.Iprobe(source=other, tag=7))
    received = channel.comm.recv(source=other, tag=7)
    if channel.rank == 1:
        channel.comm.send(received, dest=other, tag=7)


def milliseconds(
    way: Callable[[Channel, OrderedDict[str, Tensor]], None], channel: Channel, weights: OrderedDict[str, Tensor]
) -> float:
    """The median time of one direction; the first transfer warms up."""
    taken = []
    for _ in range(REPEATS + 1):
        sleeping_barrier(channel.comm)
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
