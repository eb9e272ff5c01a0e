"""The server of a federation of devices: it invites devices, sends them models and collects their updates.

FedML's own server (fedml.cross_device.server_mnn) waits without limit for every known device in every round, reads
their files with MNN in its own process, and averages by itself. This one uses the same protocol with the same devices.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from fedml.core.distributed.fedml_comm_manager import FedMLCommManager

from ....algorithms import Algorithm, ClientFailure, ClientUpdate
from ....config import RunSettings
from ....data import from_fedml
from ....errors import UserError
from ....rng import fork_rng
from ....training.round import Backend, Reply, RoundTasks
from ...adapters import AlgorithmAggregator, make_adapters
from ...fedml_init import uses_platform
from ...runner import RunOptions
from ...session import Session
from ..cross_silo.party import audit_messages
from . import protocol
from .coordinator import Coordinator
from .device_models import ModelConverter, UnusableModel
from .torch_models import MobileModel, to_device_inputs
from .transport import DeviceTransport

_log = logging.getLogger(__name__)

BACKEND = "MQTT_S3_MNN"
#: The settings in a start message that the app reads.
_TRAIN_KEYS = (
    "batch_size",
    "learning_rate",
    "epochs",
    "comm_round",
    "client_num_in_total",
    "client_num_per_round",
    "client_optimizer",
    "weight_decay",
    "federated_optimizer",
)
_DATA_KEYS = ("dataset", "train_size", "test_size", "partition_method")

_POLL_SECONDS = 0.5
#: Seconds that a device which the broker has lost during a round has to reconnect.
_RECONNECT_SECONDS = 10.0
#: Seconds that the server waits at the end for the devices to finish.
_FINISH_SECONDS = 15.0
#: Largest plausible number of samples on a device.
_MAX_SAMPLES = 10**9


class DeviceServer(Backend):
    """What FedMLRunner runs. The server's inputs are bound to its aggregator and are not part of any message.

    Args:
        args: FedML's arguments.
        device: where the server computes.
        dataset: with the server's inputs in the form of the devices' network.
        aggregator: of the algorithm; its model is the converter's.
        converter: between weights and .mnn files.
        ids: of the devices, by client.
        options: how the run is executed.
    """

    def __init__(
        self,
        args: Any,
        device: torch.device,
        dataset: Any,
        aggregator: AlgorithmAggregator,
        converter: ModelConverter,
        ids: list[int],
        options: RunOptions | None = None,
    ) -> None:
        self.settings = aggregator.server.settings
        self.converter = converter
        self._timeouts = self.settings.silo
        server = int(getattr(args, "server_id", 0) or 0)
        topics = protocol.Topics(str(args.run_id), str(server))
        self.transport = DeviceTransport(*_broker_and_bucket(args), topics, ids, self._timeouts.start_timeout)
        try:
            # After the connection is made, so that a run that cannot start leaves no run directory behind.
            self.session = Session(args, device, dataset, aggregator, options)
            self.run_dir: Path | None = self.session.directory.path
        except BaseException:
            self.transport.close()
            raise
        train = {key: getattr(args, key) for key in _TRAIN_KEYS if hasattr(args, key)}
        data = {key: getattr(args, key) for key in _DATA_KEYS if hasattr(args, key)}
        self.coordinator = Coordinator(self.transport, ids, server, train, data)
        self.coordinator.on_online = self._on_online
        self.coordinator.on_update = self._on_update
        self.membership = self.coordinator.membership
        self.session.status.update(client_names={client: f"device {device}" for client, device in enumerate(ids)})
        #: The devices that have received a model since they connected.
        self._initialized: set[int] = set()
        self._round, self._model_key = -1, ""
        #: The model of the round as it is stored in the bucket, and the names of its tensors.
        self._model, self._parts = b"", list[str]()
        self._pending: set[int] = set()
        self._replies: dict[int, Reply] = {}

    def run(self) -> None:
        """Run all rounds; then tell the devices that the run has ended."""
        with audit_messages(self.coordinator.observers, self.session.directory.path):
            self._run()

    def _run(self) -> None:
        try:
            if self.session.run.rounds_left:
                self._wait_for_devices(self.settings.train.client_num_in_total)
            self.session.execute(self)
        finally:
            self._pending = set()
            self.coordinator.finish_devices(min(_FINISH_SECONDS, self._timeouts.silo_timeout))
            self.transport.close()

    def available_clients(self, settings: RunSettings) -> Sequence[int]:
        """The connected devices."""
        while self.coordinator.process(0.0):
            pass
        self._wait_for_devices(settings.train.min_clients)
        self._report_clients()
        return self.membership.connected

    def train_clients(self, tasks: RoundTasks) -> list[Reply]:
        """Send the devices the model and wait for their updates."""
        self._round, self._replies = tasks.round, {}
        self._model, self._parts = self.converter.to_mnn(tasks.weights), list(tasks.weights)
        self._model_key = self.transport.upload_model(tasks.round, self._model)
        self._pending = set(tasks.clients)
        for client in tasks.clients:
            self._send_task(client)
        self._wait_for_updates()
        return [self._replies[client] for client in tasks.clients]

    def _report_clients(self) -> None:
        received = [client for client, reply in self._replies.items() if isinstance(reply, ClientUpdate)]
        self.session.status.update(connected=sorted(self.membership.connected), received=sorted(received))

    def _wait_for_devices(self, number: int) -> None:
        """Wait until so many devices are connected, or the time is over."""
        seconds = self._timeouts.start_timeout
        deadline = time.monotonic() + seconds
        while len(self.membership.connected) < number and time.monotonic() < deadline:
            self.coordinator.process(_POLL_SECONDS)
            self._report_clients()
        connected = len(self.membership.connected)
        if connected < number:
            _log.warning("%d of %d devices connected within %g s", connected, number, seconds)

    def _send_task(self, client: int) -> None:
        kind = protocol.SYNC if client in self._initialized else protocol.INIT
        self._initialized.add(client)
        self.coordinator.send_task(client, kind, self._round, self._model_key, self._model, self._parts)

    def _wait_for_updates(self) -> None:
        """Wait until every selected device has replied or is lost, or the time is over."""
        seconds = self._timeouts.silo_timeout
        deadline = time.monotonic() + seconds
        while self._pending and time.monotonic() < deadline:
            self.coordinator.process(min(_POLL_SECONDS, max(0.01, deadline - time.monotonic())))
            for client in sorted(self._pending):
                if self.membership.seconds_offline(client) > _RECONNECT_SECONDS:
                    self._record_failure(client, "it was lost before it replied")
            self._report_clients()
        for client in sorted(self._pending):
            self.membership.mark_unresponsive(client)
            self._record_failure(client, f"it did not reply within {seconds:g} s (comm_args.silo_timeout)")

    def _record_failure(self, client: int, reason: str) -> None:
        _log.warning("round %d has no update of device %d: %s", self._round, self.membership.id_of(client), reason)
        self._replies[client] = ClientFailure(client, reason)
        self._pending.discard(client)

    def _on_online(self, client: int) -> None:
        self._initialized.discard(client)
        if client in self._pending:
            # It was restarted during the round and has lost its task.
            self._send_task(client)

    def _on_update(self, client: int, message: dict[str, Any]) -> None:
        round_index = protocol.get_integer(message, protocol.ROUND)
        key = protocol.get_string(message, protocol.MODEL)
        device = self.membership.id_of(client)
        # Anybody at the broker can publish this, so it does not connect an offline device. A device that is taken for
        # connected too early would receive its task before it has subscribed, and not again.
        self.membership.mark_alive(client)
        if round_index != self._round or client not in self._pending:
            # A late update shows only that its device is alive.
            self.coordinator.observe("received", device, message)
            self.transport.remove_model(device, key)
            return
        content = b""
        try:
            samples = protocol.get_integer(message, protocol.SAMPLES)
            content = self.transport.fetch_model(device, key, self.converter.max_bytes)
            if not 0 < samples <= _MAX_SAMPLES:
                raise protocol.UnreadableMessage(f"its number of samples is {samples}")
            weights = self.converter.to_state_dict(content)
        except (protocol.UnreadableMessage, UnusableModel) as error:
            self.coordinator.observe("received", device, message, content)
            self._record_failure(client, str(error))
            return
        self.coordinator.observe("received", device, message, content, list(weights))
        # The app does not report a loss.
        self._replies[client] = ClientUpdate(client, samples, weights, loss=None)
        self._pending.discard(client)
        self.membership.mark_connected(client)


def make_device_server(
    args: Any,
    device: torch.device,
    dataset: Any,
    model: Any,
    algorithm: Algorithm,
    aggregator: AlgorithmAggregator | None = None,
    options: RunOptions | None = None,
) -> DeviceServer:
    """The server of a federation of devices.

    Args:
        args: FedML's arguments.
        device: where the server computes.
        dataset: FedML's eight-tuple, of which the server's inputs and the number of classes are used.
        model: a `MobileModel` with the initial weights; with None or any other module a new one is made.
        algorithm: of the run.
        aggregator: a user's own, an adapter of ours; the algorithm's where none is given.
        options: how the run is executed.
    """
    settings = algorithm.settings
    _check_settings(args, settings, algorithm)
    dataset = from_fedml(dataset)
    converter = make_converter(settings, dataset.class_num)
    if isinstance(model, MobileModel):
        converter.torch_model.load_state_dict(model.state_dict())
    dataset.server_inputs = to_device_inputs(dataset.server_inputs, converter.torch_model.input_shape)
    if aggregator is None:
        aggregator = make_adapters(type(algorithm))[1](converter.torch_model, args, algorithm)
    elif not isinstance(aggregator.model, MobileModel):
        raise UserError("the aggregator's model is not a device model; leave the aggregator out")
    return DeviceServer(args, device, dataset, aggregator, converter, _device_ids(settings), options)


def make_converter(settings: RunSettings, classes: int) -> ModelConverter:
    """The network of the run, with initial weights drawn from the run's seed."""
    with fork_rng(settings.common.random_seed, "initial weights"):
        return ModelConverter(settings.model.model, classes)


def _check_settings(args: Any, settings: RunSettings, algorithm: Algorithm) -> None:
    if args.backend != BACKEND:
        raise UserError(f"comm_args.backend is {args.backend!r}; devices support only {BACKEND}")
    if algorithm.has_own_client_rule():
        raise UserError(
            f"federated_optimizer {algorithm.name!r} changes the local training, which devices do not support; choose "
            "an algorithm whose clients only train (FedAvg, FedOpt, FedDF, MrTF)"
        )
    if settings.privacy.is_active:
        raise UserError("dp_args: devices neither clip nor add noise, so there is no privacy guarantee; leave it out")
    if str(getattr(args, "enable_dp", False)).lower() == "true" and getattr(args, "dp_solution_type", "") == "ldp":
        raise UserError("dp_solution_type 'ldp': devices add no noise, so there is no privacy guarantee; leave it out")
    if not str(args.run_id).isdigit():
        raise UserError(f"common_args.run_id is {args.run_id!r}; devices need an integer, such as 1")


def _device_ids(settings: RunSettings) -> list[int]:
    """The devices' ids, by client: those of `client_id_list`, or 1, 2, ..."""
    # From the user's settings: `fedml.init` overwrites its argument with as many ids as take part in one round.
    lists = [section["client_id_list"] for section in settings.explicit.values() if "client_id_list" in section]
    configured, number = lists[0] if lists else None, settings.train.client_num_in_total
    if configured in (None, "", "[]", "None"):
        return list(range(1, number + 1))
    try:
        ids = [int(device) for device in (json.loads(configured) if isinstance(configured, str) else configured)]
    except (ValueError, TypeError):
        raise UserError(f"client_id_list is {configured!r}; give the devices' ids as a list of integers") from None
    if len(ids) != number or len(set(ids)) != number:
        raise UserError(
            f"client_id_list has {len(set(ids))} devices and train_args.client_num_in_total is {number}; make them "
            "equal"
        )
    return ids


def _broker_and_bucket(args: Any) -> tuple[Any, Any]:
    """The configurations of broker and bucket: the user's own, or those of FedML's platform where it is used."""
    if uses_platform(args):
        broker, bucket = FedMLCommManager.get_training_mqtt_s3_config(SimpleNamespace(args=args))
        return broker, bucket
    return getattr(args, "customized_training_mqtt_config", None), getattr(args, "customized_training_s3_config", None)
