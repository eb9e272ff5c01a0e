"""TLS, certificates and user names between a party, a real MQTT broker and an S3 interface."""

from __future__ import annotations

import time
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mrtf_fedml.config import SiloSettings
from mrtf_fedml.errors import RunStopped
from mrtf_fedml.fedml_bridge.backends.cross_silo import protocol
from mrtf_fedml.fedml_bridge.backends.cross_silo.transports.base import PartyAddress
from mrtf_fedml.fedml_bridge.backends.cross_silo.transports.mqtt import MqttTransport
from tests.backends.cross_silo.broker import start_broker
from tests.backends.cross_silo.certificates import Authority
from tests.backends.cross_silo.conftest import bucket_client, mosquitto_tls_lines
from tests.backends.cross_silo.federation import PATIENCE, Federation, free_ports
from tests.backends.cross_silo.test_parity import SILOS, assert_same

Params = dict[str, Any]


def open_transport(rank: int, comm: Params, send_timeout: float = 60.0) -> MqttTransport:
    args = SimpleNamespace(run_id="tls", rank=rank, client_id_list="[1]")
    address = PartyAddress(rank, rank, {0: 0, 1: 1}, 1, send_timeout)
    broker, bucket = comm["customized_training_mqtt_config"], comm["customized_training_s3_config"]
    return MqttTransport(args, address, SiloSettings(start_timeout=300.0), broker, bucket)


def test_weights_travel_through_broker_and_bucket_with_tls(mqtt_s3_tls: Params) -> None:
    server, silo = open_transport(0, mqtt_s3_tls), open_transport(1, mqtt_s3_tls)
    try:
        weights = {"a": torch.randn(1000)}
        # A message is lost if its receiver has not subscribed yet.
        message, deadline = None, time.monotonic() + PATIENCE
        while message is None and time.monotonic() < deadline:
            silo.send(protocol.update_message("silo", 1, 0, 10, weights))
            message = server.receive(1.0)
        assert message is not None
        assert torch.equal(protocol.get_weights(message)["a"], weights["a"])
    finally:
        silo.close()
        server.close()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"MQTT_PWD": "wrong"}, "rejects the user 'hospital'"),
        ({"MQTT_USER": "nobody"}, "rejects the user 'nobody'"),
        ({"tls_certificate": "", "tls_key": ""}, "tls_certificate and tls_key"),
        ({"tls_certificate": "", "tls_key": "", "tls_authority": ""}, "tls_authority, tls_certificate and tls_key"),
        ({"tls_authority": "system"}, "certificate of the MQTT broker"),
        ({"BROKER_HOST": "localhost"}, "certificate of the MQTT broker at localhost"),
    ],
)
def test_broker_that_rejects_or_is_not_trusted_is_named_at_once(
    mqtt_s3_tls: Params, change: Params, named: str
) -> None:
    comm = deepcopy(mqtt_s3_tls)
    comm["customized_training_mqtt_config"] |= change
    began = time.monotonic()
    with pytest.raises(RunStopped, match=named):
        open_transport(1, comm)
    assert time.monotonic() - began < 200.0, "long before start_timeout"


def test_party_connects_again_to_a_restarted_broker_with_tls(mqtt_s3_tls: Params, tmp_path: Path) -> None:
    authority, comm = Authority(tmp_path / "certificates"), deepcopy(mqtt_s3_tls)
    lines, (port,) = mosquitto_tls_lines(tmp_path, authority), free_ports(1)
    comm["customized_training_mqtt_config"] |= {"BROKER_PORT": port, **authority.party("silo1")}
    with start_broker(tmp_path, port, lines):
        silo = open_transport(1, comm)
        silo.send(protocol.status_message("silo", 1, protocol.ONLINE, {}))
    with start_broker(tmp_path, port, lines):
        # It returns when the broker has it.
        silo.send(protocol.status_message("silo", 1, protocol.ONLINE, {}))
        silo.close()


def test_bucket_of_an_unknown_authority_is_not_used(mqtt_s3_tls: Params, tmp_path: Path) -> None:
    comm = deepcopy(mqtt_s3_tls)
    comm["customized_training_s3_config"]["tls_authority"] = str(Authority(tmp_path).file)
    silo = open_transport(1, comm)
    try:
        with pytest.raises(ConnectionError, match="certificate verify failed"):
            silo.send(protocol.update_message("silo", 1, 0, 10, {"a": torch.zeros(1)}))
    finally:
        silo.close()


@pytest.mark.slow
def test_federation_with_tls_to_broker_and_bucket_gives_equal_predictions(
    tmp_path: Path, one_process: Callable[..., Path], mqtt_s3_tls: Params
) -> None:
    with Federation(tmp_path, SILOS, "MQTT_S3", comm_round=2) as federation:
        federation.comm |= mqtt_s3_tls
        federation.config["common_args"]["run_id"] = "tls-parity"
        assert_same(federation, one_process(SILOS, comm_round=2))
    bucket = mqtt_s3_tls["customized_training_s3_config"]
    client = bucket_client(bucket["CN_S3_ENDPOINT"], bucket["tls_authority"])
    assert client.list_objects_v2(Bucket="federation")["KeyCount"] == 0
    written = (federation.run_dir / "config.yaml").read_text()
    assert "MQTT_PWD" not in written, "the password is not stored"
    assert "tls_key" in written, "a resumed server finds its key"
