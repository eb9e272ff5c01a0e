"""FedML's trainer and aggregator: order of hooks, reserved keys, excluded updates, and the caller's tensors."""

from __future__ import annotations

import logging
from collections import OrderedDict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mrtf_fedml import FedAvgAggregator, MrTFAggregator, MrTFTrainer
from mrtf_fedml.errors import UserError
from mrtf_fedml.fedml_bridge.messages import LOSS, weights_of
from tests.conftest import small_config, write_yaml
from tests.fedml_bridge.payloads import with_loss


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(4, 5)
        self.norm = nn.BatchNorm1d(5)
        self.out = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.relu(self.norm(self.hidden(x))))


def arguments(tmp_path: Path, **changes: Any) -> SimpleNamespace:
    config = small_config(**changes)
    flat = {key: value for values in config.values() for key, value in values.items()}
    file = write_yaml(tmp_path / "config.yaml", config)
    return SimpleNamespace(yaml_paths=[str(file)], round_idx=0, rank=0, **flat)


def message(scale: float, loss: float = 0.5) -> OrderedDict[str, Tensor]:
    weights = OrderedDict(Net().state_dict())
    for key, value in weights.items():
        counts = not value.is_floating_point()
        weights[key] = torch.tensor(COUNTERS.get(scale, 1)) if counts else torch.full_like(value, scale)
    return with_loss(weights, loss)


#: BatchNorm's counters of the clients that send these values.
COUNTERS = {1.0: 10, 3.0: 30}


def bound(tmp_path: Path, kind: type = MrTFAggregator, **changes: Any) -> Any:
    aggregator = kind(Net(), arguments(tmp_path, **changes))
    aggregator.bind_server_set(torch.randn(12, 4, generator=torch.Generator().manual_seed(0)), classes=3)
    return aggregator


def one_round(aggregator: Any, clients: list[int], messages: list[tuple[int, Any]]) -> Any:
    aggregator.begin_round(clients)
    entries, _ = aggregator.on_before_aggregation(messages)
    aggregated = aggregator.aggregate(entries)
    following = aggregator.on_after_aggregation(aggregated)
    aggregator.set_model_params(following)
    return entries, aggregated, following


def test_aggregator_removes_the_reserved_loss_before_averaging(tmp_path: Path) -> None:
    aggregator = bound(tmp_path, FedAvgAggregator)
    messages = [(1, message(1.0, loss=0.25)), (3, message(3.0, loss=0.75))]
    entries, aggregated, _ = one_round(aggregator, [4, 6], messages)
    assert all(LOSS not in weights for _, weights in entries)
    assert list(aggregated) == list(Net().state_dict())
    assert torch.equal(aggregated["out.bias"], torch.full((3,), 2.0)), "uniform over the clients, not by samples"
    assert aggregated["norm.num_batches_tracked"].item() == 30
    assert all(LOSS in sent for _, sent in messages), "the caller's messages are the caller's"


def test_aggregator_with_aggregation_samples_weights_by_sample_counts(tmp_path: Path) -> None:
    aggregator = bound(tmp_path, FedAvgAggregator, aggregation="samples")
    _, aggregated, _ = one_round(aggregator, [0, 1], [(1, message(1.0)), (3, message(3.0))])
    torch.testing.assert_close(aggregated["out.bias"], torch.full((3,), 2.5))


@pytest.mark.parametrize("broken", [message(float("nan")), message(float("inf")), message(1.0, loss=float("nan"))])
def test_aggregator_excludes_updates_that_are_not_finite_and_logs_the_client(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, broken: Any
) -> None:
    aggregator = bound(tmp_path, FedAvgAggregator)
    with caplog.at_level(logging.WARNING):
        entries, aggregated, _ = one_round(aggregator, [4, 6], [(1, broken), (3, message(3.0))])
    assert len(entries) == 1
    assert torch.equal(aggregated["out.bias"], torch.full((3,), 3.0))
    assert "client 4 is excluded from round 0" in caplog.text


def test_aggregator_without_usable_update_keeps_the_old_weights(tmp_path: Path) -> None:
    aggregator = bound(tmp_path)
    before = aggregator.get_model_params()
    _, _, following = one_round(aggregator, [1, 2], [(1, message(float("nan"))), (1, message(float("inf")))])
    assert all(torch.equal(following[key], before[key]) for key in before)
    assert aggregator.server.state.round == 1


def test_aggregator_does_not_write_into_received_tensors(tmp_path: Path) -> None:
    aggregator = bound(tmp_path)
    messages = [(5, message(0.1)), (5, message(0.2))]
    before = [{key: value.clone() for key, value in sent.items()} for _, sent in messages]
    entries, _, _ = one_round(aggregator, [0, 1], messages)
    for (_, sent), (_, entry), old in zip(messages, entries, before, strict=True):
        assert all(torch.equal(sent[key], old[key]) for key in old)
        assert all(torch.equal(entry[key], old[key]) for key in entry)


def test_aggregator_without_server_set_raises_error_naming_register(tmp_path: Path) -> None:
    aggregator = MrTFAggregator(Net(), arguments(tmp_path))
    with pytest.raises(UserError, match=r"mrtf_fedml\.register\(\)"):
        one_round(aggregator, [0], [(1, message(0.5))])


def test_trainer_sends_clones_and_adds_the_loss_after_the_hooks(tmp_path: Path) -> None:
    args = arguments(tmp_path)
    trainer = MrTFTrainer(Net(), args)
    trainer.set_id(2)
    assert LOSS not in trainer.get_model_params()
    data = [(torch.randn(6, 4), torch.tensor([0, 1, 2, 0, 1, 2]))]
    trainer.update_dataset(data, None, 6)
    trainer.on_before_local_training(data, torch.device("cpu"), args)
    trainer.train(data, torch.device("cpu"), args)
    assert LOSS not in trainer.get_model_params(), "FedML's local DP would take it for a weight"
    trainer.on_after_local_training(data, torch.device("cpu"), args)
    sent = trainer.get_model_params()
    assert sent[LOSS].item() > 0
    with torch.no_grad():
        trainer.model.out.bias.fill_(99.0)
    assert not (sent["out.bias"] == 99.0).any()
    trainer.set_model_params(sent)
    assert LOSS not in trainer.get_model_params(), "a new start has no loss yet"
    assert list(weights_of(sent)) == list(Net().state_dict())


def test_aggregator_hooks_run_fedml_defence(tmp_path: Path) -> None:
    """Krum drops the outlier; the refinery then sees only the clients that the defence let through."""
    from fedml.core.security.fedml_defender import FedMLDefender

    args = arguments(tmp_path)
    args.enable_defense, args.defense_type = True, "krum"
    args.byzantine_client_num, args.client_num_per_round, args.krum_param_m = 1, 6, 1
    try:
        aggregator = MrTFAggregator(Net(), args)
        aggregator.bind_server_set(torch.randn(12, 4), classes=3)
        messages = [(1, message(value)) for value in (50.0, 0.1, 0.11, 0.12, 0.13, 0.14)]
        entries, aggregated, _ = one_round(aggregator, [0, 1, 2, 3, 4, 5], messages)
    finally:
        FedMLDefender.get_instance().is_enabled = False
    assert len(entries) < 6
    assert aggregated["out.bias"].max() < 1.0
