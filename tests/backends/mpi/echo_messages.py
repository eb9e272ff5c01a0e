"""Messages from rank 0 to all and back, whole and in pieces far smaller than MPI's limit."""

from __future__ import annotations

import torch
from mpi4py import MPI

from mrtf_fedml.fedml_bridge.backends.mpi import transport
from mrtf_fedml.fedml_bridge.backends.mpi.transport import Channel, Message
from mrtf_fedml.process.mpi import sleeping_barrier


def echo(channel: Channel) -> None:
    """Rank 0 compares what comes back from each rank with what it sent."""
    tensors = {"weights": torch.arange(5000, dtype=torch.float32), "steps": torch.tensor(7)}
    if channel.rank > 0:
        order = channel.receive(0)
        channel.send(Message("back", {"rank": channel.rank, **order.header}, order.tensors), [0])
        return
    channel.send(Message("there", {"round": 4}, tensors), range(1, channel.ranks))
    replies = [channel.receive() for _ in range(1, channel.ranks)]
    assert sorted(reply.sender for reply in replies) == list(range(1, channel.ranks))
    for reply in replies:
        assert reply.header == {"rank": reply.sender, "round": 4}
        assert all(torch.equal(reply.tensors[key], tensor) for key, tensor in tensors.items())
    print("the same", flush=True)


if __name__ == "__main__":
    ours = Channel(MPI.COMM_WORLD)
    echo(ours)
    transport.PIECE = 999
    echo(ours)
    sleeping_barrier(ours.comm)
