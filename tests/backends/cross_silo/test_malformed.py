"""One party sends what was not agreed: it is left out and named, and nobody falls for it."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from fedml.cross_silo.server.message_define import MyMessage

from mrtf_fedml.algorithms.votes import VOTES
from mrtf_fedml.data import load_for
from mrtf_fedml.fedml_bridge.cross_silo import protocol
from mrtf_fedml.fedml_bridge.cross_silo.terms import Terms
from mrtf_fedml.fedml_bridge.cross_silo.transports.backend import PartyAddress
from mrtf_fedml.fedml_bridge.cross_silo.transports.codec import WEIGHTS, encode
from mrtf_fedml.fedml_bridge.cross_silo.transports.grpc import GrpcBackend
from mrtf_fedml.fedml_bridge.cross_silo.transports.mqtt import MqttBackend
from mrtf_fedml.fedml_bridge.launcher import model_of
from mrtf_fedml.fedml_bridge.messages import EXTRA, LOSS, SAMPLES
from mrtf_fedml.settings import RunSettings, SiloSettings
from tests.backends.cross_silo.conftest import bucket_client
from tests.backends.cross_silo.federation import Federation, wait_until
from tests.backends.cross_silo.test_failures import metrics
from tests.backends.cross_silo.test_grpc import Listener, call

Params = dict[str, Any]


def changed(**facts: Any) -> Callable[[Params], bytes]:
    return lambda params: encode({**params, **facts})


def weights(change: Callable[[Params], Any]) -> Callable[[Params], bytes]:
    def made(params: Params) -> bytes:
        tensors = dict(params[WEIGHTS])
        change(tensors)
        return encode({**params, WEIGHTS: tensors})

    return made


def in_the_head(value: Any) -> Callable[[Params], bytes]:
    """Something else where the weights are, among the facts."""

    def made(params: Params) -> bytes:
        return headed({**params, WEIGHTS: value})

    return made


def first(tensors: Params) -> str:
    return next(key for key, value in tensors.items() if value.is_floating_point() and value.ndim > 1)


SAMPLES_FACT = MyMessage.MSG_ARG_KEY_NUM_SAMPLES
BAD_ANSWERS: dict[str, Callable[[Params], bytes]] = {
    "its weights are a list": in_the_head([1, 2, 3]),
    "its weights are a str": in_the_head("all of them"),
    "it carries no weights": in_the_head(None),
    "its round is missing": changed(round_idx=None),
    "its round is a list": changed(round_idx=[0]),
    "its number of samples is a str": changed(**{SAMPLES_FACT: "many"}),
    "its number of samples is -5": changed(**{SAMPLES_FACT: -5}),
    "its number of samples is a far too large number": changed(**{SAMPLES_FACT: 10**4000}),
    "of 65 dimensions": weights(lambda sent: sent.update({EXTRA + "x": torch.zeros([1] * 65)})),
    "its votes on the models are no hits": weights(lambda sent: sent.update({EXTRA + VOTES: torch.full((3,), 1e38)})),
    "its loss is 1e+308": weights(lambda sent: sent.update({LOSS: torch.tensor(1e308, dtype=torch.float64)})),
    "its loss is no single number": weights(lambda sent: sent.update({LOSS: torch.zeros(3)})),
    "its count of samples is no number": weights(lambda sent: sent.update({SAMPLES: torch.tensor(-1)})),
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


STRANGE_BYTES = [
    b"",
    headed(b"[" * 200_000),
    headed([]),
    headed({"msg_type": [], "sender": 2, "receiver": 0}),
    headed({"msg_type": protocol.ANSWER, "sender": {"a": 1}, "receiver": 0}),
    headed({"msg_type": protocol.ANSWER, "sender": 77, "receiver": 0}),
    headed({"msg_type": protocol.STATUS, "sender": 2, "receiver": 0, "terms": 7}),
    headed({"msg_type": protocol.STATUS, "sender": 2, "receiver": 0, "number": 10**4000, "incarnation": ["x"]}),
]


def party(federation: Federation, rank: int) -> GrpcBackend:
    """A party's place in the federation, taken by this process."""
    args = SimpleNamespace(grpc_ipconfig_path=federation.comm["grpc_ipconfig_path"])
    backend = GrpcBackend(args, PartyAddress(rank, rank, {0: 0, 1: 1, 2: 2}, 2, 60.0), SiloSettings())
    backend.listener = Listener()  # type: ignore[attr-defined]
    backend.add_observer(backend.listener)  # type: ignore[attr-defined]
    backend.handle_receive_message()
    return backend


def rounds_in(backend: Any) -> list[Any]:
    return [message for message in backend.listener.received if message.get_type() == protocol.ROUND]


def terms_of(federation: Federation) -> dict[str, Any]:
    """What a silo of this federation says that it agrees to."""
    settings = RunSettings.from_config(federation.config)
    dataset = load_for(settings, 2)
    return Terms.of(model_of(settings, dataset).state_dict(), dataset.class_names, settings.privacy).facts()


def test_a_malformed_answer_leaves_its_silo_out_by_name_and_ends_nothing(tmp_path: Path) -> None:
    rounds = len(BAD_ANSWERS) + 1
    with Federation(tmp_path, 2, comm_round=rounds, model="mlp", max_faults=len(BAD_ANSWERS)) as federation:
        server, silo, hostile = federation.start(0), federation.start(1), party(federation, 2)
        try:
            hostile.send_message(protocol.status("hostile", 2, protocol.ONLINE, terms_of(federation)))
            for number, (fault, made) in enumerate(BAD_ANSWERS.items(), start=1):
                wait_until(lambda number=number: len(rounds_in(hostile)) >= number, f"a round for: {fault}")
                asked = rounds_in(hostile)[-1]
                for raw in STRANGE_BYTES:
                    call(federation.ports[0], raw)
                sent = protocol.answer("hostile", 2, protocol.round_of(asked), 10, protocol.weights_in(asked))
                call(federation.ports[0], made(sent.get_params()))
            assert [server.ended(), silo.ended()] == [0, 0], server.told
        finally:
            hostile.stop_receive_message()
        lines = metrics(federation)
        for line, fault in zip(lines, BAD_ANSWERS, strict=False):
            assert fault in line["left_out"]["1"]
        assert (lines[-1]["clients"], lines[-1]["left_out"]) == ([0], {}), "it was not chosen again"
        assert "silo 2 has had its comm_args.max_faults and is not chosen again" in server.told
        assert "Traceback" not in server.told


def test_a_malformed_server_does_not_break_a_silo(tmp_path: Path) -> None:
    with Federation(tmp_path, 2, model="mlp") as federation:
        server, silo = party(federation, 0), federation.start(1)
        try:
            wait_until(lambda: server.listener.received, "the silo says hello")  # type: ignore[attr-defined]
            for raw in STRANGE_BYTES:
                call(federation.ports[1], raw)
            first, second, third = (
                protocol.hand_out("server", 1, 0, 0, {"mine": torch.zeros(2)}).get_params() for _ in range(3)
            )
            for raw in (encode(first), encode({**second, "round_idx": "x"}), headed({**third, WEIGHTS: {"a": [1]}})):
                call(federation.ports[1], raw)
            assert silo.ended() == 1
        finally:
            server.stop_receive_message()
        assert "the server has sent silo 1 3 messages that cannot be used (comm_args.max_faults)" in silo.told
        assert "Traceback" not in silo.told


def test_a_message_that_came_before_is_not_heard_again(tmp_path: Path) -> None:
    with Federation(tmp_path, 2, comm_round=1, model="mlp") as federation:
        server, silo, second = federation.start(0), federation.start(1), party(federation, 2)
        terms = terms_of(federation)
        try:
            hello = protocol.status("first", 2, protocol.ONLINE, terms)
            second.send_message(hello)
            wait_until(lambda: len(rounds_in(second)) == 1, "the round")
            # A silo that was started anew is given the round again; one whose old hello comes again is not.
            second.send_message(protocol.status("second", 2, protocol.ONLINE, terms))
            wait_until(lambda: len(rounds_in(second)) == 2, "the round, again")
            second.send_message(hello)
            second.send_message(protocol.status("third", 2, protocol.ONLINE, terms))
            wait_until(lambda: len(rounds_in(second)) == 3, "the round, a third time")
            second.send_message(protocol.answer("third", 2, 0, 10, protocol.weights_in(rounds_in(second)[0])))
            assert [server.ended(), silo.ended()] == [0, 0], server.told
            assert len(rounds_in(second)) == 3
        finally:
            second.stop_receive_message()


def test_over_mqtt_nobody_reads_or_removes_what_is_not_its_own(tmp_path: Path, mqtt_s3: Params) -> None:
    store = bucket_client(mqtt_s3["customized_training_s3_config"]["CN_S3_ENDPOINT"])
    keys = {"comm_round": 7, "model": "mlp", "max_faults": 6}
    with Federation(tmp_path, 2, "MQTT_S3", **keys) as federation:
        federation.config["common_args"]["run_id"] = "hostile"
        federation.comm.update(mqtt_s3)
        server, silo = federation.start(0), federation.start(1)
        args = SimpleNamespace(run_id="hostile", rank=2, client_id_list="[2]")
        address = PartyAddress(2, 2, {0: 0, 2: 2}, 2, 60.0)
        hostile = MqttBackend(args, address, SiloSettings(), *mqtt_s3.values())
        hostile.listener = Listener()  # type: ignore[attr-defined]
        hostile.add_observer(hostile.listener)  # type: ignore[attr-defined]
        hostile.handle_receive_message()
        precious = {"of nobody here": "others-precious", "of the other silo": f"fedml_hostile_1_{uuid.uuid4()}"}
        for key in precious.values():
            store.put_object(Bucket="federation", Key=key, Body=b"precious")

        def answered(change: Params) -> Params:
            asked = rounds_in(hostile)[-1]
            packed = hostile.pack(protocol.weights_in(asked))
            answer = protocol.answer("hostile", 2, protocol.round_of(asked), 10, packed)
            return {**answer.get_params(), **change}

        def publish(content: str, topic: str = "fedml_hostile_2") -> None:
            hostile._client.publish(topic, content, qos=2).wait_for_publish(60)

        faults = {
            "under a key of the S3 bucket that is not its own": {WEIGHTS: precious["of nobody here"]},
            "key of the S3 bucket that is not its own": {WEIGHTS: precious["of the other silo"]},
            "is not its own": {WEIGHTS: ["a", "list"]},
            "its number of samples is a str": {SAMPLES_FACT: "many"},
            "it carries no weights": {WEIGHTS: None},
            "are not in the S3 bucket": {WEIGHTS: f"fedml_hostile_2_{uuid.uuid4()}"},
        }
        try:
            terms = terms_of(federation)

            def is_asked() -> bool:
                # What is said before the server listens is lost.
                hostile.ping(protocol.status("hostile", 2, protocol.ONLINE, terms))
                time.sleep(0.5)
                return len(rounds_in(hostile)) > 0

            wait_until(is_asked, "the first round")
            for number, (fault, change) in enumerate(faults.items(), start=1):
                wait_until(lambda number=number: len(rounds_in(hostile)) >= number, f"a round for: {fault}")
                for junk in ("", "[" * 100_000, "[]", "7", '{"sender": 2}', json.dumps({**answered({}), "sender": 1})):
                    publish(junk)
                publish(json.dumps(answered(change)))
            assert [server.ended(), silo.ended()] == [0, 0], server.told
        finally:
            hostile.stop_receive_message()
        for line, fault in zip(metrics(federation), faults, strict=False):
            assert fault in line["left_out"]["1"]
            assert line["clients"] == [0, 1]
        assert metrics(federation)[-1]["clients"] == [0]
        for key in precious.values():
            assert store.get_object(Bucket="federation", Key=key)["Body"].read() == b"precious"
        # What the hostile one laid there is nobody's to remove; the bucket serves the next test too.
        for found in store.list_objects_v2(Bucket="federation").get("Contents", []):
            store.delete_object(Bucket="federation", Key=found["Key"])
        assert "Traceback" not in server.told
