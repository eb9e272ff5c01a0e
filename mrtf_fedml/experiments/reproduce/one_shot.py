"""One communication round by hand (Sect. 3.3 and 5.1): some steps of SGD from theta_0, centralised or by client."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from ...algorithms.local_training import local_optimizer
from ...data.transductive import TransductiveDataset, from_source
from ...models import create_model
from ...models.weights import StateDict, load, snapshot
from ...randomness import forked, torch_generator
from ...settings import RunSettings
from .parameters import Split
from .shelf import Data


@dataclass(frozen=True)
class Workshop:
    """One network and one dataset, on which several trainings start."""

    data: Data
    model: nn.Module
    rate: float
    seed: int

    @classmethod
    def open(cls, data: Data, rate: float, seed: int, model: str = "", **model_args: Any) -> Workshop:
        """The network with its initial weights, as a run with this seed has them."""
        settings = _settings(data, Split("iid"), 1, rate, seed, None)
        dataset = from_source(data.source, settings)
        chosen = {"model": data.fitting(model) if model else data.model, **model_args}
        made = RunSettings.from_config({"model_args": chosen}).model
        return cls(data, create_model(made, dataset.input_shape, dataset.class_num, seed), rate, seed)

    def dealt(self, split: Split, clients: int, server_samples: int | None = None) -> TransductiveDataset:
        """The samples, dealt to so many clients, and so many of the server's."""
        return from_source(self.data.source, _settings(self.data, split, clients, self.rate, self.seed, server_samples))

    def trained(self, start: StateDict, shard: Any, steps: int, *names: str | int) -> tuple[StateDict, float]:
        """The weights after so many steps from `start`, and the mean loss of the last quarter of them.

        The first steps on few classes may cost more than a model that knows nothing; what counts is where they lead.
        `names` own the order of the samples.
        """
        model = self.model
        load(model, start)
        model.train()
        optimizer = local_optimizer(model, _settings(self.data, Split("iid"), 1, self.rate, self.seed, None).train)
        generator = torch_generator(self.seed, "one shot", *names)
        losses: list[float] = []
        with forked(self.seed, "one shot", *names):
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
