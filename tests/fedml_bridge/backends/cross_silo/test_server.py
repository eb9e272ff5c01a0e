"""The server of a federation against silos that send many messages, of which none is answered at its port."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from mrtf_fedml.algorithms import algorithm_by_name
from mrtf_fedml.config import RunSettings
from mrtf_fedml.data import load_for_rank
from mrtf_fedml.fedml_bridge.args import make_arguments
from mrtf_fedml.fedml_bridge.backends.cross_silo import protocol
from mrtf_fedml.fedml_bridge.backends.cross_silo.server import RoundState, SiloServer
from mrtf_fedml.fedml_bridge.devices import select_device
from mrtf_fedml.fedml_bridge.fedml_init import initialize
from mrtf_fedml.fedml_bridge.messages import LOSS, unpack_update
from mrtf_fedml.fedml_bridge.participants import make_model, make_participant
from mrtf_fedml.fedml_bridge.runner import RunOptions, make_algorithm
from mrtf_fedml.process.mpi import RankInfo
from mrtf_fedml.training.round import RoundTasks
from tests.backends.cross_silo.federation import Federation

Hello = Callable[..., None]


@pytest.fixture(params=["outbound", "two_way"])
def server(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[SiloServer]:
    """A server of two silos, which cannot be reached: none is connected, nobody listens at their ports."""
    federation = Federation(tmp_path, 2, model="mlp", hidden_size=8, connection=request.param)
    settings = RunSettings.from_config(federation.config)
    dataset = load_for_rank(settings, 0)
    args = initialize(make_arguments(settings, 0), verbose=False)
    algorithm = make_algorithm(algorithm_by_name("MrTF"), settings)
    model = make_model(settings, dataset)
    made = make_participant(args, algorithm, select_device(args, RankInfo()), dataset, model, RunOptions())
    assert isinstance(made, SiloServer)
    yield made
    made.session.lock.release()
    made.transport.close()


def hello(server: SiloServer, incarnation: str, handshake: Any = None) -> None:
    """Let the second silo announce itself."""
    terms = server.handshake.to_dict() if handshake is None else handshake
    server.handle(protocol.status_message(incarnation, 2, protocol.ONLINE, terms))


def test_hellos_with_wrong_terms_are_answered_in_the_background_and_exclude_the_silo(server: SiloServer) -> None:
    began, threads = time.monotonic(), threading.active_count()
    for number in range(300):
        hello(server, f"process {number}", {"model": "another"})
    assert time.monotonic() - began < 50, "waiting 10 s for each would take 3000 s"
    assert threading.active_count() - threads < 10
    hello(server, "corrected")
    assert not server.membership.connected, "max_faults hellos with wrong terms exclude a silo"


def test_hellos_of_new_processes_in_a_round_start_a_bounded_number_of_threads_and_tasks(server: SiloServer) -> None:
    begun: list[Any] = []
    server.session.run.begin_round = begun.append  # type: ignore[method-assign]
    hello(server, "first")
    tasks = RoundTasks(server.session.run.algorithm, server.session.run.state, [1])
    server._round = RoundState(tasks, {1: b""})
    threads = threading.active_count()
    for number in range(3000):
        hello(server, f"process {number}")
    assert threading.active_count() - threads < 10
    assert len(begun) < 10, "the privacy account is charged for every repeated task"


def begin_round(server: SiloServer) -> RoundState:
    """The second silo is connected and selected; the first is not."""
    server.session.run.begin_round = lambda clients: None  # type: ignore[method-assign]
    hello(server, "process")
    tasks = RoundTasks(server.session.run.algorithm, server.session.run.state, [1])
    server._round = RoundState(tasks, {1: b""})
    return server._round


@pytest.mark.parametrize("server", ["outbound"], indirect=True)
@pytest.mark.parametrize("seconds", [0.0, 59.0, 61.0])
def test_round_waits_for_a_disconnected_silo_until_reconnect_timeout(
    server: SiloServer, seconds: float, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "mrtf_fedml")
    state = begin_round(server)
    monkeypatch.setattr(server.transport, "seconds_disconnected", lambda party: seconds)
    for _ in range(3):
        server._drop_disconnected()
    server.session.status.update()
    shown = json.loads((server.session.directory.path / "status.json").read_text())["warnings"]
    expected = "silo 2 has disconnected; the server waits up to 60 s for it"
    assert [warning["text"] for warning in shown] == [expected] * (seconds > 0)
    assert server.membership.connected == (set() if seconds > 60 else {1})
    state.mark_lost(server.membership.connected)
    if seconds > 60:
        assert state.close(60.0, 600.0) == []
        assert "60 s" in state.replies[1].reason  # type: ignore[union-attr]
    else:
        assert state.pending


def test_update_of_a_lost_silo_is_used_while_the_round_waits(server: SiloServer) -> None:
    state = begin_round(server)
    server.membership.mark_lost(1, "process")
    state.mark_lost(server.membership.connected)
    assert not state.pending
    weights = pack_update(server)
    server.handle(protocol.update_message("process", 2, state.index + 1, 10, weights))
    assert not state.replies, "an update of another round"
    server.handle(protocol.update_message("process", 2, state.index, 10, weights))
    assert state.num_updates == 1
    assert not state.lost
    assert server.membership.connected == {1}


def pack_update(server: SiloServer) -> dict[str, torch.Tensor]:
    """An update as a silo sends it, with untrained weights."""
    return {**server.session.run.state.weights, LOSS: torch.tensor(1.0)}


@pytest.mark.parametrize("server", ["outbound"], indirect=True)
def test_selected_silo_without_a_connection_does_not_delay_a_round_beyond_reconnect_timeout(
    server: SiloServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The first silo has replied, which is enough for a round.
    begin_round(server).record_reply(unpack_update(0, 10, pack_update(server)))
    monkeypatch.setattr(server.transport, "seconds_disconnected", lambda party: 61.0)
    began = time.monotonic()
    server._wait_for_updates()
    assert time.monotonic() - began < 30, "silo_timeout is 60 s"
    assert "could not be reached for 60 s" in server._round.replies[1].reason  # type: ignore[union-attr]
