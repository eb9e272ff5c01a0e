"""Too few usable updates: others are asked, or the old model stays. Updates that are far off are told of."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from mrtf_fedml.algorithms import ClientUpdate, algorithm_of
from mrtf_fedml.algorithms.sampling import chosen_among, chosen_clients
from mrtf_fedml.cli import main
from mrtf_fedml.rounds.norms import FAR, far_off
from mrtf_fedml.rounds.round import Handout, sorted_out
from tests.conftest import metrics, small_config, small_settings, write_yaml

#: Round 0 of the tests' seed asks them first.
FIRST = chosen_clients(0, total=8, per_round=3, seed=3)


def run(folder: Path, name: str, **changes: Any) -> Path:
    run_dir = folder / name
    changes = {"federated_optimizer": "tests.rounds.faulty:Faulty", "comm_round": 1} | changes
    config = small_config(run_dir=str(run_dir), **changes)
    assert main(["run", "--cf", str(write_yaml(folder / f"{name}.yaml", config))]) == 0
    return run_dir


def test_others_are_asked_and_the_usable_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROKEN_CLIENTS", ",".join(map(str, FIRST[:2])))
    (line,) = metrics(run(tmp_path, "two", min_clients=2))
    others = chosen_among(range(8), FIRST, 0, per_round=3, seed=3)[:2]
    assert line["clients"] == [*FIRST, *others]
    assert list(line["left_out"]) == [str(client) for client in FIRST[:2]]
    assert line["retries"] == 1
    told = (tmp_path / "two" / "report.html").read_text()
    assert "other clients were asked (round 1)" in told
    assert "retries" not in metrics(run(tmp_path, "one"))[0], "one usable update is enough by default"


def test_the_old_model_stays_where_nobody_else_helps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROKEN_CLIENTS", "0,1,2,3,4,5,6")
    run_dir = run(tmp_path, "run", comm_round=2, min_clients=2, max_retries=3, client_num_per_round=3)
    for line in metrics(run_dir):
        # Until nobody is left.
        assert sorted(line["clients"]) == list(range(8))
        assert set(line["left_out"]) == {str(client) for client in range(8)}
        assert "fewer than train_args.min_clients (2)" in line["left_out"]["7"]
        assert line["retries"] in (2, 3)
    assert "the model stayed as it was (rounds 1 and 2)" in (run_dir / "report.html").read_text()
    first, last = (load_file(run_dir / "state" / name) for name in ("server-1.safetensors", "server.safetensors"))
    assert all(torch.equal(first[key], last[key]) for key in first)
    never = run(tmp_path, "never", max_retries=0, min_clients=2)
    assert len(metrics(never)[0]["clients"]) == 3


def test_a_minimum_above_the_round_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write_yaml(tmp_path / "c.yaml", small_config(min_clients=4, client_num_per_round=3))
    assert main(["run", "--cf", str(file)]) == 2
    assert "min_clients is 4 but only 3 clients take part" in capsys.readouterr().err


def test_an_update_that_explodes_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # A run by the command line keeps our log from others.
    logging.getLogger("mrtf_fedml").addHandler(caplog.handler)
    monkeypatch.setenv("HUGE_CLIENTS", str(FIRST[1]))
    try:
        run_dir = run(tmp_path, "run")
    finally:
        logging.getLogger("mrtf_fedml").removeHandler(caplog.handler)
    (line,) = metrics(run_dir)
    assert list(line["far_off"]) == [str(FIRST[1])]
    assert f"client {FIRST[1]} of round 0 is used, but its update is" in caplog.text
    assert f"Client {FIRST[1]} sent updates far larger" in (run_dir / "report.html").read_text()


def test_a_result_that_is_not_finite_is_not_what_the_next_clients_get(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each update is finite; the model that is refined of them is not."""
    second = chosen_clients(1, total=8, per_round=3, seed=3)
    hostile = next(client for client in FIRST if client not in second)
    monkeypatch.setenv("LARGEST_CLIENTS", str(hostile))
    run_dir = run(tmp_path, "run", federated_optimizer="MrTF", base="tests.rounds.faulty:Faulty", comm_round=2)
    spoilt, after = metrics(run_dir)
    assert list(spoilt["far_off"]) == [str(hostile)]
    assert {"what its round made of all updates together was not finite"} == set(spoilt["left_out"].values())
    assert after["left_out"] == {}
    assert "the model stayed as it was (round 1)" in (run_dir / "report.html").read_text()


def test_a_variance_below_zero_is_left_out() -> None:
    weights = {"norm.running_var": torch.tensor([1.0, -1.0])}
    rules = algorithm_of(small_settings(federated_optimizer="FedAvg"))
    state = rules.first_state(weights)
    arrived = sorted_out(state, Handout(rules, state, [0]), [ClientUpdate(0, 1, weights, None)])
    assert arrived.left_out == {0: "its norm.running_var is negative, which no variance is"}


def test_how_far_is_far() -> None:
    def update(client: int, step: float) -> ClientUpdate:
        weights = {"w": torch.full((4,), 1 + step), "seen": torch.tensor(10**9)}
        return ClientUpdate(client, 1, weights, None)

    start = {"w": torch.ones(4), "seen": torch.tensor(0)}
    assert far_off(start, [update(0, 0.1), update(1, 0.2), update(2, 0.2 * FAR * 0.99)]) == {}
    assert list(far_off(start, [update(0, 0.1), update(1, 0.2), update(2, 0.2 * FAR * 1.01)])) == [2]
    assert far_off(start, [update(0, 0.1), update(1, 1e30)]) == {}, "two have no middle"
    assert "e+" in far_off(start, [update(0, 0.1), update(1, 0.1), update(2, 3e38)])[2]
