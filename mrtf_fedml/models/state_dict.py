"""Arithmetic on state dicts. No function writes to its arguments.

Floating-point entries are averaged. Integer and boolean entries are counters and flags (BatchNorm's
`num_batches_tracked`), which cannot be averaged: the elementwise maximum is used.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn

from ..errors import UserError

StateDict = Mapping[str, Tensor]


def clone(weights: StateDict) -> OrderedDict[str, Tensor]:
    """A copy in the standard memory layout; its entries share no memory with `weights` or each other."""
    return OrderedDict(
        (key, tensor.detach().clone(memory_format=torch.contiguous_format)) for key, tensor in weights.items()
    )


def snapshot(model: nn.Module) -> OrderedDict[str, Tensor]:
    """A copy of the model's weights and buffers: detached, on the CPU, in the standard memory layout."""
    return OrderedDict((key, _copy_to_cpu(tensor)) for key, tensor in model.state_dict().items())


def clone_if_aliased(weights: StateDict, buffers: Iterable[Tensor]) -> StateDict:
    """The weights, with copies on the CPU of the entries that share memory with `buffers`, which will be overwritten.

    If no entry does, the weights are returned unchanged.

    >>> buffer = torch.zeros(1)
    >>> cloned = clone_if_aliased({"w": buffer, "v": torch.ones(1)}, [buffer])
    >>> cloned["w"] is buffer, list(cloned)
    (False, ['w', 'v'])
    """
    pointers = {tensor.untyped_storage().data_ptr() for tensor in buffers}
    aliased = [key for key, tensor in weights.items() if tensor.untyped_storage().data_ptr() in pointers]
    if not aliased:
        return weights
    return {key: _copy_to_cpu(tensor) if key in aliased else tensor.detach().cpu() for key, tensor in weights.items()}


def average(models: Sequence[StateDict], shares: Sequence[float]) -> OrderedDict[str, Tensor]:
    """sum_k shares_k * models_k, added in the given order.

    Half-precision entries are added in float32; each entry keeps the dtype and device of the first model's. A model
    with share 0 contributes nothing, even if it is infinite. Shares are not negative, so that running variances stay
    non-negative.

    Args:
        models: one or more state dicts of the same keys and shapes.
        shares: one non-negative number per model; they sum to 1.

    >>> two = [{"w": torch.tensor([1.0, 2.0])}, {"w": torch.tensor([3.0, 6.0])}]
    >>> average(two, [0.75, 0.25])["w"]
    tensor([1.5000, 3.0000])
    """
    if not models or len(models) != len(shares):
        raise ValueError(f"an average needs one share per model, but got {len(models)} models, {len(shares)} shares")
    if min(shares) < 0 or not abs(sum(shares) - 1) <= 1e-6:
        raise ValueError(f"shares must be non-negative and sum to 1, but are {list(shares)}")
    for index, weights in enumerate(models[1:], start=1):
        check_state_dict(f"model {index} of the average", weights, models[0])
    return OrderedDict((key, _weighted_sum([weights[key] for weights in models], shares)) for key in models[0])


def mix(first: StateDict, second: StateDict, share: float) -> OrderedDict[str, Tensor]:
    """Share * first + (1 - share) * second, for a share in [0, 1]; otherwise as `average`."""
    return average([first, second], [share, 1 - share])


def inner_product(one: StateDict, other: StateDict) -> float:
    """<one, other> in float64, over the names that both have.

    >>> inner_product({"w": torch.tensor([1.0, 2.0]), "b": torch.ones(1)}, {"w": torch.tensor([3.0, 4.0])})
    11.0
    """
    total = 0.0
    for name, value in other.items():
        if name in one:
            total += float(one[name].detach().cpu().double().flatten() @ value.detach().cpu().double().flatten())
    return total


def is_finite(weights: StateDict) -> bool:
    """Whether no floating-point entry has NaN or infinity.

    >>> is_finite({"w": torch.tensor([1.0, float("nan")])})
    False
    """
    return all(_all_finite(tensor) for tensor in weights.values())


def size_in_bytes(weights: StateDict) -> int:
    """Size of the entries in bytes; tied entries count each time.

    >>> size_in_bytes({"w": torch.zeros(3, 2), "steps": torch.tensor(0)})
    32
    """
    return sum(tensor.numel() * tensor.element_size() for tensor in weights.values())


def load_weights(model: nn.Module, weights: StateDict) -> None:
    """Copy `weights` into the model in place; keys and shapes must be those of the model."""
    check_state_dict("the weights to load", weights, model.state_dict())
    model.load_state_dict(weights)


def check_state_dict(
    label: str, weights: StateDict, expected: StateDict, remedy: str = "use the same model everywhere"
) -> None:
    """Raise a `UserError` if keys or shapes differ from those of `expected`; `label` names the weights in messages."""
    faults = []
    if missing := [key for key in expected if key not in weights]:
        faults.append("lacks " + _join_first(missing))
    if unknown := [key for key in weights if key not in expected]:
        faults.append("has the unknown " + _join_first(unknown))
    if wrong_shapes := [
        f"{key} {tuple(tensor.shape)} instead of {tuple(expected[key].shape)}"
        for key, tensor in weights.items()
        if key in expected and tensor.shape != expected[key].shape
    ]:
        faults.append("has the shapes " + _join_first(wrong_shapes))
    if faults:
        raise UserError(f"{label}: does not fit the model, as it {'; '.join(faults)}; {remedy}")


def _all_finite(tensor: Tensor) -> bool:
    # A finite sum has finite terms only, and is forty times faster than checking each; an infinite sum may be an
    # overflow.
    return bool(torch.isfinite(tensor.sum())) or bool(torch.isfinite(tensor).all())


def _copy_to_cpu(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)


def _weighted_sum(tensors: Sequence[Tensor], shares: Sequence[float]) -> Tensor:
    first = tensors[0].detach()
    if not (first.is_floating_point() or first.is_complex()):
        largest = first.clone()
        for tensor in tensors[1:]:
            largest = torch.maximum(largest, tensor.detach().to(first))
        return largest
    precision = torch.promote_types(first.dtype, torch.float32)
    terms = (
        (tensor.detach().to(first.device, precision), share)
        for tensor, share in zip(tensors, shares, strict=True)
        if share != 0
    )
    tensor, share = next(terms)
    total = tensor * share
    for tensor, share in terms:
        total.add_(tensor, alpha=share)
    return total.to(first.dtype)


def _join_first(names: Sequence[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more
