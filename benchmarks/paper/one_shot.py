"""One communication round (Sect. 3.3 and 5.1): some steps of SGD from theta_0, centralised or by client."""

from __future__ import annotations

import hashlib
import io
import json
import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn

from mrtf_fedml.algorithms.local_training import local_optimizer
from mrtf_fedml.config import DataSettings, RunSettings
from mrtf_fedml.data.loader import TransductiveDataset, from_source
from mrtf_fedml.experiments.runner import ComparisonProgress
from mrtf_fedml.models import create_model
from mrtf_fedml.models.state_dict import StateDict, load_weights, snapshot
from mrtf_fedml.rng import fork_rng, torch_generator
from mrtf_fedml.training.files import atomic_write
from mrtf_fedml.training.run_directory import fingerprint_files
from mrtf_fedml.version import __version__

from .datasets import Data
from .experiment import Split


@dataclass(frozen=True)
class OneShotTraining:
    """A network and a dataset for several short trainings."""

    data: Data
    model: nn.Module
    rate: float
    seed: int

    @classmethod
    def create(cls, data: Data, rate: float, seed: int, model: str = "", **model_args: Any) -> OneShotTraining:
        """The network with the initial weights of a run with this seed."""
        settings = _settings(data, Split("iid"), 1, rate, seed, None)
        dataset = from_source(data.source, settings)
        chosen = {"model": data.suitable_model(model) if model else data.model, **model_args}
        made = RunSettings.from_config({"model_args": chosen}).model
        return cls(data, create_model(made, dataset.input_shape, dataset.class_num, seed), rate, seed)

    def split_data(self, split: Split, clients: int, server_samples: int | None = None) -> TransductiveDataset:
        """The dataset, split to this many clients, with this many server samples (all by default)."""
        return from_source(self.data.source, _settings(self.data, split, clients, self.rate, self.seed, server_samples))

    def train(self, start: StateDict, shard: Any, steps: int, *names: str | int) -> tuple[StateDict, float]:
        """The weights after `steps` steps from `start`, and the mean loss of the last quarter of the steps.

        The first steps on few classes may have a higher loss than an untrained model, so they are not counted.
        `names` seed the order of the samples.
        """
        model = self.model
        load_weights(model, start)
        model.train()
        optimizer = local_optimizer(model, _settings(self.data, Split("iid"), 1, self.rate, self.seed, None).train)
        generator = torch_generator(self.seed, "one shot", *names)
        losses: list[float] = []
        with fork_rng(self.seed, "one shot", *names):
            while len(losses) < steps:
                for inputs, labels in shard.shuffled_batches(generator):
                    optimizer.zero_grad(set_to_none=True)
                    loss = nn.functional.cross_entropy(model(inputs), labels.long())
                    loss.backward()
                    nn.utils.clip_grad_norm_(model.parameters(), 100.0)
                    optimizer.step()
                    losses.append(float(loss.detach()))
                    if len(losses) == steps:
                        break
        last = losses[-max(1, steps // 4) :]
        return snapshot(model), sum(last) / max(1, len(last))


def squared_distance(first: StateDict, second: StateDict) -> float:
    """|theta - theta'|^2 over all floating-point entries."""
    return sum(_square(first[name] - second[name]) for name in first if first[name].is_floating_point())


def squared_length(weights: StateDict) -> float:
    """|theta|^2."""
    return sum(_square(tensor) for tensor in weights.values() if tensor.is_floating_point())


def gradient_variance(clients: Sequence[StateDict], aggregated: StateDict) -> float:
    """1/K sum_k |theta_k - theta_agg|^2.

    >>> import torch
    >>> one = {"w": torch.tensor([1.0, 0.0])}
    >>> gradient_variance([one, {"w": torch.tensor([-1.0, 0.0])}], {"w": torch.zeros(2)})
    1.0
    """
    return sum(squared_distance(own, aggregated) for own in clients) / len(clients)


def weight_divergence(aggregated: StateDict, centralised: StateDict) -> float:
    """|theta_agg - theta_cen|^2 / |theta_cen|^2."""
    return squared_distance(aggregated, centralised) / squared_length(centralised)


def _square(tensor: Tensor) -> float:
    return float(tensor.double().square().sum())


def _settings(
    data: Data, split: Split, clients: int, rate: float, seed: int, server_samples: int | None
) -> RunSettings:
    classes = data.source.class_num
    data_args = {**data.args, **split.args(classes, data.dataset.classes), "augmentation": "none"}
    if server_samples is not None:
        data_args["server_samples"] = server_samples
    train_args = {
        "client_num_in_total": clients,
        "client_num_per_round": clients,
        "batch_size": data.dataset.batch_size,
        "learning_rate": rate,
    }
    return RunSettings.from_config(
        {"common_args": {"random_seed": seed}, "data_args": data_args, "train_args": train_args}
    )


Arrays = dict[str, npt.NDArray[Any]]
_SECONDS = "seconds"


class ResultCache:
    """Results of work that is no federated run, in `out`/pieces: a restarted experiment does not repeat them.

    Args:
        out: the output folder of all experiments.
        experiment: the name of the experiment.
        progress: shows the bar.
        number: the number of results that the experiment needs.
    """

    def __init__(self, out: Path, experiment: str, progress: ComparisonProgress, number: int) -> None:
        self.folder = out / "pieces"
        self.experiment = experiment
        self.seconds = 0.0
        self._progress, self._number, self._done = progress, number, 0
        progress.start(number, 0, "piece", experiment)

    def get(self, data: Data, identity: Mapping[str, Any], compute: Callable[[], Arrays]) -> Arrays:
        """The arrays identified by `identity` and the data; `compute` makes them if there is no file."""
        stamps = fingerprint_files(DataSettings(**data.args))
        known = {**identity, "for": data.dataset.name, "data": data.args, "stamps": stamps, "version": __version__}
        text = json.dumps(known, sort_keys=True, default=str)
        file = self.folder / f"{self.experiment}-{hashlib.sha256(text.encode()).hexdigest()[:16]}.npz"
        arrays = self._read(file)
        if arrays is None:
            began = time.perf_counter()
            arrays = {**compute()}
            arrays[_SECONDS] = np.array(time.perf_counter() - began)
            content = io.BytesIO()
            np.savez_compressed(content, **arrays)
            self.folder.mkdir(parents=True, exist_ok=True)
            atomic_write(file, content.getvalue())
        self.seconds += float(arrays.pop(_SECONDS))
        self._done += 1
        self._progress.show(lambda: self._done)
        return arrays

    def close(self) -> None:
        """Close the bar."""
        self._progress.close()

    def _read(self, file: Path) -> Arrays | None:
        try:
            with np.load(file, allow_pickle=False) as content:
                return {name: content[name] for name in content.files}
        # Missing, or truncated by a full disk: it is computed again.
        except (OSError, ValueError, EOFError, zipfile.BadZipFile):
            return None
