"""An emulated device: FedML's device protocol and MNN's own training, in Python, in the place of a phone.

It is known by its id; the device of id r owns shard r-1 of the configuration's data. One process emulates as many as it
is told to (emulate.py): they share the process's time, and each has a connection of its own.
"""

from __future__ import annotations

import json
import logging
import queue
import tempfile
import threading
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import paho.mqtt.client as mqtt

from ...randomness import numpy_generator
from . import protocol
from .bucket import S3_ERRORS, Bucket
from .mnn_training import Array, LocalTraining, MnnNetwork

_log = logging.getLogger(__name__)

_EXACTLY_ONCE = 2
_TRIES = 3


class EmulatedDevice:
    """One device: it comes online when a run starts, trains when it is asked to, and ends when it is told.

    Args:
        device: its id.
        broker: `comm_args.customized_training_mqtt_config`.
        bucket: where models are fetched and left.
        inputs: its own pictures [N, channels, height, width], as its network takes them.
        labels: its own labels [N].
        seed: of the order in which it trains on them.
        jobs: the process's queue, into which it puts what takes long.
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
        #: Set when the run is over for it.
        self.ended = threading.Event()
        self._jobs = jobs
        self._run: _Run | None = None
        self._client = mqtt.Client(client_id=f"emulator_{device}_{uuid.uuid4().hex}", clean_session=True)
        self._client.username_pw_set(str(broker.get("MQTT_USER") or ""), str(broker.get("MQTT_PWD") or ""))
        will = json.dumps({"ID": str(device), "status": protocol.OFFLINE})
        self._client.will_set(protocol.LAST_WILL_TOPIC, will, qos=_EXACTLY_ONCE, retain=True)
        self._client.on_connect = self._connected
        self._client.on_message = self._received
        self._client.connect(str(broker["BROKER_HOST"]), int(broker["BROKER_PORT"]), int(broker["MQTT_KEEPALIVE"]))

    @property
    def has_a_run(self) -> bool:
        """Whether a server has started a run that is not over, and lives as far as the broker knows."""
        return self._run is not None

    def start(self) -> None:
        """Take part from now on, in a thread of its own."""
        self._client.loop_start()

    def stop(self) -> None:
        """Leave, with everything said."""
        self._client.disconnect()
        self._client.loop_stop()

    def local_result(self, model: bytes, how: LocalTraining, round_text: str) -> bytes:
        """The trained model; a test may make a bad device of a good one here."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "model.mnn"
            file.write_bytes(model)
            network = MnnNetwork(file)
            network.train(self.inputs, self.labels, how, self._order(round_text))
            network.save(file)
            return file.read_bytes()

    def _order(self, round_text: str) -> np.random.Generator:
        return numpy_generator(self.seed, "emulated device", self.device, round_text)

    def _connected(self, client: Any, *_: Any) -> None:
        client.subscribe([(protocol.Topics.start(self.device), _EXACTLY_ONCE)])
        client.subscribe([(protocol.SERVER_LAST_WILL_TOPIC, _EXACTLY_ONCE)])
        if self._run is not None:
            client.subscribe([(self._run.topics.to_device(self.device), _EXACTLY_ONCE)])
        idle = {"run_id": 0, "edge_id": self.device, "status": protocol.IDLE}
        self._say(protocol.STATUS_TOPIC, idle)

    def _received(self, client: Any, _: Any, message: Any) -> None:
        # Like the app: what the broker kept for those who come later is nothing to act on.
        if message.retain:
            return
        try:
            message_facts = protocol.decoded(message.payload)
            if message.topic == protocol.Topics.start(self.device):
                self._begin(message_facts)
            elif message.topic == protocol.SERVER_LAST_WILL_TOPIC:
                self._lose(message_facts)
            elif self._run is not None and message.topic == self._run.topics.to_device(self.device):
                self._follow(self._run, message_facts)
        except protocol.UnreadableMessage as error:
            _log.warning("emulated device %d cannot read a message on %s: %s", self.device, message.topic, error)

    def _begin(self, facts: Mapping[str, Any]) -> None:
        self._run = run = _Run(facts)
        self._client.subscribe([(run.topics.to_device(self.device), _EXACTLY_ONCE)])
        self._say(run.topics.from_device(self.device), protocol.status(self.device, protocol.ONLINE))

    def _lose(self, facts: Mapping[str, Any]) -> None:
        """The server is gone. A phone would wait for the next; an emulator must come to an end some time."""
        if self._run is not None and str(facts.get("ID")) == self._run.topics.server:
            self._run = None

    def _follow(self, run: _Run, facts: Mapping[str, Any]) -> None:
        kind = protocol.whole(facts, protocol.TYPE)
        if kind == protocol.CHECK:
            self._say(run.topics.from_device(self.device), protocol.status(self.device, protocol.ONLINE))
        elif kind == protocol.FINISH:
            self._finish(run)
        elif kind == protocol.SYNC or (kind == protocol.INIT and run.rounds_done == 0):
            if run.rounds_done < run.rounds:
                run.rounds_done += 1
                key, round_text = protocol.text(facts, protocol.MODEL), protocol.text(facts, protocol.ROUND)
                self._jobs.put(lambda: self._train(run, key, round_text))
            else:
                self._finish(run)

    def _train(self, run: _Run, key: str, round_text: str) -> None:
        if self._run is not run:
            return
        try:
            result = self.local_result(self._fetched(key), run.how, round_text)
            if self._run is not run:
                return
            # The app names the file after the topic, and the object after the file.
            own_key = f"{run.topics.to_device(self.device)}-{uuid.uuid4().hex}"
            self.bucket.put(own_key, result)
        except S3_ERRORS as error:
            _log.warning("emulated device %d gives up round %s: %s", self.device, round_text, error)
            return
        answer = protocol.answer(self.device, round_text, own_key, len(self.inputs))
        self._say(run.topics.from_device(self.device), answer)

    def _fetched(self, key: str) -> bytes:
        for _ in range(_TRIES - 1):
            try:
                return self.bucket.get(key)
            except S3_ERRORS as error:
                _log.info("emulated device %d tries again to fetch its model: %s", self.device, error)
        return self.bucket.get(key)

    def _finish(self, run: _Run) -> None:
        said = self._say(run.topics.from_device(self.device), protocol.status(self.device, protocol.FINISHED))
        self._run = None
        self._jobs.put(lambda: self._leave(said))

    def _leave(self, said: Any) -> None:
        said.wait_for_publish(timeout=10)
        self.ended.set()

    def _say(self, topic: str, message: Mapping[str, Any]) -> Any:
        return self._client.publish(topic, json.dumps(message), qos=_EXACTLY_ONCE, retain=True)


class _Run:
    """What a start message says."""

    def __init__(self, facts: Mapping[str, Any]) -> None:
        try:
            parameters = facts["run_config"]["parameters"]
            train = parameters["train_args"]
            self.topics = protocol.Topics(str(facts["runId"]), str(facts["server_id"]))
            self.rounds = int(train["comm_round"])
            self.how = LocalTraining(int(train["epochs"]), int(train["batch_size"]), float(train["learning_rate"]))
        except (KeyError, TypeError, ValueError) as error:
            raise protocol.UnreadableMessage(f"it starts no run ({error!r})") from error
        self.rounds_done = 0
