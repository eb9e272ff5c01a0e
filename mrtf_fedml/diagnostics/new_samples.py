"""How far labels of samples can be trusted that a run's model labels after the run (`mrtf predict`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from ..data.preprocessing import Preprocessing
from ..training.outputs import LabelTrust
from ..training.run_directory import RunDirectory
from .label_trust import CALIBRATION_FILE, Calibration
from .reference import REFERENCE_FILE, ReferenceStatistics
from .unknown_classes import CELLS_FILE, KnownCells


@dataclass(frozen=True, eq=False)
class NewSampleTrust:
    """What a run has kept to assess the labels of further samples.

    Attributes:
        reference: statistics of the run's samples; None if new samples cannot be compared with them.
        calibration: of the model's confidences; None if the run has stated no accuracy.
        known_cells: where samples of the run were of no client's class; None if there were none.
        accept: the least probability of an accepted label; None accepts all whose prediction set has one class.
    """

    reference: ReferenceStatistics | None = None
    calibration: Calibration | None = None
    known_cells: KnownCells | None = None
    accept: float | None = None

    @classmethod
    def read(cls, directory: RunDirectory, accept: float | None) -> NewSampleTrust:
        """From a run directory; parts that the run has not written are None."""
        calibration = Calibration.from_json(directory.read_json(CALIBRATION_FILE))
        return cls(
            ReferenceStatistics.from_tensors(directory.read_tensors(REFERENCE_FILE)),
            None if calibration is None else replace(calibration, accept=accept),
            KnownCells.from_tensors(directory.read_tensors(CELLS_FILE)),
            accept,
        )

    def find_differences(
        self, inputs: Tensor, predicted: Tensor, class_names: Sequence[str], preprocessing: Preprocessing
    ) -> list[str] | None:
        """One warning per difference to the run's samples; None if they cannot be compared.

        Args:
            inputs: preprocessed as the run's, [N, ...].
            predicted: their predicted classes, [N].
            class_names: C of them.
            preprocessing: that of the run.
        """
        if self.reference is None:
            return None
        return self.reference.find_differences(
            inputs, predicted, class_names, preprocessing.features, preprocessing.standardizer
        )

    def assess(self, inputs: Tensor, probabilities: Tensor, differences: Sequence[str] | None) -> LabelTrust:
        """How far the labels of these probabilities [N, C] can be trusted; nothing is known if the samples differ."""
        trust = LabelTrust.empty(probabilities, self.accept)
        if differences != [] or len(probabilities) != len(inputs):
            return trust
        if self.calibration is not None:
            trust = self.calibration.assess(probabilities)
        if self.known_cells is not None:
            trust = trust.with_unknown_samples(*self.known_cells.is_unknown(inputs))
        return trust
