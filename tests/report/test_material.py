"""What a run writes down for its report while it still has its model and its teachers."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file

from mrtf_fedml.algorithms import ServerBench
from mrtf_fedml.cli import main
from mrtf_fedml.data import load
from mrtf_fedml.models import FeatureTap, predict_logits_and_features
from mrtf_fedml.models.catalogue import create_model
from mrtf_fedml.report.material import keep_agreement, keep_features
from mrtf_fedml.rounds.store import RunStore
from mrtf_fedml.settings import RunSettings
from tests.conftest import small_config, write_yaml


def test_a_run_keeps_agreement_and_features_and_its_report_shows_them(tmp_path: Path) -> None:
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
    # Their angles and lengths are those of h(x) of the model that answers.
    settings = RunSettings.from_config(config)
    dataset = load(settings)
    model = create_model(settings.model, dataset.input_shape, dataset.class_num, seed=0)
    model.load_state_dict(load_file(run_dir / "model.safetensors"))
    tap = FeatureTap(model, None, dataset.server_inputs[:2])
    whole = predict_logits_and_features(model, dataset.server_inputs, tap)[1].numpy()
    assert whole.shape[1] > 50
    _, values, _ = np.linalg.svd(whole, full_matrices=False)
    # Beyond 50 directions nothing is left but the 51st singular value's worth.
    assert np.linalg.norm(whole @ whole.T - features @ features.T, ord=2) <= 1.01 * values[50] ** 2 + 1e-3
    page = (run_dir / "report.html").read_text()
    assert "Agreement of the teachers" in page
    assert "As the model sees them" in page


def test_agreement_is_the_share_of_teachers_that_name_the_given_class(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    answer = torch.tensor([[9.0, 0, 0], [0, 9, 0], [0, 0, 9]])
    votes = torch.tensor([[0, 1, 1], [0, 2, 1], [0, 1, 2], [0, 0, 1]], dtype=torch.uint8)
    keep_agreement(_ended(store, answer, votes))
    assert np.load(tmp_path / "agreement.npy").tolist() == [1.0, 0.5, 0.25]


class AtEachPosition(torch.nn.Module):
    """Answers [N, C, T]; h(x) at a position is its embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(9, 6)
        self.output = torch.nn.Linear(6, 3)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.output(self.embedding(tokens)).transpose(1, 2)


def test_each_position_has_its_own_features(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, inputs = AtEachPosition(), torch.arange(12).reshape(3, 4) % 9
    bench = ServerBench(model, inputs, FeatureTap(model, None, inputs[:2]), classes=3, positions=4)
    answer = dict(model.state_dict())
    run: Any = _ended(RunStore(tmp_path), bench.logits(answer), torch.zeros(1, 12))
    run.bench, run.state = bench, SimpleNamespace(answer=answer)
    keep_features(run)
    assert np.load(tmp_path / "features_index.npy").tolist() == list(range(12))
    expected = model.embedding(inputs.flatten()).detach().numpy()
    assert np.array_equal(np.load(tmp_path / "features.npy"), expected)


def _ended(store: RunStore, answer: torch.Tensor, votes: torch.Tensor) -> Any:
    """As much of a run as is read at its end."""
    return SimpleNamespace(store=store, votes=votes, answer_logits=lambda: answer)
