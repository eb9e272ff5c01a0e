"""Parcels from rank 0 to all and back, whole and in pieces far smaller than MPI's limit."""

from __future__ import annotations

import torch
from mpi4py import MPI

from mrtf_fedml.fedml_bridge.mpi import transport
from mrtf_fedml.fedml_bridge.mpi.transport import Channel, Parcel
from mrtf_fedml.process.waiting import quiet_barrier


def echo(channel: Channel) -> None:
    """Rank 0 compares what comes back from each rank with what it sent."""
    tensors = {"weights": torch.arange(5000, dtype=torch.float32), "steps": torch.tensor(7)}
    if channel.rank > 0:
        order = channel.receive(0)
        channel.send(Parcel("back", {"rank": channel.rank, **order.facts}, order.tensors), [0])
        return
    channel.send(Parcel("there", {"round": 4}, tensors), range(1, channel.ranks))
    answers = [channel.receive() for _ in range(1, channel.ranks)]
    assert sorted(answer.sender for answer in answers) == list(range(1, channel.ranks))
    for answer in answers:
        assert answer.facts == {"rank": answer.sender, "round": 4}
        assert all(torch.equal(answer.tensors[key], tensor) for key, tensor in tensors.items())
    print("the same", flush=True)


if __name__ == "__main__":
    ours = Channel(MPI.COMM_WORLD)
    echo(ours)
    transport.PIECE = 999
    echo(ours)
    quiet_barrier(ours.comm)
