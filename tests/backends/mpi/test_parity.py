"""The same bytes from one process and from any number of ranks."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from mrtf_fedml.cli import main
from mrtf_fedml.config import ModelSettings
from mrtf_fedml.models import create_model
from mrtf_fedml.process.logs import log_path
from mrtf_fedml.watch.live_run import LiveRun
from mrtf_fedml.watch.page import live_page
from tests.conftest import STALLED
from tests.encoders.tiny import write_onnx

from .conftest import configuration, launched, program

#: Labels of some of the server's samples, right or wrong.
FEW_LABELS = Path(__file__).parents[1] / "few_labels.csv"
#: By name, what differs from the small configuration. A rank may have several clients, or none.
SETUPS: dict[str, dict[str, Any]] = {
    "paper": {"comm_round": 3, "client_num_per_round": 4},
    "tuned": {"comm_round": 3, "preset": "tuned", "labels_file": str(FEW_LABELS)},
    "mlp": {"comm_round": 3, "preset": "tuned", "model": "mlp", "refine_steps": 20},
    "scaffold": {"federated_optimizer": "Scaffold", "comm_round": 3, "client_num_per_round": 4, "model": "mlp"},
    "fedavg": {"federated_optimizer": "FedAvg", "aggregation": "samples"},
    "fedprox": {"federated_optimizer": "FedProx", "fedprox_mu": 0.5},
    "fedmmd": {"federated_optimizer": "FedMMD", "model": "mlp"},
    "fedopt": {"federated_optimizer": "FedOpt", "server_optimizer": "yogi"},
    "feddf": {"federated_optimizer": "FedDF"},
    "fedridge": {"federated_optimizer": "FedRidge", "model": "random_features", "hidden_size": 50, "comm_round": 9},
    "models": {"models": {"small": "linear", "large": "lenet"}, "preset": "tuned", "broadcast": "refined"},
    # After four rounds clients prefer one model to the mean, which contains one that learns nothing.
    "preferred": {
        "models": {"rigid": "tests.models.rigid:Rigid", "small": "linear", "large": "lenet"},
        "preset": "tuned",
        "broadcast": "refined",
        "comm_round": 4,
        "client_num_in_total": 3,
        "client_num_per_round": 3,
    },
    "private": {"clip": 1.0, "sigma": 0.01},
    "fedaux": {"federated_optimizer": "FedAUX", "comm_round": 2, "fedaux_epsilon": 10.0, "model": "mlp"},
    "shot": {"federated_optimizer": "SHOT", "shot_epochs": 1, "model": "mlp"},
    "stopped": STALLED,
    "half": {"model": "mlp", "precision": "bf16", "refine_steps": 5},
}
#: The algorithms that no other test takes to several ranks, and noise on the updates; and bfloat16.
OTHERS = (
    "fedprox",
    "fedmmd",
    "fedopt",
    "feddf",
    "private",
    "fedaux",
    "shot",
    "stopped",
    "half",
)


def outputs(run_dir: Path) -> tuple[bytes, bytes, bytes]:
    files = ("predictions.csv", "model.safetensors", "state/server.safetensors")
    first, second, third = ((run_dir / name).read_bytes() for name in files)
    return first, second, third


def losses(run_dir: Path) -> list[tuple[Any, ...]]:
    lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    keys = (
        "round",
        "clients",
        "excluded_clients",
        "train_loss",
        "local_weight",
        "acc",
        "uplink_bytes",
        "downlink_bytes",
    )
    return [tuple(line.get(key) for key in keys) for line in lines]


@pytest.fixture(scope="module")
def one_process(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The run directory of a setup in one process, created once."""
    folder = tmp_path_factory.mktemp("one_process")

    def run(name: str) -> Path:
        if not (folder / name).exists():
            file = configuration(folder, f"{name}.yaml", backend="sp", run_dir=str(folder / name), **SETUPS[name])
            assert main(["run", "--cf", str(file)]) == 0
        return folder / name

    return run


def several(folder: Path, ranks: int, *commands: str) -> str:
    """Run the commands in these ranks; what they printed."""
    list_of_commands = folder / "commands"
    list_of_commands.write_text("\n".join(commands))
    result = program(ranks, "several_runs.py", list_of_commands)
    assert result.returncode == 0, result.stderr
    return result.stdout


def command(folder: Path, name: str, **changes: Any) -> str:
    run_dir = folder / name
    setup = {**SETUPS[name.split("-")[0]], **changes}
    return f"run --cf {configuration(folder, f'{name}.yaml', run_dir=str(run_dir), **setup)}"


@pytest.mark.parametrize("ranks", [pytest.param(2, marks=pytest.mark.slow), 3])
def test_ranks_started_by_the_script_give_the_bytes_of_one_process(
    tmp_path: Path, one_process: Callable[[str], Path], ranks: int
) -> None:
    file = configuration(tmp_path, run_dir=str(tmp_path / "run"), **SETUPS["tuned"])
    ended = launched(ranks, file, "--watch")
    assert ended.returncode == 0, ended.stderr
    assert outputs(tmp_path / "run") == outputs(one_process("tuned"))
    assert losses(tmp_path / "run") == losses(one_process("tuned"))
    assert ended.stdout.count("predictions.csv") == 1, "rank 0 alone says how it ended"
    assert ended.stderr.count("round 1/3") == 1, "rank 0 alone shows the rounds"
    assert ended.stderr.count("watch the run at") == 1
    assert "Finished: 3 rounds." in live_page(LiveRun(tmp_path / "run"))
    logs = sorted(path.name for path in (tmp_path / "run" / "logs").iterdir())
    assert logs == [f"rank-{rank}.log" for rank in range(1, ranks)]
    # Three clients in each of three rounds, and all eight validate the final model.
    trained = [log_path(tmp_path / "run", rank).read_text().count("client=") for rank in range(1, ranks)]
    assert sum(trained) == 9 + 8


@pytest.mark.slow
def test_three_ranks_give_the_bytes_of_one_process(tmp_path: Path, one_process: Callable[[str], Path]) -> None:
    """Parity, resuming a run of one process, and teachers read by the ranks, in one start."""
    begun = configuration(
        tmp_path, "begun.yaml", backend="sp", run_dir=str(tmp_path / "begun"), **{**SETUPS["tuned"], "comm_round": 1}
    )
    assert main(["run", "--cf", str(begun)]) == 0
    printed = several(
        tmp_path,
        3,
        command(tmp_path, "paper"),
        command(tmp_path, "scaffold"),
        *(command(tmp_path, name) for name in OTHERS),
        command(tmp_path, "fedavg", refine_on="teachers"),
        command(tmp_path, "mlp-teachers", refine_on="teachers"),
        f"run --resume {tmp_path / 'begun'} --set comm_round=3 --set backend=MPI",
    )
    assert printed.count("predictions.csv") == 5 + len(OTHERS)
    for name in ("paper", "scaffold", "fedavg", *OTHERS):
        assert outputs(tmp_path / name) == outputs(one_process(name))
        assert losses(tmp_path / name) == losses(one_process(name))
    assert outputs(tmp_path / "begun") == outputs(one_process("tuned"))
    assert outputs(tmp_path / "mlp-teachers") == outputs(one_process("mlp")), "the ranks compute the server's logits"
    logged_alone, logged_ranks = losses(one_process("mlp")), losses(tmp_path / "mlp-teachers")
    assert [line[-2:] for line in logged_ranks] == [line[-2:] for line in logged_alone], "the logits are not counted"


@pytest.mark.slow
def test_models_per_client_and_closed_form_on_three_ranks_give_the_bytes_of_one_process(
    tmp_path: Path, one_process: Callable[[str], Path]
) -> None:
    names = ("models", "preferred", "fedridge")
    several(tmp_path, 3, *(command(tmp_path, name) for name in names))
    for name in names:
        assert outputs(tmp_path / name) == outputs(one_process(name))
        assert losses(tmp_path / name) == losses(one_process(name))
    assert '"predicting_model": 2.0' in (tmp_path / "preferred" / "metrics.jsonl").read_text()


@pytest.mark.slow
def test_five_ranks_with_idle_ranks_give_the_bytes_of_one_process(
    tmp_path: Path, one_process: Callable[[str], Path]
) -> None:
    several(tmp_path, 5, command(tmp_path, "paper"), command(tmp_path, "tuned"))
    for name in ("paper", "tuned"):
        assert outputs(tmp_path / name) == outputs(one_process(name))


@pytest.mark.slow
def test_encoder_and_initial_weights_on_three_ranks_give_the_bytes_of_one_process(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    weights = tmp_path / "start.pt"
    torch.save(create_model(ModelSettings(model="linear"), (5,), 10, seed=11).state_dict(), weights)
    encoder = f"onnx:{write_onnx(tmp_path / 'encoder.onnx')}"
    setup = {"encoder": encoder, "model": "linear", "comm_round": 2, "preset": "tuned"}
    trained = {**setup, "base": "MeasuredScaffold"}
    setups = {"solved": setup, "trained": trained, "given": {**trained, "initial_weights": str(weights)}}
    words = []
    for name, changes in setups.items():
        alone = configuration(tmp_path, f"{name}.yaml", backend="sp", run_dir=str(tmp_path / name), **changes)
        assert main(["run", "--cf", str(alone)]) == 0
        run_dir = str(tmp_path / f"{name}-ranks")
        words.append(f"run --cf {configuration(tmp_path, f'{name}-ranks.yaml', run_dir=run_dir, **changes)}")
    several(tmp_path, 3, *words)
    for name in setups:
        assert outputs(tmp_path / f"{name}-ranks") == outputs(tmp_path / name)
        assert losses(tmp_path / f"{name}-ranks") == losses(tmp_path / name)
    assert len({outputs(tmp_path / name) for name in setups}) == 3
    assert "FedRidge" in (tmp_path / "solved" / "config.yaml").read_text()
