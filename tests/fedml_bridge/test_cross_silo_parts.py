"""The parts of a federation that need no other process: bytes, presence, time, tables and places."""

from __future__ import annotations

import signal
import threading
import time
from collections import OrderedDict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mrtf_fedml.cli import main
from mrtf_fedml.errors import UserError
from mrtf_fedml.fedml_bridge.cross_silo import protocol
from mrtf_fedml.fedml_bridge.cross_silo.client import own_shard
from mrtf_fedml.fedml_bridge.cross_silo.inbox import Inbox
from mrtf_fedml.fedml_bridge.cross_silo.liveness import Heartbeat, Watch
from mrtf_fedml.fedml_bridge.cross_silo.manager import _silo_ids
from mrtf_fedml.fedml_bridge.cross_silo.presence import Presence
from mrtf_fedml.fedml_bridge.cross_silo.transports.codec import (
    UnreadableMessage,
    decode,
    decode_weights,
    encode,
    encode_weights,
)
from mrtf_fedml.fedml_bridge.cross_silo.transports.mqtt import _BROKER_KEYS, _checked
from mrtf_fedml.fedml_bridge.cross_silo.transports.trpc import _meeting_point
from mrtf_fedml.fedml_bridge.messages import LOSS
from tests.conftest import small_config, write_yaml
from tests.fedml_bridge.payloads import with_loss


def test_a_message_survives_its_bytes_bit_for_bit() -> None:
    shared = torch.randn(3, 4)
    weights = OrderedDict(
        z=shared, a=shared.t(), counter=torch.tensor(7), flag=torch.tensor([True]), half=torch.randn(2).bfloat16()
    )
    message = decode(encode(protocol.answer("incarnation", 2, 5, 17, with_loss(weights, 0.1)).get_params()))
    assert (protocol.round_of(message), protocol.samples_of(message), message.get_sender_id()) == (5, 17, 2)
    back = protocol.weights_in(message)
    assert list(back) == [*weights, LOSS]
    assert all(torch.equal(back[key], weights[key]) and back[key].dtype == weights[key].dtype for key in weights)
    assert float(back[LOSS]) == 0.1


@pytest.mark.parametrize("raw", [b"", b"\x80\x04\x95", b"\xff\xff\xff\xff{}", encode({"a": 1}), encode({}) + b"xx"])
def test_other_bytes_are_refused(raw: bytes) -> None:
    with pytest.raises(UnreadableMessage):
        decode(raw)
    with pytest.raises(UnreadableMessage):
        decode_weights(raw)


def test_a_cut_block_of_weights_is_refused() -> None:
    with pytest.raises(UnreadableMessage):
        decode_weights(encode_weights({"w": torch.zeros(100)})[:-4])


def test_a_loss_counts_only_for_the_incarnation_it_was_seen_in() -> None:
    presence = Presence([1, 2])
    assert presence.heard(0, "first")
    assert not presence.heard(0, "first")
    assert presence.heard(0, "second")
    presence.lose(0, "first")
    assert presence.here == {0}
    presence.lose(0, "second")
    assert presence.here == frozenset()
    assert presence.expected(with_lost=False) == [1]
    assert presence.expected(with_lost=True) == [0, 1]
    assert (presence.client_of(2), presence.client_of(9)) == (1, None)


def test_the_heart_beats_until_it_is_stopped() -> None:
    beaten = threading.Semaphore(0)
    heartbeat = Heartbeat(beaten.release, timeout=0.1)
    heartbeat.start()
    assert all(beaten.acquire(timeout=10) for _ in range(3))
    heartbeat.stop()


@pytest.mark.parametrize("heard_by", [signal.default_int_handler, signal.SIG_IGN], ids=["a terminal", "a script"])
def test_a_watch_interrupts_the_main_thread_when_nothing_is_heard(heard_by: Any) -> None:
    before = signal.signal(signal.SIGINT, heard_by), signal.getsignal(signal.SIGUSR2)
    watch = Watch(timeout=0.5)
    started = time.monotonic()
    try:
        watch.start()
        with pytest.raises(KeyboardInterrupt):
            time.sleep(60)
    finally:
        signal.signal(signal.SIGINT, before[0])
        signal.signal(signal.SIGUSR2, before[1])
    assert watch.expired
    assert time.monotonic() - started < 50, "a sleeping thread is woken"


def test_ids_are_ranks_unless_the_platform_has_numbered_the_devices() -> None:
    assert _silo_ids(SimpleNamespace(client_id_list="[1, 2]"), rank=0, silos=3) == {1: 1, 2: 2, 3: 3}
    assert _silo_ids(SimpleNamespace(client_id_list="[41, 52]"), rank=0, silos=2) == {41: 1, 52: 2}
    assert _silo_ids(SimpleNamespace(client_id_list="[52]"), rank=2, silos=2) == {52: 2}
    assert _silo_ids(SimpleNamespace(), rank=2, silos=2) == {2: 2}


@pytest.mark.parametrize(
    ("local", "told"),
    [({}, "is empty"), ({0: [1], 1: [1]}, "no shard 2 for the silo of rank 3"), ({2: []}, "has no training sample")],
)
def test_a_silo_without_its_shard_is_told(local: dict[int, Any], told: str) -> None:
    with pytest.raises(UserError, match=told):
        own_shard([0, 0, None, None, {key: len(value) for key, value in local.items()}, local, {}, 2], client=2)


def test_a_silo_that_holds_one_shard_may_call_it_what_it_likes() -> None:
    assert own_shard([2, 0, None, None, {0: 2}, {0: ["a", "b"]}, {0: "t"}, 2], client=2) == (["a", "b"], "t", 2)


def test_tables_and_configurations_that_are_wrong_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no file"):
        _meeting_point(str(tmp_path / "none"))
    (tmp_path / "table").write_text("127.0.0.1,1234\n")
    with pytest.raises(UserError, match="the second the server's ip,port"):
        _meeting_point(str(tmp_path / "table"))
    with pytest.raises(UserError, match=r"needs comm_args\.customized_training_mqtt_config with the keys BROKER_HOST"):
        _checked({}, "customized_training_mqtt_config", _BROKER_KEYS)
    with pytest.raises(UserError, match="has no key 'BROKER_PORT'"):
        _checked({"BROKER_HOST": "here"}, "customized_training_mqtt_config", _BROKER_KEYS)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "needs --role server, or --role client --rank R"),
        (["--role", "client"], "needs --role server, or --role client --rank R"),
        (["--role", "server", "--rank", "2"], "--role server does not fit --rank 2"),
        (["--rank", "9"], "--rank 9: the ranks go from 0"),
    ],
)
def test_the_command_line_says_what_a_party_needs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], told: str
) -> None:
    config = small_config(training_type="cross_silo", backend="GRPC", run_dir=str(tmp_path / "run"))
    assert main(["run", "--cf", str(write_yaml(tmp_path / "c.yaml", config)), *words]) == 2
    assert told in capsys.readouterr().err


def test_a_simulation_has_no_ranks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--cf", str(write_yaml(tmp_path / "c.yaml", small_config())), "--rank", "1"]) == 2
    assert "belong to training_type: cross_silo" in capsys.readouterr().err


def test_no_sender_fills_the_inbox_with_models() -> None:
    inbox = Inbox(parties=2)
    taken = [inbox.put(protocol.answer("x", 1, 0, 1, {"w": torch.zeros(1)})) for _ in range(5)]
    assert taken == [True] * 3 + [False] * 2
    assert inbox.put(protocol.status("x", 1, protocol.ONLINE, {})), "small messages still come in"
    strangers = [inbox.put(protocol.answer("y", name, 0, 1, {"w": torch.zeros(1)})) for name in range(100, 110)]
    assert sum(strangers) == 3, "other names do not help"
    assert sum(inbox.next(0.0) is not None for _ in range(10)) == 7
    assert inbox.put(protocol.answer("x", 1, 1, 1, {"w": torch.zeros(1)})), "what was read makes room"
    assert sum(inbox.put(protocol.status("x", 1, protocol.ONLINE, {})) for _ in range(2000)) == 999
