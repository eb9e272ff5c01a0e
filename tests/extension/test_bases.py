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
from mrtf_fedml.algorithms import algorithm_of
from tests.conftest import metrics
from tests.extension.conftest import WANDERER, answer, ran, scene

BASES = ("FedAvg", "FedProx", "FedMMD", "FedOpt", "Scaffold", WANDERER)
#: Of a base's own metrics, those that it measures itself.
OWN_METRICS = {WANDERER: "wanderers"}


@pytest.mark.parametrize("base", BASES)
def test_without_a_step_it_is_the_base_and_with_steps_it_is_not(tmp_path: Path, base: str) -> None:
    small = {"comm_round": 2, "mmd_weight": 1.0, "fedprox_mu": 1.0}
    alone = ran(tmp_path, scene(base, **small), "alone")
    for algorithm in ("MrTF", "FedDF"):
        still = ran(tmp_path, scene(algorithm, base=base, refine_steps=0, **small), f"{algorithm}-still")
        assert answer(still) == answer(alone)
        refined = ran(tmp_path, scene(algorithm, base=base, **small), algorithm)
        assert answer(refined) != answer(alone)
        losses = [[line["local_loss"] for line in metrics(run_dir)] for run_dir in (alone, still, refined)]
        assert losses[0] == losses[1]
        assert losses[0][0] == losses[2][0], "the clients of the first round are the base's"
        if base in OWN_METRICS:
            key = OWN_METRICS[base]
            assert [line[key] for line in metrics(refined)] == [line[key] for line in metrics(alone)]


def feedback(folder: Path, **changes: Any) -> str:
    run_dir = ran(folder, scene("MrTF", comm_round=1, refine_steps=1, **changes), f"run-{len(list(folder.iterdir()))}")
    return str(yaml.safe_load((run_dir / "config.yaml").read_text())["mrtf_args"]["feedback"])


def test_a_base_that_keeps_client_state_is_fed_back_only_what_is_judged_better_unless_it_is_said(
    tmp_path: Path,
) -> None:
    assert feedback(tmp_path, base="Scaffold", preset="tuned") == "judged"
    assert feedback(tmp_path, base="Scaffold", preset="tuned", feedback="adaptive") == "adaptive"
    assert feedback(tmp_path, base=WANDERER) == "never"
    assert feedback(tmp_path, base="FedOpt") == "always"


class Counting(mrtf_fedml.Algorithm):
    """Remembers how many rounds had nobody in them."""

    name = "Counting"

    def skipped_round(self, state: ServerState) -> ServerState:
        after = super().skipped_round(state)
        return replace(after, memory={**state.memory, "skipped": state.memory.get("skipped", 0) + 1})


def test_a_round_with_nobody_in_it_is_the_bases_too() -> None:
    base = "tests.extension.test_bases:Counting"
    algorithm = algorithm_of(RunSettings.from_config(scene("MrTF", base=base, target_smoothing=0.5)))
    before = replace(algorithm.first_state({}), memory={"skipped": 2, "refinery/targets": torch.ones(1)})
    after = algorithm.skipped_round(before)
    assert (after.round, after.memory["skipped"]) == (1, 3)
    assert "refinery/targets" in after.memory, "and what the refinery keeps is kept"
