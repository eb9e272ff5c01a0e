"""FedML's own client and its own FedAvg, to be measured beside ours."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import torch
from fedml.ml.trainer.my_model_trainer_classification import ModelTrainerCLS
from fedml.simulation.sp.fedavg.fedavg_api import FedAvgAPI
from torch import Tensor, nn

from ..algorithms import FedAvg
from ..rounds.callbacks import Callback
from ..rounds.loop import Run
from ..settings import RunSettings
from ..settings.sections import Config
from .arguments import arguments_from
from .offline import initialise
from .pair import pair_of
from .single_process import SingleProcess

_CPU = torch.device("cpu")


def fedml_training(model: nn.Module, start: Mapping[str, Tensor], batches: Any, learning_rate: float) -> None:
    """One epoch of FedML's trainer: plain SGD, which is all that it knows."""
    args = SimpleNamespace(client_optimizer="sgd", learning_rate=learning_rate, epochs=1, weight_decay=0.0)
    trainer = ModelTrainerCLS(model, args)
    trainer.set_model_params(start)
    trainer.train(batches, _CPU, args)


class _Timed(FedAvgAPI):
    """FedML's FedAvg in one process, with a clock, and without its test of every client there is."""

    stamps: list[float]

    def _client_sampling(self, *given: Any) -> Any:
        self.stamps.append(time.process_time())
        return super()._client_sampling(*given)

    def _local_test_on_all_clients(self, round_idx: int) -> None:
        if round_idx == self.args.comm_round - 1:
            self.stamps.append(time.process_time())


def fedml_rounds(config: Config, dataset: Any, model: nn.Module) -> list[float]:
    """CPU seconds of each round of FedML's own simulation of the scene; the first one warms up."""
    args = initialise(arguments_from(config, RunSettings.from_config(config)))
    timed = _Timed(args, _CPU, list(dataset), model)
    timed.stamps = []
    timed.train()
    return [after - before for before, after in zip(timed.stamps, timed.stamps[1:], strict=False)]


class _Clock(Callback):
    """Stamps the start of a run and the end of each round."""

    def __init__(self) -> None:
        self.stamps: list[float] = []

    def on_start(self, run: Run) -> None:
        self.stamps.append(time.process_time())

    def on_round(self, run: Run, line: dict[str, Any]) -> None:
        self.stamps.append(time.process_time())


def our_rounds(config: Config, dataset: Any, model: nn.Module) -> list[float]:
    """CPU seconds of each round of ours, with all that is written down and scored in it."""
    args = initialise(arguments_from(config, RunSettings.from_config(config)))
    runner = SingleProcess(args, _CPU, dataset, *(half(model, args) for half in pair_of(FedAvg)))
    clock = _Clock()
    # The last: what the others do in a round belongs to it.
    runner.session.run.callbacks.append(clock)
    runner.run()
    return [after - before for before, after in zip(clock.stamps, clock.stamps[1:], strict=False)]
