"""What the paper proves of its targets: Eq. 5 (sensitivity) and Sect. 4.5 (one teacher a client)."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mrtf_fedml.refinery.distillation import distillation_loss
from mrtf_fedml.refinery.ensemble import average_logits, average_probabilities, entropy, entropy_weights
from mrtf_fedml.refinery.teachers import normalized_probabilities

from . import oracle

CLIENTS, SAMPLES, CLASSES, WIDTH = 3, 4, 5, 2


def tensor(values: object) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize("teacher", ["AL", "AP"])
def test_sensitivity_of_the_targets_is_equation_5(teacher: str) -> None:
    # Linear local models f_k(x) = W_k x. Row i of d f_{k,j} / d W_k is x where i = j and zero elsewhere, so
    # the bracket of Eq. 5, d f_{k,c} - sum_j J_j d f_{k,j}, is the outer product of (e_c - J) and x.
    for seed in range(3):
        rng = np.random.default_rng(seed)
        models = tensor(rng.normal(size=(CLIENTS, CLASSES, WIDTH))).requires_grad_()
        inputs = rng.normal(size=(SAMPLES, WIDTH))
        weights = rng.dirichlet(np.ones(CLIENTS))
        logits = torch.einsum("kcd,md->kmc", models, tensor(inputs))
        if teacher == "AL":
            targets = average_logits(logits, tensor(weights))
        else:
            targets = average_probabilities(torch.softmax(logits, dim=-1), tensor(weights))

        plain = logits.detach().numpy()
        averaged = oracle.average_logits(plain, weights)
        for m, c in np.ndindex(SAMPLES, CLASSES):
            (gradient,) = torch.autograd.grad(targets[m, c], models, retain_graph=True)
            for k in range(CLIENTS):
                factor = averaged[m] if teacher == "AL" else oracle.softmax(plain[k, m])
                expected = weights[k] * factor[c] * np.outer(np.eye(CLASSES)[c] - factor, inputs[m])
                where = f"seed {seed}, sample {m}, class {c}, client {k}"
                np.testing.assert_allclose(gradient[k].numpy(), expected, rtol=0, atol=1e-12, err_msg=where)


def test_sensitivity_to_the_weights_grows_with_the_logits_under_avg_logit_alone() -> None:
    # Sect. 4.5. Weights enter divided by their sum, so at sum 1 the derivative of an average with respect to
    # w_k is its k-th term less the average. Clients [f, 0] and [-f, 0] with weights 1/2: the mean logits are
    # [0, 0] and q_AL,0 = 1/2, so d q_AL,0 / d w_1 = 1/2 * 1/2 * f = f / 4, without bound.
    # q_AP,0 = 1/2 as well, and d q_AP,0 / d w_1 = 1 / (1 + e^-f) - 1/2, below 1/2 for every f.
    for size in (1.0, 20.0, 400.0):
        logits = tensor([[[size, 0.0]], [[-size, 0.0]]])
        weights = tensor([0.5, 0.5]).requires_grad_()
        (by_logit,) = torch.autograd.grad(average_logits(logits, weights)[0, 0], weights)
        (by_probability,) = torch.autograd.grad(
            average_probabilities(torch.softmax(logits, dim=-1), weights)[0, 0], weights
        )
        assert float(by_logit[0]) == pytest.approx(size / 4, rel=1e-12)
        assert float(by_probability[0]) == pytest.approx(1 / (1 + np.exp(-size)) - 0.5, rel=1e-12)


def divergence_a_teacher(probabilities: np.ndarray, weights: np.ndarray, student: np.ndarray) -> float:
    """E_x sum_k w_k KL(q_k, q_g), in loops."""
    total = 0.0
    for k, m in np.ndindex(*weights.shape):
        for c in range(CLASSES):
            ratio = probabilities[k, m, c] / student[m, c]
            total += weights[k, m] * probabilities[k, m, c] * float(np.log(ratio)) / weights.shape[1]
    return total


@pytest.mark.parametrize("weighting", ["uniform", "entropy"])
def test_distillation_loss_is_the_weighted_divergence_from_teachers(weighting: str) -> None:
    # Eq. 9 = sum_k w_k KL(q_k, q_g) + a rest in which the student does not occur. The rest drops out between
    # two students, and is the teachers' weighted mean entropy.
    for seed in range(3):
        rng = np.random.default_rng(seed)
        local = normalized_probabilities(tensor(rng.normal(size=(CLIENTS, SAMPLES, CLASSES))), 4.0)
        weights = torch.full((CLIENTS, SAMPLES), 1 / CLIENTS, dtype=torch.float64)
        if weighting == "entropy":
            weights = entropy_weights(entropy(local))
        targets = average_probabilities(local, weights)
        losses, divergences = [], []
        for scale in (0.5, 3.0):
            student = rng.normal(size=(SAMPLES, CLASSES)) * scale
            losses.append(float(distillation_loss(tensor(student), targets)))
            divergences.append(divergence_a_teacher(local.numpy(), weights.numpy(), oracle.softmax_rows(student)))
        assert abs(losses[0] - losses[1]) > 1e-3, f"seed {seed}"
        assert losses[0] - losses[1] == pytest.approx(divergences[0] - divergences[1], abs=1e-12), f"seed {seed}"
        rest = float((weights * torch.tensor(oracle.entropy(local))).sum(dim=0).mean())
        assert losses[0] - divergences[0] == pytest.approx(rest, abs=1e-12), f"seed {seed}"


def test_distillation_loss_is_minimal_at_the_targets() -> None:
    # The minimum of Eq. 8 over all students is at q_g = targets, where it is the targets' entropy.
    rng = np.random.default_rng(9)
    targets = oracle.softmax_rows(rng.normal(size=(SAMPLES, CLASSES)))
    least = float(distillation_loss(tensor(np.log(targets)), tensor(targets)))
    assert least == pytest.approx(float(oracle.entropy(targets[None]).mean()), abs=1e-12)
    for _ in range(5):
        other = np.log(targets) + rng.normal(size=targets.shape) * 0.3
        assert float(distillation_loss(tensor(other), tensor(targets))) > least
