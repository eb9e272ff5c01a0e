"""Ctrl-C at every moment of a call, and goodbyes that are overtaken: what comes after still reaches the other side."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mrtf_fedml.fedml_bridge.cross_silo import protocol
from mrtf_fedml.fedml_bridge.cross_silo.inbox import Inbox
from mrtf_fedml.fedml_bridge.cross_silo.presence import Presence
from mrtf_fedml.fedml_bridge.cross_silo.transports.apart import apart
from mrtf_fedml.fedml_bridge.cross_silo.transports.backend import PartyAddress
from mrtf_fedml.fedml_bridge.cross_silo.transports.mqtt import MqttBackend
from mrtf_fedml.settings import SiloSettings
from tests.backends.cross_silo.federation import Federation, free_ports, wait_until
from tests.backends.cross_silo.test_failures import metrics
from tests.backends.cross_silo.test_grpc import end
from tests.backends.cross_silo.test_malformed import party, rounds_in, terms_of


def cut_off(call: Callable[[], Any], moment: int) -> bool:
    """Whether Ctrl-C at this moment, counted where a function of Python begins or ends, cut the call off."""
    left = moment

    def trace(frame: Any, event: str, arg: Any) -> Any:
        nonlocal left
        if event in ("call", "return"):
            left -= 1
            if left == 0:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except (KeyboardInterrupt, RuntimeError):
        # A condition that is cut off while it waits says that its lock is not locked.
        return True
    finally:
        sys.settrace(before)
    return False


@pytest.mark.parametrize("way", ["ping", "send_message"])
def test_a_goodbye_arrives_wherever_ctrl_c_has_cut_off_the_call_before(tmp_path: Path, way: str) -> None:
    weights = {"large": torch.zeros(1000)}
    ports, moment = free_ports(2), 1
    with end(tmp_path, 0, ports) as server, end(tmp_path, 1, ports) as silo:
        silo.send_message(protocol.status("silo", 1, protocol.ONLINE, {}))
        while cut_off(lambda: getattr(silo, way)(protocol.answer("silo", 1, 0, 10, weights)), moment):
            goodbye = protocol.status("silo", 1, f"goodbye {moment}", {})
            apart(lambda goodbye=goodbye: silo.send_message(goodbye), seconds=30)
            moment += 1
        words = {f"goodbye {number}" for number in range(1, moment)}
        wait_until(lambda: words <= {protocol.status_of(told)[0] for told in server.listener.received}, "all goodbyes")
    assert moment > 10, "the call was cut off at several moments"


def test_over_mqtt_too_a_goodbye_arrives_and_the_connection_is_closed(mqtt_s3: dict[str, Any]) -> None:
    args = SimpleNamespace(run_id="interrupted", rank=1, client_id_list="[1]")
    silo = MqttBackend(args, PartyAddress(1, 1, {0: 0, 1: 1}, 1, 60.0), SiloSettings(), *mqtt_s3.values())
    silo.handle_receive_message()
    moment = 1
    while cut_off(lambda: silo.send_message(protocol.status("silo", 1, protocol.ONLINE, {})), moment):
        goodbye = protocol.status("silo", 1, protocol.FINISHED, {})
        # It returns when the broker has it.
        apart(lambda goodbye=goodbye: silo.send_message(goodbye), seconds=30)
        moment += 1
    assert moment > 10, "the call was cut off at several moments"
    apart(silo.stop_receive_message, seconds=30)


def test_a_server_that_is_interrupted_while_it_lays_weights_down_still_reaches_the_bucket(
    mqtt_s3: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over S3 they are uploaded as they are packed. In the main thread, Ctrl-C could leave boto's locks held."""
    uploaders: list[threading.Thread] = []
    real = MqttBackend._upload

    def upload(backend: MqttBackend, weights: Any) -> str:
        uploaders.append(threading.current_thread())
        return real(backend, weights)

    monkeypatch.setattr(MqttBackend, "_upload", upload)
    args = SimpleNamespace(run_id="laid down", rank=0, client_id_list="[1]")
    server = MqttBackend(args, PartyAddress(0, 0, {0: 0, 1: 1}, 1, 60.0), SiloSettings(), *mqtt_s3.values())
    server.handle_receive_message()
    weights, moment = {"large": torch.zeros(1000)}, 1
    while cut_off(lambda: server.pack(weights), moment):
        moment += 1
    assert moment > 5, "the call was cut off at several moments"
    # What was cut off goes on in its own thread: all of it can be removed.
    wait_until(lambda: len(server._packed) == len(uploaders), "all uploads")
    server.forget_packed()
    assert server._packed == []
    assert threading.main_thread() not in uploaders
    apart(server.stop_receive_message, seconds=30)


def test_an_inbox_is_open_wherever_ctrl_c_has_cut_off_a_look_into_it() -> None:
    inbox, moment = Inbox(parties=1), 1
    message = protocol.answer("silo", 1, 0, 10, {"w": torch.zeros(1)})
    inbox.put(message)
    while cut_off(lambda: inbox.next(0.0), moment):
        again = threading.Thread(target=lambda: (inbox.put(message), inbox.next(0.0)), daemon=True)
        again.start()
        again.join(timeout=30)
        assert not again.is_alive(), f"it was left locked at moment {moment}"
        inbox.put(message)
        moment += 1
    assert moment > 3


def test_a_call_apart_gives_what_it_gives_and_is_not_waited_for_too_long() -> None:
    never = threading.Event()
    assert apart(threading.get_ident) != threading.get_ident()
    with pytest.raises(ZeroDivisionError):
        apart(lambda: 1 // 0)
    with pytest.raises(TimeoutError, match=r"longer than 0\.1 s"):
        apart(never.wait, seconds=0.1)
    never.set()


def test_a_goodbye_is_the_last_word_of_its_incarnation_and_of_no_other() -> None:
    presence = Presence([1, 2])
    presence.heard(0, "first")
    presence.leave(0, "first")
    assert not presence.heard(0, "first"), "it was sent before the goodbye, and came after it"
    assert (presence.here, presence.away) == (frozenset(), [])
    assert presence.heard(0, "second")
    presence.leave(0, "first")
    assert presence.here == {0}, "the goodbye of the process before is not its own"
    presence.leave(1, "early")
    assert not presence.heard(1, "early"), "the goodbye has overtaken the hello"
    assert presence.here == {0}


def test_messages_that_a_goodbye_has_overtaken_bring_no_silo_back(tmp_path: Path) -> None:
    with Federation(tmp_path, 2, comm_round=3, model="mlp") as federation:
        federation.comm["silo_timeout"] = 1000.0
        server, silo, leaving = federation.start(0), federation.start(1), party(federation, 2)
        try:
            hello = [protocol.status("leaving", 2, protocol.ONLINE, terms_of(federation)) for _ in range(2)]
            leaving.send_message(hello[0])
            wait_until(lambda: rounds_in(leaving), "a round")
            asked = rounds_in(leaving)[0]
            leaving.send_message(protocol.status("leaving", 2, protocol.FINISHED, {}))
            leaving.send_message(hello[1])
            leaving.send_message(protocol.answer("leaving", 2, 0, 10, protocol.weights_in(asked)))
            # Its port is open still, so it could take a round in that it will never answer.
            wait_until(lambda: len(rounds_in(leaving)) > 1 or not server.process.is_alive(), "the end")
            assert len(rounds_in(leaving)) == 1
            assert [server.ended(), silo.ended()] == [0, 0], server.told
        finally:
            leaving.stop_receive_message()
        assert [line["clients"] for line in metrics(federation)] == [[0, 1], [0], [0]]
        assert metrics(federation)[0]["left_out"] == {"1": "it was lost before it answered"}
