"""FedML's own client and its own FedAvg, measured next to ours."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import torch
from fedml.ml.trainer.my_model_trainer_classification import ModelTrainerCLS
from fedml.simulation.sp.fedavg.fedavg_api import FedAvgAPI
from torch import Tensor, nn

from mrtf_fedml.algorithms import FedAvg
from mrtf_fedml.callbacks.base import Callback
from mrtf_fedml.config import RunSettings
from mrtf_fedml.config.schema import Config
from mrtf_fedml.fedml_bridge.adapters import make_adapters
from mrtf_fedml.fedml_bridge.args import make_arguments
from mrtf_fedml.fedml_bridge.backends.single_process import SingleProcess
from mrtf_fedml.fedml_bridge.fedml_init import initialize
from mrtf_fedml.training.loop import Run

_CPU = torch.device("cpu")


def train_with_fedml(model: nn.Module, start: Mapping[str, Tensor], batches: Any, learning_rate: float) -> None:
    """One epoch of FedML's trainer, which supports only plain SGD."""
    args = SimpleNamespace(client_optimizer="sgd", learning_rate=learning_rate, epochs=1, weight_decay=0.0)
    trainer = ModelTrainerCLS(model, args)
    trainer.set_model_params(start)
    trainer.train(batches, _CPU, args)


class _TimedFedAvg(FedAvgAPI):
    """FedML's FedAvg in one process with time stamps, and without its test of every client."""

    stamps: list[float]

    def _client_sampling(self, *given: Any) -> Any:
        self.stamps.append(time.process_time())
        return super()._client_sampling(*given)

    def _local_test_on_all_clients(self, round_idx: int) -> None:
        if round_idx == self.args.comm_round - 1:
            self.stamps.append(time.process_time())


def time_fedml_rounds(config: Config, dataset: Any, model: nn.Module) -> list[float]:
    """CPU seconds of each round of FedML's own simulation; the first one warms up."""
    args = initialize(make_arguments(RunSettings.from_config(config)))
    timed = _TimedFedAvg(args, _CPU, list(dataset), model)
    timed.stamps = []
    timed.train()
    return [after - before for before, after in zip(timed.stamps, timed.stamps[1:], strict=False)]


class _Clock(Callback):
    """Stamps the start of a run and the end of each round."""

    def __init__(self) -> None:
        self.stamps: list[float] = []

    def on_start(self, run: Run) -> None:
        self.stamps.append(time.process_time())

    def on_round_end(self, run: Run, line: dict[str, Any]) -> None:
        self.stamps.append(time.process_time())


def time_our_rounds(config: Config, dataset: Any, model: nn.Module) -> list[float]:
    """CPU seconds of each of our rounds, including scores and files."""
    args = initialize(make_arguments(RunSettings.from_config(config)))
    participant = SingleProcess(args, _CPU, dataset, *(adapter(model, args) for adapter in make_adapters(FedAvg)))
    clock = _Clock()
    # Last, so that the work of the other callbacks is counted.
    participant.session.run.callbacks.append(clock)
    participant.run()
    return [after - before for before, after in zip(clock.stamps, clock.stamps[1:], strict=False)]
