"""A group of models: each client's member, averages per member, and the mean of all."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mrtf_fedml.algorithms import FedAvg, MrTF, Scaffold, ServerContext
from mrtf_fedml.algorithms.types import ClientTask, ClientUpdate
from mrtf_fedml.config import ModelSettings, RunSettings
from mrtf_fedml.data.shards import TensorShard
from mrtf_fedml.errors import UserError
from mrtf_fedml.models import FeatureExtractor
from mrtf_fedml.models.group import (
    ALL,
    ModelGroup,
    average_by_member,
    find_invalid_member,
    restrict_to_member,
    trained_member,
    with_member,
)
from mrtf_fedml.models.state_dict import load_weights, snapshot
from mrtf_fedml.training.outliers import screen_updates

MODELS = {"small": "linear", "large": "mlp"}


def make_group() -> ModelGroup:
    torch.manual_seed(0)
    large = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    return ModelGroup({"small": nn.Linear(4, 3), "large": large})


def settings(**changes: Any) -> RunSettings:
    config: dict[str, Any] = {
        "model_args": {"models": MODELS},
        "train_args": {"client_num_in_total": 4, "client_num_per_round": 4},
        "mrtf_args": {"refine_steps": 3, "refine_batch_size": 4},
    }
    for section, values in changes.items():
        config[section] = {**config.get(section, {}), **values}
    return RunSettings.from_config(config)


def inputs(samples: int = 6) -> Tensor:
    return torch.randn(samples, 4, generator=torch.Generator().manual_seed(1))


def test_all_members_predict_the_mean_of_their_probabilities() -> None:
    group, x = make_group().eval(), inputs()
    expected = sum(member(x).softmax(dim=1) for member in group.members.values()) / 2
    torch.testing.assert_close(group(x).softmax(dim=1), expected)


def test_weights_of_a_client_predict_as_its_member() -> None:
    group, x = make_group().eval(), inputs()
    expected = group.members["large"](x)
    load_weights(group, with_member(snapshot(group), 1))
    torch.testing.assert_close(group(x), expected, rtol=0, atol=0)


def train(member: int, algorithm: FedAvg | None = None) -> tuple[ModelGroup, ClientUpdate]:
    group = make_group()
    start = snapshot(group)
    group.own = member
    shard = TensorShard(inputs(12), torch.arange(12) % 3, torch.arange(12).numpy(), batch_size=4)
    task = ClientTask(member, 0, start, shard, 12)
    return group, (algorithm or FedAvg(settings())).train_client(group, task)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_client_changes_its_own_member_only(optimizer: str) -> None:
    algorithm = FedAvg(settings(train_args={"client_optimizer": optimizer, "weight_decay": 0.1}))
    start = snapshot(make_group())
    _, update = train(0, algorithm)
    for name, value in update.weights.items():
        is_own = name.startswith("members.small.")
        assert torch.equal(value, start[name]) != is_own, name


def test_clients_of_the_same_model_are_averaged() -> None:
    start = snapshot(make_group())
    models = [with_member({key: value + shift for key, value in start.items()}, index) for shift, index in
              ((1.0, 0), (3.0, 0), (7.0, 1))]  # fmt: skip
    restricted = [restrict_to_member(model, start) for model in models]
    averaged = average_by_member(restricted, [1.0, 1.0, 1.0])
    torch.testing.assert_close(averaged["members.small.weight"], start["members.small.weight"] + 2)
    torch.testing.assert_close(averaged["members.large.0.bias"], start["members.large.0.bias"] + 7)
    assert trained_member(averaged) == ALL
    only_small = average_by_member(restricted[:2], [1.0, 3.0])
    torch.testing.assert_close(only_small["members.large.0.bias"], start["members.large.0.bias"], rtol=0, atol=0)
    torch.testing.assert_close(only_small["members.small.bias"], start["members.small.bias"] + 2.5)


def test_client_cannot_change_a_model_that_it_does_not_train() -> None:
    start = snapshot(make_group())
    hostile = with_member({key: value + 100 for key, value in start.items()}, 0)
    restricted = restrict_to_member(hostile, start)
    assert torch.equal(restricted["members.large.0.weight"], start["members.large.0.weight"])
    assert find_invalid_member(hostile, start) is None
    for index in (-1, 2):
        assert "index" in str(find_invalid_member(with_member(start, index), start))
    incomplete = {key: value for key, value in hostile.items() if key != "members.small.bias"}
    assert "index" in str(find_invalid_member(incomplete, start))


def test_each_member_is_refined_towards_the_targets() -> None:
    group, x = make_group(), inputs(20)
    context = ServerContext(group, x, FeatureExtractor(group, None, x[:2]), 3)
    algorithm = MrTF(settings(mrtf_args={"refine_steps": 200, "refine_lr": 0.05}))
    targets = torch.eye(3)[torch.arange(20) % 3] * 0.9 + 0.1 / 3
    start = snapshot(group)
    refined = context.distill_weights(start, targets, algorithm.distillation(), torch.Generator().manual_seed(0))
    for member in range(2):
        before, after = (
            nn.functional.cross_entropy(context.logits(with_member(weights, member)), targets)
            for weights in (start, refined)
        )
        assert after < before


def test_teachers_are_the_clients_members() -> None:
    group, x = make_group(), inputs(10)
    context = ServerContext(group, x, FeatureExtractor(group, None, x[:2]), 3)
    updates = [ClientUpdate(index, 12, with_member(train(index)[1].weights, index), 1.0) for index in range(2)]
    predictions = context.predict_all(updates, snapshot(make_group()))
    for index, name in enumerate(("small", "large")):
        load_weights(group, updates[index].weights)
        torch.testing.assert_close(predictions.local[index], group.eval().members[name](x))


def test_updates_are_compared_with_those_of_the_same_model() -> None:
    start = snapshot(make_group())
    updates = []
    for client in range(6):
        index, size = client % 2, (1.0, 100.0)[client % 2]
        weights = restrict_to_member(with_member({key: value + size for key, value in start.items()}, index), start)
        updates.append(ClientUpdate(client, 1, weights, 1.0))
    screening = screen_updates(start, updates)
    assert [update.client for update in screening.updates] == list(range(6))
    assert not screening.shortened
    assert not screening.excluded


def test_tuned_takes_fedavg_as_its_base() -> None:
    assert MrTF(settings(mrtf_args={"preset": "tuned"})).base.name == "FedAvg"


@pytest.mark.parametrize(
    ("values", "match"),
    [
        ({"client_models": ["small"]}, "client_models"),
        ({"models": MODELS, "client_models": ["medium"]}, "medium"),
        ({"models": {"one": "mlp"}}, "models"),
        ({"models": {"a.b": "mlp", "c": "mlp"}}, "models"),
    ],
)
def test_bad_settings_of_models_are_refused(values: dict[str, Any], match: str) -> None:
    with pytest.raises(UserError, match=match):
        RunSettings.from_config({"model_args": values})


def test_algorithms_that_need_one_model_are_refused() -> None:
    with pytest.raises(UserError, match="Scaffold"):
        Scaffold(settings(train_args={"federated_optimizer": "Scaffold"}))
    with pytest.raises(UserError, match="FedRidge"):
        MrTF(settings(mrtf_args={"base": "FedRidge"}))
    with pytest.raises(UserError, match="dp_args"):
        MrTF(settings(dp_args={"clip": 1.0}))


def test_silo_names_its_own_model() -> None:
    own = ModelSettings(models=MODELS, client_models="large")
    assert [own.member_of(client) for client in range(3)] == [0, 0, 0], "in alphabetical order"
    in_turn = ModelSettings(models=MODELS)
    assert [in_turn.member_of(client) for client in range(3)] == [0, 1, 0]
