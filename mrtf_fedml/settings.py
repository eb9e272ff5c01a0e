"""One validated description of a run, read from FedML's YAML.

FedML groups its YAML in sections and then forgets them; here each section that we read is a frozen dataclass whose
fields are the keys. FedML's own sections may hold keys we do not know; `mrtf_args` may not.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from .baseline_settings import BaselineSettings
from .data_settings import DataSettings
from .errors import UserError
from .privacy_settings import PrivacySettings
from .refinery_settings import MrTFSettings
from .setting_types import VALIDATED as _VALIDATED
from .setting_types import Count, NonNegative, Positive, Steps, validated
from .silo_settings import SiloSettings


@dataclass(frozen=True, config=_VALIDATED)
class CommonSettings:
    """`common_args` and `comm_args`: what kind of run, and where it writes."""

    training_type: Literal["simulation", "cross_silo", "cross_device"] = "simulation"
    backend: str = "sp"
    random_seed: int = 0
    run_dir: str | None = None


@dataclass(frozen=True, config=_VALIDATED)
class ModelSettings:
    """`model_args`: the classifier, and where h(x) is read from it."""

    model: str = "mlp"
    #: The module whose output is h(x); found by itself where it is not given.
    feature_layer: str | None = None
    #: Width of MLPNet's last hidden layer.
    feature_size: Count = 128
    #: Width of MLPNet's first two hidden layers.
    hidden_size: Count = 1024
    vocabulary: Count | None = None  #: How many different characters a text model reads; by default, the data's.


@dataclass(frozen=True, config=_VALIDATED)
class TrainSettings(BaselineSettings):
    """`train_args` and `validation_args`: the rounds and what a client does in one."""

    federated_optimizer: str = "MrTF"
    client_num_in_total: Count = 20
    client_num_per_round: Count = 5
    comm_round: Count = 20
    epochs: Count = 1
    batch_size: Count = 64
    client_optimizer: Literal["sgd", "adam"] = "sgd"
    learning_rate: Positive = 0.03
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    weight_decay: NonNegative = 1e-5
    #: Bound of the gradient's norm in local training. Not FedML's `max_grad_norm`, which belongs to DP.
    clip_grad_norm: Positive = 100.0
    #: theta_{t+1} is the plain mean over the chosen clients (the paper), or weighted by sample counts.
    aggregation: Literal["uniform", "samples"] = "uniform"
    #: The server's set is scored, where labels exist, every so many rounds and at the last.
    frequency_of_the_test: Count = 1


@dataclass(frozen=True, config=_VALIDATED)
class DeviceSettings:
    """`device_args`: what computes."""

    using_gpu: bool = False
    gpu_id: Steps = 0
    #: PyTorch threads a process; None leaves all cores to one process.
    threads: Count | None = None


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
