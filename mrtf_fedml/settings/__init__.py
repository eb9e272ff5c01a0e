"""What a user sets: one file per section of FedML's YAML, the presets, and the reader."""

from .comm import SiloSettings
from .common import CommonSettings
from .data import DataSettings
from .device import DeviceSettings
from .model import ModelSettings
from .mrtf import MrTFSettings
from .presets import PRESETS
from .privacy import PrivacySettings
from .run import RunSettings
from .sections import section_keys
from .train import TrainSettings

__all__ = [
    "PRESETS",
    "CommonSettings",
    "DataSettings",
    "DeviceSettings",
    "ModelSettings",
    "MrTFSettings",
    "PrivacySettings",
    "RunSettings",
    "SiloSettings",
    "TrainSettings",
    "section_keys",
]
