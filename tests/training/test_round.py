"""One round: retries with too few usable updates, validation of replies, outliers, and results that are not finite."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from mrtf_fedml.algorithms import ClientFailure, ClientUpdate, build_algorithm
from mrtf_fedml.algorithms.sampling import select_among, select_clients
from mrtf_fedml.cli import main
from mrtf_fedml.config import RunSettings
from mrtf_fedml.errors import RunStopped
from mrtf_fedml.training.round import (
    AggregationHooks,
    Backend,
    Reply,
    RoundReplies,
    RoundTasks,
    collect_updates,
    screen_replies,
    validate_replies,
)
from tests.conftest import read_metrics, small_config, small_settings, write_yaml

#: The clients that round 0 of the tests' seed selects first.
FIRST = select_clients(0, total=8, per_round=3, seed=3)


def run(folder: Path, name: str, code: int = 0, **changes: Any) -> Path:
    run_dir = folder / name
    changes = {"federated_optimizer": "tests.training.faulty:Faulty", "comm_round": 1} | changes
    config = small_config(run_dir=str(run_dir), **changes)
    assert main(["run", "--cf", str(write_yaml(folder / f"{name}.yaml", config))]) == code
    return run_dir


class FakeBackend(Backend):
    """Replies with equal weights at once; the clients of `failures` do not reply."""

    def __init__(self, failures: Sequence[int] = (), available: Sequence[int] = range(8)) -> None:
        self.failures, self.available = failures, available
        self.rejected: list[int] = []

    def available_clients(self, settings: RunSettings) -> Sequence[int]:
        return self.available

    def train_clients(self, tasks: RoundTasks) -> list[Reply]:
        return [
            ClientFailure(client, "it was lost")
            if client in self.failures
            else ClientUpdate(client, 1, dict(tasks.weights), None)
            for client in tasks.clients
        ]

    def on_invalid_update(self, client: int, reason: str) -> None:
        self.rejected.append(client)


def collect(backend: Backend, **changes: Any) -> tuple[RoundReplies, list[list[int]]]:
    """The replies of round 0, and the clients of each attempt."""
    algorithm = build_algorithm(small_settings(federated_optimizer="FedAvg", client_num_per_round=3, **changes))
    attempts: list[list[int]] = []
    state = algorithm.init_state({"w": torch.zeros(2)})
    return collect_updates(algorithm, state, backend, lambda clients: attempts.append(list(clients))), attempts


def test_collect_updates_tries_other_clients_and_keeps_the_usable_updates() -> None:
    replies, attempts = collect(FakeBackend(failures=FIRST[:2]), min_clients=2)
    assert attempts[0] == FIRST
    assert len(attempts) == 2
    assert [update.client for update in replies.updates] == [FIRST[2], *attempts[1]]
    assert replies.retries == 1
    assert set(replies.missing_clients) == set(FIRST[:2])


def test_collect_updates_stops_the_run_if_clients_are_missing() -> None:
    with pytest.raises(RunStopped, match=r"train_args\.min_clients \(2\).*it was lost"):
        collect(FakeBackend(failures=range(8)), min_clients=2)


def test_collect_updates_stops_the_run_if_too_few_clients_are_connected() -> None:
    with pytest.raises(RunStopped, match=r"train_args\.min_clients"):
        collect(FakeBackend(available=[5]), min_clients=2)


def test_retry_keeps_usable_updates_of_the_first_clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROKEN_CLIENTS", ",".join(map(str, FIRST[:2])))
    (line,) = read_metrics(run(tmp_path, "two", min_clients=2))
    others = select_among(range(8), FIRST, 0, per_round=3, seed=3)[:2]
    assert line["clients"] == [*FIRST, *others]
    assert list(line["excluded_clients"]) == [str(client) for client in FIRST[:2]]
    assert line["retries"] == 1
    report = (tmp_path / "two" / "report.html").read_text()
    assert "other clients were selected (round 1)" in report
    assert "retries" not in read_metrics(run(tmp_path, "one"))[0], "one usable update is enough by default"


def test_run_without_enough_usable_updates_keeps_the_old_model_and_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BROKEN_CLIENTS", "0,1,2,3,4,5,6")
    run_dir = run(tmp_path, "run", code=1, comm_round=2, min_clients=2, max_retries=3, client_num_per_round=3)
    for line in read_metrics(run_dir):
        assert sorted(line["clients"]) == list(range(8)), "all clients were tried"
        assert set(line["excluded_clients"]) == {str(client) for client in range(8)}
        assert "fewer than train_args.min_clients (2)" in line["excluded_clients"]["7"]
        assert line["retries"] in (2, 3)
    assert "the model did not change (rounds 1 and 2)" in (run_dir / "report.html").read_text()
    shorter = run(tmp_path, "shorter", code=1, comm_round=1, min_clients=2, max_retries=3, client_num_per_round=3)
    first, last = (load_file(folder / "state" / "server.safetensors") for folder in (shorter, run_dir))
    assert all(torch.equal(first[key], last[key]) for key in first)
    never = run(tmp_path, "never", code=1, max_retries=0, min_clients=2)
    assert len(read_metrics(never)[0]["clients"]) == 3


def test_min_clients_above_client_num_per_round_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write_yaml(tmp_path / "c.yaml", small_config(min_clients=4, client_num_per_round=3))
    assert main(["run", "--cf", str(file)]) == 2
    assert "min_clients is 4" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("variable", "key"), [("LONG_CLIENTS", "outlier_clients"), ("HUGE_CLIENTS", "excluded_clients")]
)
def test_update_that_is_too_large_is_shortened_or_excluded_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, variable: str, key: str
) -> None:
    # A run by the command line does not propagate our log.
    logging.getLogger("mrtf_fedml").addHandler(caplog.handler)
    monkeypatch.setenv(variable, str(FIRST[1]))
    try:
        run_dir = run(tmp_path, "run")
    finally:
        logging.getLogger("mrtf_fedml").removeHandler(caplog.handler)
    (line,) = read_metrics(run_dir)
    assert list(line[key]) == [str(FIRST[1])]
    assert f"client {FIRST[1]} " in caplog.text
    page = (run_dir / "report.html").read_text()
    assert (f"Client {FIRST[1]} sent updates" if key == "outlier_clients" else "1 client update was excluded") in page


@pytest.mark.parametrize("clients", [2, 3])
def test_finite_update_that_makes_the_model_infinite_is_excluded_and_the_others_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clients: int
) -> None:
    hostile = select_clients(0, total=8, per_round=clients, seed=3)[0]
    monkeypatch.setenv("LARGEST_CLIENTS", str(hostile))
    run_dir = run(
        tmp_path, "run", federated_optimizer="MrTF", base="tests.training.faulty:Faulty", client_num_per_round=clients
    )
    (line,) = read_metrics(run_dir)
    assert list(line["excluded_clients"]) == [str(hostile)]
    assert len(line["clients"]) == clients
    last = load_file(run_dir / "state" / "server.safetensors")
    assert all(bool(torch.isfinite(value).all()) for value in last.values())


def test_excluded_outlier_is_reported_to_the_backend_as_a_fault() -> None:
    backend = FakeBackend()
    updates = [
        ClientUpdate(client, 1, {"w": torch.full((2,), float(size))}, None) for client, size in enumerate((1, 1, 1e30))
    ]
    state = build_algorithm(small_settings(federated_optimizer="FedAvg")).init_state({"w": torch.zeros(2)})
    replies = screen_replies(RoundReplies([0, 1, 2], updates), state, AggregationHooks(), backend.on_invalid_update)
    assert backend.rejected == [2]
    assert [update.client for update in replies.updates] == [0, 1]
    assert list(replies.excluded_clients) == [2]


def test_validate_replies_excludes_a_negative_variance() -> None:
    weights = {"norm.running_var": torch.tensor([1.0, -1.0])}
    algorithm = build_algorithm(small_settings(federated_optimizer="FedAvg"))
    tasks = RoundTasks(algorithm, algorithm.init_state(weights), [0])
    replies = validate_replies(tasks, [ClientUpdate(0, 1, weights, None)])
    assert replies.excluded_clients == {0: "its variance norm.running_var is negative"}


@pytest.mark.parametrize(("loss", "is_used"), [(-1e29, False), (1e7, False), (-3.0, True), (1e5, True), (None, True)])
def test_validate_replies_excludes_a_loss_that_is_not_plausible(loss: float | None, is_used: bool) -> None:
    weights = {"w": torch.ones(1)}
    algorithm = build_algorithm(small_settings(federated_optimizer="FedAvg"))
    tasks = RoundTasks(algorithm, algorithm.init_state(weights), [0])
    replies = validate_replies(tasks, [ClientUpdate(0, 1, weights, loss)])
    assert bool(replies.updates) == is_used
    assert is_used or "its loss is" in replies.excluded_clients[0]


@pytest.mark.parametrize("fault", ["reason", "exception"])
def test_validate_replies_asks_the_algorithm_once_and_reports_its_rejections(fault: str) -> None:
    class Strict(type(build_algorithm(small_settings(federated_optimizer="FedAvg")))):  # type: ignore[misc]
        validated: list[int] = []  # noqa: RUF012

        def validate_update(self, state: Any, update: ClientUpdate) -> str | None:
            self.validated.append(update.client)
            if update.client == 1 and fault == "exception":
                raise KeyError("votes")
            return "no votes" if update.client == 1 else None

    algorithm, backend = Strict(small_settings(federated_optimizer="FedAvg")), FakeBackend()
    tasks = RoundTasks(algorithm, algorithm.init_state({"w": torch.zeros(1)}), [0, 1])
    replies = validate_replies(tasks, backend.train_clients(tasks), 0.0, backend.on_invalid_update)
    assert Strict.validated == [0, 1]
    assert backend.rejected == [1]
    assert list(replies.excluded_clients) == [1]
    assert "votes" in replies.excluded_clients[1]
