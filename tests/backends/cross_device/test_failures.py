"""Devices that are lost, late or send invalid models are excluded and named, and the run continues."""

from __future__ import annotations

import itertools
import signal
import threading
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
import pytest

from mrtf_fedml.fedml_bridge.backends.cross_device import protocol
from tests.backends.cross_device.faulty_devices import (
    Diverging,
    Late,
    RandomBytes,
    Truncating,
    WrongNetwork,
    in_background,
)
from tests.backends.cross_device.federation import DeviceFederation
from tests.backends.cross_silo.broker import start_broker
from tests.backends.cross_silo.federation import free_ports, wait_until
from tests.conftest import output_bytes, read_metrics


@pytest.mark.slow
def test_devices_with_invalid_models_are_excluded_and_named(tmp_path: Path, mqtt_s3: dict[str, Any]) -> None:
    kinds = (Truncating, WrongNetwork, Diverging, RandomBytes)
    with DeviceFederation(tmp_path, mqtt_s3, devices=5, comm_round=2) as federation:
        server = federation.serve()
        with _InvalidMessages(federation, mqtt_s3) as publisher:
            bad = [in_background(federation.config, device, kind) for device, kind in enumerate(kinds, start=2)]
            # The good device connects last, and messages were published in its name: the server must wait for it.
            wait_until(lambda: publisher.online == {2, 3, 4, 5}, "all others are online")
            wait_until(lambda: "is invalid and is dropped" in server.output, "the server receives invalid messages")
            good = federation.emulate("1")
            assert server.wait() == 0, server.output
        assert good.wait() == 0
        for thread in bad:
            thread.join(60)
            assert not thread.is_alive()
    for line in read_metrics(federation.run_dir):
        # The last device may be selected in a retry.
        assert sorted(line["clients"]) == [0, 1, 2, 3, 4]
        reasons = {int(client): reason for client, reason in line["excluded_clients"].items()}
        assert sorted(reasons) == [1, 2, 3, 4]
        assert "not an MNN model, or is damaged" in reasons[1]
        assert "it is not 'lenet' for 10 classes" in reasons[2]
        assert "not finite" in reasons[3]
        assert "not an MNN model, or is damaged" in reasons[4]


@pytest.mark.slow
def test_late_and_killed_devices_are_excluded_and_rejoin(tmp_path: Path, mqtt_s3: dict[str, Any]) -> None:
    # The number of rounds until both are back depends on the machine, so the test ends the run.
    with DeviceFederation(tmp_path, mqtt_s3, devices=3, comm_round=1000, silo_timeout=15.0) as federation:
        server = federation.serve()
        steady, doomed = federation.emulate("1"), federation.emulate("3")
        late = in_background(federation.config, 2, Late)
        wait_until(lambda: federation.rounds_done() >= 1, "the first round is done")
        doomed.kill(signal.SIGKILL)
        wait_until(lambda: federation.rounds_done() >= 2, "the round without two of them is done")
        back = federation.emulate("3")
        wait_until(lambda: _has_complete_round(read_metrics(federation.run_dir)[2:]), "a round has all three")
        server.kill(signal.SIGINT)
        assert server.wait() == 130, server.output
        assert (steady.wait(), back.wait()) == (0, 0)
        late.join(60)
        assert not late.is_alive()
    lines = read_metrics(federation.run_dir)
    assert lines[1]["excluded_clients"]["1"] == "it did not reply within 15 s (comm_args.silo_timeout)"
    lost = [line["round"] for line in lines if 2 not in line["clients"] or "2" in line["excluded_clients"]]
    assert lost, "the killed device was excluded"


def _has_complete_round(lines: list[dict[str, Any]]) -> bool:
    return any(sorted(line["clients"]) == [0, 1, 2] and not line["excluded_clients"] for line in lines)


@pytest.mark.slow
def test_run_continues_after_restart_of_broker_and_server(tmp_path: Path, mqtt_s3: dict[str, Any]) -> None:
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
            server.wait()
            server = federation.resume()
            assert server.wait() == 0, server.output
            assert [device.wait() for device in devices] == [0, 0]
    assert [line["round"] for line in read_metrics(federation.run_dir)] == list(range(5))
    assert all(len(line["clients"]) == 2 for line in read_metrics(federation.run_dir))
    assert output_bytes(federation.run_dir)


class _InvalidMessages:
    """Publishes invalid messages on every topic while the block runs."""

    def __init__(self, federation: DeviceFederation, mqtt_s3: dict[str, Any]) -> None:
        self._broker = mqtt_s3["customized_training_mqtt_config"]
        topics = protocol.Topics(str(federation.run_id), "0")
        self._topics = [protocol.STATUS_TOPIC, protocol.LAST_WILL_TOPIC, protocol.SERVER_LAST_WILL_TOPIC]
        self._topics += [topics.from_device(1), topics.to_device(1), topics.start(1)]
        self._others = {topics.from_device(device): device for device in range(2, 6)}
        self._over = threading.Event()
        #: The other devices that have sent a message.
        self.online: set[int] = set()

    def __enter__(self) -> _InvalidMessages:
        self._client = mqtt.Client()
        self._client.on_message = lambda client, data, message: self.online.add(self._others[message.topic])
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
        replies = (b'{"msg_type": 3, "sender": 1, "client_idx": "99", "model_params": "of somebody else"}',)
        for turn in itertools.count():
            if self._over.wait(0.01):
                return
            # Between any two messages of device 1 there is one in its name.
            self._client.publish(self._topics[3], replies[0])
            for topic in self._topics if turn % 20 == 0 else []:
                for payload in payloads + replies:
                    self._client.publish(topic, payload)
