"""`label()` with different models per client."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from mrtf_fedml import label
from mrtf_fedml.commands.export import export_onnx


def blobs(samples: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    labels = np.arange(samples) % 3
    return (generator.normal(size=(samples, 4)) + 3 * np.eye(3, 4)[labels]).astype(np.float32), labels


def test_model_that_clients_find_better_than_the_mean_predicts_alone(tmp_path: Path) -> None:
    x, y = blobs(60, seed=9)
    settings: dict[str, Any] = {
        "models": {"rigid": "tests.models.rigid:Rigid", "linear": "linear"},
        "preset": "tuned",
        "learning_rate": 0.1,
        "threads": 1,
        "run_dir": str(tmp_path / "run"),
    }
    result = label(x, [blobs(40, seed) for seed in range(6)], rounds=4, y_server=y, **settings)
    assert result.metrics["predicting_model"].iloc[-1] == 0, "linear is the first by name"
    assert result.accuracy is not None
    assert result.accuracy > 0.9
    assert result.model is not None
    np.testing.assert_allclose(result.model.predict_proba(x), result.probabilities, atol=1e-6)
    assert "probabilities as PyTorch's" in export_onnx(str(tmp_path / "run"))
