"""A silo: it trains when the server asks for it, on its own shard, and ends when the server does."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Mapping
from typing import Any

import torch
from fedml.core import ClientTrainer
from fedml.core.distributed.communication.message import Message

from ...data.preprocessing import Scale, scaled_entry
from ...errors import RunStopped, UserError
from ...models.weights import snapshot
from ..arguments import settings_of
from ..client_turn import take_turn
from ..messages import scale_of
from . import protocol
from .expected_weights import ExpectedWeights, Malformed
from .liveness import Watch, interval_of
from .manager import SiloManager, seconds_until
from .terms import Terms
from .transports.apart import apart
from .transports.backend import Unreachable

_log = logging.getLogger(__name__)

_HELLO_SECONDS = 1.0
_LEAVE_SECONDS = 5.0


class Silo(SiloManager):
    """The silo of rank r, which owns shard r-1 and no other."""

    def __init__(self, args: Any, device: torch.device, dataset: Any, trainer: ClientTrainer) -> None:
        settings = settings_of(args)
        self.device = device
        self.trainer = trainer
        self.client = int(args.rank) - 1
        self.shard = own_shard(dataset, self.client)
        trainer.model.to(device)
        weights = snapshot(trainer.model)
        self.terms = Terms.of(weights, getattr(dataset, "class_names", None), settings.privacy)
        self.watch = Watch(settings.silo.silo_timeout)
        self.rounds_done = 0
        self._server: str | None = None
        self._over = False
        self._scaled = False
        self._faults = 0
        self._taken: tuple[str, int] | None = None
        super().__init__(args, settings, ExpectedWeights(weights))
        self.on_arrival = lambda _: self.watch.heard()

    def register_message_receive_handlers(self) -> None:
        """What a silo is told."""
        self.register_message_receive_handler(protocol.ROUND, self._take_part)
        self.register_message_receive_handler(protocol.FINISH, self._end)

    def run(self) -> None:
        """Until the server says that it is over, or is heard of no more."""
        try:
            first = self._first_message()
            self.watch.start()
            self._serve(first)
        except KeyboardInterrupt:
            if not self.watch.expired:
                self._take_leave()
                raise
            raise self._server_lost() from None
        except Exception:
            if not self._over and not self.watch.expired:
                self._take_leave()
            raise
        finally:
            self.watch.stop()
            self.close()

    def _first_message(self) -> Message:
        """Say hello until the server answers."""
        seconds = self.silo_settings.start_timeout
        started = time.monotonic()
        while time.monotonic() < started + seconds:
            self.com_manager.ping(self._status(protocol.ONLINE))
            message = self.next_message(seconds_until(started + seconds, _HELLO_SECONDS))
            if message is not None:
                return message
            if self._server is None and time.monotonic() > started + 2 * _HELLO_SECONDS:
                self._server = ""
                _log.warning("silo %d waits for the server (up to %g s)", self.rank, seconds)
        raise RunStopped(
            f"silo {self.rank} found no server in {seconds:g} s (comm_args.start_timeout, backend {self.backend}); "
            "start the server, or correct its address in comm_args"
        )

    def _serve(self, message: Message | None) -> None:
        announced = time.monotonic()
        while not self._over:
            if time.monotonic() > announced + interval_of(self.watch.timeout):
                # A server that could not reach this silo for a while has given it up, and takes it back by this.
                self.com_manager.ping(self._status(protocol.ONLINE))
                announced = time.monotonic()
            if self.watch.expired:
                raise self._server_lost()
            if message is not None:
                self._greet(message)
                self.handle(message)
            message = None if self._over else self.next_message(_HELLO_SECONDS)

    def _server_lost(self) -> RunStopped:
        return RunStopped(
            f"silo {self.rank} has heard nothing of the server for {self.watch.timeout:g} s "
            "(comm_args.silo_timeout) and ends; start it again when the server is back"
        )

    def _greet(self, message: Message) -> None:
        """A server that was started anew does not know this silo."""
        incarnation = protocol.incarnation_of(message)
        if incarnation != self._server:
            self._server = incarnation
            self.tries_to_send(self._status(protocol.ONLINE))

    def _take_part(self, message: Message) -> None:
        received = protocol.weights_in(message)
        try:
            round_index = protocol.round_of(message)
            self.expected.check(received)
        except Malformed as error:
            self._count_fault(str(error))
            return
        taken = (protocol.incarnation_of(message), round_index)
        if taken == self._taken:
            # A call that was repeated by the network: a second answer would tell the server a second noisy copy.
            return
        self._taken = taken
        self._bring_to_scale(scale_of(received))
        sent = take_turn(self.trainer, self.client, self.shard, received, round_index, self.device, self.args)
        payload = {key: tensor.cpu() for key, tensor in sent.items()}
        answer = protocol.answer(self.incarnation, self.address.own_id, round_index, self.shard[2], payload)
        if self.tries_to_send(answer):
            self.rounds_done += 1
        else:
            _log.warning("silo %d could not send its answer of round %d", self.rank, round_index)

    def _bring_to_scale(self, scale: Scale | None) -> None:
        """Once: a server tells the same numbers in every round, since a silo may have been started anew."""
        if scale is not None and not self._scaled:
            train, test, samples = self.shard
            self.shard = (scaled_entry(train, scale), scaled_entry(test, scale), samples)
            self._scaled = True

    def _count_fault(self, reason: str) -> None:
        self._faults += 1
        _log.warning("silo %d: a message of the server cannot be used: %s", self.rank, reason)
        if self._faults >= self.silo_settings.max_faults:
            raise RunStopped(
                f"the server has sent silo {self.rank} {self._faults} messages that cannot be used "
                f"(comm_args.max_faults); the last: {reason}"
            )

    def _end(self, message: Message) -> None:
        self._over = True
        reason = protocol.reason_of(message)
        # The last word: over MQTT_S3 it returns when the broker has it. A server that is gone already needs it not.
        self.tries_to_send(self._status(protocol.FINISHED))
        self.com_manager.ended_well = not reason
        if reason:
            raise RunStopped(f"the server has ended the run: {reason}")

    def _take_leave(self) -> None:
        """Spare the server the wait for this silo; if the server cannot be reached either, so be it."""
        goodbye = self._status(protocol.FINISHED)
        with contextlib.suppress(Unreachable, TimeoutError):
            apart(lambda: self.com_manager.send_message(goodbye), _LEAVE_SECONDS)

    def _status(self, word: str) -> Message:
        return protocol.status(self.incarnation, self.address.own_id, word, self.terms.facts())


def own_shard(dataset: Any, client: int) -> tuple[Any, Any, int]:
    """Training data, test data and sample count of one client, out of FedML's eight; nothing else is kept."""
    _, _, _, _, numbers, train_local, test_local, _ = dataset
    if not isinstance(train_local, Mapping) or not train_local:
        raise UserError("the dataset's train_data_local_dict is empty; give the silo its own samples there")
    key = client
    if client not in train_local:
        if len(train_local) > 1:
            raise UserError(
                f"the dataset has no shard {client} for the silo of rank {client + 1}; client_num_in_total must be "
                f"the number of silos, and the dataset holds {len(train_local)}"
            )
        # A silo that holds its own data only may call it what it likes.
        key = next(iter(train_local))
    samples = int(numbers[key]) if isinstance(numbers, Mapping) and key in numbers else len(train_local[key])
    if samples == 0:
        raise UserError(f"the silo of rank {client + 1} has no training sample; give it some")
    return train_local[key], test_local.get(key) if isinstance(test_local, Mapping) else None, samples
