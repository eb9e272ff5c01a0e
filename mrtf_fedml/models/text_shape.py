"""What a network that reads texts asks of the inputs: characters as indices."""

from __future__ import annotations

from torch import Tensor


def vocabulary_of(*inputs: Tensor | None) -> int | None:
    """How many different characters the inputs [N, T] have at least: their largest index and one.

    None where they are no texts: not of one dimension per sample, not whole numbers, or below zero.

    >>> import torch
    >>> vocabulary_of(torch.tensor([[0, 3, 1]]), torch.tensor([[5, 2, 2]]))
    6
    """
    given = [tensor for tensor in inputs if tensor is not None and tensor.numel()]
    if not given or any(not _are_indices(tensor) for tensor in given):
        return None
    return 1 + max(int(tensor.max()) for tensor in given)


def _are_indices(tensor: Tensor) -> bool:
    if tensor.dim() != 2 or bool((tensor < 0).any()):
        return False
    return not tensor.is_floating_point() or bool((tensor == tensor.floor()).all())
