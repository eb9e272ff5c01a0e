"""MrTF's distillation targets of given logits, without a federation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from ...config import RunSettings
from ...refinery.teachers import predicted_classes
from ..server_context import ModelPredictions
from .components import ComponentMemory, RoundContext, RoundTargets
from .mrtf import MrTF


def distillation_targets(
    mrtf_args: Mapping[str, Any],
    local_logits: Tensor,
    global_logits: Tensor | None,
    features: Tensor | None,
    train_loss: float,
    memory: ComponentMemory | None = None,
) -> RoundTargets:
    """Steps (2)-(4) on given logits: the targets that MrTF with these settings makes of them.

    Args:
        mrtf_args: the section of the YAML.
        local_logits: f_k of the local models, [K, M, C].
        global_logits: those of the round's initial and aggregated models, [2, M, C]; None: they do not teach.
        features: h(x) of the aggregated model, [M, D]; None: no clustering.
        train_loss: the clients' mean local loss.
        memory: of the components; it is updated.
    """
    if local_logits.dim() != 3 or 0 in local_logits.shape:
        raise ValueError(f"local_logits must be [K, M, C], none of them 0, not {tuple(local_logits.shape)}")
    samples, classes = local_logits.shape[1:]
    if global_logits is not None and tuple(global_logits.shape) != (2, samples, classes):
        raise ValueError(f"global_logits must be [2, {samples}, {classes}], not {tuple(global_logits.shape)}")
    if features is not None and (features.dim() != 2 or features.shape[0] != samples or features.shape[1] == 0):
        raise ValueError(f"features must be [{samples}, D], not {tuple(features.shape)}")
    algorithm = MrTF(RunSettings.from_config({"mrtf_args": mrtf_args}))
    initial, aggregated = (None, local_logits[0]) if global_logits is None else global_logits
    predictions = ModelPredictions(
        local_logits,
        predicted_classes(local_logits),
        aggregated,
        initial if algorithm.refinery.self_teaching else None,
        features if algorithm.refinery.cluster_refinery else None,
    )
    context = RoundContext.of(algorithm.refinery, predictions, train_loss)
    return algorithm.make_targets(context, ComponentMemory({}) if memory is None else memory)
