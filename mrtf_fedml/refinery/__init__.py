"""The paper's mathematics: pure tensor functions that know no federation and no FedML.

Equations are numbered in the order in which the paper labels them: `feddf-kl` is 1, `rap` is 10.
"""

from .refine import RefinedRound
from .targets import DistillationTargets, distillation_targets, smoothed_targets

__all__ = ["DistillationTargets", "RefinedRound", "distillation_targets", "smoothed_targets"]
