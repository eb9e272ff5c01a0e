"""`mrtf_args`: the switches of the refinery."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator
from pydantic.dataclasses import dataclass
from pydantic_core import ArgsKwargs

from ..errors import UserError, nearest, shown
from .kinds import (
    VALIDATED,
    Count,
    NonNegative,
    Positive,
    PositiveShare,
    Share,
    Steps,
    validated,
)
from .presets import BECOMES, PRESETS


@dataclass(frozen=True, config=VALIDATED)
class MrTFSettings:
    """The switches of the refinery (`mrtf_args`). The defaults are the paper's words."""

    #: Sets several keys at once; keys that are written out override it. `paper` is the defaults below. Where none is
    #: named, your own data (`npz`, `images`, `csv`, `loader`, `own_data_file`) and FedML projects get `tuned`.
    #: `released` is what the authors' program does where it departs from their paper.
    preset: Literal["paper", "tuned", "released"] = "paper"
    #: The algorithm whose client and server rules come before the refinery: FedAvg, FedProx, FedMMD, FedOpt, Scaffold,
    #: FadingScaffold, or package.module:Class. `auto` is FadingScaffold where a quarter of the clients or more, but not
    #: all, take part in a round, else FedAvg; and FedAvg where Scaffold cannot stand: with `dp_args`, with another
    #: client_optimizer than SGD, and with clients that only train (devices, trainers of your own).
    base: str = "FedAvg"
    #: How clients train: `epochs` passes, their loss the mean over all samples (`paper`); or on one batch more, and six
    #: at least, their loss the mean over all batches (`released`). Trainers of your own and devices train as they do.
    local_training: Literal["paper", "released"] = "paper"
    #: How local models become one teacher: `avg_prob` (Eq. 7) or FedDF's `avg_logit` (Eq. 3).
    teacher: Literal["avg_prob", "avg_logit"] = "avg_prob"
    #: How what the local models say of a class is averaged: the weighted `mean` (the paper), or against clients that
    #: lie the `median`, or the mean without the extremes (`trimmed`); for these two all models count the same, since a
    #: liar sets his weight. Where clients know few classes each, who knows a class is rare, and is silenced too.
    teacher_average: Literal["mean", "median", "trimmed"] = "mean"
    #: The share of the weight that `trimmed` leaves out at either end.
    teacher_trim: Annotated[float, Field(ge=0, lt=0.5)] = 0.34
    #: How local models are read: as they would be used (`eval`), or in `train` mode, where BatchNorm answers by the
    #: batch (of `std_batches`) and dropout by chance. Without these two layers there is no difference.
    teacher_mode: Literal["eval", "train"] = "eval"
    #: tau of Eq. 6. Larger is sharper; the logits have unit standard deviation before it.
    temperature: Positive = 4.0
    #: The std of Eq. 6 is that of so many of the clients' batches of server samples (times `batch_size`), in their
    #: order. 0: of all samples.
    std_batches: Steps = 0
    #: Weigh each local model on each sample by its confidence (Eq. 10). Off: all count the same.
    entropy_weights: bool = True
    #: How much each local model says of each sample: all the same (`uniform`), the surer the more (`entropy`, Eq. 10),
    #: or the more familiar the sample is to it (`familiarity`). Where it is not given, `entropy_weights` decides.
    teacher_weights: Literal["uniform", "entropy", "familiarity"] = "entropy"
    #: How strongly familiarity counts, with `teacher_weights: familiarity`.
    familiarity: NonNegative = 4.0
    #: The mean local loss, as a share of log C, below which familiarity gives way to entropy. 0: it never does.
    familiarity_fade: Share = 0.5
    #: Divide the entropy by the number of classes before models are weighed by it, which nearly evens the weights.
    entropy_per_class: bool = False
    #: Weigh the initial and the aggregated model on each sample by their confidence too, in one softmax with the local
    #: ones. Off: each of the two has (1 - u_t) / 2 on every sample (Eq. 10).
    global_confidence: bool = False
    #: u_t, smoothing, sharpness and adaptive feedback take the mean loss of so many rounds before this one, log C
    #: before any. 0: this round's own loss.
    loss_window: Steps = 0
    #: Let the round's initial and aggregated models teach too (Eq. 10). Off: u_t is 1.
    self_teaching: bool = True
    #: How far the ensemble's classes are brought to `class_shares`: 0 not at all, 1 wholly. Few clients hold few.
    class_balance: Share = 0.0
    #: The share of pairs of local models that name different classes, below which less is balanced: where a round's
    #: models agree, a class that they seldom name is rare, and not only among the clients that were chosen. 0: however
    #: they do.
    balance_fade: Share = 0.0
    #: What the classes are brought towards: `equal` mass, or the shares of the server's set as the rounds estimate them
    #: (`estimated`), which begin equal and move as the clients learn. Then a class may be rare or missing.
    class_shares: Literal["equal", "estimated"] = "equal"
    #: How closely the votes of a round's models must go with each other, sample by sample, for the server's samples to
    #: be of several classes; below it they look like one class, and `estimated` shares give way to those that the round
    #: names itself. 0: they never do.
    shares_fade: Share = 0.0
    #: Re-assign the targets by feature prototypes (Eq. 11-12).
    cluster_refinery: bool = True
    #: Clustering starts at this round index: earlier features are not yet discriminative.
    cluster_warmup: Steps = 5
    #: tau of Eq. 12. Cosine distances lie in [0, 2], so 4 is a soft target.
    cluster_temperature: Positive = 4.0
    #: D_f of Eq. 12: `cosine`, or the squared distance of unit vectors, which is twice that; with the latter a class
    #: without mass gets no sample.
    cluster_distance: Literal["cosine", "squared_euclidean"] = "cosine"
    #: How often Eq. 11-12 are iterated. The paper takes one step.
    cluster_steps: Count = 1
    #: Which weights the next clients receive: the refined (`always`, the paper), the aggregated (`never`), a mix whose
    #: refined share falls with the local loss (`adaptive`), or that share times what the clients find the refined model
    #: to be better (`judged`, which needs `client_judgement`). A base that keeps client state (Scaffold) gets `never`
    #: in place of `always` and `adaptive` unless you write them, and by `judged` only what is better by more than 0.1:
    #: its clients' state belongs to its own start.
    feedback: Literal["always", "never", "adaptive", "judged"] = "always"
    #: Which model answers: the `refined` one (the paper), the `aggregated` one, or the one of these two that the
    #: clients find better, and one between them where they find both level (`judged`, which needs `client_judgement`).
    #: With `propagated` the refined model's answers are brought together with those of each sample's nearest neighbours
    #: in feature space; the model stays as it is.
    answer: Literal["refined", "aggregated", "judged", "propagated"] = "refined"
    #: Let each chosen client judge, before it trains, how often the server's last models are right on its own samples:
    #: the run then tells the accuracy that the clients estimate. A client receives one more model and tells three
    #: numbers. `client_validation` alone switches it on too.
    client_judgement: bool = False
    #: The share of each client's samples that it keeps from training, to judge with; 0: it judges with those that it
    #: trains on, which flatters. Where it is not given, a tenth if every client takes part in every round, else 0.
    client_validation: Annotated[float, Field(ge=0, le=0.5)] | None = None
    #: The share of each client's samples that never train, where clients judge by those that do: what a model finds of
    #: both tells how far the clients' estimate flatters it, and the estimate is less by so much. From the round on that
    #: follows one in which the clients' mean loss was below 0.3 log C; never so many that a pass over the others has a
    #: step less. Each client then tells three numbers more.
    client_witnesses: Annotated[float, Field(ge=0, le=0.5)] = 0.0
    #: Of which classes the clients' estimate is, where they judge: of their own (`clients`), or of the server's as its
    #: models name them (`server`), as far as they name the clients' samples otherwise. Then each client is told these
    #: names' shares, and tells seven numbers. What answers and what is sent back is decided without them.
    estimate_classes: Literal["clients", "server"] = "clients"
    #: How much of the last round's targets is kept, at most. 0 keeps nothing.
    target_smoothing: Share = 0.0
    #: The share of pairs of local models that name different classes, below which less is kept: where a round's models
    #: agree, those that were not chosen would say the same, and old targets are only old. 0: however they do.
    smoothing_fade: Share = 0.0
    #: The power to which the student's targets are raised, at most: nearer to it the better the clients have learnt.
    #: 1 leaves them as they are.
    target_sharpness: Annotated[float, Field(ge=1)] = 1.0
    #: Distillation steps per round. 0 leaves the aggregated model as it is: parameter averaging (PA).
    refine_steps: Steps = 500
    #: Adam's rate in refining. A new Adam starts in every round.
    refine_lr: Positive = 3e-4
    #: What the refining rate is multiplied by after each round. 1 keeps it.
    refine_lr_decay: PositiveShare = 1.0
    #: The refining rate within a round: `constant`, or half a cosine down to nothing.
    refine_schedule: Literal["constant", "cosine"] = "constant"
    #: Adam's weight decay in refining.
    refine_weight_decay: NonNegative = 0.0
    #: The largest norm of a refining step's gradient. 0 does not clip.
    refine_clip_norm: NonNegative = 0.0
    #: The weight of following the targets on images moved by up to an eighth of their sides too, which costs a second
    #: pass of the student per step. For images alone. 0: not at all.
    consistency: NonNegative = 0.0
    #: Server samples per step of refining. At least 2, since BatchNorm needs two.
    refine_batch_size: Annotated[int, Field(ge=2)] = 64
    #: The student is looked at after each pass over the server's set, or after 25 steps where a pass has more; after so
    #: many looks without better agreement with its targets the round's refining ends. No label is read, and no pass is
    #: added. 0: all of `refine_steps`.
    refine_patience: Steps = 0
    #: Megabytes that refining may take beside the server's inputs, the models and a model's own batch: for teachers'
    #: logits, the arithmetic of the targets, and features. Targets are then made some rows at a time, and what does not
    #: fit lies in a file in TMPDIR; the answer is the same, byte for byte. Not given: as many as it likes.
    refine_memory_mb: Count | None = None
    #: Who refines. In an MPI simulation `teachers` lets each rank read the server's set with the models that it
    #: trained, with the same bytes as `server`; `ranks` shares the distillation too, step by step. Both give every rank
    #: the server's inputs, as no real deployment may.
    refine_on: Literal["server", "teachers", "ranks"] = "server"

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any] | MrTFSettings | None) -> MrTFSettings:
        """Settings from the YAML's `mrtf_args`: the preset first, explicit keys over it.

        >>> MrTFSettings.from_mapping({"preset": "tuned", "class_balance": 0}).class_balance
        0.0
        """
        if isinstance(mapping, MrTFSettings):
            return mapping
        given = dict(mapping or {})
        known = [field.name for field in dataclasses.fields(cls)]
        for key in given:
            if key not in known:
                raise UserError(f"mrtf_args has no key {shown(key)}; {nearest(str(key), known)}")
        return validated(cls, "mrtf_args", given)

    @model_validator(mode="before")
    @classmethod
    def _preset_under_explicit_keys(cls, given: ArgsKwargs) -> ArgsKwargs:
        explicit = dict(given.kwargs or {})
        if "entropy_weights" in explicit and "teacher_weights" not in explicit:
            # The paper's switch, written out, overrides a preset as any other key does.
            explicit["teacher_weights"] = "entropy" if explicit["entropy_weights"] else "uniform"
        preset = explicit.get("preset", "paper")
        # What is no word is not looked up: it is refused with the other keys.
        return ArgsKwargs(given.args, {**(PRESETS.get(preset, {}) if isinstance(preset, str) else {}), **explicit})


def without_preset(values: Mapping[str, Any]) -> dict[str, Any]:
    """A section of `mrtf_args` that another preset can be put on: what the user set himself stays.

    In a file that a user wrote, every key is one that he set. A run's own configuration has all keys written out; there
    those that say what the preset says, or what it may have become in the run, are the preset's.

    >>> without_preset({"preset": "tuned", "feedback": "adaptive", "refine_steps": 9})
    {'feedback': 'adaptive', 'refine_steps': 9}
    >>> without_preset({**dataclasses.asdict(MrTFSettings(preset="tuned")), "refine_steps": 9})
    {'refine_steps': 9}
    """
    explicit = {key: value for key, value in values.items() if key != "preset"}
    changed_by_presets = {key for preset in PRESETS.values() for key in preset}
    if "preset" not in values or not changed_by_presets <= set(explicit):
        return explicit
    preset = MrTFSettings.from_mapping({"preset": values["preset"]})
    return {
        key: value
        for key, value in explicit.items()
        if value not in (getattr(preset, key, None), *BECOMES.get((key, getattr(preset, key, None)), ()))
    }
