"""A party that sends invalid messages is excluded and named, and does not affect the others."""

from __future__ import annotations

import contextlib
import json
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fedml.cross_silo.server.message_define import MyMessage

from mrtf_fedml.algorithms.mrtf.client_validation import COUNTS
from mrtf_fedml.config import SiloSettings
from mrtf_fedml.fedml_bridge.backends.cross_silo import protocol
from mrtf_fedml.fedml_bridge.backends.cross_silo.transports.base import PartyAddress
from mrtf_fedml.fedml_bridge.backends.cross_silo.transports.codec import WEIGHTS, encode
from mrtf_fedml.fedml_bridge.backends.cross_silo.transports.mqtt import MqttTransport
from mrtf_fedml.fedml_bridge.messages import LOSS, PAYLOAD, SAMPLES
from tests.backends.cross_silo.conftest import bucket_client
from tests.backends.cross_silo.federation import Federation, wait_until
from tests.backends.cross_silo.scripted_party import GrpcParty, ScriptedParty, handshake_of
from tests.backends.cross_silo.test_failures import metrics
from tests.fedml_bridge.backends.cross_silo.transports.test_grpc import both_forms

Params = dict[str, Any]


def changed(**entries: Any) -> Callable[[Params], bytes]:
    return lambda params: encode({**params, **entries})


def weights(change: Callable[[Params], Any]) -> Callable[[Params], bytes]:
    def made(params: Params) -> bytes:
        tensors = dict(params[WEIGHTS])
        change(tensors)
        return encode({**params, WEIGHTS: tensors})

    return made


def in_header(value: Any) -> Callable[[Params], bytes]:
    """Another value in place of the weights, in the header."""

    def made(params: Params) -> bytes:
        return headed({**params, WEIGHTS: value})

    return made


def first(tensors: Params) -> str:
    return next(key for key, value in tensors.items() if value.is_floating_point() and value.ndim > 1)


NUM_SAMPLES = MyMessage.MSG_ARG_KEY_NUM_SAMPLES
INVALID_UPDATES: dict[str, Callable[[Params], bytes]] = {
    "its weights are a list": in_header([1, 2, 3]),
    "its weights are a str": in_header("all of them"),
    "it carries no weights": in_header(None),
    "its round is missing": changed(round_idx=None),
    "its round is a list": changed(round_idx=[0]),
    "its number of samples is a str": changed(**{NUM_SAMPLES: "many"}),
    "its number of samples is -5": changed(**{NUM_SAMPLES: -5}),
    "its number of samples is far too large": changed(**{NUM_SAMPLES: 10**4000}),
    "with 65 dimensions": weights(lambda sent: sent.update({PAYLOAD + "x": torch.zeros([1] * 65)})),
    "its validation counts": weights(lambda sent: sent.update({PAYLOAD + COUNTS: torch.full((3,), 2**62)})),
    "its loss is 1e+308": weights(lambda sent: sent.update({LOSS: torch.tensor(1e308, dtype=torch.float64)})),
    "its loss is not a scalar": weights(lambda sent: sent.update({LOSS: torch.zeros(3)})),
    "its sample count is not a positive integer": weights(lambda sent: sent.update({SAMPLES: torch.tensor(-1)})),
    "torch.int32 of shape": weights(lambda sent: sent.update({first(sent): sent[first(sent)].int()})),
    "of shape (1,), not": weights(lambda sent: sent.update({first(sent): torch.zeros(1)})),
    "the unknown 'mine'": weights(lambda sent: sent.update(mine=torch.zeros(1))),
    "its weights lack": weights(lambda sent: sent.pop(first(sent))),
    "a block of weights cannot be read": lambda params: encode(
        {**params, WEIGHTS: b"\x08" + b"\0" * 7 + b"{}      xx"}
    ),
}


def headed(head: Any) -> bytes:
    text = head if isinstance(head, bytes) else json.dumps(head).encode()
    return len(text).to_bytes(4, "little") + text


INVALID_BYTES = [
    b"",
    headed(b"[" * 200_000),
    headed([]),
    headed({"msg_type": [], "sender": 2, "receiver": 0}),
    headed({"msg_type": protocol.UPDATE, "sender": {"a": 1}, "receiver": 0}),
    headed({"msg_type": protocol.UPDATE, "sender": 77, "receiver": 0}),
    headed({"msg_type": protocol.STATUS, "sender": 2, "receiver": 0, "handshake": 7}),
    headed({"msg_type": protocol.STATUS, "sender": 2, "receiver": 0, "number": 10**4000, "incarnation": ["x"]}),
]


@pytest.mark.slow
@both_forms
def test_silo_with_invalid_updates_is_excluded_and_run_continues(tmp_path: Path, connection: str) -> None:
    rounds = len(INVALID_UPDATES) + 1
    settings = {"comm_round": rounds, "model": "mlp", "max_faults": len(INVALID_UPDATES), "client_validation": True}
    settings |= {"connection": connection}
    with Federation(tmp_path, 2, **settings) as federation:
        server, silo, hostile = federation.start(0), federation.start(1), GrpcParty(federation, 2)
        try:
            hostile.transport.send(protocol.status_message("hostile", 2, protocol.ONLINE, handshake_of(federation)))
            for number, (fault, made) in enumerate(INVALID_UPDATES.items(), start=1):
                wait_until(lambda number=number: len(hostile.tasks) >= number, f"a task for: {fault}")
                task = hostile.tasks[-1]
                for raw in INVALID_BYTES:
                    hostile.send_bytes(0, raw)
                sent = protocol.update_message("hostile", 2, protocol.get_round(task), 10, protocol.get_weights(task))
                hostile.send_bytes(0, made(sent.get_params()))
            assert [server.wait(), silo.wait()] == [0, 0], server.output
        finally:
            hostile.transport.close()
        lines = metrics(federation)
        for line, fault in zip(lines, INVALID_UPDATES, strict=False):
            assert fault in line["excluded_clients"]["1"]
        assert (lines[-1]["clients"], lines[-1]["excluded_clients"]) == ([0], {}), "it is not selected again"
        assert "(comm_args.max_faults) and is not selected again" in server.output
        assert "Traceback" not in server.output


@pytest.mark.slow
@both_forms
def test_silo_that_floods_the_server_with_hellos_is_excluded_and_run_continues(tmp_path: Path, connection: str) -> None:
    with Federation(tmp_path, 2, model="mlp", comm_round=3, connection=connection) as federation:
        server, silo, hostile = federation.start(0), federation.start(1), GrpcParty(federation, 2)
        handshake, threads = handshake_of(federation), []

        def hello(incarnation: str, terms: dict[str, object]) -> None:
            # After its exclusion the server may refuse the connection.
            with contextlib.suppress(ConnectionError):
                hostile.transport.send(protocol.status_message(incarnation, 2, protocol.ONLINE, terms))

        try:
            hello("hostile", handshake)
            wait_until(lambda: hostile.tasks, "the first task")
            for number in range(3000):
                if server.process.exitcode is not None:
                    break
                hello(f"process {number}", handshake)
                if number % 100 == 0:
                    status = Path(f"/proc/{server.process.pid}/status").read_text()
                    threads.append(int(status.split("Threads:")[1].split()[0]))
            for number in range(300):
                if server.process.exitcode is None:
                    hello(f"other {number}", {**handshake, "model": "another"})
            assert [server.wait(), silo.wait()] == [0, 0], server.output
        finally:
            hostile.transport.close()
        assert max(threads) - threads[0] < 30
        assert "it was restarted" in json.dumps([line["excluded_clients"] for line in metrics(federation)])
        assert "Traceback" not in server.output


@pytest.mark.slow
@both_forms
def test_silo_ends_after_invalid_messages_of_server(tmp_path: Path, connection: str) -> None:
    with Federation(tmp_path, 2, model="mlp", connection=connection) as federation:
        server, silo = GrpcParty(federation, 0), federation.start(1)
        try:
            wait_until(lambda: server.received, "a status of the silo")
            for raw in INVALID_BYTES:
                server.send_bytes(1, raw)
            first, second, third = (
                protocol.task_message("server", 1, 0, 0, {"mine": torch.zeros(2)}).get_params() for _ in range(3)
            )
            for raw in (encode(first), encode({**second, "round_idx": "x"}), headed({**third, WEIGHTS: {"a": [1]}})):
                server.send_bytes(1, raw)
            assert silo.wait() == 1
        finally:
            server.transport.close()
        assert "the server has sent 3 invalid messages to silo 1 (comm_args.max_faults)" in silo.output
        assert "Traceback" not in silo.output


@pytest.mark.slow
@both_forms
def test_repeated_message_is_ignored(tmp_path: Path, connection: str) -> None:
    with Federation(tmp_path, 2, comm_round=1, model="mlp", connection=connection) as federation:
        server, silo, second = federation.start(0), federation.start(1), GrpcParty(federation, 2)
        handshake = handshake_of(federation)
        try:
            status = protocol.status_message("first", 2, protocol.ONLINE, handshake)
            second.transport.send(status)
            wait_until(lambda: len(second.tasks) == 1, "the task")
            # A restarted silo receives the task again; a silo whose old status is repeated does not.
            second.transport.send(protocol.status_message("second", 2, protocol.ONLINE, handshake))
            wait_until(lambda: len(second.tasks) == 2, "the task, again")
            second.transport.send(status)
            second.transport.send(protocol.status_message("third", 2, protocol.ONLINE, handshake))
            wait_until(lambda: len(second.tasks) == 3, "the task, a third time")
            second.transport.send(protocol.update_message("third", 2, 0, 10, protocol.get_weights(second.tasks[0])))
            assert [server.wait(), silo.wait()] == [0, 0], server.output
            assert len(second.tasks) == 3
        finally:
            second.transport.close()


@pytest.mark.slow
def test_mqtt_party_cannot_read_or_remove_objects_of_others(tmp_path: Path, mqtt_s3: Params) -> None:
    bucket = bucket_client(mqtt_s3["customized_training_s3_config"]["CN_S3_ENDPOINT"])
    keys = {"comm_round": 7, "model": "mlp", "max_faults": 6}
    with Federation(tmp_path, 2, "MQTT_S3", **keys) as federation:
        federation.config["common_args"]["run_id"] = "hostile"
        federation.comm.update(mqtt_s3)
        server, silo = federation.start(0), federation.start(1)
        args = SimpleNamespace(run_id="hostile", rank=2, client_id_list="[2]")
        address = PartyAddress(2, 2, {0: 0, 2: 2}, 2, 60.0)
        transport = MqttTransport(args, address, SiloSettings(), *mqtt_s3.values())
        hostile = ScriptedParty(transport)
        precious = {"of nobody here": "others-precious", "of the other silo": f"fedml_hostile_1_{uuid.uuid4()}"}
        for key in precious.values():
            bucket.put_object(Bucket="federation", Key=key, Body=b"precious")

        def update(change: Params) -> Params:
            task = hostile.tasks[-1]
            packed = transport.pack(protocol.get_weights(task)).key
            message = protocol.update_message("hostile", 2, protocol.get_round(task), 10, packed)
            return {**message.get_params(), **change}

        def publish(content: str, topic: str = "fedml_hostile_2") -> None:
            transport._client.publish(topic, content, qos=2).wait_for_publish(60)

        faults = {
            "have a key in the S3 bucket that is not its own": {WEIGHTS: precious["of nobody here"]},
            "key in the S3 bucket that is not its own": {WEIGHTS: precious["of the other silo"]},
            "is not its own": {WEIGHTS: ["a", "list"]},
            "its number of samples is a str": {NUM_SAMPLES: "many"},
            "it carries no weights": {WEIGHTS: None},
            "are not in the S3 bucket": {WEIGHTS: f"fedml_hostile_2_{uuid.uuid4()}"},
        }
        try:
            handshake = handshake_of(federation)

            def has_task() -> bool:
                # A message is lost if the server has not subscribed yet.
                transport.send_nowait(protocol.status_message("hostile", 2, protocol.ONLINE, handshake))
                time.sleep(0.5)
                return len(hostile.tasks) > 0

            wait_until(has_task, "the first task")
            for number, (fault, change) in enumerate(faults.items(), start=1):
                wait_until(lambda number=number: len(hostile.tasks) >= number, f"a task for: {fault}")
                for junk in ("", "[" * 100_000, "[]", "7", '{"sender": 2}', json.dumps({**update({}), "sender": 1})):
                    publish(junk)
                publish(json.dumps(update(change)))
            assert [server.wait(), silo.wait()] == [0, 0], server.output
        finally:
            hostile.transport.close()
        for line, fault in zip(metrics(federation), faults, strict=False):
            assert fault in line["excluded_clients"]["1"]
            assert line["clients"] == [0, 1]
        assert metrics(federation)[-1]["clients"] == [0]
        for key in precious.values():
            assert bucket.get_object(Bucket="federation", Key=key)["Body"].read() == b"precious"
        # The run does not remove the uploads of the hostile party; the next test uses the same bucket.
        for entry in bucket.list_objects_v2(Bucket="federation").get("Contents", []):
            bucket.delete_object(Bucket="federation", Key=entry["Key"])
        assert "Traceback" not in server.output
