"""Emulated devices for a dry run on one machine: FedML's device protocol and MNN's training in Python.

python -m mrtf_fedml.fedml_bridge.backends.cross_device.emulator --cf cross_device.yaml --devices 1-4 [--set key=value]

The device of id r owns shard r-1 of the configuration's data. One process emulates several devices: each has its own
connection, and they train one after another.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import queue
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import paho.mqtt.client as mqtt
import torch

from ....config import RunSettings
from ....config.loader import Config, apply_overrides, read_config
from ....data import load
from ....errors import RunStopped, UserError
from ....process.signals import interrupt_exit_code, raise_on_sigterm
from ....rng import numpy_generator
from . import protocol
from .device_models import device_model
from .mnn_training import Array, MnnNetwork, TrainingParameters
from .torch_models import to_device_inputs
from .transport import S3_ERRORS, Bucket

_log = logging.getLogger(__name__)

_EXACTLY_ONCE = 2
_FETCH_ATTEMPTS = 3
_POLL_SECONDS = 0.5


class EmulatedDevice:
    """One device: it connects when a run starts, trains on request, and ends with the run.

    Args:
        device: its id.
        broker: `comm_args.customized_training_mqtt_config`.
        bucket: where models are exchanged.
        inputs: its own images [N, channels, height, width], in the form of its network.
        labels: its own labels [N].
        seed: of the order of its samples.
        jobs: the process's queue, for work that takes long.
    """

    def __init__(
        self,
        device: int,
        broker: Mapping[str, Any],
        bucket: Bucket,
        inputs: Array,
        labels: Array,
        seed: int,
        jobs: queue.Queue[Callable[[], None]],
    ) -> None:
        self.device = device
        self.bucket = bucket
        self.inputs = inputs
        self.labels = labels
        self.seed = seed
        #: Set when the run has ended for this device.
        self.ended = threading.Event()
        self._jobs = jobs
        self._run: _DeviceRun | None = None
        self._client = mqtt.Client(client_id=f"emulator_{device}_{uuid.uuid4().hex}", clean_session=True)
        self._client.username_pw_set(str(broker.get("MQTT_USER") or ""), str(broker.get("MQTT_PWD") or ""))
        will = json.dumps({"ID": str(device), "status": protocol.OFFLINE})
        self._client.will_set(protocol.LAST_WILL_TOPIC, will, qos=_EXACTLY_ONCE, retain=True)
        self._client.on_connect = self._on_connect
        self._client.on_message = self._on_message
        self._client.connect(str(broker["BROKER_HOST"]), int(broker["BROKER_PORT"]), int(broker["MQTT_KEEPALIVE"]))

    @property
    def has_run(self) -> bool:
        """Whether a server has started a run that has not ended, and the broker has not lost the server."""
        return self._run is not None

    def start(self) -> None:
        """Process messages in a thread from now on."""
        self._client.loop_start()

    def stop(self) -> None:
        """Disconnect."""
        self._client.disconnect()
        self._client.loop_stop()

    def train_model(self, model: bytes, parameters: TrainingParameters, round_index: str) -> bytes:
        """The trained model; tests override this."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "model.mnn"
            file.write_bytes(model)
            network = MnnNetwork(file)
            network.train(self.inputs, self.labels, parameters, self._generator(round_index))
            network.save(file)
            return file.read_bytes()

    def _generator(self, round_index: str) -> np.random.Generator:
        return numpy_generator(self.seed, "emulated device", self.device, round_index)

    def _on_connect(self, client: Any, *_: Any) -> None:
        client.subscribe([(protocol.Topics.start(self.device), _EXACTLY_ONCE)])
        client.subscribe([(protocol.SERVER_LAST_WILL_TOPIC, _EXACTLY_ONCE)])
        if self._run is not None:
            client.subscribe([(self._run.topics.to_device(self.device), _EXACTLY_ONCE)])
        self._publish(protocol.STATUS_TOPIC, {"run_id": 0, "edge_id": self.device, "status": protocol.IDLE})

    def _on_message(self, client: Any, _: Any, received: Any) -> None:
        # Retained messages are ignored, as by the app.
        if received.retain:
            return
        try:
            message = protocol.decode(received.payload)
            if received.topic == protocol.Topics.start(self.device):
                self._begin_run(message)
            elif received.topic == protocol.SERVER_LAST_WILL_TOPIC:
                self._on_server_lost(message)
            elif self._run is not None and received.topic == self._run.topics.to_device(self.device):
                self._on_server_message(self._run, message)
        except protocol.UnreadableMessage as error:
            _log.warning("emulated device %d: a message on %s is invalid: %s", self.device, received.topic, error)

    def _begin_run(self, message: Mapping[str, Any]) -> None:
        self._run = run = _DeviceRun(message)
        self._client.subscribe([(run.topics.to_device(self.device), _EXACTLY_ONCE)])
        self._publish_status(run, protocol.ONLINE)

    def _on_server_lost(self, message: Mapping[str, Any]) -> None:
        """End the run. A phone would wait for the next server; an emulator must end some time."""
        if self._run is not None and str(message.get("ID")) == self._run.topics.server:
            self._run = None

    def _on_server_message(self, run: _DeviceRun, message: Mapping[str, Any]) -> None:
        kind = protocol.get_integer(message, protocol.TYPE)
        if kind == protocol.CHECK:
            self._publish_status(run, protocol.ONLINE)
        elif kind == protocol.FINISH:
            self._finish(run)
        elif kind == protocol.SYNC or (kind == protocol.INIT and run.rounds_done == 0):
            if run.rounds_done < run.rounds:
                run.rounds_done += 1
                key = protocol.get_string(message, protocol.MODEL)
                round_index = protocol.get_string(message, protocol.ROUND)
                self._jobs.put(lambda: self._train(run, key, round_index))
            else:
                self._finish(run)

    def _train(self, run: _DeviceRun, key: str, round_index: str) -> None:
        if self._run is not run:
            return
        try:
            trained = self.train_model(self._fetch_model(key), run.parameters, round_index)
            if self._run is not run:
                return
            # The app names the object after the topic.
            own_key = f"{run.topics.to_device(self.device)}-{uuid.uuid4().hex}"
            self.bucket.put(own_key, trained)
        except S3_ERRORS as error:
            _log.warning("emulated device %d skips round %s: %s", self.device, round_index, error)
            return
        update = protocol.update_message(self.device, round_index, own_key, len(self.inputs))
        self._publish(run.topics.from_device(self.device), update)

    def _fetch_model(self, key: str) -> bytes:
        for _ in range(_FETCH_ATTEMPTS - 1):
            try:
                return self.bucket.get(key)
            except S3_ERRORS as error:
                _log.info("emulated device %d fetches its model again: %s", self.device, error)
        return self.bucket.get(key)

    def _finish(self, run: _DeviceRun) -> None:
        published = self._publish_status(run, protocol.FINISHED)
        self._run = None
        self._jobs.put(lambda: self._end(published))

    def _end(self, published: Any) -> None:
        published.wait_for_publish(timeout=10)
        self.ended.set()

    def _publish_status(self, run: _DeviceRun, status: str) -> Any:
        return self._publish(run.topics.from_device(self.device), protocol.status_message(self.device, status))

    def _publish(self, topic: str, message: Mapping[str, Any]) -> Any:
        return self._client.publish(topic, json.dumps(message), qos=_EXACTLY_ONCE, retain=True)


class _DeviceRun:
    """The contents of a start message."""

    def __init__(self, message: Mapping[str, Any]) -> None:
        try:
            train = message["run_config"]["parameters"]["train_args"]
            self.topics = protocol.Topics(str(message["runId"]), str(message["server_id"]))
            self.rounds = int(train["comm_round"])
            self.parameters = TrainingParameters(
                int(train["epochs"]), int(train["batch_size"]), float(train["learning_rate"])
            )
        except (KeyError, TypeError, ValueError) as error:
            raise protocol.UnreadableMessage(f"it is not a start message ({error!r})") from error
        self.rounds_done = 0


def main(words: Sequence[str] | None = None) -> int:
    """Emulate devices until the run ends; 0 normal end, 1 no server, 2 a wrong setting, 130 or 143 interrupted."""
    parser = argparse.ArgumentParser(description="emulated devices for a run across devices")
    parser.add_argument("--cf", required=True, metavar="FILE.yaml", help="the run's configuration")
    parser.add_argument("--devices", required=True, metavar="A-B", help="their ids: 3, 1-4 or 1,5,7-9")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change a key")
    options = parser.parse_args(words)
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    raise_on_sigterm()
    try:
        emulate(apply_overrides(read_config(options.cf), options.set), parse_ids(options.devices))
    except UserError as error:
        print(f"emulator: {error}", file=sys.stderr)
        return 2
    except RunStopped as error:
        print(f"emulator: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt as interrupt:
        return interrupt_exit_code(interrupt)
    return 0


def emulate(config: Config, ids: Sequence[int], device_class: type[EmulatedDevice] = EmulatedDevice) -> None:
    """Emulate the devices of these ids until the run has ended for each of them."""
    settings = RunSettings.from_config(config)
    jobs: queue.Queue[Callable[[], None]] = queue.Queue()
    devices = _make_devices(settings, config.get("comm_args", {}), ids, jobs, device_class)
    try:
        for device in devices:
            device.start()
        _run_jobs(devices, jobs, settings.silo.start_timeout)
    finally:
        for device in devices:
            device.stop()


def _make_devices(
    settings: RunSettings,
    comm: Mapping[str, Any],
    ids: Sequence[int],
    jobs: queue.Queue[Callable[[], None]],
    device_class: type[EmulatedDevice],
) -> list[EmulatedDevice]:
    dataset = load(settings)
    shape = device_model(settings.model.model).torch_model(dataset.class_num).input_shape
    bucket = Bucket(comm.get("customized_training_s3_config"))
    broker = comm.get("customized_training_mqtt_config")
    if not isinstance(broker, Mapping):
        raise UserError("backend MQTT_S3_MNN needs comm_args.customized_training_mqtt_config; add it")
    devices = []
    for device in ids:
        if device - 1 not in dataset[5]:
            raise UserError(f"there are data for the devices 1 to {dataset.client_num}, and none for device {device}")
        batches = list(dataset[5][device - 1])
        inputs = to_device_inputs(torch.cat([inputs for inputs, _ in batches]), shape)
        labels = torch.cat([labels for _, labels in batches])
        seed = settings.common.random_seed
        try:
            devices.append(device_class(device, broker, bucket, inputs.numpy(), labels.numpy(), seed, jobs))
        except OSError as error:
            raise RunStopped(
                f"the MQTT broker at {broker['BROKER_HOST']}:{broker['BROKER_PORT']} cannot be reached: {error}"
            ) from error
    return devices


def _run_jobs(devices: list[EmulatedDevice], jobs: queue.Queue[Callable[[], None]], start_timeout: float) -> None:
    """Run the devices' jobs one after another, until all devices have ended."""
    last_run = time.monotonic()
    while not all(device.ended.is_set() for device in devices):
        with contextlib.suppress(queue.Empty):
            jobs.get(timeout=_POLL_SECONDS)()
        if any(device.has_run for device in devices):
            last_run = time.monotonic()
        if time.monotonic() > last_run + start_timeout:
            raise RunStopped(f"no server has started a run for {start_timeout:g} s (comm_args.start_timeout)")


def parse_ids(text: str) -> list[int]:
    """The ids of a list such as 1,4-6.

    >>> parse_ids("1,4-6")
    [1, 4, 5, 6]
    """
    ids: list[int] = []
    try:
        for part in text.split(","):
            first, _, last = part.partition("-")
            ids += range(int(first), int(last or first) + 1)
    except ValueError:
        raise UserError(f"--devices {text!r} is not a list of ids such as 1-4 or 1,5,7-9") from None
    return ids


if __name__ == "__main__":
    sys.exit(main())
