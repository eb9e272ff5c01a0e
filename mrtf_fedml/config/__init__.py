"""Settings: the sections of the YAML as validated dataclasses, presets, loading, and the settings reference."""

from .mrtf import MrTFSettings
from .presets import PRESETS
from .run_settings import RunSettings
from .schema import section_keys
from .sections import (
    CommonSettings,
    DataSettings,
    DeviceSettings,
    ModelSettings,
    PrivacySettings,
    SiloSettings,
    TrainSettings,
)

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
