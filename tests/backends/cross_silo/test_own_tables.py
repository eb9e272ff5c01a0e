"""Silos with unscaled tables of their own: all parties use the feature scale of the server's inputs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer

from mrtf_fedml.training.run_directory import RunDirectory
from tests.backends.cross_silo.federation import Federation


@pytest.mark.slow
def test_silos_with_own_files_use_the_feature_scale_of_the_server(tmp_path: Path) -> None:
    cancer = load_breast_cancer()
    order = np.random.default_rng(0).permutation(len(cancer.target))
    x, y, names = cancer.data[order], cancer.target[order], np.array(["malignant", "benign"])
    np.savez(tmp_path / "party0.npz", x_test=x[:150], y_test=y[:150], class_names=names)
    for rank, rows in ((1, slice(150, 350)), (2, slice(350, None))):
        np.savez(tmp_path / f"party{rank}.npz", x_train=x[rows], y_train=y[rows], class_names=names)
    file = str(tmp_path / "party{rank}.npz")
    keys = {"model": "mlp", "hidden_size": 32, "comm_round": 8, "learning_rate": 0.03}
    with Federation(tmp_path, 2, "GRPC", own_data_file=file, **keys) as federation:
        codes = [party.wait() for party in federation.start_all()]
        assert codes == [0, 0, 0], "\n".join(party.output for party in federation.parties)
    assert json.loads((federation.run_dir / "summary.json").read_text())["accuracy"] > 0.85
    preprocessing = RunDirectory(federation.run_dir).read_model()[1]["preprocessing"]
    np.testing.assert_allclose(preprocessing["mean"], x[:150].mean(axis=0), rtol=1e-5)
