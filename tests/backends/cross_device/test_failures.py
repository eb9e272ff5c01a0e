"""Devices vanish, come back, are late or send what is no model: they are left out and named, and the run goes on."""

from __future__ import annotations

import itertools
import signal
import threading
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt

from mrtf_fedml.fedml_bridge.cross_device import protocol
from tests.backends.cross_device.bad_devices import (
    Diverging,
    Lazy,
    Mistaken,
    Scribbling,
    Truncating,
    in_background,
)
from tests.backends.cross_device.federation import DeviceFederation
from tests.backends.cross_silo.broker import start_broker
from tests.backends.cross_silo.federation import free_ports, wait_until
from tests.conftest import answer, metrics


def test_what_is_no_model_is_left_out_and_named(tmp_path: Path, mqtt_s3: dict[str, Any]) -> None:
    kinds = (Truncating, Mistaken, Diverging, Scribbling)
    with DeviceFederation(tmp_path, mqtt_s3, devices=5, comm_round=2) as federation:
        server = federation.serve()
        with _garbage(federation, mqtt_s3) as stranger:
            bad = [in_background(federation.config, device, kind) for device, kind in enumerate(kinds, start=2)]
            # The good device is the last to come, and somebody has spoken in its name: the others must wait for it.
            wait_until(lambda: stranger.has_heard == {2, 3, 4, 5}, "all others are online")
            wait_until(lambda: "is not FedML's and is dropped" in server.told, "the server hears the garbage")
            good = federation.emulate("1")
            assert server.ended() == 0, server.told
        assert good.ended() == 0
        for thread in bad:
            thread.join(60)
            assert not thread.is_alive()
    for line in metrics(federation.run_dir):
        # Who comes late is asked after the others.
        assert sorted(line["clients"]) == [0, 1, 2, 3, 4]
        reasons = {int(client): reason for client, reason in line["left_out"].items()}
        assert sorted(reasons) == [1, 2, 3, 4]
        assert "no MNN model, or is damaged" in reasons[1]
        assert "it is not 'lenet' for 10 classes" in reasons[2]
        assert "not finite" in reasons[3]
        assert "no MNN model, or is damaged" in reasons[4]


def test_one_that_is_late_or_killed_is_left_out_and_can_come_back(tmp_path: Path, mqtt_s3: dict[str, Any]) -> None:
    # How many rounds pass before both are back depends on the machine: the run goes on until they are, and is ended.
    with DeviceFederation(tmp_path, mqtt_s3, devices=3, comm_round=1000, silo_timeout=15.0) as federation:
        server = federation.serve()
        steady, doomed = federation.emulate("1"), federation.emulate("3")
        lazy = in_background(federation.config, 2, Lazy)
        wait_until(lambda: federation.rounds_done() >= 1, "the first round is done")
        doomed.kill(signal.SIGKILL)
        wait_until(lambda: federation.rounds_done() >= 2, "the round without two of them is done")
        back = federation.emulate("3")
        wait_until(lambda: _whole_again(metrics(federation.run_dir)[2:]), "a round has all three")
        server.kill(signal.SIGINT)
        assert server.ended() == 130, server.told
        assert (steady.ended(), back.ended()) == (0, 0)
        lazy.join(60)
        assert not lazy.is_alive()
    lines = metrics(federation.run_dir)
    assert lines[1]["left_out"]["1"] == "it gave no answer within 15 s (comm_args.silo_timeout)"
    lost = [line["round"] for line in lines if 2 not in line["clients"] or "2" in line["left_out"]]
    assert lost, "the one that was killed was missed"


def _whole_again(lines: list[dict[str, Any]]) -> bool:
    return any(sorted(line["clients"]) == [0, 1, 2] and not line["left_out"] for line in lines)


def test_a_broker_that_is_started_anew_and_a_server_that_is_resumed(tmp_path: Path, mqtt_s3: dict[str, Any]) -> None:
    port = free_ports(1)[0]
    changed = dict(mqtt_s3)
    changed["customized_training_mqtt_config"] = mqtt_s3["customized_training_mqtt_config"] | {"BROKER_PORT": port}
    with DeviceFederation(tmp_path, changed, devices=2, comm_round=5) as federation:
        with start_broker(tmp_path, port):
            server = federation.serve()
            devices = [federation.emulate("1"), federation.emulate("2")]
            wait_until(lambda: federation.rounds_done() >= 1, "the first round is done")
        with start_broker(tmp_path, port):
            wait_until(lambda: federation.rounds_done() >= 3, "it goes on with the new broker")
            server.kill(signal.SIGKILL)
            server.ended()
            server = federation.resume()
            assert server.ended() == 0, server.told
            assert [device.ended() for device in devices] == [0, 0]
    assert [line["round"] for line in metrics(federation.run_dir)] == list(range(5))
    assert all(len(line["clients"]) == 2 for line in metrics(federation.run_dir))
    assert answer(federation.run_dir)


class _garbage:
    """While the block runs, somebody writes nonsense on every topic there is."""

    def __init__(self, federation: DeviceFederation, mqtt_s3: dict[str, Any]) -> None:
        self._broker = mqtt_s3["customized_training_mqtt_config"]
        topics = protocol.Topics(str(federation.run_id), "0")
        self._topics = [protocol.STATUS_TOPIC, protocol.LAST_WILL_TOPIC, protocol.SERVER_LAST_WILL_TOPIC]
        self._topics += [topics.from_device(1), topics.to_device(1), topics.start(1)]
        self._others = {topics.from_device(device): device for device in range(2, 6)}
        self._over = threading.Event()
        #: The other devices that have said something.
        self.has_heard: set[int] = set()

    def __enter__(self) -> _garbage:
        self._client = mqtt.Client()
        self._client.on_message = lambda client, data, message: self.has_heard.add(self._others[message.topic])
        self._client.connect(self._broker["BROKER_HOST"], self._broker["BROKER_PORT"])
        self._client.subscribe([(topic, 0) for topic in self._others])
        self._client.loop_start()
        self._thread = threading.Thread(target=self._write)
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._over.set()
        self._thread.join()
        self._client.disconnect()
        self._client.loop_stop()

    def _write(self) -> None:
        payloads = (b"", b"\x00\xff", b"[]", b"{}", b'{"msg_type": {}}', b'{"ID": "x"}', b"9" * 70_000)
        answers = (b'{"msg_type": 3, "sender": 1, "client_idx": "99", "model_params": "of somebody else"}',)
        for turn in itertools.count():
            if self._over.wait(0.01):
                return
            # An answer in the name of device 1 falls between any two messages of its own.
            self._client.publish(self._topics[3], answers[0])
            for topic in self._topics if turn % 20 == 0 else []:
                for payload in payloads + answers:
                    self._client.publish(topic, payload)
