"""FedDF, as used in Sect. 3.4 of the MrTF paper: with the server's own inputs in place of public data.

Lin, Kong, Stich, Jaggi: "Ensemble Distillation for Robust Model Fusion in Federated Learning", NeurIPS 2020.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from ..settings import MrTFSettings, RunSettings
from ..settings.kinds import VALIDATED, Positive, PositiveShare, Steps
from ..settings.sections import values_of
from .mrtf import MrTF
from .registry import register_algorithm


@dataclass(frozen=True, config=VALIDATED)
class FedDFSettings:
    """What FedDF takes of `mrtf_args`; a preset for MrTF leaves it FedDF."""

    #: The algorithm whose client and server rules come before the distillation; all but MrTF and FedDF.
    base: str = "FedAvg"
    #: Distillation steps per round. 0 leaves the average as it is: the base alone.
    refine_steps: Steps = 500
    #: Adam's rate in distillation. A new Adam starts in every round.
    refine_lr: Positive = 3e-4
    #: What the rate is multiplied by after each round. 1 keeps it.
    refine_lr_decay: PositiveShare = 1.0
    #: Server samples per step of distillation. At least 2, since BatchNorm needs two.
    refine_batch_size: Annotated[int, Field(ge=2)] = 64
    #: Looks at the student (MrTF's key says when) without better agreement with its targets after which the round's
    #: distillation ends. 0: all steps are made.
    refine_patience: Steps = 0
    #: Who distils: the server, or all `ranks` of an MPI simulation, which then all hold the server's inputs; with
    #: `teachers` they only read the server's set with the models that they trained.
    refine_on: Literal["server", "teachers", "ranks"] = "server"


@register_algorithm
class FedDF(MrTF):
    """Eq. 1-2: the average follows AvgLogi of the local models, and goes back to the clients.

    It is MrTF with every module of the paper switched off.
    """

    name: ClassVar[str] = "FedDF"
    Settings = FedDFSettings

    def refinery_settings(self, settings: RunSettings) -> MrTFSettings:
        """The refinery with its modules off."""
        own = settings.of(FedDFSettings, self.section)
        return MrTFSettings(
            teacher="avg_logit",
            entropy_weights=False,
            self_teaching=False,
            cluster_refinery=False,
            **values_of(own),
        )
