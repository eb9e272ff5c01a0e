"""Labels of samples that are predicted after a run."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from mrtf_fedml.diagnostics.label_trust import CALIBRATION_FILE, Calibration
from mrtf_fedml.diagnostics.new_samples import NewSampleTrust
from mrtf_fedml.diagnostics.unknown_classes import CELLS_FILE, KnownCells
from mrtf_fedml.training.run_directory import RunDirectory
from tests.diagnostics.test_unknown_classes import KNOWN, compare, draw

PROBABILITIES = torch.tensor([[0.9, 0.1], [0.2, 0.8]])
CALIBRATION = Calibration(1.0, (0.0, 0.0), 50.0, 0.5, 0.9, None)


def known_cells() -> KnownCells:
    """Of a run whose samples were of two classes too many."""
    compared = compare(torch.cat([draw(KNOWN, 300, 501)[0], draw([6, 7], 60, 502)[0]]))
    cells = KnownCells.from_tensors(compared.to_tensors())
    assert cells is not None
    return cells


def decide(kept: NewSampleTrust, inputs: Tensor, differences: list[str] | None = None) -> list[str]:
    probabilities = torch.tensor([[0.9, 0.1]]).expand(len(inputs), -1)
    return kept.assess(inputs, probabilities, [] if differences is None else differences).decisions(["a"] * len(inputs))


def test_new_samples_of_a_class_that_was_unknown_in_the_run_are_unknown() -> None:
    kept = NewSampleTrust(known_cells=known_cells())
    unknown, known = decide(kept, draw([6, 7], 200, 503)[0]), decide(kept, draw(KNOWN, 200, 504)[0])
    assert unknown.count("unknown") > 150
    assert known.count("unknown") < 10


def test_cells_are_kept_only_if_the_run_has_unknown_samples() -> None:
    assert compare(draw(KNOWN, 300, 505)[0]).to_tensors() == {}
    assert KnownCells.from_tensors({}) is None
    assert KnownCells.from_tensors(None) is None


def test_nothing_is_known_of_samples_that_differ_from_the_run() -> None:
    kept = NewSampleTrust(calibration=CALIBRATION, known_cells=known_cells())
    trust = kept.assess(draw([6, 7], 2, 506)[0], PROBABILITIES, ["other units"])
    assert trust.probability_correct.isnan().all()
    assert not trust.is_unknown.any()


def test_no_label_is_given_where_accept_is_set_and_no_accuracy_was_stated() -> None:
    inputs, _ = draw(KNOWN, 3, 507)
    assert decide(NewSampleTrust(accept=0.99), inputs) == ["abstain"] * 3
    assert decide(NewSampleTrust(), inputs) == ["a"] * 3


def test_accept_of_the_settings_replaces_that_of_the_run(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    directory.write_json(CALIBRATION_FILE, CALIBRATION.to_json())
    directory.write_tensors(CELLS_FILE, known_cells().to_tensors())
    kept = NewSampleTrust.read(directory, accept=0.85)
    assert kept.known_cells is not None
    assert kept.calibration is not None
    assert kept.calibration.assess(PROBABILITIES).decisions(["a", "b"]) == ["a", "abstain"]
