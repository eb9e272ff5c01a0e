"""The refinery on any base: without a step it is the base, with steps it is more, and its client state is respected."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from mrtf_fedml.cli import main
from tests.conftest import metrics, write_yaml
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


def test_a_base_that_keeps_client_state_is_not_fed_back_unless_it_is_said(tmp_path: Path) -> None:
    assert feedback(tmp_path, base="Scaffold", preset="tuned") == "never"
    assert feedback(tmp_path, base="Scaffold", preset="tuned", feedback="adaptive") == "adaptive"
    assert feedback(tmp_path, base=WANDERER) == "never"
    assert feedback(tmp_path, base="FedOpt") == "always"


def test_a_comparison_names_bases(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write_yaml(tmp_path / "scene.yaml", scene("FedAvg", comm_round=1))
    labels = ["MrTF:tuned+Scaffold", "FedDF+Scaffold", f"MrTF:paper+{WANDERER}"]
    words = ["compare", "--cf", str(file), "--seeds", "1", "--jobs", "2", "--out", str(tmp_path / "out")]
    assert main([*words, "--algorithms", ",".join(labels), "--set", "wanderer.memory_share=0.1"]) == 0
    shown = capsys.readouterr().out
    assert all(label in shown for label in labels)
    configs = [yaml.safe_load(path.read_text()) for path in (tmp_path / "out" / "runs").glob("*/config.yaml")]
    bases = sorted((config["train_args"]["federated_optimizer"], config["mrtf_args"]["base"]) for config in configs)
    assert bases == [("FedDF", "Scaffold"), ("MrTF", "Scaffold"), ("MrTF", WANDERER)]
    (share,) = {config["wanderer"]["memory_share"] for config in configs if config["mrtf_args"]["base"] == WANDERER}
    assert share == 0.1


def test_a_base_where_there_is_none_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write_yaml(tmp_path / "scene.yaml", scene("FedAvg"))
    for label, told in (("FedAvg+Scaffold", "FedAvg has none"), ("MrTF+Scafold", "did you mean 'Scaffold'?")):
        assert main(["compare", "--cf", str(file), "--algorithms", label, "--out", str(tmp_path / "out")]) == 2
        assert told in capsys.readouterr().err
