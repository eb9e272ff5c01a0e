"""Four clients' messages for one round under FedML's options, and what comes of them, worked out apart."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from fedml.runner import FedMLRunner
from safetensors.torch import load_file
from torch import Tensor, nn

import mrtf_fedml
from mrtf_fedml import FedAvgAggregator, MrTFAggregator
from mrtf_fedml.algorithms import ClientUpdate
from mrtf_fedml.fedml_bridge.aggregation_hooks import FedMLHooks
from mrtf_fedml.fedml_bridge.messages import pack_update
from tests.fedml_bridge.payloads import with_loss
from tests.fedml_bridge.test_adapters import arguments
from tests.fedml_bridge.test_plugin import project

Weights = OrderedDict[str, Tensor]
Messages = list[tuple[int, Weights]]

CLIENTS = [0, 1, 2, 3]
SAMPLES = [10, 20, 30, 40]
SHARES = [0.1, 0.2, 0.3, 0.4]


def plain_net() -> nn.Module:
    """Without BatchNorm, whose statistics some of FedML's own options cannot take."""
    return nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))


def federation(make: Callable[[], nn.Module]) -> tuple[nn.Module, Weights, Messages]:
    """A model, its weights, and the messages of four clients: each has moved further than the one before."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = make()
    start = OrderedDict((key, value.clone()) for key, value in net.state_dict().items())
    generator = torch.Generator().manual_seed(1)
    messages = []
    for client, samples in zip(CLIENTS, SAMPLES, strict=True):
        weights: Weights = OrderedDict()
        for key, value in start.items():
            # Positive steps, as a running variance must stay positive.
            step = 0.1 * (client + 1) * torch.rand(value.shape, generator=generator)
            weights[key] = value + step if value.is_floating_point() else torch.tensor(10 + client)
        messages.append((samples, with_loss(weights, 0.5 + client)))
    return net, start, messages


def server(kind: type, folder: Path, net: nn.Module, **options: Any) -> Any:
    """An aggregator with server inputs that averages by samples, as FedML does, and clusters from the first round."""
    args = arguments(folder, aggregation="samples", cluster_warmup=0, preset="paper")
    vars(args).update(options)
    aggregator = kind(net, args)
    aggregator.bind_server_set(torch.randn(12, 4, generator=torch.Generator().manual_seed(0)), classes=3)
    return aggregator


class ListeningHooks(FedMLHooks):
    """They remember what the clients sent, and what FedML made of it."""

    def before_aggregation(self, updates: list[ClientUpdate]) -> list[ClientUpdate]:
        self.received = [(update.samples, pack_update(update)) for update in updates]
        passed = super().before_aggregation(updates)
        self.entries = [(update.samples, OrderedDict(update.weights)) for update in passed]
        return passed


class _Listening:
    """A server that records the round's messages."""

    def __init__(self, model: nn.Module, args: Any) -> None:
        super().__init__(model, args)  # type: ignore[call-arg]
        self.hooks = ListeningHooks(self)  # type: ignore[arg-type]

    @property
    def received(self) -> Messages:
        return self.hooks.received

    @property
    def entries(self) -> Messages:
        return self.hooks.entries


class ListeningFedAvg(_Listening, FedAvgAggregator):
    """FedAvg's."""


class ListeningMrTF(_Listening, MrTFAggregator):
    """MrTF's."""


def run_one_round(folder: Path, aggregator: type, **options: Any) -> tuple[Weights, Weights, Any]:
    """Run one round of a FedML project by FedMLRunner: the initial weights, the final ones, and the aggregator."""
    folder.mkdir()
    word = "MrTF" if issubclass(aggregator, MrTFAggregator) else "mrtf:FedAvg"
    changes = {"federated_optimizer": word, "comm_round": 1, "aggregation": "samples", "preset": "paper"}
    args, device, dataset, model = project(folder, **changes)
    vars(args).update(options)
    start = OrderedDict((key, value.clone()) for key, value in model.state_dict().items())
    mrtf_fedml.register()
    made = aggregator(model, args)
    FedMLRunner(args, device, dataset, model, None, made).run()
    return start, OrderedDict(load_file(folder / "run" / "model.safetensors")), made


def average(models: list[Weights], shares: list[float]) -> Weights:
    """sum_k share_k * model_k in double precision, of what floats."""
    return OrderedDict(
        (key, sum(share * model[key].double() for share, model in zip(shares, models, strict=True)))
        for key, value in models[0].items()
        if value.is_floating_point()
    )


def all_entries(weights: Weights) -> Tensor:
    """Every number of a model, in the order of the names, in double precision."""
    return torch.cat([weights[key].double().flatten() for key in sorted(weights)])


def assert_close(weights: Weights, expected: Weights) -> None:
    """Every expected entry, within float32's rounding."""
    for key, value in expected.items():
        torch.testing.assert_close(
            weights[key].double(),
            value.double(),
            rtol=1e-5,
            atol=1e-6,
            msg=lambda message, key=key: f"{key}: {message}",
        )
