"""A silo: it trains on its own shard when the server sends a task, and ends when the server ends."""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from fedml.core import ClientTrainer
from fedml.core.distributed.communication.message import Message

from ....algorithms.types import Weights
from ....callbacks.status import WAITING_FOR_SERVER, WAITING_FOR_TASK, StatusFile
from ....config import RunSettings
from ....data.preprocessing import Standardizer, standardize_entry
from ....errors import RunStopped, UserError
from ....models.group import own_keys, trained_member
from ....models.state_dict import size_in_bytes, snapshot
from ....training.files import append_line
from ....training.run_directory import METRICS
from ...adapters import run_client
from ...args import settings_of
from ...messages import LOSS, unpack_scale, weights_of
from ...runner import RunOptions
from . import protocol
from .handshake import Handshake
from .membership import LivenessMonitor, heartbeat_interval
from .party import Party, check_role, seconds_until
from .payload_validation import PayloadSchema
from .protocol import InvalidPayload
from .transports.base import Unreachable, run_in_thread

_log = logging.getLogger(__name__)

#: Seconds between two attempts to reach the server at the start, and longest wait for a message.
_POLL_SECONDS = 1.0
_DISCONNECT_SECONDS = 5.0


class SiloClient(Party):
    """The silo of rank r, which owns shard r-1."""

    def __init__(
        self,
        args: Any,
        device: torch.device,
        dataset: Any,
        trainer: ClientTrainer,
        options: RunOptions | None = None,
    ) -> None:
        check_role(args)
        self.options = options or RunOptions()
        settings = settings_of(args)
        self.device = device
        self.trainer = trainer
        self.client = int(args.rank) - 1
        #: Only the server has a run directory with results.
        self.run_dir: Path | None = None
        self.folder = make_silo_folder(settings, int(args.rank))
        self.shard = local_shard(dataset, self.client)
        trainer.model.to(device)
        weights = snapshot(trainer.model)
        self.handshake = Handshake.create(weights, dataset, settings.privacy)
        self.liveness = LivenessMonitor(settings.silo.silo_timeout)
        self._server_incarnation: str | None = None
        self._is_finished = False
        self._ended_normally = False
        self._is_scaled = False
        self._faults = 0
        self._last_task: tuple[str, int] | None = None
        # A trainer of the user's own has no algorithm.
        algorithm = getattr(trainer, "algorithm", None)
        payload_bytes = 0 if algorithm is None else algorithm.max_payload_bytes(weights)
        super().__init__(args, settings, PayloadSchema(weights, payload_bytes))
        self.handlers = {protocol.TASK: self._on_task, protocol.FINISH: self._on_finish}
        self.transport.inbox.on_new_message = self.liveness.record_message

    def run(self) -> None:
        """Train until the server ends the run, or is silent for too long."""
        # A silo has no progress bar; its rounds are shown without --verbose too.
        _log.setLevel(logging.INFO)
        self.status = StatusFile(
            self.folder,
            role=f"silo {self.rank}",
            algorithm=self.settings.train.federated_optimizer,
            dataset=self.settings.data.title,
            rounds=self.settings.train.comm_round,
            phase=WAITING_FOR_SERVER,
        )
        with self.options.serve_page(self.folder), self.status, self.audit_messages(self.folder):
            self._run()

    def _run(self) -> None:
        try:
            message = self._wait_for_server()
            self.status.update(phase=WAITING_FOR_TASK)
            self.liveness.start()
            self._serve(message)
        except KeyboardInterrupt:
            if not self.liveness.expired:
                self._disconnect()
                raise
            raise self._server_lost() from None
        except Exception:
            if not self._is_finished and not self.liveness.expired:
                self._disconnect()
            raise
        finally:
            self.liveness.stop()
            self.transport.close(self._ended_normally)

    def _wait_for_server(self) -> Message:
        """Announce this silo until the server replies."""
        seconds = self.silo_settings.start_timeout
        started, has_warned = time.monotonic(), False
        while time.monotonic() < started + seconds:
            self.transport.send_nowait(self._status(protocol.ONLINE))
            message = self.receive(seconds_until(started + seconds, _POLL_SECONDS))
            if message is not None:
                return message
            if not has_warned and time.monotonic() > started + 2 * _POLL_SECONDS:
                has_warned = True
                _log.info("silo %d waits for the server (up to %g s)", self.rank, seconds)
        problem = f" ({self.transport.problem})" if self.transport.problem else ""
        raise RunStopped(
            f"silo {self.rank} found no server in {seconds:g} s (comm_args.start_timeout, backend "
            f"{self.args.backend}){problem}; start the server, or correct its address in comm_args"
        )

    def _serve(self, message: Message | None) -> None:
        announced = time.monotonic()
        while not self._is_finished:
            if time.monotonic() > announced + heartbeat_interval(self.liveness.timeout):
                # A server that could not reach this silo for a while has marked it as lost; this reconnects it.
                self.transport.send_nowait(self._status(protocol.ONLINE))
                announced = time.monotonic()
            if self.liveness.expired:
                raise self._server_lost()
            if message is not None:
                self._announce_to_new_server(message)
                self.handle(message)
            message = None if self._is_finished else self.receive(_POLL_SECONDS)

    def _server_lost(self) -> RunStopped:
        return RunStopped(
            f"silo {self.rank} has received nothing from the server for {self.liveness.timeout:g} s "
            "(comm_args.silo_timeout) and ends; start it again when the server is back"
        )

    def _announce_to_new_server(self, message: Message) -> None:
        """A restarted server does not know this silo."""
        incarnation = protocol.get_incarnation(message)
        if incarnation != self._server_incarnation:
            self._server_incarnation = incarnation
            self.try_send(self._status(protocol.ONLINE))

    def _on_task(self, message: Message) -> None:
        received = protocol.get_weights(message)
        try:
            round_index = protocol.get_round(message)
            self.schema.validate(received)
        except InvalidPayload as error:
            self._record_fault(str(error))
            return
        task = (protocol.get_incarnation(message), round_index)
        if task == self._last_task:
            # The network has repeated the message. A second update would give the server a second noisy copy.
            return
        self._last_task = task
        self._scale_shard(unpack_scale(received))
        self.status.begin_round(round_index, [self.client])
        began = time.perf_counter()
        sent = run_client(self.trainer, self.client, self.shard, received, round_index, self.device, self.args)
        member = trained_member(sent)
        # Of a group of models a silo sends the one that it trained.
        others = set() if member is None else set(weights_of(sent)) - set(own_keys(sent, member))
        payload = {key: tensor.cpu() for key, tensor in sent.items() if key not in others}
        update = protocol.update_message(self.incarnation, self.address.own_id, round_index, self.shard[2], payload)
        if round_index < self.settings.train.comm_round:
            self._record_round(round_index, payload, received, time.perf_counter() - began)
        if not self.try_send(update):
            _log.warning("silo %d could not send its update of round %d", self.rank, round_index)
        self.status.update(phase=WAITING_FOR_TASK)

    def _record_round(self, round_index: int, sent: Weights, received: Weights, seconds: float) -> None:
        """A line of this silo's own metrics.jsonl. A line replaces earlier ones of the same and of later rounds."""
        line = {
            "round": round_index,
            "clients": [self.client],
            "train_loss": float(sent[LOSS]) if LOSS in sent else None,
            "client_seconds": seconds,
            "uplink_bytes": size_in_bytes(sent),
            "downlink_bytes": size_in_bytes(received),
        }
        append_line(self.folder / METRICS, json.dumps(line))
        loss = "" if line["train_loss"] is None else f", training loss {line['train_loss']:.3f}"
        _log.info(
            "silo %d, round %d of %d: trained on %d samples in %.1f s%s, sends %.2f MB",
            self.rank,
            round_index + 1,
            self.settings.train.comm_round,
            self.shard[2],
            seconds,
            loss,
            size_in_bytes(sent) / 1e6,
        )

    def _scale_shard(self, scale: Standardizer | None) -> None:
        """Scale the features once; the server repeats the scale in every task, since a silo may be restarted."""
        if scale is not None and not self._is_scaled:
            train, test, samples = self.shard
            self.shard = (standardize_entry(train, scale), standardize_entry(test, scale), samples)
            self._is_scaled = True

    def _record_fault(self, reason: str) -> None:
        self._faults += 1
        _log.warning("silo %d: a message of the server is invalid: %s", self.rank, reason)
        if self._faults >= self.silo_settings.max_faults:
            raise RunStopped(
                f"the server has sent {self._faults} invalid messages to silo {self.rank} (comm_args.max_faults); the "
                f"last: {reason}"
            )

    def _on_finish(self, message: Message) -> None:
        self._is_finished = True
        reason = protocol.get_reason(message)
        # A server that has ended already does not need it.
        self._disconnect()
        self._ended_normally = not reason
        if protocol.is_rejected(message):
            raise UserError(reason)
        if reason:
            raise RunStopped(f"the server has ended the run: {reason}")

    def _disconnect(self) -> None:
        """Tell the server not to wait for this silo; ignore it if the server cannot be reached."""
        message = self._status(protocol.FINISHED)
        with contextlib.suppress(Unreachable, TimeoutError):
            run_in_thread(lambda: self.transport.send(message), _DISCONNECT_SECONDS)

    def _status(self, status: str) -> Message:
        return protocol.status_message(self.incarnation, self.address.own_id, status, self.handshake.to_dict())


def make_silo_folder(settings: RunSettings, rank: int) -> Path:
    """The folder of a silo's own files: `<run_dir>-silo<rank>`, or one in `runs/`. A restarted silo continues it."""
    name = settings.common.run_dir or str(Path("runs") / time.strftime("%Y%m%d-%H%M%S"))
    folder = Path(f"{name}-silo{rank}").expanduser()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"the folder {str(folder)!r} of silo {rank} cannot be created ({error.strerror}); set run_dir (common_args)"
        ) from None
    return folder


def local_shard(dataset: Any, client: int) -> tuple[Any, Any, int]:
    """Training data, test data and sample count of one client, from FedML's eight-tuple."""
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
        # A silo that holds only its own data may use any key.
        key = next(iter(train_local))
    samples = int(numbers[key]) if isinstance(numbers, Mapping) and key in numbers else len(train_local[key])
    if samples == 0:
        raise UserError(f"the silo of rank {client + 1} has no training sample; give it some")
    return train_local[key], test_local.get(key) if isinstance(test_local, Mapping) else None, samples
