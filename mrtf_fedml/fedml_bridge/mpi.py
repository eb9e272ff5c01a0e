"""FedML's MPI simulation, with the pair that was asked for really called: rank 0 is the server, the others train.

FedML's own sums the weights of a rank's clients before it sends them, which MrTF cannot use, never calls the
aggregator's hooks, and finalises MPI while others still work. What it does well is kept: its way of starting
(`fedml.init` gives `args.comm`), its roles, its clients.
"""

from __future__ import annotations

import logging
import time
from typing import Any

import torch
from fedml.core import ClientTrainer
from torch import nn

from ..data import from_fedml
from ..errors import UserError
from ..models.weights import clone
from .client_seat import ClientSeat
from .messages import Message
from .mpi_failure import one_for_all
from .mpi_logs import open_log
from .mpi_placement import Placement
from .mpi_start import HOW_TO_START, agreement
from .mpi_transport import Channel, Parcel, quiet_barrier
from .server_side import AlgorithmAggregator
from .session import Session

_log = logging.getLogger(__name__)

TRAIN, TRAINED, STOP = "train", "trained", "stop"


class MPISimulation:
    """One rank of the simulation."""

    def __init__(
        self,
        args: Any,
        device: torch.device,
        dataset: Any,
        model: nn.Module,
        client_trainer: ClientTrainer,
        server_aggregator: AlgorithmAggregator,
    ) -> None:
        comm = getattr(args, "comm", None)
        if comm is None:
            raise UserError(f"backend MPI was not started by fedml.init; call it first, and {HOW_TO_START}")
        self.side: _Server | _Trainer
        with one_for_all():
            self.channel = Channel(comm)
            with agreement():
                data = from_fedml(dataset)
            with agreement():
                if self.channel.rank == 0:
                    session = Session(args, device, data, server_aggregator)
            args.mrtf_run_dir = comm.bcast(getattr(args, "mrtf_run_dir", None), root=0)
            if self.channel.rank == 0:
                self.side = _Server(self.channel, session)
            else:
                open_log(args.mrtf_run_dir, self.channel.rank)
                self.side = _Trainer(self.channel, ClientSeat(data, device, args, client_trainer), args)

    def run(self) -> None:
        """Do the rank's part to the end; what fails on one rank ends all."""
        with one_for_all():
            self.side.run()
            # Results are on disk: no rank goes on to MPI's end before the server has written them.
            quiet_barrier(self.channel.comm)


class _Server:
    """Rank 0: hands out clients, and does all that the server does in one process."""

    def __init__(self, channel: Channel, session: Session) -> None:
        self.channel = channel
        self.session = session
        self.load: dict[int, int] = session.dataset[4]

    def run(self) -> None:
        self.session.run(self._train_clients)
        self.channel.send(Parcel(STOP), range(1, self.channel.ranks))

    def _train_clients(self, round_index: int, clients: list[int]) -> list[tuple[int, Message]]:
        """The clients' messages, in the order of the clients, whichever rank was done first."""
        placement = Placement(clients, self.load)
        start = self.session.aggregator.get_model_params()
        for rank in range(1, self.channel.ranks):
            self._hand_out(placement, round_index, rank, start)
        messages: dict[int, tuple[int, Message]] = {}
        while len(messages) < len(clients):
            parcel = self.channel.receive()
            messages[parcel.facts["client"]] = (parcel.facts["samples"], parcel.tensors)
            # The weights are with the rank since its first client of the round.
            self._hand_out(placement, round_index, parcel.sender, {})
        return [messages[client] for client in clients]

    def _hand_out(self, placement: Placement, round_index: int, rank: int, weights: Message) -> None:
        client = placement.next_client()
        if client is not None:
            self.channel.send(Parcel(TRAIN, {"round": round_index, "client": client}, weights), [rank])


class _Trainer:
    """Any other rank: trains the clients that the server hands it, and returns each one's own message."""

    def __init__(self, channel: Channel, seat: ClientSeat, args: Any) -> None:
        self.channel = channel
        self.seat = seat
        self.args = args

    def run(self) -> None:
        start: Message = {}
        while (order := self.channel.receive(0)).kind != STOP:
            start = order.tensors or start
            self._train(order.facts["round"], order.facts["client"], start)

    def _train(self, round_index: int, client: int, start: Message) -> None:
        began = time.perf_counter()
        self.args.round_idx = round_index
        samples, message = self.seat.train_client(client, clone(start))
        seconds = time.perf_counter() - began
        self.channel.send(Parcel(TRAINED, {"client": client, "samples": samples}, message), [0])
        _log.info("round=%d client=%d samples=%d seconds=%.4f", round_index, client, samples, seconds)
