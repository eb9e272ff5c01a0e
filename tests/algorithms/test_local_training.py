"""The clients' SGD, against the same steps written out, and the ownership of its randomness."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mrtf_fedml.algorithms.local_training import LocalTerm, train_locally
from mrtf_fedml.config import RunSettings, TrainSettings
from mrtf_fedml.data import TensorShard
from mrtf_fedml.errors import UserError
from mrtf_fedml.models.state_dict import clone, snapshot


def linear() -> nn.Linear:
    model = nn.Linear(3, 2)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[0.1, -0.2, 0.3], [0.0, 0.5, -0.5]]))
        model.bias.zero_()
    return model


def batches() -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(0)
    return [
        (torch.randn(size, 3, generator=generator), torch.randint(2, (size,), generator=generator))
        for size in (4, 4, 2)
    ]


def test_sgd_with_momentum_decay_and_clipping_is_the_written_out_rule() -> None:
    settings = TrainSettings(epochs=2, learning_rate=0.1, weight_decay=0.01, clip_grad_norm=0.2)
    model = linear()
    start = snapshot(model)
    weights, loss = train_locally(model, start, batches(), settings, seed=0, client=0, round_index=0)

    theta = {key: value.clone() for key, value in start.items()}
    velocity = {key: torch.zeros_like(value) for key, value in theta.items()}
    total, samples = 0.0, 0
    for _ in range(2):
        for x, y in batches():
            leaves = {key: value.clone().requires_grad_() for key, value in theta.items()}
            logits = x @ leaves["weight"].T + leaves["bias"]
            batch_loss = -torch.log_softmax(logits, 1)[torch.arange(len(y)), y].mean()
            gradients = dict(zip(leaves, torch.autograd.grad(batch_loss, list(leaves.values())), strict=True))
            norm = torch.sqrt(sum((g**2).sum() for g in gradients.values()))
            scale = min(1.0, 0.2 / (float(norm) + 1e-6))
            for key, gradient in gradients.items():
                velocity[key] = 0.9 * velocity[key] + gradient * scale + 0.01 * theta[key]
                theta[key] = theta[key] - 0.1 * velocity[key]
            total += batch_loss.item() * len(y)
            samples += len(y)
    for key, value in theta.items():
        torch.testing.assert_close(weights[key], value, atol=1e-6, rtol=1e-5)
    assert loss == pytest.approx(total / samples, rel=1e-6)


def shard() -> TensorShard:
    generator = torch.Generator().manual_seed(1)
    x, y = torch.randn(20, 3, generator=generator), torch.randint(2, (20,), generator=generator)
    return TensorShard(x, y, torch.arange(20), batch_size=8)


def dropout_model() -> nn.Module:
    return nn.Sequential(linear(), nn.Dropout(0.5), nn.ReLU(), nn.Linear(2, 2))


def test_local_training_depends_only_on_seed_client_and_round() -> None:
    settings = TrainSettings(epochs=2)
    model = dropout_model()
    start = snapshot(model)

    def train(client: int, round_index: int, seed: int = 5) -> torch.Tensor:
        weights, _ = train_locally(model, start, shard(), settings, seed, client, round_index)
        return torch.cat([value.flatten() for value in weights.values()])

    first = train(client=1, round_index=2)
    torch.rand(17)
    train(client=0, round_index=0)
    assert torch.equal(train(client=1, round_index=2), first)
    assert not torch.equal(train(client=2, round_index=2), first)
    assert not torch.equal(train(client=1, round_index=3), first)
    assert not torch.equal(train(client=1, round_index=2, seed=6), first)


def test_global_random_state_and_the_callers_weights_are_untouched() -> None:
    model = dropout_model()
    start = snapshot(model)
    before, state = clone(start), torch.random.get_rng_state()
    weights, _ = train_locally(model, start, shard(), TrainSettings(), seed=0, client=0, round_index=0)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(torch.equal(start[key], before[key]) for key in start)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    assert any(value.abs().sum() > 0 for value in weights.values()), "the result must not be the live tensors"


def test_local_training_with_users_shuffling_loader_is_reproducible() -> None:
    x, y = torch.randn(12, 3), torch.randint(2, (12,))
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=4, shuffle=True)
    model = linear()
    start = snapshot(model)

    def train() -> torch.Tensor:
        return train_locally(model, start, loader, TrainSettings(), seed=1, client=0, round_index=0)[0]["weight"]

    first = train()
    torch.rand(3)
    assert torch.equal(train(), first)


def test_client_without_samples_raises_error_naming_it() -> None:
    model = linear()
    with pytest.raises(UserError, match="client 7 has no training sample"):
        train_locally(model, snapshot(model), [], TrainSettings(), seed=0, client=7, round_index=0)


def test_adam_is_used_if_the_configuration_selects_it() -> None:
    model = linear()
    start = snapshot(model)
    settings = TrainSettings(client_optimizer="adam", learning_rate=0.01, weight_decay=0.0)
    weights, _ = train_locally(model, start, batches()[:1], settings, seed=0, client=0, round_index=0)
    steps = (weights["weight"] - start["weight"]).abs()
    torch.testing.assert_close(steps, torch.full_like(steps, 0.01), atol=1e-4, rtol=0)


class AtEachPosition(nn.Linear):
    """One prediction per position: [N, T, D] -> [N, C, T]."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return super().forward(inputs).transpose(1, 2)


def test_labels_per_position_count_as_one_sample_each() -> None:
    settings = TrainSettings(epochs=2, learning_rate=0.1)
    generator = torch.Generator().manual_seed(0)
    inputs, labels = torch.randn(4, 5, 3, generator=generator), torch.randint(2, (4, 5), generator=generator)
    start = snapshot(linear())
    weights, loss = train_locally(AtEachPosition(3, 2), start, [(inputs, labels)], settings, 0, 0, 0)
    rows = [(inputs.flatten(0, 1), labels.flatten())]
    expected, row_loss = train_locally(linear(), start, rows, settings, 0, 0, 0)
    assert loss == pytest.approx(row_loss)
    for key, value in expected.items():
        torch.testing.assert_close(weights[key], value)


def test_labels_that_do_not_go_with_the_logits_are_named() -> None:
    model = linear()
    with pytest.raises(UserError, match=r"logits of the shape \(4, 2\) for labels of the shape \(4, 5\)"):
        train_locally(
            model,
            snapshot(model),
            [(torch.zeros(4, 3), torch.zeros(4, 5))],
            TrainSettings(),
            seed=0,
            client=0,
            round_index=0,
        )


def test_clipping_gives_the_bytes_of_pytorchs_own_and_null_turns_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Sequential(nn.Linear(3, 40), nn.ReLU(), nn.Linear(40, 2))
    start = snapshot(model)

    def train(bound: float | None) -> torch.Tensor:
        settings = TrainSettings(epochs=2, clip_grad_norm=bound)
        weights, _ = train_locally(model, start, shard(), settings, seed=0, client=0, round_index=0)
        return torch.cat([value.flatten() for value in weights.values()])

    for bound in (0.05, 100.0):
        ours = train(bound)
        with monkeypatch.context() as patch:
            patch.setattr("mrtf_fedml.algorithms.local_training.clip_gradients", nn.utils.clip_grad_norm_)
            assert torch.equal(train(bound), ours)
    # A bound that nothing reaches, or none at all: the same steps.
    assert torch.equal(train(None), train(100.0))
    assert not torch.equal(train(None), train(0.05))
    read = {"train_args": {"clip_grad_norm": None}}
    assert RunSettings.from_config(read).train.clip_grad_norm is None
    assert RunSettings.from_config({"train_args": {"epochs": None}}).train.epochs == 1


def test_local_term_with_an_unknown_method_is_refused() -> None:
    with pytest.raises(UserError, match=r"correct_gradient .*'correct_gradients'"):

        class Misspelt(LocalTerm):
            def correct_gradient(self, model: nn.Module) -> None:
                """Never called."""
