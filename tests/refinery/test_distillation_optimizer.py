"""The student's Adam and its clipping are PyTorch's own, to the bit."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mrtf_fedml.refinery.distillation import Adam, clip_gradients


def parameters(seed: int = 0) -> list[nn.Parameter]:
    drawn = torch.Generator().manual_seed(seed)
    return [nn.Parameter(torch.randn(*shape, generator=drawn)) for shape in ((40, 30), (40,), (3, 2, 5, 5))]


def gradients(step: int) -> list[Tensor | None]:
    drawn = torch.Generator().manual_seed(100 + step)
    made: list[Tensor | None] = [torch.randn(*each.shape, generator=drawn) for each in parameters()]
    # One parameter has no gradient at first, and its own count of steps from then on.
    return [None if place == 1 and step < 2 else gradient for place, gradient in enumerate(made)]


def test_distillation_steps_equal_pytorchs_optimizer_bitwise() -> None:
    for decay in (0.0, 1e-2):
        ours, theirs = parameters(), parameters()
        own, optimizer = Adam(ours, decay), torch.optim.Adam(theirs, weight_decay=decay, fused=True)
        for step in range(6):
            rate = 1e-2 / (step + 1)
            optimizer.param_groups[0]["lr"] = rate
            for one, other, gradient in zip(ours, theirs, gradients(step), strict=True):
                one.grad = other.grad = gradient
            own.step(rate)
            optimizer.step()
            assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))
            assert torch.equal(ours[1], parameters()[1]) == (step < 2)


def test_clipping_gives_the_bytes_of_pytorchs_own() -> None:
    whole = float(torch.cat([each.flatten() for each in gradients(2) if each is not None]).norm())
    for bound in (1e-3, 0.5 * whole, 1.0005 * whole, 10 * whole):
        ours, theirs = parameters(), parameters()
        for one, other, gradient in zip(ours, theirs, gradients(2), strict=True):
            assert gradient is not None
            one.grad, other.grad = gradient.clone(), gradient.clone()
        clip_gradients(ours, bound)
        nn.utils.clip_grad_norm_(theirs, bound)
        for one, other, gradient in zip(ours, theirs, gradients(2), strict=True):
            assert one.grad is not None
            assert other.grad is not None
            assert gradient is not None
            assert torch.equal(one.grad, other.grad)
            assert torch.equal(one.grad, gradient) == (bound > whole)


def test_clipping_propagates_nan_and_accepts_no_gradients() -> None:
    clip_gradients(parameters(), 1.0)
    spoilt = parameters()
    for each in spoilt:
        each.grad = torch.ones_like(each)
    assert spoilt[0].grad is not None
    assert spoilt[2].grad is not None
    spoilt[0].grad[0, 0] = float("nan")
    clip_gradients(spoilt, 1.0)
    assert bool(spoilt[2].grad.isnan().all())
