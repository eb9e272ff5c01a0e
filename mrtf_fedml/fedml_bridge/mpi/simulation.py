"""FedML's MPI simulation, with the pair that was asked for really called: rank 0 is the server, the others train.

FedML's own sums the weights of a rank's clients before it sends them, which MrTF cannot use, never calls the
aggregator's hooks, and finalises MPI while others still work. What it does well is kept: its way of starting
(`fedml.init` gives `args.comm`), and its roles.
"""

from __future__ import annotations

import logging
import socket
import time
from typing import Any

import torch
from fedml.core import ClientTrainer
from torch import Tensor

from ...algorithms import ClientUpdate
from ...data import from_fedml
from ...errors import UserError
from ...models.weights import clone
from ...process.failure import one_for_all
from ...process.logs import open_log
from ...process.start import HOW_TO_START, agreement
from ...process.waiting import quiet_barrier
from ...rounds.round import Handout
from ..client_turn import ClientSeat
from ..messages import Payload, start_payload, update_of, weights_of
from ..nccl import asked_for_nccl
from ..server_side import AlgorithmAggregator
from ..session import Session
from .placement import Placement
from .refinery import DISTIL, RankCrew, RefiningTrainer, SharedBench, require_nccl, without_logits
from .transport import Channel, Parcel
from .watch import RankWatch

_log = logging.getLogger(__name__)

TRAIN, TRAINED, STOP = "train", "trained", "stop"


class MPISimulation:
    """One rank of the simulation."""

    def __init__(
        self,
        args: Any,
        device: torch.device,
        dataset: Any,
        client_trainer: ClientTrainer,
        server_aggregator: AlgorithmAggregator,
    ) -> None:
        comm = getattr(args, "comm", None)
        if comm is None:
            raise UserError(f"backend MPI was not started by fedml.init; call it first, and {HOW_TO_START}")
        self.side: _Server | _Trainer
        with one_for_all():
            self.channel = Channel(comm)
            rank, refine_on = self.channel.rank, _refine_on(server_aggregator)
            shared = refine_on != "server"
            with agreement():
                if asked_for_nccl(args):
                    require_nccl(comm.allgather((socket.gethostname(), str(device))))
                data = from_fedml(dataset)
                if rank > 0 and not shared:
                    # Trainers are the clients, who never see the server's inputs.
                    data.forget_server_set()
            with agreement():
                session = Session(args, device, data, server_aggregator) if rank == 0 else None
            args.mrtf_run_dir = comm.bcast(getattr(args, "mrtf_run_dir", None), root=0)
            if rank > 0:
                open_log(args.mrtf_run_dir, rank)
            self.crew = RankCrew(comm, device) if refine_on == "ranks" else None
            if session is not None:
                self.side = _Server(self.channel, session, self.crew, shared)
            else:
                self.side = _Trainer(self.channel, ClientSeat(data, device, args, client_trainer))
                if shared:
                    server = server_aggregator.server
                    server.bind_server_set(data.server_inputs, data.class_num, device)
                    self.side.refining = RefiningTrainer(server.bench, self.crew, server.algorithm.seed)

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

    def __init__(self, channel: Channel, session: Session, crew: RankCrew | None, shared: bool) -> None:
        self.channel = channel
        self.session = session
        self.samples: dict[int, int] = session.dataset[4]
        #: By client: its payload and its model's logits, where the ranks compute them.
        self.predicted: dict[int, tuple[Payload, Tensor]] = {}
        self.watch = RankWatch(session.server.settings.silo.rank_timeout, str(session.store.path))
        if shared:
            server = session.server
            server.bench = SharedBench(server.bench, channel, crew, session.args, self.predicted)

    def run(self) -> None:
        self.session.play(self._ask)
        self.channel.send(Parcel(STOP), range(1, self.channel.ranks))

    def _ask(self, handout: Handout) -> list[ClientUpdate]:
        """The clients' updates, in the order of the clients, whichever rank was done first."""
        self.channel.meanwhile = self.watch.look
        try:
            return self._trained(handout)
        finally:
            self.channel.meanwhile = None

    def _trained(self, handout: Handout) -> list[ClientUpdate]:
        placement = Placement(handout.clients, self.samples)
        for rank in range(1, self.channel.ranks):
            self._hand_out(placement, handout, rank, first=True)
        self.predicted.clear()
        updates: dict[int, ClientUpdate] = {}
        while len(updates) < len(handout.clients):
            parcel = self.channel.receive()
            self.watch.answers(parcel.sender)
            # The weights are with the rank since its first client of the round.
            self._hand_out(placement, handout, parcel.sender, first=False)
            client, (payload, logits) = parcel.facts["client"], without_logits(parcel.tensors)
            updates[client] = update_of(client, self.samples[client], payload)
            if logits is not None:
                self.predicted[client] = (payload, logits)
        return [updates[client] for client in handout.clients]

    def _hand_out(self, placement: Placement, handout: Handout, rank: int, first: bool) -> None:
        client = placement.next_client()
        if client is not None:
            self.watch.begins(rank, client, handout.round)
            tensors = start_payload(handout.weights if first else {}, handout.extra(client))
            self.channel.send(Parcel(TRAIN, {"round": handout.round, "client": client}, tensors), [rank])


class _Trainer:
    """Any other rank: trains the clients that the server hands it, and returns what each one sends."""

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
        # Clones: what was received is a part of one buffer, which a user's trainer might write into.
        payload = self.seat.turn(client, clone(start), round_index)
        seconds = time.perf_counter() - began
        if self.refining is not None:
            payload = self.refining.with_logits(payload)
        self.channel.send(Parcel(TRAINED, {"client": client}, payload), [0])
        samples = self.seat.samples[client]
        _log.info("round=%d client=%d samples=%d seconds=%.4f", round_index, client, samples, seconds)


def _refine_on(aggregator: AlgorithmAggregator) -> str:
    """Who shares the server's refining; of an algorithm that never refines nobody."""
    algorithm = aggregator.server.algorithm
    return str(getattr(algorithm.own, "refine_on", "server")) if algorithm.transductive else "server"
