"""FedDF, as used in Sect. 3.4 of the MrTF paper: with the server's own inputs in place of public data.

Lin, Kong, Stich, Jaggi: "Ensemble Distillation for Robust Model Fusion in Federated Learning", NeurIPS 2020.
"""

from __future__ import annotations

from typing import ClassVar

from ..settings import MrTFSettings, RunSettings
from .mrtf import MrTF


class FedDF(MrTF):
    """Eq. 1-2: the average follows AvgLogi of the local models, and goes back to the clients.

    It is MrTF with every module of the paper switched off. Of `mrtf_args` it takes the steps, the rate, its decay and
    the batch size alone, so that a preset for MrTF leaves it FedDF.
    """

    name: ClassVar[str] = "FedDF"
    own_keys: ClassVar[tuple[str, ...]] = ("refine_",)

    def __init__(self, settings: RunSettings) -> None:
        super().__init__(settings)
        self.refinery = MrTFSettings(
            teacher="avg_logit",
            entropy_weights=False,
            self_teaching=False,
            cluster_refinery=False,
            refine_steps=settings.mrtf.refine_steps,
            refine_lr=settings.mrtf.refine_lr,
            refine_lr_decay=settings.mrtf.refine_lr_decay,
            refine_batch_size=settings.mrtf.refine_batch_size,
        )
