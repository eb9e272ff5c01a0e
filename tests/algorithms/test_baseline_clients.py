"""FedProx's and FedMMD's clients, against the same objectives written out with autograd alone."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mrtf_fedml.algorithms import Algorithm, ClientTask, FedAvg, FedMMD, FedProx
from mrtf_fedml.algorithms.fedmmd import squared_discrepancy
from mrtf_fedml.config import RunSettings
from mrtf_fedml.models.state_dict import clone, snapshot


def two_layers() -> nn.Sequential:
    generator = torch.Generator().manual_seed(3)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return model


def batches() -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    return [
        (torch.randn(size, 3, generator=generator), torch.randint(2, (size,), generator=generator))
        for size in (5, 4, 3)
    ]


def settings(**keys: Any) -> RunSettings:
    given = {"epochs": 2, "learning_rate": 0.1, "weight_decay": 0.01, **keys}
    return RunSettings.from_config({"train_args": given})


def train(algorithm: Algorithm) -> tuple[dict[str, Tensor], float]:
    model = two_layers()
    update = algorithm.train_client(model, ClientTask(2, 1, snapshot(model), batches(), 12))
    assert update.loss is not None
    return dict(update.weights), update.loss


def written_out(added: Any) -> tuple[dict[str, Tensor], float]:
    """Two epochs of SGD with momentum 0.9 on cross-entropy + added(theta, theta_t, x)."""
    start = {key: value.double() for key, value in snapshot(two_layers()).items()}
    theta = clone(start)
    velocity = {key: torch.zeros_like(value) for key, value in theta.items()}
    total = 0.0
    for _ in range(2):
        for x, y in batches():
            x = x.double()
            leaves = {key: value.clone().requires_grad_() for key, value in theta.items()}
            loss = -torch.log_softmax(logits(leaves, x), 1)[torch.arange(len(y)), y].mean()
            objective = loss + added(leaves, start, x)
            gradients = torch.autograd.grad(objective, list(leaves.values()))
            for key, gradient in zip(leaves, gradients, strict=True):
                velocity[key] = 0.9 * velocity[key] + gradient + 0.01 * theta[key]
                theta[key] = theta[key] - 0.1 * velocity[key]
            total += loss.item() * len(y)
    return theta, total / 24


def hidden(theta: dict[str, Tensor], x: Tensor) -> Tensor:
    return torch.tanh(x @ theta["0.weight"].T + theta["0.bias"])


def logits(theta: dict[str, Tensor], x: Tensor) -> Tensor:
    return hidden(theta, x) @ theta["2.weight"].T + theta["2.bias"]


def assert_same(ours: tuple[dict[str, Tensor], float], theirs: tuple[dict[str, Tensor], float]) -> None:
    for key, value in theirs[0].items():
        torch.testing.assert_close(ours[0][key], value.float(), atol=2e-6, rtol=1e-5)
    assert ours[1] == pytest.approx(theirs[1], rel=1e-5), "the reported loss excludes the added term"


def test_fedprox_minimises_the_loss_and_the_proximal_term() -> None:
    def proximal(theta: dict[str, Tensor], start: dict[str, Tensor], x: Tensor) -> Tensor:
        return 0.7 / 2 * sum(((theta[key] - start[key]) ** 2).sum() for key in theta)

    assert_same(train(FedProx(settings(fedprox_mu=0.7))), written_out(proximal))


def test_one_proximal_step_by_hand() -> None:
    """theta = 2 after theta_t = 1: the gradient gains mu * (2 - 1)."""
    from mrtf_fedml.algorithms.fedprox import ProximalTerm

    model = nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        model.weight.fill_(2.0)
    model.weight.grad = torch.tensor([[0.25]])
    ProximalTerm(0.5, {"weight": torch.tensor([[1.0]])}).correct_gradients(model)
    assert model.weight.grad.item() == 0.75


def naive_discrepancy(first: Tensor, second: Tensor) -> Tensor:
    """Pair by pair, as the definition reads."""
    rows = [*first, *second]
    squared = [[((a - b) ** 2).sum() for b in rows] for a in rows]
    count = len(rows)
    scale = sum(float(value.detach()) for line in squared for value in line) / (count * (count - 1))
    kernel = [[sum(torch.exp(-d / (scale * 2.0**power)) for power in range(-2, 3)) for d in line] for line in squared]
    n, m = len(first), len(second)
    within = sum(kernel[i][j] for i in range(n) for j in range(n)) / n**2
    within_other = sum(kernel[n + i][n + j] for i in range(m) for j in range(m)) / m**2
    across = sum(kernel[i][n + j] for i in range(n) for j in range(m)) / (n * m)
    return within + within_other - 2 * across


def test_fedmmd_minimises_the_loss_and_the_discrepancy() -> None:
    def discrepancy(theta: dict[str, Tensor], start: dict[str, Tensor], x: Tensor) -> Tensor:
        if all(torch.equal(theta[key], start[key]) for key in theta):
            # Equal features: the discrepancy is at its least, 0, and so is its gradient.
            return torch.zeros((), dtype=torch.float64)
        return 0.5 * naive_discrepancy(hidden(theta, x), hidden(start, x))

    ours = train(FedMMD(settings(mmd_weight=0.5)))
    assert_same(ours, written_out(discrepancy))
    assert not torch.equal(ours[0]["0.weight"], train(FedAvg(settings()))[0]["0.weight"])


def test_discrepancy_equals_values_by_hand_and_by_pairs() -> None:
    # Rows 0 and 2, one each: s = (4 + 4) / 2 = 4, so k(x, y) = sum over scales of exp(-1 / scale).
    across = sum(math.exp(-1 / scale) for scale in (0.25, 0.5, 1, 2, 4))
    value = squared_discrepancy(torch.tensor([[0.0]]), torch.tensor([[2.0]]))
    assert value.item() == pytest.approx(2 * 5 - 2 * across, rel=1e-6)
    generator = torch.Generator().manual_seed(1)
    first, second = torch.randn(6, 4, generator=generator) + 100, torch.randn(5, 4, generator=generator) + 101
    torch.testing.assert_close(
        squared_discrepancy(first, second),
        naive_discrepancy(first.double(), second.double()).float(),
        rtol=1e-3,
        atol=0,
    )


def test_equal_features_have_no_discrepancy_and_a_finite_gradient() -> None:
    features = torch.zeros(3, 2, requires_grad=True)
    value = squared_discrepancy(features, torch.zeros(3, 2))
    value.backward()
    assert value.item() == 0.0
    assert features.grad is not None
    assert torch.isfinite(features.grad).all()


@pytest.mark.parametrize("algorithm", [FedProx(settings(fedprox_mu=0)), FedMMD(settings(mmd_weight=0))])
def test_weight_zero_is_fedavg_to_the_bit(algorithm: Algorithm) -> None:
    weights, loss = train(algorithm)
    plain, plain_loss = train(FedAvg(settings()))
    assert loss == plain_loss
    assert all(torch.equal(weights[key], plain[key]) for key in plain)
