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

from ...data import from_fedml
from ...errors import UserError
from ...models.weights import clone
from ...process.failure import one_for_all
from ...process.logs import open_log
from ...process.start import HOW_TO_START, agreement
from ...process.waiting import quiet_barrier, wait_until
from ..client_turn import ClientSeat
from ..messages import Payload, weights_of
from ..nccl import asked_for_nccl
from ..server_side import AlgorithmAggregator
from ..session import Session
from .refinery import DISTIL, RankCrew, RefiningTrainer, SharedBench, require_nccl
from .trainers import STOP, TRAINED, Trainers
from .transport import Channel, Parcel
from .watch import RankWatch

_log = logging.getLogger(__name__)


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
        self.session = session
        watch = RankWatch(session.server.settings.silo.rank_timeout, str(session.store.path))
        self.trainers = Trainers(channel, session.dataset[4], watch)
        #: Ranks that distil with the server cannot train meanwhile.
        self.begin = self.trainers.begin if crew is None else None
        if shared:
            server = session.server
            server.bench = SharedBench(server.bench, channel, crew, session.args, self.trainers.predicted)

    def run(self) -> None:
        self.session.play(self.trainers.trained, begin=self.begin)
        self.trainers.dismiss()


class _Trainer:
    """Any other rank: trains the clients that the server hands it, and returns what each one sends."""

    def __init__(self, channel: Channel, seat: ClientSeat) -> None:
        self.channel = channel
        self.seat = seat
        #: Helps the server, where it shares its work.
        self.refining: RefiningTrainer | None = None

    def run(self) -> None:
        start: Payload = {}
        lot: list[tuple[int, int, Payload]] = []
        while (order := self.channel.receive(0)).kind != STOP:
            if order.kind == DISTIL and self.refining is not None:
                self.refining.distil(order)
                continue
            start = weights_of(order.tensors) or start
            lot.append((order.facts["round"], order.facts["client"], {**start, **order.tensors}))
            # The server waits until it has handed out the whole lot: only then is there time to train.
            if not order.facts["more"]:
                for client_turn in lot:
                    self._train(*client_turn)
                lot = []
        wait_until(self.channel.all_taken)

    def _train(self, round_index: int, client: int, start: Payload) -> None:
        began = time.perf_counter()
        # Clones: what was received is a part of one buffer, which a user's trainer might write into.
        payload = self.seat.turn(client, clone(start), round_index)
        seconds = time.perf_counter() - began
        if self.refining is not None:
            payload = self.refining.with_logits(payload)
        self.channel.post(Parcel(TRAINED, {"client": client}, payload), 0)
        samples = self.seat.samples[client]
        _log.info("round=%d client=%d samples=%d seconds=%.4f", round_index, client, samples, seconds)


def _refine_on(aggregator: AlgorithmAggregator) -> str:
    """Who shares the server's refining; of an algorithm that never refines nobody."""
    algorithm = aggregator.server.algorithm
    return str(getattr(algorithm.own, "refine_on", "server")) if algorithm.transductive else "server"
