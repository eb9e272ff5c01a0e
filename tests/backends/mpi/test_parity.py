"""The same bytes from one process and from any number of ranks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from mrtf_fedml.cli import main
from mrtf_fedml.process.logs import log_file

from .conftest import configuration, launched, program

#: By name, what differs from the small configuration. A rank may have several clients, or none.
SCENES: dict[str, dict[str, Any]] = {
    "paper": {"comm_round": 3, "client_num_per_round": 4},
    "tuned": {"comm_round": 3, "preset": "tuned"},
    "mlp": {"comm_round": 3, "preset": "tuned", "model": "mlp", "refine_steps": 20, "refine_lr_decay": 0.5},
    "scaffold": {"federated_optimizer": "Scaffold", "comm_round": 3, "client_num_per_round": 4, "model": "mlp"},
    "fedavg": {"federated_optimizer": "FedAvg", "aggregation": "samples"},
    "fedprox": {"federated_optimizer": "FedProx", "fedprox_mu": 0.5},
    "fedmmd": {"federated_optimizer": "FedMMD", "model": "mlp"},
    "fedopt": {"federated_optimizer": "FedOpt", "server_optimizer": "yogi"},
    "feddf": {"federated_optimizer": "FedDF"},
    "private": {"clip": 1.0, "sigma": 0.01},
    "fedaux": {"federated_optimizer": "FedAUX", "comm_round": 2, "fedaux_epsilon": 10.0, "model": "mlp"},
    "shot": {"federated_optimizer": "SHOT", "shot_epochs": 1, "model": "mlp"},
    "half": {"model": "mlp", "precision": "bf16", "refine_steps": 5},
}
#: The algorithms that no other test takes to several ranks, and noise on the updates; and bfloat16.
OTHERS = ("fedprox", "fedmmd", "fedopt", "feddf", "private", "fedaux", "shot", "half")


def answer(run_dir: Path) -> tuple[bytes, bytes, bytes]:
    files = ("predictions.csv", "model.safetensors", "state/server.safetensors")
    first, second, third = ((run_dir / name).read_bytes() for name in files)
    return first, second, third


def losses(run_dir: Path) -> list[tuple[Any, ...]]:
    lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    keys = ("round", "clients", "left_out", "local_loss", "local_weight", "acc", "bytes_up", "bytes_down")
    return [tuple(line[key] for key in keys) for line in lines]


@pytest.fixture(scope="module")
def one_process(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one finished run a scene, in one process."""
    folder = tmp_path_factory.mktemp("one_process")
    for name, changes in SCENES.items():
        file = configuration(folder, f"{name}.yaml", backend="sp", run_dir=str(folder / name), **changes)
        assert main(["run", "--cf", str(file)]) == 0
    return folder


def several(folder: Path, ranks: int, *commands: str) -> str:
    """Run the commands in these ranks; what they printed."""
    list_of_commands = folder / "commands"
    list_of_commands.write_text("\n".join(commands))
    told = program(ranks, "several_runs.py", list_of_commands)
    assert told.returncode == 0, told.stderr
    return told.stdout


def command(folder: Path, name: str, **changes: Any) -> str:
    run_dir = folder / name
    scene = {**SCENES[name.split("-")[0]], **changes}
    return f"run --cf {configuration(folder, f'{name}.yaml', run_dir=str(run_dir), **scene)}"


def test_two_ranks_started_by_the_script_give_the_same_bytes(tmp_path: Path, one_process: Path) -> None:
    file = configuration(tmp_path, run_dir=str(tmp_path / "run"), **SCENES["tuned"])
    told = launched(2, file)
    assert told.returncode == 0, told.stderr
    assert answer(tmp_path / "run") == answer(one_process / "tuned")
    assert losses(tmp_path / "run") == losses(one_process / "tuned")
    assert told.stdout.count("predictions.csv") == 1, "rank 0 alone says how it ended"
    assert told.stderr.count("round 1/3") == 1, "rank 0 alone shows the rounds"
    logs = sorted(path.name for path in (tmp_path / "run" / "logs").iterdir())
    assert logs == ["rank-1.log"]
    assert log_file(tmp_path / "run", 1).read_text().count("client=") == 9


def test_three_ranks(tmp_path: Path, one_process: Path) -> None:
    """Parity, resuming a run of one process, and refining on all ranks, in one start."""
    begun = configuration(
        tmp_path, "begun.yaml", backend="sp", run_dir=str(tmp_path / "begun"), **{**SCENES["tuned"], "comm_round": 1}
    )
    assert main(["run", "--cf", str(begun)]) == 0
    printed = several(
        tmp_path,
        3,
        command(tmp_path, "paper"),
        command(tmp_path, "scaffold"),
        *(command(tmp_path, name) for name in OTHERS),
        command(tmp_path, "fedavg", refine_on="ranks"),
        command(tmp_path, "mlp-shared", refine_on="ranks"),
        command(tmp_path, "mlp-teachers", refine_on="teachers"),
        command(tmp_path, "mlp-impatient", refine_on="ranks", refine_patience=1, refine_steps=80, refine_lr=1e-9),
        f"run --resume {tmp_path / 'begun'} --set comm_round=3 --set backend=MPI",
    )
    assert printed.count("predictions.csv") == 7 + len(OTHERS)
    for name in ("paper", "scaffold", "fedavg", *OTHERS):
        assert answer(tmp_path / name) == answer(one_process / name)
        assert losses(tmp_path / name) == losses(one_process / name)
    assert answer(tmp_path / "begun") == answer(one_process / "tuned")
    assert answer(tmp_path / "mlp-teachers") == answer(one_process / "mlp"), "the ranks read what the server would"
    impatient = (tmp_path / "mlp-impatient" / "metrics.jsonl").read_text().splitlines()
    assert all(0 < json.loads(line)["steps_made"] < 80 for line in impatient), "all ranks stop after the same step"

    alone, shared = (load_file(run / "model.safetensors") for run in (one_process / "mlp", tmp_path / "mlp-shared"))
    for key, weights in alone.items():
        torch.testing.assert_close(shared[key], weights, rtol=1e-4, atol=1e-5)
    told_alone, told_shared = losses(one_process / "mlp"), losses(tmp_path / "mlp-shared")
    assert [line[-2:] for line in told_shared] == [line[-2:] for line in told_alone], "the logits are not counted"


def test_five_ranks_of_which_some_have_no_client(tmp_path: Path, one_process: Path) -> None:
    several(tmp_path, 5, command(tmp_path, "paper"), command(tmp_path, "tuned"))
    for name in ("paper", "tuned"):
        assert answer(tmp_path / name) == answer(one_process / name)
