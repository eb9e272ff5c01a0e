"""One validated description of a run, read from FedML's YAML.

FedML groups its YAML in sections and then forgets them; here each section that we read is a frozen dataclass whose
fields are the keys. FedML's own sections may hold keys we do not know; `mrtf_args` may not.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import UserError
from .comm import SiloSettings
from .common import CommonSettings
from .data import DataSettings
from .device import DeviceSettings
from .kinds import validated
from .model import ModelSettings
from .mrtf import MrTFSettings
from .privacy import PrivacySettings
from .train import TrainSettings


@dataclass(frozen=True)
class RunSettings:
    """All of a run."""

    common: CommonSettings = dataclasses.field(default_factory=CommonSettings)
    data: DataSettings = dataclasses.field(default_factory=DataSettings)
    model: ModelSettings = dataclasses.field(default_factory=ModelSettings)
    train: TrainSettings = dataclasses.field(default_factory=TrainSettings)
    device: DeviceSettings = dataclasses.field(default_factory=DeviceSettings)
    silo: SiloSettings = dataclasses.field(default_factory=SiloSettings)
    privacy: PrivacySettings = dataclasses.field(default_factory=PrivacySettings)
    mrtf: MrTFSettings = dataclasses.field(default_factory=MrTFSettings)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> RunSettings:
        """Settings from FedML's YAML, read as a mapping of sections."""
        flat: dict[str, Any] = {}
        for section, values in config.items():
            if values is not None and not isinstance(values, Mapping):
                raise UserError(f"section {section!r} must hold keys and values, not {values!r}")
            if section != "mrtf_args":
                flat.update(values or {})
        return cls.from_flat(flat, config.get("mrtf_args"))

    @classmethod
    def from_flat(cls, flat: Mapping[str, Any], mrtf_args: Mapping[str, Any] | None) -> RunSettings:
        """Settings from FedML's flattened keys, with `mrtf_args` kept apart."""
        parts: dict[str, Any] = {"mrtf": MrTFSettings.from_mapping(mrtf_args)}
        for name, (section, part) in _PARTS.items():
            keys = [field.name for field in dataclasses.fields(part)]
            given = {key: flat[key] for key in keys if flat.get(key) is not None}
            parts[name] = validated(part, section, given)
        settings = cls(**parts)
        if settings.data.clients_come_with_the_data:
            return settings
        return settings.with_clients(settings.train.client_num_in_total)

    def with_clients(self, clients: int) -> RunSettings:
        """The settings of a run whose data have so many clients.

        >>> RunSettings().with_clients(30).train.client_num_in_total
        30
        """
        if self.train.client_num_per_round > clients:
            remedy = "lower it" if self.data.clients_come_with_the_data else "lower it or raise client_num_in_total"
            raise UserError(
                f"train_args.client_num_per_round is {self.train.client_num_per_round} but there are only "
                f"{clients} clients; {remedy}"
            )
        return dataclasses.replace(self, train=dataclasses.replace(self.train, client_num_in_total=clients))

    def to_config(self) -> dict[str, dict[str, Any]]:
        """The resolved sections, as the YAML would say them."""
        config: dict[str, dict[str, Any]] = {}
        for section, keys in section_keys().items():
            for name in [*_PARTS, "mrtf"]:
                values = dataclasses.asdict(getattr(self, name))
                config.setdefault(section, {}).update({key: values[key] for key in keys if key in values})
        return config


_PARTS: dict[str, tuple[str, type]] = {
    "common": ("common_args", CommonSettings),
    "data": ("data_args", DataSettings),
    "model": ("model_args", ModelSettings),
    "train": ("train_args", TrainSettings),
    "device": ("device_args", DeviceSettings),
    "silo": ("comm_args", SiloSettings),
    "privacy": ("dp_args", PrivacySettings),
}


def section_keys() -> dict[str, list[str]]:
    """The section of FedML's YAML in which each of our keys is written."""
    keys = {section: [field.name for field in dataclasses.fields(part)] for section, part in _PARTS.values()}
    keys["mrtf_args"] = [field.name for field in dataclasses.fields(MrTFSettings)]
    moved = (("backend", "common_args", "comm_args"), ("frequency_of_the_test", "train_args", "validation_args"))
    for key, home, section in moved:
        keys[home].remove(key)
        keys.setdefault(section, []).append(key)
    return keys
