"""Components of MrTF as a user would write them, in a file of his own; each keeps something between rounds."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import mrtf_fedml


class Margin(mrtf_fedml.TeacherWeighting):
    """Weights by the margin between the two largest probabilities; sharper from round to round."""

    def weights(self, teachers: Any, context: Any, memory: dict[str, Any]) -> Tensor:
        memory["sharpness"] = memory.get("sharpness", 1.0) + 0.5
        first, second = teachers.probabilities.topk(2, dim=2).values.unbind(dim=2)
        return torch.softmax(memory["sharpness"] * (first - second), dim=0)


class Momentum(mrtf_fedml.TargetTransform):
    """Moves the targets on in the direction in which they have moved since the last round."""

    def on_targets(self, targets: Tensor, context: Any, memory: dict[str, Any]) -> Tensor:
        before = memory.get("targets", targets).to(targets)
        memory["targets"] = targets
        moved = (targets + 0.25 * (targets - before)).clamp_min(1e-6)
        return moved / moved.sum(dim=1, keepdim=True)


class Alternating(mrtf_fedml.ModelSelection):
    """The refined model in every other round, a mix in the others."""

    def refined_share(self, context: Any, memory: dict[str, Any]) -> float:
        memory["rounds"] = context.round + 1
        return 1.0 if context.round % 2 else 0.3 + 0.1 * context.disagreement
