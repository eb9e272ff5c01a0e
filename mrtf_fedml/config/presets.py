"""`mrtf_args.preset`: several keys by one word, and how preset, explicit keys and the run determine the settings.

A preset asks for more than every run can do: clients that validate need labels in the open, and Scaffold needs SGD.
`resolve_settings` decides once, before the algorithm is built: where a run cannot do what the preset asks, the preset
gives way; where it cannot do what the user wrote, that is an error.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..errors import UserError

if TYPE_CHECKING:
    from .mrtf import MrTFSettings
    from .run_settings import RunSettings

#: What each preset changes in the defaults. `paper` is the defaults; docs/lab/evidence.md has the results of `tuned`.
PRESETS: dict[str, dict[str, Any]] = {
    "paper": {},
    "tuned": {
        "base": "auto",
        "loss_momentum": True,
        "average_rounds": True,
        "teacher_weighting": "familiarity",
        "class_balance": 0.5,
        "class_prior": "estimated",
        "cluster_refinery": False,
        "broadcast": "client_validated",
        "predict_with": "client_validated",
        "client_validation": True,
        "target_smoothing": 0.75,
        "target_sharpness": 3.0,
    },
}

#: The preset of a run that names none, where the data are the user's own or a FedML project's.
OWN_DATA = "tuned"

#: The section of a run's config.yaml that lists the keys of `mrtf_args` that the user wrote.
RESOLVED_SECTION = "resolved_args"
_EXPLICIT_KEYS = "explicit"

#: The validation fraction where none is given (docs/explanation/estimates.md).
_VALIDATION_FRACTION = 0.1
#: What needs clients that validate, and its replacement where they do not.
_WITHOUT_VALIDATION = {"predict_with": "refined", "broadcast": "aggregated"}


@dataclass(frozen=True)
class RunFacts:
    """What the resolution of `mrtf_args` needs to know of a run.

    Attributes:
        participation: the fraction of the clients that participate in a round.
        promises_privacy: whether `dp_args` promise privacy.
        uses_sgd: whether clients train by SGD.
        clients_only_train: whether clients can do no more than train: devices, and trainers of the user's own.
        has_different_models: whether clients train different models (`model_args.models`).
        solves_head: whether the model is a linear head on an encoder's features, which has a closed form.
    """

    participation: float
    promises_privacy: bool = False
    uses_sgd: bool = True
    clients_only_train: bool = False
    has_different_models: bool = False
    solves_head: bool = False

    @classmethod
    def of(cls, settings: RunSettings) -> RunFacts:
        """The facts of these settings."""
        train, model = settings.train, settings.model
        return cls(
            participation=train.client_num_per_round / train.client_num_in_total,
            promises_privacy=settings.privacy.has_any_dp,
            uses_sgd=train.client_optimizer == "sgd",
            clients_only_train=settings.clients_only_train,
            has_different_models=model.models is not None,
            # Not by initial_weights: only the server of a federation may have them, and all parties need the same base.
            solves_head=model.encoder is not None and model.model == "linear" and model.models is None,
        )


def resolve_base(base: str, facts: RunFacts) -> str:
    """The base's name: what the user wrote, or what `auto` is in this run.

    >>> resolve_base("auto", RunFacts(0.5)), resolve_base("auto", RunFacts(0.5, promises_privacy=True))
    ('MeasuredScaffold', 'FedAvg')
    >>> resolve_base("auto", RunFacts(0.5, solves_head=True))
    'FedRidge'
    """
    if base.lower() != "auto":
        return base
    if facts.solves_head and not facts.promises_privacy and not facts.clients_only_train:
        # Far more accurate on CIFAR-10 with few samples, about equal with many (docs/lab/existing_models.md).
        return "FedRidge"
    scaffold_works = facts.uses_sgd and not facts.promises_privacy and not facts.clients_only_train
    scaffold_works = scaffold_works and not facts.has_different_models
    return "MeasuredScaffold" if scaffold_works else "FedAvg"


def resolve_settings(
    written: MrTFSettings,
    explicit: Collection[str],
    facts: RunFacts,
    base_keeps_client_state: bool,
    base_averages: bool,
) -> MrTFSettings:
    """The final settings of MrTF in a run.

    Args:
        written: the explicit keys over the preset's values, with the base resolved.
        explicit: the keys that the user wrote.
        facts: of the run.
        base_keeps_client_state: whether the base's clients keep state between rounds. The state belongs to the weights
            that the base broadcasts, so the refined model is then not broadcast unless the user asks for it.
        base_averages: whether the base's server steps to an average of the clients' models, which predicts too.
    """
    momentum = _is_possible("loss_momentum", written, explicit, facts, base_averages)
    settings = replace(
        written,
        # Noise would add up.
        loss_momentum=momentum and ("loss_momentum" in explicit or not facts.promises_privacy),
        average_rounds=_is_possible("average_rounds", written, explicit, facts, base_averages),
    )
    if base_keeps_client_state and settings.broadcast != "client_validated" and "broadcast" not in explicit:
        settings = replace(settings, broadcast="aggregated")
    validates = _clients_validate(settings, explicit, facts)
    if not validates:
        settings = _without_validation(settings, explicit)
    fraction = settings.validation_fraction
    if fraction is None:
        fraction = _VALIDATION_FRACTION
    return replace(settings, client_validation=validates, validation_fraction=fraction if validates else 0.0)


def _is_possible(
    key: str, settings: MrTFSettings, explicit: Collection[str], facts: RunFacts, base_averages: bool
) -> bool:
    """Whether a run can do what a key asks that needs a base that averages the clients' models, all of one kind."""
    # Without refining steps everything is the base's, to the bit.
    if not getattr(settings, key) or settings.refine_steps == 0:
        return False
    if base_averages and not facts.has_different_models:
        return True
    if key in explicit:
        rival = "model_args.models" if base_averages else f"base {settings.base}, which has its own server step"
        raise UserError(f"mrtf_args.{key} cannot be used with {rival}; leave one of them out")
    return False


def _clients_validate(settings: MrTFSettings, explicit: Collection[str], facts: RunFacts) -> bool:
    wanted = settings.client_validation or (settings.validation_fraction or 0.0) > 0
    asked = [key for key in ("client_validation", "validation_fraction") if key in explicit and getattr(settings, key)]
    if facts.promises_privacy and asked:
        raise UserError(
            f"mrtf_args.{asked[0]}: clients report their validation counts without noise, so no privacy (dp_args) can "
            f"be promised; leave clip, sigma and enable_dp out, or {asked[0]}"
        )
    if facts.clients_only_train and not asked:
        return False
    # Without refining steps there is one model only, and everything is the base's, to the bit.
    return wanted and not facts.promises_privacy and settings.refine_steps > 0


def _without_validation(settings: MrTFSettings, explicit: Collection[str]) -> MrTFSettings:
    changes: dict[str, Any] = {}
    for key, instead in _WITHOUT_VALIDATION.items():
        if getattr(settings, key) != "client_validated":
            continue
        if key in explicit and settings.refine_steps > 0:
            raise UserError(
                f"mrtf_args.{key} is 'client_validated' but no client validates; set client_validation to true, or "
                f"{key} to {instead}"
            )
        changes[key] = instead
    return replace(settings, **changes)


def with_preset(config: Mapping[str, Mapping[str, Any]], preset: str) -> dict[str, dict[str, Any]]:
    """The sections with that preset in `mrtf_args`, where the user has named none.

    >>> with_preset({"mrtf_args": {"refine_steps": 9}}, "tuned")
    {'mrtf_args': {'refine_steps': 9, 'preset': 'tuned'}}
    """
    sections = {name: dict(values) for name, values in config.items()}
    mrtf_args = sections.setdefault("mrtf_args", {})
    if mrtf_args.get("preset") is None:
        mrtf_args["preset"] = preset
    return sections


def record_explicit_keys(resolved: Mapping[str, Mapping[str, Any]], written: Mapping[str, Any]) -> dict[str, Any]:
    """A run's resolved configuration with the list of the keys of `mrtf_args` that the user wrote.

    Args:
        resolved: all keys of the run.
        written: the configuration that the user gave; a run's own config.yaml has the list already.

    >>> record_explicit_keys({"mrtf_args": {"preset": "tuned", "base": "FedAvg"}}, {"mrtf_args": {"preset": "tuned"}})
    {'mrtf_args': {'preset': 'tuned', 'base': 'FedAvg'}, 'resolved_args': {'explicit': ['preset']}}
    """
    if RESOLVED_SECTION in written:
        keys = written[RESOLVED_SECTION][_EXPLICIT_KEYS]
    else:
        keys = [key for key, value in written.get("mrtf_args", {}).items() if value is not None]
    return {**resolved, RESOLVED_SECTION: {_EXPLICIT_KEYS: list(keys)}}


def mark_explicit(config: dict[str, dict[str, Any]], section: str, key: str) -> None:
    """Add a key that the user sets now to the list of a run's config.yaml, where there is one."""
    listed = config.get(RESOLVED_SECTION, {}).get(_EXPLICIT_KEYS)
    if section == "mrtf_args" and listed is not None and key not in listed:
        config[RESOLVED_SECTION] = {_EXPLICIT_KEYS: [*listed, key]}


def explicit_mrtf_args(config: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The keys of `mrtf_args` that the user wrote, without `preset`: what stays when another preset is chosen.

    In a user's file these are all keys of the section. A run's config.yaml has all keys, and lists the explicit ones.

    >>> explicit_mrtf_args({"mrtf_args": {"preset": "tuned", "refine_steps": 9}})
    {'refine_steps': 9}
    >>> values = {"preset": "tuned", "refine_steps": 9, "base": "FedAvg"}
    >>> explicit_mrtf_args({"mrtf_args": values, "resolved_args": {"explicit": ["preset", "refine_steps"]}})
    {'refine_steps': 9}
    """
    section = config.get("mrtf_args") or {}
    keys = config.get(RESOLVED_SECTION, {}).get(_EXPLICIT_KEYS, list(section))
    return {key: value for key, value in section.items() if key in keys and key != "preset"}
