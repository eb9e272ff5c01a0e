"""An emulated device uses FedML's device protocol over a real broker and a real S3 interface."""

from __future__ import annotations

import json
import queue
import threading
from typing import Any

import paho.mqtt.client as mqtt
import torch

from mrtf_fedml.fedml_bridge.backends.cross_device import protocol
from mrtf_fedml.fedml_bridge.backends.cross_device.device_models import ModelConverter
from mrtf_fedml.fedml_bridge.backends.cross_device.emulator import emulate
from mrtf_fedml.fedml_bridge.backends.cross_device.transport import Bucket
from tests.conftest import small_config

TOPICS = protocol.Topics("31", "0")
DEVICE = 2


class ScriptedServer:
    """A server whose messages the test writes, for one device."""

    def __init__(self, broker: dict[str, Any]) -> None:
        self.received: queue.Queue[tuple[str, dict[str, Any]]] = queue.Queue()
        self._client = mqtt.Client()
        self._client.on_message = lambda *arguments: self._on_message(arguments[-1])
        self._client.connect(broker["BROKER_HOST"], broker["BROKER_PORT"])
        ready = threading.Event()
        self._client.on_subscribe = lambda *_: ready.set()
        self._client.subscribe([(TOPICS.from_device(DEVICE), 2), (protocol.STATUS_TOPIC, 2)])
        self._client.loop_start()
        assert ready.wait(30)

    def publish(self, topic: str, message: dict[str, Any] | bytes) -> None:
        payload = message if isinstance(message, bytes) else json.dumps(message)
        self._client.publish(topic, payload, qos=2).wait_for_publish(30)

    def receive(self) -> tuple[str, dict[str, Any]]:
        return self.received.get(timeout=60)

    def stop(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()

    def _on_message(self, message: Any) -> None:
        if not message.retain:
            self.received.put((message.topic, json.loads(message.payload)))


def test_emulated_device_connects_trains_twice_and_ends(mqtt_s3: dict[str, Any]) -> None:
    bucket = Bucket(mqtt_s3["customized_training_s3_config"])
    config = small_config(training_type="cross_device", client_num_in_total=4)
    config["comm_args"] = {"backend": "MQTT_S3_MNN", "start_timeout": 120.0, **mqtt_s3}
    server = ScriptedServer(mqtt_s3["customized_training_mqtt_config"])
    emulator = threading.Thread(target=emulate, args=(config, [DEVICE]))
    emulator.start()
    try:
        assert server.receive() == (protocol.STATUS_TOPIC, {"run_id": 0, "edge_id": DEVICE, "status": "IDLE"})
        train = {"comm_round": 5, "epochs": 1, "batch_size": 32, "learning_rate": 0.05}
        server.publish(TOPICS.start(DEVICE), protocol.start_message("31", "0", DEVICE, train, {"dataset": "digits"}))
        assert server.receive() == (TOPICS.from_device(DEVICE), protocol.status_message(DEVICE, "ONLINE"))
        server.publish(TOPICS.to_device(DEVICE), b"\x00 not JSON")
        server.publish(TOPICS.to_device(DEVICE), protocol.check_message(0, DEVICE))
        assert server.receive()[1] == protocol.status_message(DEVICE, "ONLINE")

        converter = ModelConverter("lenet", 10)
        weights = converter.torch_model.state_dict()
        for round_index, kind in enumerate((protocol.INIT, protocol.SYNC)):
            bucket.put("of the server", converter.to_mnn(weights))
            server.publish(
                TOPICS.to_device(DEVICE), protocol.task_message(kind, 0, DEVICE, round_index, "of the server")
            )
            update = server.receive()[1]
            assert (update["msg_type"], update["sender"], update["client_idx"]) == (3, DEVICE, str(round_index))
            assert update["num_samples"] > 0
            assert update["model_params"].startswith(TOPICS.to_device(DEVICE) + "-")
            trained = converter.to_state_dict(bucket.get(update["model_params"]))
            bucket.remove(update["model_params"])
            assert all((trained[key] != weights[key]).any() for key in weights)
            assert all(torch.isfinite(value).all() for value in trained.values())
            weights = trained
        server.publish(TOPICS.to_device(DEVICE), protocol.finish_message(0, DEVICE))
        assert server.receive()[1] == protocol.status_message(DEVICE, "FINISHED")
    finally:
        server.stop()
        emulator.join(60)
    assert not emulator.is_alive()
