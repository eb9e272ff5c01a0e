"""The server of a federation against silos that send many messages, of which none is answered at its port."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mrtf_fedml.algorithms import algorithm_by_name
from mrtf_fedml.config import RunSettings
from mrtf_fedml.data import load_for_rank
from mrtf_fedml.fedml_bridge.args import make_arguments
from mrtf_fedml.fedml_bridge.backends.cross_silo import protocol
from mrtf_fedml.fedml_bridge.backends.cross_silo.server import RoundState, SiloServer
from mrtf_fedml.fedml_bridge.devices import select_device
from mrtf_fedml.fedml_bridge.fedml_init import initialize
from mrtf_fedml.fedml_bridge.participants import make_model, make_participant
from mrtf_fedml.fedml_bridge.runner import RunOptions, make_algorithm
from mrtf_fedml.process.mpi import RankInfo
from mrtf_fedml.training.round import RoundTasks
from tests.backends.cross_silo.federation import Federation

Hello = Callable[..., None]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SiloServer]:
    """A server of two silos, at whose ports nobody listens."""
    settings = RunSettings.from_config(Federation(tmp_path, 2, model="mlp", hidden_size=8).config)
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
    assert time.monotonic() - began < 5
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
