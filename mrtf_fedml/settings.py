"""One validated description of a run, read from FedML's YAML.

FedML groups its YAML in sections and then forgets them; here each section that we read is a frozen dataclass whose
fields are the keys. FedML's own sections may hold keys we do not know; `mrtf_args` may not.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, ValidationError, model_validator
from pydantic.dataclasses import dataclass
from pydantic_core import ArgsKwargs

from .baseline_settings import BaselineSettings
from .data_settings import DataSettings
from .errors import UserError, nearest
from .privacy_settings import PrivacySettings
from .setting_types import VALIDATED as _VALIDATED
from .setting_types import Count, NonNegative, Positive, PositiveShare, Share, Steps
from .silo_settings import SiloSettings

#: What each preset changes in the defaults. `paper` is the defaults.
PRESETS: dict[str, dict[str, Any]] = {
    "paper": {},
    "tuned": {"feedback": "adaptive", "target_smoothing": 0.75, "cluster_temperature": 8.0},
}


@dataclass(frozen=True, config=_VALIDATED)
class MrTFSettings:
    """The switches of the refinery (`mrtf_args`). The defaults are the paper's words."""

    #: The preset these settings were resolved from; explicit keys override it.
    preset: Literal["paper", "tuned"] = "paper"
    #: How local models become one teacher: `avg_prob` (Eq. 7) or FedDF's `avg_logit` (Eq. 3).
    teacher: Literal["avg_prob", "avg_logit"] = "avg_prob"
    #: tau of Eq. 6. Larger is sharper; the logits have unit standard deviation before it.
    temperature: Positive = 4.0
    #: Weigh each local model on each sample by its confidence (Eq. 10). Off: all count the same.
    entropy_weights: bool = True
    #: Let the round's initial and aggregated models teach too (Eq. 10). Off: u_t is 1.
    self_teaching: bool = True
    #: How far the ensemble's classes are brought to equal mass: 0 not at all, 1 wholly. Few clients hold few classes.
    class_balance: Share = 0.0
    #: Re-assign the targets by feature prototypes (Eq. 11-12).
    cluster_refinery: bool = True
    #: Clustering starts at this round index: earlier features are not yet discriminative.
    cluster_warmup: Steps = 5
    #: tau of Eq. 12. Cosine distances lie in [0, 2], so 4 is a soft target.
    cluster_temperature: Positive = 4.0
    #: How often Eq. 11-12 are iterated. The paper takes one step.
    cluster_steps: Count = 1
    #: Which weights the next clients receive: the refined (`always`, the paper), the aggregated (`never`), or
    #: a mix whose refined share falls with the local loss (`adaptive`).
    feedback: Literal["always", "never", "adaptive"] = "always"
    #: How much of the last round's targets is kept, at most. 0 keeps nothing.
    target_smoothing: Share = 0.0
    #: The power to which the student's targets are raised, at most: nearer to it the better the clients have learnt.
    #: 1 leaves them as they are.
    target_sharpness: Annotated[float, Field(ge=1)] = 1.0
    #: Distillation steps a round. 0 leaves the aggregated model as it is: parameter averaging (PA).
    refine_steps: Steps = 500
    refine_lr: Positive = 3e-4
    #: What the refining rate is multiplied by after each round. 1 keeps it.
    refine_lr_decay: PositiveShare = 1.0
    refine_batch_size: Annotated[int, Field(ge=2)] = 64
    #: Who refines; `ranks` of an MPI simulation then all hold the server's inputs, as no real deployment's may.
    refine_on: Literal["server", "ranks"] = "server"

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any] | MrTFSettings | None) -> MrTFSettings:
        """Settings from the YAML's `mrtf_args`: the preset first, explicit keys over it.

        >>> MrTFSettings.from_mapping({"preset": "tuned", "cluster_temperature": 6}).cluster_temperature
        6.0
        """
        if isinstance(mapping, MrTFSettings):
            return mapping
        given = dict(mapping or {})
        known = [field.name for field in dataclasses.fields(cls)]
        for key in given:
            if key not in known:
                raise UserError(f"mrtf_args has no key {key!r}; {nearest(str(key), known)}")
        return _validated(cls, "mrtf_args", given)

    @model_validator(mode="before")
    @classmethod
    def _preset_under_explicit_keys(cls, given: ArgsKwargs) -> ArgsKwargs:
        explicit = given.kwargs or {}
        return ArgsKwargs(given.args, {**PRESETS.get(explicit.get("preset", "paper"), {}), **explicit})


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
            parts[name] = _validated(part, section, given)
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


_Part = TypeVar("_Part")


def _validated(part: type[_Part], section: str, given: Mapping[str, Any]) -> _Part:
    try:
        return part(**given)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(step) for step in first["loc"])
        remedy = first["msg"].replace("Input should be", "it should be")
        raise UserError(f"{section}.{key} is {first['input']!r}; {remedy}") from None
