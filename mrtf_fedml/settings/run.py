"""One validated description of a run, read from FedML's YAML.

FedML groups its YAML in sections and then forgets them; here each section that every run has is a frozen dataclass
whose fields are the keys. FedML's own sections may hold keys we do not know; an algorithm's section may not.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ..errors import UserError, shown
from .comm import SiloSettings
from .common import CommonSettings
from .data import DataSettings
from .device import DeviceSettings
from .kinds import validated
from .model import ModelSettings
from .presets import OWN_DATA, with_preset
from .privacy import PrivacySettings
from .sections import PARTS, Config, declared_settings, in_their_homes, part_of, section_keys, values_of
from .train import TrainSettings

_Own = TypeVar("_Own")


@dataclass(frozen=True)
class RunSettings:
    """All of a run.

    Attributes:
        given: what the user wrote, by section. An algorithm finds its own keys there, by `of`.
    """

    common: CommonSettings = field(default_factory=CommonSettings)
    data: DataSettings = field(default_factory=DataSettings)
    model: ModelSettings = field(default_factory=ModelSettings)
    train: TrainSettings = field(default_factory=TrainSettings)
    device: DeviceSettings = field(default_factory=DeviceSettings)
    silo: SiloSettings = field(default_factory=SiloSettings)
    privacy: PrivacySettings = field(default_factory=PrivacySettings)
    given: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> RunSettings:
        """Settings from FedML's YAML, read as a mapping of sections."""
        for section, values in config.items():
            if values is not None and not isinstance(values, Mapping):
                raise UserError(f"section {section!r} must hold keys and values, not {shown(values)}")
        tidy = in_their_homes(config)
        parts: dict[str, Any] = {
            name: validated(part, section, part_of(tidy, name)) for name, (section, part) in PARTS.items()
        }
        # Who brings own data cannot check the labels, and gets what our measurements support.
        settings = cls(**parts, given=with_preset(tidy, OWN_DATA) if parts["data"].is_own else tidy)
        for section, own in declared_settings():
            settings.of(own, section)
        if settings.data.clients_come_with_the_data:
            return settings
        return settings.with_clients(settings.train.client_num_in_total)

    def of(self, part: type[_Own], section: str) -> _Own:
        """An algorithm's own settings: the keys of that section that `part` has, validated."""
        keys = [field.name for field in dataclasses.fields(part)]  # type: ignore[arg-type]
        given = self.given.get(section, {})
        return validated(part, section, {key: given[key] for key in keys if given.get(key) is not None})

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
        if self.train.min_clients > self.train.client_num_per_round:
            raise UserError(
                f"train_args.min_clients is {self.train.min_clients} but only {self.train.client_num_per_round} "
                "clients take part in a round (client_num_per_round); lower it"
            )
        return dataclasses.replace(self, train=dataclasses.replace(self.train, client_num_in_total=clients))

    def to_config(self) -> Config:
        """The resolved sections of every run, as the YAML would say them."""
        values = {key: value for name in PARTS for key, value in values_of(getattr(self, name)).items()}
        return {
            section: {key: values[key] for key in keys if key in values}
            for section, keys in section_keys().items()
            if any(key in values for key in keys)
        }
