"""The shape in pfl-research: its own backend, its own federated averaging."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np
import pfl
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.callback.central_evaluation import CentralEvaluationCallback
from pfl.data import FederatedDataset, get_user_sampler
from pfl.data.dataset import Dataset
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn


class Classifier(nn.Module):
    """A net with the two methods that pfl asks of it."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        """The logits."""
        return self.net(x)

    def loss(self, x: Tensor, y: Tensor, eval: bool = False) -> Tensor:
        """Of a batch."""
        self.train(not eval)
        return nn.functional.cross_entropy(self(x), y)

    @torch.no_grad()
    def metrics(self, x: Tensor, y: Tensor, eval: bool = True) -> dict[str, Any]:
        """Its accuracy."""
        self.train(not eval)
        return {"accuracy": Weighted(int((self(x).argmax(1) == y).sum()), len(y))}


class LastAccuracy(TrainingProcessCallback):
    """Keeps the last accuracy that was measured."""

    accuracy = 0.0

    def after_central_iteration(self, aggregate_metrics: Any, model: Any, *, central_iteration: int) -> Any:
        """Pfl's hook."""
        for name, value in aggregate_metrics:
            if "Central val" in str(name) and "accuracy" in str(name):
                self.accuracy = float(getattr(value, "overall_value", value))
        return False, type(aggregate_metrics)()


def net_of(shape: list[int], classes: int) -> nn.Module:
    """Logistic regression for vectors; a small convolutional net for images."""
    torch.manual_seed(0)
    if len(shape) == 1:
        return nn.Linear(shape[0], classes)
    return nn.Sequential(
        nn.Conv2d(shape[0], 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * (shape[1] // 4) * (shape[2] // 4), classes),
    )


def main(shape_file: str, data_file: str) -> None:
    """Run it and print one line of JSON."""
    with open(shape_file) as file:
        shape = json.load(file)
    torch.set_num_threads(1)
    data = np.load(data_file)
    x, y = torch.from_numpy(data["x"]), torch.from_numpy(data["y"])
    test = Dataset((torch.from_numpy(data["x_test"]), torch.from_numpy(data["y_test"])))
    each = shape["samples_per_client"]

    def of_user(user: int) -> Dataset:
        span = slice(user * each, (user + 1) * each)
        return Dataset((x[span], y[span]), user_id=str(user))

    np.random.seed(0)
    users = FederatedDataset(of_user, get_user_sampler("random", list(range(shape["clients"]))))
    net = Classifier(net_of(shape["shape"], shape["classes"]))
    model = PyTorchModel(
        net,
        local_optimizer_create=torch.optim.SGD,
        central_optimizer=torch.optim.SGD(net.parameters(), lr=1.0),
    )
    last_accuracy = LastAccuracy()
    evaluation = NNEvalHyperParams(local_batch_size=1000)
    began = time.process_time()
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=shape["rounds"],
            evaluation_frequency=10 * shape["rounds"],
            train_cohort_size=shape["chosen"],
            val_cohort_size=0,
        ),
        SimulatedBackend(training_data=users, val_data=users),
        model,
        NNTrainHyperParams(
            local_num_epochs=1,
            local_learning_rate=shape["learning_rate"],
            local_batch_size=shape["batch_size"],
        ),
        evaluation,
        callbacks=[CentralEvaluationCallback(test, evaluation, frequency=shape["test_every"]), last_accuracy],
        send_metrics_to_platform=False,
    )
    seconds = time.process_time() - began
    with torch.no_grad():
        accuracy = float((net(torch.from_numpy(data["x_test"])).argmax(1).numpy() == data["y_test"]).mean())
    print(json.dumps({"version": pfl.__version__, "seconds": seconds, "accuracy": accuracy}))


if __name__ == "__main__":
    main(*sys.argv[1:])
