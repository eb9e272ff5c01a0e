"""The validated settings of a run, read from FedML's YAML.

FedML groups its YAML in sections and drops the grouping when it reads it. Here each section of every run is a frozen
dataclass whose fields are the keys. FedML's own sections may have keys that we do not know; an algorithm's may not.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ..errors import UserError, shorten_repr
from .presets import OWN_DATA, with_preset
from .schema import (
    SECTION_CLASSES,
    Config,
    field_values,
    is_user_algorithm,
    normalize_sections,
    section_keys,
    section_values,
    sections_of_run,
)
from .sections import (
    CommonSettings,
    DataSettings,
    DeviceSettings,
    ModelSettings,
    PrivacySettings,
    SiloSettings,
    TrackingSettings,
    TrainSettings,
)
from .types import validate_section

_Settings = TypeVar("_Settings")


@dataclass(frozen=True)
class RunSettings:
    """All settings of a run.

    Attributes:
        explicit: the keys that the user set, by section, normalized. An algorithm reads its own settings from there,
            by `algorithm_section`.
        clients_only_train: whether clients can do no more than train: devices, and trainers of the user's own.
    """

    common: CommonSettings = field(default_factory=CommonSettings)
    data: DataSettings = field(default_factory=DataSettings)
    model: ModelSettings = field(default_factory=ModelSettings)
    train: TrainSettings = field(default_factory=TrainSettings)
    device: DeviceSettings = field(default_factory=DeviceSettings)
    silo: SiloSettings = field(default_factory=SiloSettings)
    privacy: PrivacySettings = field(default_factory=PrivacySettings)
    tracking: TrackingSettings = field(default_factory=TrackingSettings)
    explicit: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    clients_only_train: bool = False

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> RunSettings:
        """Settings from FedML's YAML, a mapping of sections.

        The sections of every run, of the run's algorithm and of its base are validated; the keys of all sections are
        checked.
        """
        for section, values in config.items():
            if values is not None and not isinstance(values, Mapping):
                raise UserError(f"section {section!r} must have keys and values, not {shorten_repr(values)}")
        explicit = normalize_sections(config)
        sections: dict[str, Any] = {
            name: validate_section(section_class, section, section_values(explicit, name))
            for name, (section, section_class) in SECTION_CLASSES.items()
        }
        if sections["data"].is_user_data and not is_user_algorithm(sections["train"].federated_optimizer):
            # Users with their own data cannot check the labels; they get the preset that our measurements support.
            # An algorithm of the user's own has its own defaults.
            explicit = with_preset(explicit, OWN_DATA)
        settings = cls(**sections, explicit=explicit)
        for section, section_class in sections_of_run(explicit, settings.train.federated_optimizer):
            settings.algorithm_section(section_class, section)
        if settings.data.defines_clients:
            return settings
        return settings.with_client_count(settings.train.client_num_in_total)

    def algorithm_section(self, section_class: type[_Settings], section: str) -> _Settings:
        """An algorithm's own settings: the keys of the section that `section_class` has, validated."""
        keys = [field.name for field in dataclasses.fields(section_class)]  # type: ignore[arg-type]
        values = self.explicit.get(section, {})
        return validate_section(
            section_class, section, {key: values[key] for key in keys if values.get(key) is not None}
        )

    def with_client_count(self, clients: int) -> RunSettings:
        """The same settings for this number of clients, once the data define it.

        >>> RunSettings().with_client_count(30).train.client_num_in_total
        30
        """
        if self.train.client_num_per_round > clients:
            remedy = "lower it" if self.data.defines_clients else "lower it or raise client_num_in_total"
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
        """The resolved sections of every run, as YAML values."""
        values = {key: value for name in SECTION_CLASSES for key, value in field_values(getattr(self, name)).items()}
        return {
            section: {key: values[key] for key in keys if key in values}
            for section, keys in section_keys().items()
            if any(key in values for key in keys)
        }
