"""Arithmetic on state dicts that writes into no dict it is given.

Floating-point entries are numbers to average. Integer and boolean entries are counters and flags (BatchNorm's
`num_batches_tracked`), of which an average would make no sense: the elementwise maximum is kept.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn

from ..errors import UserError

StateDict = Mapping[str, Tensor]


def clone(weights: StateDict) -> OrderedDict[str, Tensor]:
    """A copy, in the standard layout, that shares no memory with `weights`, nor between tied entries."""
    return OrderedDict(
        (key, tensor.detach().clone(memory_format=torch.contiguous_format)) for key, tensor in weights.items()
    )


def snapshot(model: nn.Module) -> OrderedDict[str, Tensor]:
    """The model's weights and buffers as they are now, detached, on the CPU, in the standard layout."""
    return OrderedDict((key, _copied(tensor)) for key, tensor in model.state_dict().items())


def apart(weights: StateDict, lent: Iterable[Tensor]) -> StateDict:
    """The weights without memory of `lent`, which somebody will overwrite: copies, on the CPU, of those that share it.

    Where none does, they are returned as they are.

    >>> lent = torch.zeros(1)
    >>> kept = apart({"w": lent, "v": torch.ones(1)}, [lent])
    >>> kept["w"] is lent, list(kept)
    (False, ['w', 'v'])
    """
    taken = {tensor.untyped_storage().data_ptr() for tensor in lent}
    shared = [key for key, tensor in weights.items() if tensor.untyped_storage().data_ptr() in taken]
    if not shared:
        return weights
    return {key: _copied(tensor) if key in shared else tensor.detach().cpu() for key, tensor in weights.items()}


def average(models: Sequence[StateDict], shares: Sequence[float]) -> OrderedDict[str, Tensor]:
    """sum_k shares_k * models_k, added in the given order.

    Half-precision entries are added in float32; each entry keeps the dtype and device of the first model's. A
    model of share 0 adds nothing to the sums, not even where it is infinite. As shares are not negative, a
    running variance stays non-negative.

    Args:
        models: one or more state dicts of the same keys and shapes.
        shares: one non-negative number a model, which sum to 1.

    >>> two = [{"w": torch.tensor([1.0, 2.0])}, {"w": torch.tensor([3.0, 6.0])}]
    >>> average(two, [0.75, 0.25])["w"]
    tensor([1.5000, 3.0000])
    """
    if not models or len(models) != len(shares):
        raise ValueError(f"an average needs one share per model, but got {len(models)} models, {len(shares)} shares")
    if min(shares) < 0 or not abs(sum(shares) - 1) <= 1e-6:
        raise ValueError(f"shares must be non-negative and sum to 1, but are {list(shares)}")
    for index, weights in enumerate(models[1:], start=1):
        refuse_misfit(f"model {index} of the average", weights, models[0])
    return OrderedDict((key, _combined([weights[key] for weights in models], shares)) for key in models[0])


def mix(first: StateDict, second: StateDict, share: float) -> OrderedDict[str, Tensor]:
    """Mean of two: share * first + (1 - share) * second, for a share in [0, 1]; otherwise as `average`."""
    return average([first, second], [share, 1 - share])


def is_finite(weights: StateDict) -> bool:
    """Whether no floating-point entry holds NaN or infinity.

    >>> is_finite({"w": torch.tensor([1.0, float("nan")])})
    False
    """
    return all(_all_finite(tensor) for tensor in weights.values())


def size_in_bytes(weights: StateDict) -> int:
    """What the entries occupy, tied ones counted each time.

    >>> size_in_bytes({"w": torch.zeros(3, 2), "steps": torch.tensor(0)})
    32
    """
    return sum(tensor.numel() * tensor.element_size() for tensor in weights.values())


def load(model: nn.Module, weights: StateDict) -> None:
    """Copy `weights` into the model in place. Keys and shapes must be the model's own."""
    refuse_misfit("the weights to load", weights, model.state_dict())
    model.load_state_dict(weights)


def refuse_misfit(what: str, weights: StateDict, wanted: StateDict) -> None:
    """Refuse weights whose names or shapes are not those of `wanted`; `what` says whose they are."""
    faults = []
    if missing := [key for key in wanted if key not in weights]:
        faults.append("lacks " + _some(missing))
    if unknown := [key for key in weights if key not in wanted]:
        faults.append("has the unknown " + _some(unknown))
    if misshapen := [
        f"{key} {tuple(tensor.shape)} instead of {tuple(wanted[key].shape)}"
        for key, tensor in weights.items()
        if key in wanted and tensor.shape != wanted[key].shape
    ]:
        faults.append("has the shapes " + _some(misshapen))
    if faults:
        raise UserError(f"{what}: does not fit the model, as it {'; '.join(faults)}; use the same model everywhere")


def _all_finite(tensor: Tensor) -> bool:
    # A sum that is finite has no other terms, and is taken forty times faster than all are looked at; one that is not
    # may have overflowed.
    return bool(torch.isfinite(tensor.sum())) or bool(torch.isfinite(tensor).all())


def _copied(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)


def _combined(tensors: Sequence[Tensor], shares: Sequence[float]) -> Tensor:
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


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more
