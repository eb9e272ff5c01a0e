"""An emulated device speaks FedML's device protocol over a real broker and a real S3 interface."""

from __future__ import annotations

import json
import queue
import threading
from typing import Any

import paho.mqtt.client as mqtt
import torch

from mrtf_fedml.fedml_bridge.cross_device import protocol
from mrtf_fedml.fedml_bridge.cross_device.bucket import Bucket
from mrtf_fedml.fedml_bridge.cross_device.emulate import emulate
from mrtf_fedml.fedml_bridge.cross_device.exchange import Exchange
from tests.conftest import small_config

TOPICS = protocol.Topics("31", "0")
DEVICE = 2


class Counterpart:
    """The server's end of one device's conversation, without a server."""

    def __init__(self, broker: dict[str, Any]) -> None:
        self.heard: queue.Queue[tuple[str, dict[str, Any]]] = queue.Queue()
        self._client = mqtt.Client()
        self._client.on_message = lambda *given: self._take(given[-1])
        self._client.connect(broker["BROKER_HOST"], broker["BROKER_PORT"])
        ready = threading.Event()
        self._client.on_subscribe = lambda *_: ready.set()
        self._client.subscribe([(TOPICS.from_device(DEVICE), 2), (protocol.STATUS_TOPIC, 2)])
        self._client.loop_start()
        assert ready.wait(30)

    def say(self, topic: str, message: dict[str, Any] | bytes) -> None:
        payload = message if isinstance(message, bytes) else json.dumps(message)
        self._client.publish(topic, payload, qos=2).wait_for_publish(30)

    def next(self) -> tuple[str, dict[str, Any]]:
        return self.heard.get(timeout=60)

    def stop(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()

    def _take(self, message: Any) -> None:
        if not message.retain:
            self.heard.put((message.topic, json.loads(message.payload)))


def test_a_device_comes_online_trains_twice_and_ends(mqtt_s3: dict[str, Any]) -> None:
    bucket = Bucket(mqtt_s3["customized_training_s3_config"])
    config = small_config(training_type="cross_device", client_num_in_total=4)
    config["comm_args"] = {"backend": "MQTT_S3_MNN", "start_timeout": 120.0, **mqtt_s3}
    server = Counterpart(mqtt_s3["customized_training_mqtt_config"])
    emulator = threading.Thread(target=emulate, args=(config, [DEVICE]))
    emulator.start()
    try:
        assert server.next() == (protocol.STATUS_TOPIC, {"run_id": 0, "edge_id": DEVICE, "status": "IDLE"})
        train = {"comm_round": 5, "epochs": 1, "batch_size": 32, "learning_rate": 0.05}
        server.say(TOPICS.start(DEVICE), protocol.start("31", "0", DEVICE, train, {"dataset": "digits"}))
        assert server.next() == (TOPICS.from_device(DEVICE), protocol.status(DEVICE, "ONLINE"))
        server.say(TOPICS.to_device(DEVICE), b"\x00 not JSON")
        server.say(TOPICS.to_device(DEVICE), protocol.check(0, DEVICE))
        assert server.next()[1] == protocol.status(DEVICE, "ONLINE")

        exchange = Exchange("lenet", 10)
        weights = exchange.twin.state_dict()
        for round_index, kind in enumerate((protocol.INIT, protocol.SYNC)):
            bucket.put("of the server", exchange.to_file(weights))
            server.say(TOPICS.to_device(DEVICE), protocol.hand_out(kind, 0, DEVICE, round_index, "of the server"))
            answer = server.next()[1]
            assert (answer["msg_type"], answer["sender"], answer["client_idx"]) == (3, DEVICE, str(round_index))
            assert answer["num_samples"] > 0
            assert answer["model_params"].startswith(TOPICS.to_device(DEVICE) + "-")
            trained = exchange.to_weights(bucket.get(answer["model_params"]))
            bucket.remove(answer["model_params"])
            assert all((trained[key] != weights[key]).any() for key in weights)
            assert all(torch.isfinite(value).all() for value in trained.values())
            weights = trained
        server.say(TOPICS.to_device(DEVICE), protocol.finish(0, DEVICE))
        assert server.next()[1] == protocol.status(DEVICE, "FINISHED")
    finally:
        server.stop()
        emulator.join(60)
    assert not emulator.is_alive()
