"""Samples as rows, for models that answer once per sample and for those that answer at every position.

A next-character model gives logits [N, C, T], as PyTorch's cross-entropy wants them: one answer at each of T
positions. Each position is then a sample of its own, and rows run over n first and t within n: row n * T + t.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from ..errors import UserError


def check_logits(logits: object, samples: int) -> Tensor:
    """`logits` as they are if they are [N, C] or [N, C, T] for N samples; otherwise a `UserError`."""
    if not isinstance(logits, Tensor):
        raise UserError(f"the model returned a {type(logits).__name__}; it must return its logits, a tensor, alone")
    if logits.dim() not in (2, 3) or logits.shape[0] != samples:
        raise UserError(
            f"the model's logits have the shape {tuple(logits.shape)} for {samples} samples; they must be "
            f"[N, C], or [N, C, T] for a model that answers at each of T positions"
        )
    return logits


def positions_of(logits: Tensor) -> int | None:
    """T of logits [N, C, T]; None for logits [N, C]."""
    return logits.shape[2] if logits.dim() == 3 else None


def ids_of_rows(ids: Sequence[str], positions: int | None) -> list[str]:
    """The name of each row: the sample's own, or `<id>:<t>` where each of its positions is a row.

    >>> ids_of_rows(["a", "b"], positions=2)
    ['a:0', 'a:1', 'b:0', 'b:1']
    """
    if positions is None:
        return list(ids)
    return [f"{name}:{position}" for name in ids for position in range(positions)]


def rows_of_logits(logits: object, samples: int) -> Tensor:
    """Logits [N, C] as they are, logits [N, C, T] as [N * T, C].

    >>> import torch
    >>> rows_of_logits(torch.tensor([[[1, 2, 3], [4, 5, 6]]]), samples=1).tolist()
    [[1, 4], [2, 5], [3, 6]]
    """
    checked = check_logits(logits, samples)
    return checked if checked.dim() == 2 else checked.transpose(1, 2).flatten(0, 1)


def rows_of_features(features: Tensor, logits: Tensor, sequence: bool, channels_first: bool) -> Tensor:
    """Features as [N, D], or as [N * T, D] where the logits are [N, C, T].

    Args:
        features: what a layer took in or gave out for N samples.
        logits: what the model gave for them, [N, C] or [N, C, T].
        sequence: with logits [N, C], whether [N, T, D] is a sequence, of which the last step is read. If not,
            all but the first dimension is flattened.
        channels_first: with logits [N, C, T], whether features [N, T, T] have their positions last.
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
        f"h(x) is read with the shape {tuple(features.shape)} where the logits are {tuple(logits.shape)}, so "
        "it has no row per sample; set model_args.feature_layer to a layer whose output has one"
    )
