"""A third of the clients is hostile: the comparison of updates protects the run, also with FedML's defences enabled."""

from __future__ import annotations

from pathlib import Path

import pytest

from mrtf_fedml.cli import main
from tests.conftest import read_metrics, small_config, write_yaml

pytestmark = pytest.mark.usefixtures("harmless_afterwards")

HOSTILE, CLIENTS = "0,3,6", 9


def accuracy(folder: Path, defence: str | None) -> float:
    """MrTF's after six rounds in which every client takes part."""
    name = str(defence)
    config = small_config(
        run_dir=str(folder / name),
        base="tests.training.faulty:Faulty",
        comm_round=6,
        client_num_in_total=CLIENTS,
        client_num_per_round=CLIENTS,
        partition_method="iid",
        model="mlp",
        hidden_size=64,
        epochs=2,
        refine_steps=50,
    )
    if defence is not None:
        options = {"byzantine_client_num": 3, "norm_bound": 1.0}
        config["defense_args"] = {"enable_defense": True, "defense_type": defence, **options}
    assert main(["run", "--cf", str(write_yaml(folder / f"{name}.yaml", config))]) == 0
    lines = read_metrics(folder / name)
    key = "excluded_clients" if defence is None else "outlier_clients"
    assert ",".join(lines[0][key]) == HOSTILE, "they are named, defended or not"
    return lines[-1]["acc"]


@pytest.mark.parametrize("defence", [None, "krum"])
def test_run_with_a_third_of_hostile_clients_keeps_accuracy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, defence: str | None
) -> None:
    """Each hostile client sends a million times its weights. Without them the run comes to 0.84."""
    monkeypatch.setenv("HUGE_CLIENTS", HOSTILE)
    assert accuracy(tmp_path, defence) > 0.6
