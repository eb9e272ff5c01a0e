"""The refinery on any base: without a step it is the base, with steps it is more, and its client state is respected."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import mrtf_fedml
from mrtf_fedml import RunSettings, ServerState
from mrtf_fedml.algorithms import build_algorithm
from tests.conftest import read_metrics
from tests.extension.conftest import WANDERER, extension_config, output_bytes, run_config

BASES = ("FedAvg", "FedProx", "FedMMD", "FedOpt", "Scaffold", WANDERER)
#: Of a base's own metrics, those that it measures itself.
OWN_METRICS = {WANDERER: "wanderers"}


@pytest.mark.parametrize("base", BASES)
def test_without_a_step_it_is_the_base_and_with_steps_it_is_not(tmp_path: Path, base: str) -> None:
    small = {"comm_round": 2, "mmd_weight": 1.0, "fedprox_mu": 1.0}
    alone = run_config(tmp_path, extension_config(base, **small), "alone")
    for algorithm in ("MrTF", "FedDF"):
        still = run_config(
            tmp_path, extension_config(algorithm, base=base, refine_steps=0, **small), f"{algorithm}-still"
        )
        assert output_bytes(still) == output_bytes(alone)
        refined = run_config(tmp_path, extension_config(algorithm, base=base, **small), algorithm)
        assert output_bytes(refined) != output_bytes(alone)
        losses = [[line["train_loss"] for line in read_metrics(run_dir)] for run_dir in (alone, still, refined)]
        assert losses[0] == losses[1]
        assert losses[0][0] == losses[2][0], "the clients of the first round are the base's"
        if base in OWN_METRICS:
            key = OWN_METRICS[base]
            assert [line[key] for line in read_metrics(refined)] == [line[key] for line in read_metrics(alone)]


def broadcast(folder: Path, **changes: Any) -> str:
    run_dir = run_config(
        folder, extension_config("MrTF", comm_round=1, refine_steps=1, **changes), f"run-{len(list(folder.iterdir()))}"
    )
    return str(yaml.safe_load((run_dir / "config.yaml").read_text())["mrtf_args"]["broadcast"])


def test_broadcast_default_depends_on_whether_base_keeps_client_state(tmp_path: Path) -> None:
    assert broadcast(tmp_path, base="Scaffold", preset="tuned") == "client_validated"
    assert broadcast(tmp_path, base="Scaffold", preset="tuned", broadcast="loss_interpolated") == "loss_interpolated"
    assert broadcast(tmp_path, base=WANDERER) == "aggregated"
    assert broadcast(tmp_path, base="FedOpt") == "refined"


class Counting(mrtf_fedml.Algorithm):
    """Counts the rounds without clients."""

    name = "Counting"

    def skip_round(self, state: ServerState) -> ServerState:
        after = super().skip_round(state)
        return replace(after, memory={**state.memory, "skipped": state.memory.get("skipped", 0) + 1})


def test_round_without_clients_calls_skip_round_of_base() -> None:
    base = "tests.extension.test_bases:Counting"
    algorithm = build_algorithm(RunSettings.from_config(extension_config("MrTF", base=base, target_smoothing=0.5)))
    before = replace(algorithm.init_state({}), memory={"skipped": 2, "refinery/smoothing/q": torch.ones(1)})
    after = algorithm.skip_round(before)
    assert (after.round, after.memory["skipped"]) == (1, 3)
    assert "refinery/smoothing/q" in after.memory, "the refinery's memory is kept"
