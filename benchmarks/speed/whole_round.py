"""`round`: a whole round in one process against FedML's FedAvg, the cost of refinement, and the time by phase."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor, nn

from mrtf_fedml.callbacks.base import Callback
from mrtf_fedml.config import RunSettings
from mrtf_fedml.config.schema import Config
from mrtf_fedml.config.sections import PrecisionName
from mrtf_fedml.data import TransductiveDataset
from mrtf_fedml.models import predict_logits
from mrtf_fedml.models.precision import FLOAT32
from mrtf_fedml.phases import DISTILLING, LOCAL, TEACHERS, measured_phases

from .measure import REPETITIONS, Row, ratio_row
from .workloads import make_federation

if TYPE_CHECKING:
    from mrtf_fedml.training.loop import Run

_SHAPE, _CLASSES = (1, 28, 28), 10
#: The settings of FedML's client.
_PLAIN_SGD = {"momentum": 0.0, "weight_decay": 0.0, "clip_grad_norm": None}


class RoundClock(Callback):
    """Records the time at the end of each round."""

    # Class attributes, since a run creates its callbacks by name.
    stamps: ClassVar[list[tuple[float, dict[str, float]]]] = []
    phases: ClassVar[dict[str, float]] = {}

    def on_round_end(self, run: Run, line: dict[str, Any]) -> None:
        """Record the CPU time, and the seconds of the phases so far."""
        RoundClock.stamps.append((time.process_time(), dict(RoundClock.phases)))


def measure_round(quick: bool, precision: PrecisionName = FLOAT32) -> list[Row]:
    """The paper's MNIST setup: MLPNet, 10 of 100 clients, E = 3; FedAvg against FedML's, MrTF against FedAvg.

    Our rounds use the precision; FedML supports only float32.
    """
    from .fedml_baseline import time_fedml_rounds

    clients, samples, server, steps = (4, 20, 40, 2) if quick else (100, 600, 10_000, 500)
    chosen, repetitions = (2, 1) if quick else (10, REPETITIONS)
    ours, plain, fedml, refined, rest = [], [], [], [], []
    for _ in range(repetitions):
        dataset = make_federation(clients, samples, server, _SHAPE, _CLASSES, batch_size=64)
        fedml.append(time_fedml_rounds(_config("FedAvg", clients, chosen, steps, "unused"), dataset, _model())[-1])
        seconds, _ = time_second_round("FedAvg", clients, chosen, steps, dataset, precision=precision)
        ours.append(seconds)
        plain.append(time_second_round("FedAvg", clients, chosen, steps, dataset, _PLAIN_SGD, precision)[0])
        seconds, phases = time_second_round("MrTF", clients, chosen, steps, dataset, precision=precision)
        refined.append(seconds)
        rest.append(seconds - sum(phases.get(name, 0.0) for name in (LOCAL, TEACHERS, DISTILLING)))
    detail: dict[str, Any] = {
        "fedavg_seconds": ours,
        "plain_sgd_seconds": plain,
        "fedml_seconds": fedml,
        "mrtf_seconds": refined,
        "refine_steps": steps,
    }
    return [
        ratio_row("FedAvg, mlp", ours, fedml, "our round / FedML's (no momentum, no clipping, no test)", **detail),
        ratio_row("FedAvg by plain SGD, mlp", plain, fedml, "our round / FedML's, the same optimiser", **detail),
        ratio_row("MrTF, mlp", refined, ours, f"a round with {steps} steps of refining / without", None, **detail),
        ratio_row("the rest, mlp", rest, refined, "neither training, teachers nor distilling / all of the round"),
    ]


def time_second_round(
    algorithm: str,
    clients: int,
    chosen: int,
    steps: int,
    dataset: TransductiveDataset,
    train: Mapping[str, Any] | None = None,
    precision: PrecisionName = FLOAT32,
) -> tuple[float, dict[str, float]]:
    """CPU seconds of the second round of a run, and of its phases; `train` changes `train_args`."""
    from mrtf_fedml.fedml_bridge.runner import run_configuration

    with TemporaryDirectory() as folder, _clock() as stamps, redirect_stderr(io.StringIO()):
        config = _config(algorithm, clients, chosen, steps, str(Path(folder) / "run"))
        config["train_args"] |= train or {}
        config["device_args"]["precision"] = precision
        run_configuration(RunSettings.from_config(config), dataset=dataset)
    (before, known), (after, phases) = stamps[-2:]
    return after - before, {name: seconds - known.get(name, 0.0) for name, seconds in phases.items()}


@contextmanager
def _clock() -> Iterator[list[tuple[float, dict[str, float]]]]:
    RoundClock.stamps = []
    with measured_phases() as RoundClock.phases:
        yield RoundClock.stamps


def time_peer_rounds(
    train: dict[str, Any], test_every: int, dataset: TransductiveDataset, make: Callable[[], nn.Module], labels: Tensor
) -> dict[str, dict[str, Any]]:
    """Total CPU seconds and final accuracy of FedAvg with these `train_args`, by us and by FedML."""
    from .fedml_baseline import time_fedml_rounds, time_our_rounds

    with TemporaryDirectory() as folder, redirect_stderr(io.StringIO()):
        config = _config("FedAvg", 1, 1, 0, str(Path(folder) / "run"))
        config["train_args"] |= train
        config["common_args"]["callbacks"] = []
        config["validation_args"] = {"frequency_of_the_test": test_every}
        measured = {}
        for name, run in (("FedML", time_fedml_rounds), ("ours", time_our_rounds)):
            model = make()
            seconds = sum(run(config, dataset, model))
            right = predict_logits(model, dataset.server_inputs).argmax(dim=1) == labels
            measured[name] = {"seconds": seconds, "accuracy": float(right.float().mean())}
    return measured


def _model() -> Any:
    from mrtf_fedml.config import ModelSettings
    from mrtf_fedml.models import create_model

    return create_model(ModelSettings(model="mlp"), _SHAPE, _CLASSES, seed=0)


def _config(algorithm: str, clients: int, chosen: int, steps: int, run_dir: str) -> Config:
    return {
        "common_args": {
            "training_type": "simulation",
            "random_seed": 0,
            "run_dir": run_dir,
            "keep_features": False,
            "callbacks": [f"{RoundClock.__module__}:{RoundClock.__name__}"],
        },
        "data_args": {"dataset": "mnist"},
        "model_args": {"model": "mlp"},
        "train_args": {
            "federated_optimizer": algorithm,
            "client_num_in_total": clients,
            "client_num_per_round": chosen,
            "comm_round": 2,
            "epochs": 3,
            "batch_size": 64,
            "learning_rate": 0.03,
        },
        "validation_args": {"frequency_of_the_test": 1},
        "comm_args": {"backend": "sp"},
        "device_args": {"threads": 1},
        "mrtf_args": {"preset": "paper", "refine_steps": steps, "cluster_warmup": 0},
    }
