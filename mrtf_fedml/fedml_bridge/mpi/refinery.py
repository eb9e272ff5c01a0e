"""`refine_on: teachers` and `ranks`: the server's work, shared with the trainers of a simulation.

Each rank predicts the server's set with the models it trained; with `ranks` distillation runs data-parallel over all of
them as well. For that every rank holds the server's inputs, which no real client may: a deployment refines on its
server.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ...algorithms import ClientUpdate, ServerBench
from ...algorithms.bench import refuse_moves
from ...errors import RunStopped, UserError
from ...models.lone_sample import running_statistics
from ...models.precision import computing
from ...models.weights import load, snapshot
from ...randomness import forked
from ...refinery.distill import DistillationSettings, DistillationSteps, distill
from ..messages import RESERVED, Payload, weights_of
from .interfaces import VARIABLE, use_interface_to_others
from .transport import Channel, Parcel

DISTIL = "distil"
_LOGITS = RESERVED + "logits"
_TARGETS, _GENERATOR = RESERVED + "targets", RESERVED + "generator"
#: A part of one sample would have no batch statistics.
_SMALLEST_PART = 2


class RankCrew:
    """All ranks as one optimiser: each takes a part of every batch, and gradients are summed over them.

    The group is PyTorch's, started by the MPI ranks: NCCL where each has a GPU to itself, else Gloo.
    """

    def __init__(self, comm: Any, device: torch.device) -> None:
        self.rank: int = comm.Get_rank()
        self.ranks: int = comm.Get_size()
        hosts = comm.allgather((socket.gethostname(), str(device)))
        self.backend = group_backend(hosts)
        self._device = device if self.backend == "nccl" else torch.device("cpu")
        alone = len({host for host, _ in hosts}) == 1
        self._store = None
        if self.rank == 0:
            # Port 0: the system gives a free one, and no other process can take it before we listen.
            self._store = dist.TCPStore(
                "127.0.0.1" if alone else hosts[0][0], 0, self.ranks, is_master=True, wait_for_workers=False
            )
        address, port = comm.bcast((self._store.host, self._store.port) if self._store else None, root=0)
        store = self._store or dist.TCPStore(address, port, self.ranks, is_master=False)
        names = [host for host, _ in hosts]
        use_interface_to_others(names[self.rank], names)
        try:
            dist.init_process_group(self.backend, store=store, rank=self.rank, world_size=self.ranks)
        except RuntimeError as error:
            raise RunStopped(
                f"the ranks on {', '.join(dict.fromkeys(names))} cannot reach each other for refine_on: ranks "
                f"({str(error).splitlines()[0][:200]}); name the network interface between the hosts by {VARIABLE} "
                f"(with MPIRUN_ARGS='-x {VARIABLE}=eth0'), or set refine_on: server"
            ) from error

    def part(self, batch: Tensor) -> Tensor:
        """The rank's samples of the batch."""
        return batch_part(batch, self.rank, self.ranks)

    def combine(self, student: nn.Module, beside: Tensor) -> Tensor:
        """Sum the gradients, in place, and what is told beside them over all ranks, in one message per step."""
        parameters = [parameter for parameter in student.parameters() if parameter.requires_grad]
        for parameter in parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        flat = torch.cat([beside, *(gradient.flatten() for gradient in gradients)])
        travelling = flat.to(self._device)
        dist.all_reduce(travelling)
        totals, *summed = travelling.to(flat.device).split([len(beside), *(gradient.numel() for gradient in gradients)])
        for gradient, sum_ in zip(gradients, summed, strict=True):
            gradient.copy_(sum_.view_as(gradient))
        return totals

    def close(self) -> None:
        """Leave the group."""
        dist.destroy_process_group()


class SharedBench(ServerBench):
    """The server's bench, on rank 0, with the other ranks' help."""

    def __init__(
        self,
        bench: ServerBench,
        channel: Channel,
        crew: RankCrew | None,
        args: Any,
        predicted: Mapping[int, tuple[Payload, Tensor]],
    ) -> None:
        super().__init__(bench.model, bench.inputs, bench.tap, bench.classes, bench.positions, bench.precision)
        # Past the dataclass's own fields, which are frozen.
        vars(self).update(channel=channel, crew=crew, args=args, predicted=predicted)

    channel: Channel
    #: Those who distil together; None where the server does so alone.
    crew: RankCrew | None
    args: Any
    #: By client: what it sent, and what its model predicts for the server's set.
    predicted: Mapping[int, tuple[Payload, Tensor]]

    def known_logits(self, updates: Sequence[ClientUpdate]) -> Mapping[int, Tensor]:
        """What the ranks predicted, for the teachers that are still what the ranks sent.

        One that FedML's attacks or defences have rewritten is read anew, by the server.
        """
        known: dict[int, Tensor] = {}
        for place, update in enumerate(updates):
            payload, logits = self.predicted.get(update.client, ({}, None))
            sent = weights_of(payload)
            if logits is not None and all(torch.equal(value.cpu(), sent[key]) for key, value in update.weights.items()):
                known[place] = logits.to(self.inputs.device)
        return known

    def distil(
        self,
        student: nn.Module,
        inputs: Tensor,
        targets: Tensor,
        settings: DistillationSettings,
        generator: torch.Generator,
    ) -> float:
        """Distil with all ranks: they get the start, the targets, the order of the samples and how to step."""
        if self.crew is None:
            return super().distil(student, inputs, targets, settings, generator)
        refuse_moves(inputs, settings)
        tensors = {**snapshot(student), _TARGETS: targets, _GENERATOR: generator.get_state()}
        steps = DistillationSteps.of(settings)
        facts = {"round": self.args.round_idx, "steps": steps}
        self.channel.send(Parcel(DISTIL, facts, tensors), range(1, self.channel.ranks))
        with computing(self.precision.distilling, inputs.device), running_statistics(student, samples=len(inputs)):
            return self.counted(distill(student, inputs, targets, steps, generator, self.crew), steps)


class RefiningTrainer:
    """What a trainer does for the server, on any other rank."""

    def __init__(self, bench: ServerBench, crew: RankCrew | None, seed: int) -> None:
        self.bench = bench
        self.crew = crew
        self.seed = seed

    def with_logits(self, payload: Payload) -> Payload:
        """What the client sends, and what its model predicts for the server's set."""
        return {**payload, _LOGITS: self.bench.logits(weights_of(payload))}

    def distil(self, order: Parcel) -> None:
        """Do the rank's part of the distillation; the result is rank 0's as well, which keeps it."""
        assert self.crew is not None, "nobody distils with a server that does so alone"
        load(self.bench.model, weights_of(order.tensors))
        generator = torch.Generator()
        # A copy: set_state reads from the start of the storage, which is the whole parcel's.
        generator.set_state(order.tensors[_GENERATOR].clone())
        targets = order.tensors[_TARGETS].to(self.bench.inputs.device)
        model, inputs, steps = self.bench.model, self.bench.inputs, order.facts["steps"]
        precision = self.bench.precision.distilling
        with (
            computing(precision, inputs.device),
            forked(self.seed, "distillation dropout", order.facts["round"], self.crew.rank),
            running_statistics(model, samples=len(inputs)),
        ):
            distill(model, inputs, targets, steps, generator, self.crew)


def without_logits(tensors: Payload) -> tuple[dict[str, Tensor], Tensor | None]:
    """The client's message as it is without us, and the logits where it had any."""
    message = dict(tensors)
    logits = message.pop(_LOGITS, None)
    return message, logits


def batch_part(batch: Tensor, rank: int, ranks: int) -> Tensor:
    """The rank's share of a batch, of two samples at least or none.

    >>> [len(batch_part(torch.arange(7), rank, 4)) for rank in range(4)]
    [3, 2, 2, 0]
    """
    sharers = max(1, min(ranks, len(batch) // _SMALLEST_PART))
    return batch.tensor_split(sharers)[rank] if rank < sharers else batch[:0]


def group_backend(devices: list[tuple[str, str]]) -> str:
    """NCCL wants a GPU a rank, shared with no other.

    >>> group_backend([("a", "cuda:0"), ("a", "cuda:1")]), group_backend([("a", "cuda:0"), ("a", "cuda:0")])
    ('nccl', 'gloo')
    """
    return "gloo" if _against_nccl(devices) else "nccl"


def require_nccl(devices: list[tuple[str, str]]) -> None:
    """Refuse `backend: NCCL` where a rank has no GPU to itself.

    Args:
        devices: the host and the device of each rank.
    """
    reason = _against_nccl(devices)
    if reason is not None:
        raise UserError(
            f"backend NCCL needs a GPU for each rank, but {reason}; set using_gpu: true with as many GPUs as ranks "
            "(device_args, docs/gpus.md), or backend: MPI (comm_args)"
        )


def _against_nccl(devices: list[tuple[str, str]]) -> str | None:
    """Why these ranks cannot speak by NCCL; None where they can."""
    for rank, (host, device) in enumerate(devices):
        if not device.startswith("cuda"):
            return f"rank {rank} on {host} computes on {device}"
        other = devices.index((host, device))
        if other != rank:
            return f"ranks {other} and {rank} on {host} share {device}"
    return None
