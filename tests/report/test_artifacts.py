"""The files that a run writes for its report."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file

from mrtf_fedml.algorithms import ServerContext
from mrtf_fedml.cli import main
from mrtf_fedml.config import RunSettings
from mrtf_fedml.data import load
from mrtf_fedml.models import FeatureExtractor, predict_logits_and_features
from mrtf_fedml.models.catalogue import create_model
from mrtf_fedml.report.artifacts import write_agreement, write_features
from mrtf_fedml.training.run_directory import RunDirectory
from tests.conftest import small_config, write_yaml


def test_run_writes_agreement_and_features_for_its_report(tmp_path: Path) -> None:
    config = small_config(run_dir=str(tmp_path / "run"), keep_features=True, comm_round=1, model="mlp")
    assert main(["run", "--cf", str(write_yaml(tmp_path / "c.yaml", config))]) == 0
    run_dir = tmp_path / "run"
    names = ("agreement", "features", "features_index")
    agreement, features, index = (np.load(run_dir / f"{name}.npy") for name in names)
    samples = len(np.load(run_dir / "probabilities.npy"))
    assert agreement.shape == (samples,)
    assert set(np.rint(3 * agreement)) <= {0, 1, 2, 3}
    assert np.allclose(3 * agreement, np.rint(3 * agreement)), "three teachers"
    assert features.shape == (samples, 50)
    assert index.tolist() == list(range(samples))
    # Their angles and lengths are those of h(x) of the predicting model.
    settings = RunSettings.from_config(config)
    dataset = load(settings)
    model = create_model(settings.model, dataset.input_shape, dataset.class_num, seed=0)
    model.load_state_dict(load_file(run_dir / "model.safetensors"))
    extractor = FeatureExtractor(model, None, dataset.server_inputs[:2])
    whole = predict_logits_and_features(model, dataset.server_inputs, extractor)[1].numpy()
    assert whole.shape[1] > 50
    _, values, _ = np.linalg.svd(whole, full_matrices=False)
    # Beyond 50 directions nothing is left but the 51st singular value's worth.
    assert np.linalg.norm(whole @ whole.T - features @ features.T, ord=2) <= 1.01 * values[50] ** 2 + 1e-3
    page = (run_dir / "report.html").read_text()
    assert "Agreement of the teachers" in page
    assert "Feature map" in page


def test_agreement_is_fraction_of_teachers_with_the_label(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    logits = torch.tensor([[9.0, 0, 0], [0, 9, 0], [0, 0, 9]])
    votes = torch.tensor([[0, 1, 1], [0, 2, 1], [0, 1, 2], [0, 0, 1]], dtype=torch.uint8)
    write_agreement(_make_run(directory, logits, votes))
    assert np.load(tmp_path / "agreement.npy").tolist() == [1.0, 0.5, 0.25]


class AtEachPosition(torch.nn.Module):
    """Logits [N, C, T]; h(x) at a position is its embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(9, 6)
        self.output = torch.nn.Linear(6, 3)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.output(self.embedding(tokens)).transpose(1, 2)


def test_write_features_has_one_row_per_position(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, inputs = AtEachPosition(), torch.arange(12).reshape(3, 4) % 9
    context = ServerContext(model, inputs, FeatureExtractor(model, None, inputs[:2]), classes=3, positions=4)
    weights = dict(model.state_dict())
    run: Any = _make_run(RunDirectory(tmp_path), context.logits(weights), torch.zeros(1, 12))
    run.context, run.state = context, SimpleNamespace(prediction_weights=weights)
    write_features(run)
    assert np.load(tmp_path / "features_index.npy").tolist() == list(range(12))
    expected = model.embedding(inputs.flatten()).detach().numpy()
    assert np.array_equal(np.load(tmp_path / "features.npy"), expected)


def _make_run(directory: RunDirectory, logits: torch.Tensor, votes: torch.Tensor) -> Any:
    """As much of a run as is read at its end."""
    return SimpleNamespace(
        directory=directory,
        record=SimpleNamespace(report=SimpleNamespace(teacher_labels=votes)),
        prediction_logits=lambda: logits,
    )
