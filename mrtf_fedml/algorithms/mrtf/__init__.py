"""MrTF: the paper's procedure (`mrtf.py`), and the components that it is composed of.

Beyond the paper: `teacher_weighting`, `target_transforms`, `model_selection` and `client_validation`.
"""

from .components import Component, ComponentMemory, RoundContext
from .model_selection import ModelSelection
from .mrtf import MrTF
from .target_transforms import TargetTransform
from .targets import distillation_targets
from .teacher_weighting import TeacherWeighting

__all__ = [
    "Component",
    "ComponentMemory",
    "ModelSelection",
    "MrTF",
    "RoundContext",
    "TargetTransform",
    "TeacherWeighting",
    "distillation_targets",
]
