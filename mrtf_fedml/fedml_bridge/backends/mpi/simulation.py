"""FedML's MPI simulation with our algorithms: rank 0 is the server, the other ranks train clients.

FedML's own simulation sums the weights of a rank's clients before it sends them, so that single models are lost, never
calls the aggregator's hooks, and finalises MPI while other ranks still work. Its start (`fedml.init` sets `args.comm`)
and its roles are kept.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from fedml.core import ClientTrainer

from ....algorithms import ServerContext
from ....data import from_fedml
from ....errors import UserError
from ....models.state_dict import clone
from ....process.logs import log_to_file
from ....process.mpi import MPI_START_HINT, abort_all_ranks_on_error, agree_on_errors, sleeping_barrier
from ...adapters import AlgorithmAggregator, SimulatedClient
from ...devices import check_gpu_per_rank
from ...messages import MessageTensors, weights_of
from ...runner import RunOptions
from ...session import Session
from .rank_pool import STOP, TRAINED, RankMonitor, RankPool
from .teacher_logits import RankLogitsContext, attach_logits
from .transport import Channel, Message

_log = logging.getLogger(__name__)


class MPISimulation:
    """One rank of the simulation."""

    def __init__(
        self,
        args: Any,
        device: torch.device,
        dataset: Any,
        trainer: ClientTrainer,
        aggregator: AlgorithmAggregator,
        options: RunOptions | None = None,
    ) -> None:
        comm = getattr(args, "comm", None)
        if comm is None:
            raise UserError(f"backend MPI was not started by fedml.init; call it first, and {MPI_START_HINT}")
        self.role: _ServerRank | _TrainingRank
        with abort_all_ranks_on_error():
            self.channel = Channel(comm)
            server = aggregator.server
            share_inputs = server.algorithm.reads_teachers_on_ranks
            with agree_on_errors():
                if server.settings.common.backend == "NCCL":
                    check_gpu_per_rank(comm.allgather((socket.gethostname(), str(device))))
                data = from_fedml(dataset)
                if self.channel.rank > 0 and not share_inputs:
                    # Training ranks are the clients, who never see the server's inputs.
                    data.drop_server_set()
            with agree_on_errors():
                _check_same_encoder(comm.allgather((socket.gethostname(), data.encoder_digest)))
            with agree_on_errors():
                session = Session(args, device, data, aggregator, options) if self.channel.rank == 0 else None
            self.run_dir: Path = comm.bcast(None if session is None else session.directory.path, root=0)
            if session is not None:
                self.role = _ServerRank(self.channel, session, share_inputs)
                return
            log_to_file(self.run_dir, self.channel.rank)
            if share_inputs:
                server.bind_server_set(data.server_inputs, data.class_num, device)
            self.role = _TrainingRank(
                self.channel, SimulatedClient(data, device, args, trainer), server.context if share_inputs else None
            )

    def run(self) -> None:
        """Do the rank's part to the end; an error on one rank ends all."""
        with abort_all_ranks_on_error():
            self.role.run()
            # No rank finalises MPI before the server has written the results.
            sleeping_barrier(self.channel.comm)


def _check_same_encoder(parties: Sequence[tuple[str, str | None]]) -> None:
    """Raise a `UserError` unless all ranks, given by host and digest, have the same encoder."""
    for rank, (host, digest) in enumerate(parties):
        if digest != parties[0][1]:
            raise UserError(
                f"the encoder of rank {rank} (on {host}) differs from that of rank 0 (on {parties[0][0]}); give all "
                "machines the same files of model_args.encoder"
            )


class _ServerRank:
    """Rank 0: assigns clients to the ranks, and does what the server does in one process."""

    def __init__(self, channel: Channel, session: Session, reads_teachers_on_ranks: bool) -> None:
        self.session = session
        monitor = RankMonitor(session.server.settings.silo.rank_timeout)
        self.pool = RankPool(channel, session.dataset[4], monitor)
        if reads_teachers_on_ranks:
            session.server.context = RankLogitsContext(session.server.context, self.pool.predicted)

    def run(self) -> None:
        self.session.execute(self.pool)
        self.pool.stop()


class _TrainingRank:
    """Any other rank: trains the clients that the server assigns, and returns what each one sends.

    Args:
        channel: to the server.
        client: trains any client of the dataset.
        teacher_context: predicts the server's set with the trained models; None where the server does so.
    """

    def __init__(self, channel: Channel, client: SimulatedClient, teacher_context: ServerContext | None) -> None:
        self.channel = channel
        self.client = client
        self.teacher_context = teacher_context

    def run(self) -> None:
        weights: MessageTensors = {}
        while (order := self.channel.receive(0)).kind != STOP:
            weights = weights_of(order.tensors) or weights
            self._train(order.header["round"], order.header["client"], {**weights, **order.tensors})

    def _train(self, round_index: int, client: int, received: MessageTensors) -> None:
        began = time.perf_counter()
        # Clones: received tensors are views of one buffer, and a user's trainer may write into them.
        sent = self.client.run(client, clone(received), round_index)
        seconds = time.perf_counter() - began
        if self.teacher_context is not None:
            sent = attach_logits(sent, self.teacher_context)
        self.channel.send(Message(TRAINED, {"client": client}, sent), [0])
        samples = self.client.samples[client]
        _log.info("round=%d client=%d samples=%d seconds=%.4f", round_index, client, samples, seconds)
