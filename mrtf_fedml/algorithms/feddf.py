"""FedDF, as used in Sect. 3.4 of the MrTF paper: with the server's own inputs in place of public data.

Lin, Kong, Stich, Jaggi: "Ensemble Distillation for Robust Model Fusion in Federated Learning", NeurIPS 2020.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, ClassVar, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from ..config import MrTFSettings, RunSettings
from ..config.presets import RunFacts, resolve_base
from ..config.schema import field_values
from ..config.types import VALIDATED, NonNegativeInt, PositiveFloat
from .mrtf import MrTF
from .registry import algorithm_by_name, register_algorithm


@dataclass(frozen=True, config=VALIDATED)
class FedDFSettings:
    """What FedDF takes of `mrtf_args`; a preset for MrTF leaves it FedDF."""

    #: The algorithm whose client and server rules come before the distillation; all but MrTF and FedDF.
    base: str = "FedAvg"
    #: Distillation steps per round. 0 leaves the average as it is: the base alone.
    refine_steps: NonNegativeInt = 500
    #: Adam's rate in distillation. A new Adam starts in every round.
    refine_lr: PositiveFloat = 3e-4
    #: Server samples per step of distillation. At least 2, since BatchNorm needs two.
    refine_batch_size: Annotated[int, Field(ge=2)] = 64
    #: Who evaluates the teachers on the server's set; `teachers`: the ranks of an MPI simulation that trained them,
    #: which then all hold the server's inputs.
    refine_on: Literal["server", "teachers"] = "server"


@register_algorithm
class FedDF(MrTF):
    """Eq. 1-2: the average follows AvgLogi of the local models, and goes back to the clients.

    It is MrTF with every module of the paper switched off.
    """

    name: ClassVar[str] = "FedDF"
    allows_different_models: ClassVar[bool] = True
    Settings = FedDFSettings
    hparams: FedDFSettings

    @classmethod
    def resolve_hparams(cls, settings: RunSettings) -> FedDFSettings:
        """FedDF's keys of `mrtf_args`; presets do not change them."""
        written = settings.algorithm_section(FedDFSettings, cls.section_name())
        return replace(written, base=resolve_base(written.base, RunFacts.of(settings)))

    def refinery_settings(self) -> MrTFSettings:
        """The refinery with the paper's modules off; on a base that keeps client state, the base's weights go back."""
        keeps_client_state = algorithm_by_name(self.hparams.base).keeps_client_state
        return MrTFSettings(
            teacher="avg_logit",
            teacher_weighting="uniform",
            self_teaching=False,
            cluster_refinery=False,
            broadcast="aggregated" if keeps_client_state else "refined",
            **field_values(self.hparams),
        )
