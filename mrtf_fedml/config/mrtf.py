"""`mrtf_args`: the settings of MrTF."""

from __future__ import annotations

from dataclasses import field
from typing import Annotated, Literal

from pydantic import Field, model_validator
from pydantic.dataclasses import dataclass
from pydantic_core import ArgsKwargs

from .presets import PRESETS
from .types import VALIDATED, Fraction, NonNegativeInt, PositiveFloat, PositiveInt


@dataclass(frozen=True, config=VALIDATED)
class MrTFSettings:
    """The settings of MrTF (`mrtf_args`). The defaults are the paper's.

    >>> MrTFSettings(preset="tuned", class_balance=0).class_balance
    0.0
    """

    #: Sets several keys at once; keys that are written out override it. `paper` is the defaults below. Where none is
    #: named, your own data (`npz`, `images`, `csv`, `loader`, `own_data_file`) and FedML projects get `tuned`.
    preset: Literal["paper", "tuned"] = "paper"
    #: The algorithm whose client and server rules run before the refinery: FedAvg, FedProx, FedMMD, FedOpt, Scaffold,
    #: MeasuredScaffold, FedRidge, or package.module:Class. `auto` is FedRidge for `model: linear` on an encoder's
    #: features (its clients send sums of features, which reveal the only sample of a class), otherwise
    #: MeasuredScaffold, and FedAvg where these cannot be used: with `dp_args`, with another client_optimizer than
    #: SGD, and with clients that only train (devices, trainers of your own).
    base: str = "FedAvg"
    #: Give the base's server step momentum: 0.9 while the clients' mean local loss is above half of log C, less, in
    #: proportion to the loss, below, less where the step would exceed 0.15 of the weights' norm, and none in a round in
    #: which an update points against the others'. For FedAvg, FedProx, FedMMD, Scaffold and MeasuredScaffold. `tuned`
    #: leaves it out with `dp_args`, whose noise would add up, and with `models`.
    loss_momentum: bool = False
    #: Predict with an average over the rounds: after round t the model that predicts is 33 / (t + 32) of the one that
    #: `predict_with` selects, and the rest of the one that predicted before. What is broadcast does not change. For the
    #: same bases. `tuned` leaves it out with `models`.
    average_rounds: bool = False
    #: How local models are combined: `avg_prob` (Eq. 7) or FedDF's `avg_logit` (Eq. 3).
    teacher: Literal["avg_prob", "avg_logit"] = "avg_prob"
    #: tau of Eq. 6. Larger is sharper; the logits have unit standard deviation before it.
    temperature: PositiveFloat = 4.0
    #: The weight of each local model on each sample: `uniform`, `entropy` (Eq. 10: the lower its entropy, the larger),
    #: `familiarity` (the larger its logits, the larger; entropy as the clients learn), or package.module:Class.
    teacher_weighting: str = "entropy"
    #: Let the round's initial and aggregated models teach too (Eq. 10). Off: u_t is 1.
    self_teaching: bool = True
    #: How far the ensemble's class frequencies are moved to `class_prior`: 0 not at all, 1 fully. Less where the local
    #: models agree. It corrects for clients that hold few classes.
    class_balance: Fraction = 0.0
    #: What the classes are balanced towards: `equal` frequencies, or those of the server's set as the rounds estimate
    #: them (`estimated`), which start equal and move as the clients learn. Then a class may be rare or missing.
    class_prior: Literal["equal", "estimated"] = "equal"
    #: Re-assign the targets by feature prototypes (Eq. 11-12).
    cluster_refinery: bool = True
    #: Clustering starts at this round index: earlier features are not yet discriminative.
    cluster_warmup: NonNegativeInt = 5
    #: tau of Eq. 12. Cosine distances are in [0, 2], so 4 is a soft target.
    cluster_temperature: PositiveFloat = 4.0
    #: Which weights the next clients receive: `refined` (the paper), `aggregated`, `loss_interpolated` (a mix whose
    #: refined share falls with the local loss), `client_validated` (that share times how much better the clients find
    #: the refined model; needs `client_validation`), or package.module:Class. On a base that keeps client state
    #: (Scaffold) the preset's `refined` becomes `aggregated`, since the state belongs to the base's weights.
    broadcast: str = "refined"
    #: Which model predicts: `refined` (the paper), `aggregated`, `client_validated` (the one that the clients find
    #: better, and a mix where they find both equal; needs `client_validation`), or package.module:Class.
    predict_with: str = "refined"
    #: Let clients hold out labelled samples (`validation_fraction`). Before it trains, each selected client counts how
    #: many of them the server's last models classify correctly: it receives one more model and reports three integers.
    #: After the last round the clients evaluate the model that predicts, and the run reports an estimated accuracy
    #: with its interval. `validation_fraction` above 0 switches it on too.
    client_validation: bool = False
    #: The fraction of each client's samples, class by class, that is never trained on. A client with fewer than four
    #: samples trains on all. 0: clients validate on their training samples, and no accuracy is estimated. Not given:
    #: 0.1 where clients validate.
    validation_fraction: Annotated[float, Field(ge=0, le=0.5)] | None = None
    #: The largest weight of the last round's targets in this round's. Less while the clients have learnt little, and
    #: where the local models agree. 0 keeps nothing.
    target_smoothing: Fraction = 0.0
    #: The largest power to which the student's targets are raised: nearer to it the better the clients have learnt. 1
    #: leaves them as they are.
    target_sharpness: Annotated[float, Field(ge=1)] = 1.0
    #: Further target transforms, each as package.module:Class, applied in this order after those above.
    target_transforms: list[str] = field(default_factory=list)
    #: Distillation steps per round. 0 leaves the aggregated model as it is: parameter averaging (PA).
    refine_steps: NonNegativeInt = 500
    #: Adam's learning rate in refining. A new Adam starts in every round.
    refine_lr: PositiveFloat = 3e-4
    #: Server samples per refining step. At least 2, since BatchNorm needs two.
    refine_batch_size: Annotated[int, Field(ge=2)] = 64
    #: Megabytes that refining may take for the teachers' logits, the features and the arithmetic of the targets, which
    #: is then done in blocks of rows; the predictions are the same, byte for byte. Not given: no bound.
    refine_memory_mb: PositiveInt | None = None
    #: Who evaluates the teachers on the server's set. In an MPI simulation `teachers` lets each rank evaluate the
    #: models that it trained, with the same bytes as `server`; every rank then holds the server's inputs, as no real
    #: deployment may.
    refine_on: Literal["server", "teachers"] = "server"

    @model_validator(mode="before")
    @classmethod
    def _preset_under_explicit_keys(cls, given: ArgsKwargs) -> ArgsKwargs:
        explicit = dict(given.kwargs or {})
        preset = explicit.get("preset", "paper")
        # A preset that is no string is not looked up: it is refused with the other keys.
        return ArgsKwargs(given.args, {**(PRESETS.get(preset, {}) if isinstance(preset, str) else {}), **explicit})
