"""Messages that are sent after Ctrl-C at any moment of a call are delivered; a disconnected silo stays disconnected."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mrtf_fedml.config import SiloSettings
from mrtf_fedml.fedml_bridge.backends.cross_silo import protocol
from mrtf_fedml.fedml_bridge.backends.cross_silo.transports.base import PartyAddress, run_in_thread
from mrtf_fedml.fedml_bridge.backends.cross_silo.transports.mqtt import MqttTransport
from tests.backends.cross_silo.federation import Federation, free_ports, wait_until
from tests.backends.cross_silo.scripted_party import GrpcParty, ScriptedParty, handshake_of
from tests.backends.cross_silo.test_failures import metrics
from tests.fedml_bridge.backends.cross_silo.interruption import is_interrupted
from tests.fedml_bridge.backends.cross_silo.transports.test_grpc import both_forms, open_transport


@both_forms
@pytest.mark.parametrize("method", ["send_nowait", "send"])
def test_grpc_delivers_messages_after_ctrl_c_at_any_moment_of_a_call(
    tmp_path: Path, method: str, connection: str
) -> None:
    weights = {"large": torch.zeros(1000)}
    ports, moment = free_ports(2), 1
    with (
        open_transport(tmp_path, 0, ports, connection=connection) as server,
        open_transport(tmp_path, 1, ports, connection=connection) as silo,
    ):
        receiver = ScriptedParty(server)
        silo.send(protocol.status_message("silo", 1, protocol.ONLINE, {}))
        while is_interrupted(lambda: getattr(silo, method)(protocol.update_message("silo", 1, 0, 10, weights)), moment):
            last = protocol.status_message("silo", 1, f"last {moment}", {})
            run_in_thread(lambda last=last: silo.send(last), seconds=120)
            # An inbox without a reader is full after three models.
            assert receiver.received
            moment += 1
        statuses = {f"last {number}" for number in range(1, moment)}
        wait_until(
            lambda: statuses <= {protocol.get_status(message)[0] for message in receiver.received}, "all last messages"
        )
    assert moment > 10, "the call was interrupted at several moments"


def test_mqtt_delivers_messages_and_closes_after_ctrl_c_at_any_moment_of_a_send(mqtt_s3: dict[str, Any]) -> None:
    args = SimpleNamespace(run_id="interrupted", rank=1, client_id_list="[1]")
    silo = MqttTransport(args, PartyAddress(1, 1, {0: 0, 1: 1}, 1, 60.0), SiloSettings(), *mqtt_s3.values())
    moment = 1
    while is_interrupted(lambda: silo.send(protocol.status_message("silo", 1, protocol.ONLINE, {})), moment):
        last = protocol.status_message("silo", 1, protocol.FINISHED, {})
        # It returns when the broker has it.
        run_in_thread(lambda last=last: silo.send(last), seconds=120)
        moment += 1
    assert moment > 10, "the call was interrupted at several moments"
    run_in_thread(silo.close, seconds=120)


def test_mqtt_pack_interrupted_by_ctrl_c_leaves_the_bucket_usable(
    mqtt_s3: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`pack` uploads the weights. In the main thread, Ctrl-C could leave boto's locks held."""
    uploaders: list[threading.Thread] = []
    real = MqttTransport._upload

    def upload(backend: MqttTransport, weights: Any) -> Any:
        uploaders.append(threading.current_thread())
        return real(backend, weights)

    monkeypatch.setattr(MqttTransport, "_upload", upload)
    args = SimpleNamespace(run_id="packed", rank=0, client_id_list="[1]")
    server = MqttTransport(args, PartyAddress(0, 0, {0: 0, 1: 1}, 1, 60.0), SiloSettings(), *mqtt_s3.values())
    weights, moment = {"large": torch.zeros(1000)}, 1
    while is_interrupted(lambda: server.pack(weights), moment):
        moment += 1
    assert moment > 5, "the call was interrupted at several moments"
    # An interrupted upload continues in its own thread, so all of them can be removed.
    wait_until(lambda: len(server._packed) == len(uploaders), "all uploads")
    server.release_packed()
    assert server._packed == []
    assert threading.main_thread() not in uploaders
    run_in_thread(server.close, seconds=120)


@pytest.mark.slow
def test_messages_after_disconnect_do_not_reconnect_silo(tmp_path: Path) -> None:
    with Federation(tmp_path, 2, comm_round=3, model="mlp") as federation:
        federation.comm["silo_timeout"] = 1000.0
        server, silo, leaving = federation.start(0), federation.start(1), GrpcParty(federation, 2)
        try:
            statuses = [
                protocol.status_message("leaving", 2, protocol.ONLINE, handshake_of(federation)) for _ in range(2)
            ]
            leaving.transport.send(statuses[0])
            wait_until(lambda: leaving.tasks, "a task")
            task = leaving.tasks[0]
            leaving.transport.send(protocol.status_message("leaving", 2, protocol.FINISHED, {}))
            leaving.transport.send(statuses[1])
            leaving.transport.send(protocol.update_message("leaving", 2, 0, 10, protocol.get_weights(task)))
            # Its port is still open, so it could receive a task that it does not reply to.
            wait_until(lambda: len(leaving.tasks) > 1 or not server.process.is_alive(), "the end")
            assert len(leaving.tasks) == 1
            assert [server.wait(), silo.wait()] == [0, 0], server.output
        finally:
            leaving.transport.close()
        assert [line["clients"] for line in metrics(federation)] == [[0, 1], [0], [0]]
        assert metrics(federation)[0]["excluded_clients"] == {"1": "it was lost before it replied"}
