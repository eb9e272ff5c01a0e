"""Logits and features as rows, one per sample or one per position.

A next-character model gives logits [N, C, T], the shape of PyTorch's cross-entropy: one prediction at each of T
positions. Each position then counts as a sample; row n * T + t belongs to sample n, position t.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from ..errors import UserError


def check_logits(logits: object, samples: int) -> Tensor:
    """`logits` unchanged if they are [N, C] or [N, C, T] for N samples; otherwise a `UserError`."""
    if not isinstance(logits, Tensor):
        raise UserError(f"the model returned a {type(logits).__name__}; it must return its logits, one tensor")
    if logits.dim() not in (2, 3) or logits.shape[0] != samples:
        raise UserError(
            f"the model's logits have the shape {tuple(logits.shape)} for {samples} samples; they must be "
            f"[N, C], or [N, C, T] for a model that predicts at each of T positions"
        )
    return logits


def num_positions(logits: Tensor) -> int | None:
    """T of logits [N, C, T]; None for logits [N, C]."""
    return logits.shape[2] if logits.dim() == 3 else None


def row_ids(ids: Sequence[str], positions: int | None) -> list[str]:
    """The id of each row: the sample's id, or `<id>:<t>` where each position is a row.

    >>> row_ids(["a", "b"], positions=2)
    ['a:0', 'a:1', 'b:0', 'b:1']
    """
    if positions is None:
        return list(ids)
    return [f"{name}:{position}" for name in ids for position in range(positions)]


def logit_rows(logits: object, samples: int) -> Tensor:
    """Logits [N, C] unchanged, logits [N, C, T] as [N * T, C].

    >>> import torch
    >>> logit_rows(torch.tensor([[[1, 2, 3], [4, 5, 6]]]), samples=1).tolist()
    [[1, 4], [2, 5], [3, 6]]
    """
    checked = check_logits(logits, samples)
    return checked if checked.dim() == 2 else checked.transpose(1, 2).flatten(0, 1)


def feature_rows(features: Tensor, logits: Tensor, sequence: bool, channels_first: bool) -> Tensor:
    """Features as [N, D], or as [N * T, D] if the logits are [N, C, T].

    Args:
        features: the input or output of a layer for N samples.
        logits: the model's output for them, [N, C] or [N, C, T].
        sequence: for logits [N, C]: whether [N, T, D] is a sequence, of which the last step is used. If not, all but
            the first dimension are flattened.
        channels_first: for logits [N, C, T]: whether features [N, T, T] have their positions last.
    """
    samples = logits.shape[0]
    if logits.dim() == 2 and features.shape[:1] == (samples,):
        return features[:, -1] if sequence and features.dim() == 3 else features.reshape(samples, -1)
    if logits.dim() == 3:
        positions = logits.shape[2]
        positions_last = features.dim() == 3 and features.shape[2] == positions
        if positions_last and (channels_first or features.shape[1] != positions):
            features = features.transpose(1, 2)
        if features.dim() == 3 and features.shape[:2] == (samples, positions):
            return features.flatten(0, 1)
        if features.dim() == 2 and features.shape[0] == samples * positions:
            return features
    raise UserError(
        f"h(x) has the shape {tuple(features.shape)} and the logits {tuple(logits.shape)}, so there is not one row of "
        "features per sample; set model_args.feature_layer to a layer whose output has one"
    )
