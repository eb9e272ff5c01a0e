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
from torch import Tensor, nn

from ...algorithms import MrTF
from ...data import from_fedml
from ...errors import UserError
from ...models.weights import clone
from ...process.failure import one_for_all
from ...process.logs import open_log
from ...process.start import HOW_TO_START, agreement
from ...process.waiting import quiet_barrier
from ..client_seat import ClientSeat
from ..messages import Payload, weights_of
from ..server_side import AlgorithmAggregator
from ..session import Session
from .placement import Placement
from .refinery import (
    DISTIL,
    RankCrew,
    RefiningTrainer,
    SharedBench,
    without_logits,
)
from .transport import Channel, Parcel

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
            rank = self.channel.rank
            with agreement():
                data = from_fedml(dataset)
            with agreement():
                session = Session(args, device, data, server_aggregator) if rank == 0 else None
            args.mrtf_run_dir = comm.bcast(getattr(args, "mrtf_run_dir", None), root=0)
            if rank > 0:
                open_log(args.mrtf_run_dir, rank)
            refiner = _shared_refiner(server_aggregator)
            self.crew = None if refiner is None else RankCrew(comm, device)
            if session is not None:
                self.side = _Server(self.channel, session, self.crew)
            else:
                self.side = _Trainer(self.channel, ClientSeat(data, device, args, client_trainer))
                if refiner is not None and self.crew is not None:
                    server_aggregator.bind_server_set(data.server_inputs, data.class_num, device)
                    self.side.refining = RefiningTrainer(server_aggregator.bench, self.crew, refiner)

    def run(self) -> None:
        """Do the rank's part to the end; what fails on one rank ends all."""
        with one_for_all():
            self.side.run()
            # Results are on disk: no rank goes on to MPI's end before the server has written them.
            quiet_barrier(self.channel.comm)
            if self.crew is not None:
                self.crew.close()


class _Server:
    """Rank 0: hands out clients, and does all that the server does in one process."""

    def __init__(self, channel: Channel, session: Session, crew: RankCrew | None) -> None:
        self.channel = channel
        self.session = session
        self.load: dict[int, int] = session.dataset[4]
        #: By client: its message and its model's logits, where the ranks compute them.
        self.told: dict[int, tuple[Payload, Tensor]] = {}
        if crew is not None:
            aggregator = session.aggregator
            aggregator.bench = SharedBench(aggregator.bench, channel, crew, session.args, self.told)

    def run(self) -> None:
        self.session.run(self._train_clients)
        self.channel.send(Parcel(STOP), range(1, self.channel.ranks))

    def _train_clients(self, round_index: int, clients: list[int]) -> list[tuple[int, Payload]]:
        """The clients' messages, in the order of the clients, whichever rank was done first."""
        placement = Placement(clients, self.load)
        start = self.session.aggregator.get_model_params()
        for rank in range(1, self.channel.ranks):
            self._hand_out(placement, round_index, rank, start)
        self.told.clear()
        messages: dict[int, tuple[int, Payload]] = {}
        while len(messages) < len(clients):
            parcel = self.channel.receive()
            # The weights are with the rank since its first client of the round.
            self._hand_out(placement, round_index, parcel.sender, {})
            client, (message, logits) = parcel.facts["client"], without_logits(parcel.tensors)
            messages[client] = (parcel.facts["samples"], message)
            if logits is not None:
                self.told[client] = (message, logits)
        return [messages[client] for client in clients]

    def _hand_out(self, placement: Placement, round_index: int, rank: int, weights: Payload) -> None:
        client = placement.next_client()
        if client is not None:
            tensors = {**weights, **self.session.aggregator.extra_for(client)}
            self.channel.send(Parcel(TRAIN, {"round": round_index, "client": client}, tensors), [rank])


class _Trainer:
    """Any other rank: trains the clients that the server hands it, and returns each one's own message."""

    def __init__(self, channel: Channel, seat: ClientSeat) -> None:
        self.channel = channel
        self.seat = seat
        #: Helps the server, where it shares its work.
        self.refining: RefiningTrainer | None = None

    def run(self) -> None:
        start: Payload = {}
        while (order := self.channel.receive(0)).kind != STOP:
            if order.kind == DISTIL and self.refining is not None:
                self.refining.distil(order)
                continue
            start = weights_of(order.tensors) or start
            self._train(order.facts["round"], order.facts["client"], {**start, **order.tensors})

    def _train(self, round_index: int, client: int, start: Payload) -> None:
        began = time.perf_counter()
        self.seat.args.round_idx = round_index
        samples, message = self.seat.train_client(client, clone(start))
        seconds = time.perf_counter() - began
        if self.refining is not None:
            message = self.refining.with_logits(message)
        self.channel.send(Parcel(TRAINED, {"client": client, "samples": samples}, message), [0])
        _log.info("round=%d client=%d samples=%d seconds=%.4f", round_index, client, samples, seconds)


def _shared_refiner(aggregator: AlgorithmAggregator) -> MrTF | None:
    """The algorithm whose refining the ranks share; None where the server works alone, or has nothing to refine."""
    algorithm = aggregator.algorithm
    shared = aggregator.settings.mrtf.refine_on == "ranks"
    return algorithm if shared and isinstance(algorithm, MrTF) else None
