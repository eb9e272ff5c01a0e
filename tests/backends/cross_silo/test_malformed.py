"""One party sends what was not agreed: it is left out and named, and nobody falls for it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from fedml.cross_silo.server.message_define import MyMessage

from mrtf_fedml.data import load_for
from mrtf_fedml.fedml_bridge.cross_silo import protocol
from mrtf_fedml.fedml_bridge.cross_silo.terms import Terms
from mrtf_fedml.fedml_bridge.cross_silo.transports.backend import PartyAddress
from mrtf_fedml.fedml_bridge.cross_silo.transports.codec import WEIGHTS, encode
from mrtf_fedml.fedml_bridge.cross_silo.transports.grpc import GrpcBackend
from mrtf_fedml.fedml_bridge.launcher import _model
from mrtf_fedml.fedml_bridge.messages import LOSS, SAMPLES
from mrtf_fedml.settings import RunSettings, SiloSettings
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
    return Terms.of(_model(settings, dataset).state_dict(), dataset.class_names, settings.privacy).facts()


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
            asked = protocol.hand_out("server", 1, 0, 0, {"mine": torch.zeros(2)}).get_params()
            for raw in (encode(asked), encode({**asked, "round_idx": "x"}), headed({**asked, WEIGHTS: {"a": [1]}})):
                call(federation.ports[1], raw)
            assert silo.ended() == 1
        finally:
            server.stop_receive_message()
        assert "the server has sent silo 1 3 messages that cannot be used (comm_args.max_faults)" in silo.told
        assert "Traceback" not in silo.told
