"""`round`: a whole round in one process beside FedML's own FedAvg, what refining adds, and where the time goes."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor, nn

from ..data import TransductiveDataset
from ..models import predict_logits
from ..models.precision import FLOAT32
from ..phases import DISTILLING, LOCAL, TEACHERS, measured_phases
from ..rounds.callbacks import Callback
from ..settings import RunSettings
from ..settings.precision import Word
from ..settings.sections import Config
from .measure import REPETITIONS, Row, row_of
from .scenes import federation

if TYPE_CHECKING:
    from ..rounds.loop import Run

_SHAPE, _CLASSES = (1, 28, 28), 10
#: All that FedML's client knows.
_PLAIN_SGD = {"momentum": 0.0, "weight_decay": 0.0, "clip_grad_norm": None}


class RoundClock(Callback):
    """Stamps the end of each round, when all of it is written down but its line."""

    # The class's own, since a run makes its callbacks itself.
    stamps: ClassVar[list[tuple[float, dict[str, float]]]] = []
    phases: ClassVar[dict[str, float]] = {}

    def on_round(self, run: Run, line: dict[str, Any]) -> None:
        """A round's stamp, and the phases' seconds so far."""
        RoundClock.stamps.append((time.process_time(), dict(RoundClock.phases)))


def whole_round(quick: bool, precision: Word = FLOAT32) -> list[Row]:
    """MNIST's scene in size: MLPNet, 10 of 100 clients, E = 3; FedAvg against FedML's, MrTF against FedAvg.

    Ours compute in the precision; FedML's knows float32 alone.
    """
    from ..fedml_bridge.beside import fedml_rounds

    clients, samples, server, steps = (4, 20, 40, 2) if quick else (100, 600, 10_000, 500)
    chosen, repetitions = (2, 1) if quick else (10, REPETITIONS)
    ours, plain, fedml, refined, rest = [], [], [], [], []
    for _ in range(repetitions):
        dataset = federation(clients, samples, server, _SHAPE, _CLASSES, batch_size=64)
        fedml.append(fedml_rounds(_config("FedAvg", clients, chosen, steps, "unused"), dataset, _model())[-1])
        seconds, _ = one_round("FedAvg", clients, chosen, steps, dataset, precision=precision)
        ours.append(seconds)
        plain.append(one_round("FedAvg", clients, chosen, steps, dataset, _PLAIN_SGD, precision)[0])
        seconds, phases = one_round("MrTF", clients, chosen, steps, dataset, precision=precision)
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
        row_of("FedAvg, mlp", ours, fedml, "our round / FedML's (no momentum, no clipping, no test)", **detail),
        row_of("FedAvg by plain SGD, mlp", plain, fedml, "our round / FedML's, the same optimiser", **detail),
        row_of("MrTF, mlp", refined, ours, f"a round with {steps} steps of refining / without", None, **detail),
        row_of("the rest, mlp", rest, refined, "neither training, teachers nor distilling / all of the round"),
    ]


def one_round(
    algorithm: str,
    clients: int,
    chosen: int,
    steps: int,
    dataset: TransductiveDataset,
    train: Mapping[str, Any] | None = None,
    precision: Word = FLOAT32,
) -> tuple[float, dict[str, float]]:
    """CPU seconds of a run's second round, whatever belongs to it, and its phases'; `train` changes `train_args`."""
    from ..fedml_bridge.launcher import launch

    with TemporaryDirectory() as folder, _clock() as stamps, redirect_stderr(io.StringIO()):
        config = _config(algorithm, clients, chosen, steps, str(Path(folder) / "run"))
        config["train_args"] |= train or {}
        config["device_args"]["precision"] = precision
        launch(config, RunSettings.from_config(config), dataset)
    (before, known), (after, phases) = stamps[-2:]
    return after - before, {name: seconds - known.get(name, 0.0) for name, seconds in phases.items()}


@contextmanager
def _clock() -> Iterator[list[tuple[float, dict[str, float]]]]:
    RoundClock.stamps = []
    with measured_phases() as RoundClock.phases:
        yield RoundClock.stamps


def peer_rounds(
    train: dict[str, Any], test_every: int, dataset: TransductiveDataset, make: Callable[[], nn.Module], labels: Tensor
) -> dict[str, dict[str, Any]]:
    """FedAvg's rounds under these `train_args`, by ours and by FedML's own: CPU seconds of all, and the accuracy."""
    from ..fedml_bridge.beside import fedml_rounds, our_rounds

    with TemporaryDirectory() as folder, redirect_stderr(io.StringIO()):
        config = _config("FedAvg", 1, 1, 0, str(Path(folder) / "run"))
        config["train_args"] |= train
        config["common_args"]["callbacks"] = []
        config["validation_args"] = {"frequency_of_the_test": test_every}
        measured = {}
        for name, run in (("FedML", fedml_rounds), ("ours", our_rounds)):
            model = make()
            seconds = sum(run(config, dataset, model))
            right = predict_logits(model, dataset.server_inputs).argmax(dim=1) == labels
            measured[name] = {"seconds": seconds, "accuracy": float(right.float().mean())}
    return measured


def _model() -> Any:
    from ..models import create_model
    from ..settings import ModelSettings

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
