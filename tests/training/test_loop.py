"""The training loop: callbacks in their order, stops, interruptions, and what a stopped run says."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from mrtf_fedml.algorithms import ClientUpdate, FedAvg
from mrtf_fedml.callbacks.base import Callback
from mrtf_fedml.errors import RunInterrupted, RunStopped
from mrtf_fedml.training.evaluation import Evaluation
from mrtf_fedml.training.loop import Run, defer_signals
from mrtf_fedml.training.round import Backend, RoundTasks
from mrtf_fedml.training.run_directory import RunDirectory
from mrtf_fedml.training.server import Server
from tests.conftest import small_settings


class AddsOne(Backend):
    """Each client returns the weights that it received, plus one; an exception is raised from `fails_in` on."""

    def __init__(self, fails_in: int = 10, error: BaseException | None = None) -> None:
        self.fails_in, self.error = fails_in, error

    def train_clients(self, tasks: RoundTasks) -> list[ClientUpdate]:
        if tasks.round >= self.fails_in and self.error is not None:
            raise self.error
        weights = {name: value + 1 for name, value in tasks.weights.items()}
        return [ClientUpdate(client, 1, weights, 0.5) for client in tasks.clients]


class Recording(Callback):
    """Remembers the calls; stops the run after `stop_after` rounds."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.calls: list[str] = []
        self.stop_after = stop_after

    def on_start(self, run: Run) -> None:
        self.calls.append("start")

    def on_round_begin(self, run: Run, clients: Sequence[int]) -> None:
        self.calls.append(f"begin {run.state.round}")

    def on_round_end(self, run: Run, line: dict[str, Any]) -> None:
        self.calls.append(f"end {line['round']}")
        if self.stop_after == run.state.round:
            run.stop("enough")

    def on_end(self, run: Run, summary: dict[str, Any]) -> None:
        self.calls.append("results")


def make_run(folder: Path, callback: Callback, **changes: Any) -> Run:
    settings = small_settings(**{"federated_optimizer": "FedAvg", "comm_round": 3, **changes})
    server = Server(FedAvg(settings), nn.Linear(4, 3))
    server.bind_server_set(torch.ones(5, 4), classes=3)
    directory = RunDirectory.create(folder / "run", "unused")
    return Run(server, directory, Evaluation(None, 5, ["a", "b", "c"]), [callback])


def test_execute_runs_all_rounds_and_calls_the_callbacks_in_order(tmp_path: Path) -> None:
    recording = Recording()
    run = make_run(tmp_path, recording)
    start = run.state.weights["bias"].clone()
    summary = run.execute(AddsOne())
    rounds = [call for index in range(3) for call in (f"begin {index}", f"end {index}")]
    assert recording.calls == ["start", *rounds, "results"]
    assert summary is not None
    assert (summary["rounds"], summary["interrupted"], summary["stop_reason"]) == (3, False, None)
    assert torch.allclose(run.state.weights["bias"], start + 3)
    assert run.directory.results_written_after() == 3


def test_execute_ends_after_the_round_in_which_a_callback_stops_it(tmp_path: Path) -> None:
    summary = make_run(tmp_path, Recording(stop_after=2)).execute(AddsOne())
    assert summary is not None
    assert (summary["rounds"], summary["stop_reason"]) == (2, "enough")


@pytest.mark.parametrize(("training_type", "role"), [("simulation", ""), ("cross_silo", " --role server")])
def test_execute_after_run_stopped_writes_results_and_names_the_resume_command(
    tmp_path: Path, training_type: str, role: str
) -> None:
    recording = Recording()
    run = make_run(tmp_path, recording, training_type=training_type)
    with pytest.raises(RunStopped, match="no silo left") as error:
        run.execute(AddsOne(1, RunStopped("no silo left")))
    assert f"mrtf run --resume {run.directory.path}{role}`" in str(error.value)
    assert recording.calls[-1] == "results"
    assert run.directory.results_written_after() is None, "the run is not finished"


def test_execute_after_an_interrupt_says_how_many_rounds_are_saved(tmp_path: Path) -> None:
    run = make_run(tmp_path, Recording())
    with pytest.raises(RunInterrupted, match="after 2 of 3 rounds"):
        run.execute(AddsOne(2, KeyboardInterrupt()))
    other = make_run(tmp_path / "other", Recording())
    with pytest.raises(RunInterrupted, match="nothing was saved"):
        other.execute(AddsOne(0, KeyboardInterrupt()))


def interrupt(times: int, steps: list[str]) -> None:
    """Within deferred signals: interrupt this process so often, then take a step."""
    with defer_signals():
        for _ in range(times):
            os.kill(os.getpid(), signal.SIGINT)
        steps.append("after the signals")


def test_defer_signals_delays_the_first_signal_to_the_end_of_the_block() -> None:
    steps: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        interrupt(1, steps)
    assert steps == ["after the signals"]
    with pytest.raises(KeyboardInterrupt):
        interrupt(2, steps)
    assert steps == ["after the signals"], "the second signal was not deferred"
