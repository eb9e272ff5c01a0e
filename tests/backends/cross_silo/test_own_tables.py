"""Silos with unscaled tables of their own: all parties use the feature scale of the server's inputs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas
import pytest
from sklearn.datasets import load_breast_cancer

from mrtf_fedml.training.run_directory import RunDirectory
from tests.backends.cross_silo.federation import Federation


@pytest.mark.slow
def test_silos_with_own_csv_files_use_the_feature_scale_of_the_server(tmp_path: Path) -> None:
    cancer = load_breast_cancer()
    order = np.random.default_rng(0).permutation(len(cancer.target))
    x, y, names = cancer.data[order], cancer.target[order], ["malignant", "benign"]
    table = pandas.DataFrame(x, columns=[name.replace(" ", "_") for name in cancer.feature_names])
    table["ward"], table["label"] = np.array(["A", "B", "C"])[order % 3], np.array(names)[y]
    table[:150].to_csv(tmp_path / "party0.csv", index=False)
    table[150:350].to_csv(tmp_path / "party1.csv", index=False)
    # Another order of columns.
    table.iloc[350:, ::-1].to_csv(tmp_path / "party2.csv", index=False)
    data = {
        "own_data_file": str(tmp_path / "party{rank}.csv"),
        "class_names": names,
        "categories": {"ward": list("ABC")},
    }
    keys = {"model": "mlp", "hidden_size": 32, "comm_round": 8, "learning_rate": 0.03}
    with Federation(tmp_path, 2, "GRPC", **data, **keys) as federation:
        codes = [party.wait() for party in federation.start_all()]
        outputs = [party.output for party in federation.parties]
        assert codes == [0, 0, 0], "\n".join(outputs)
    assert "round 8 of 8" in outputs[1], "a silo logs its rounds"
    assert json.loads((federation.run_dir / "summary.json").read_text())["accuracy"] > 0.85
    preprocessing = RunDirectory(federation.run_dir).read_model()[1]["preprocessing"]
    means = dict(zip(preprocessing["features"], preprocessing["mean"], strict=True))
    assert means["mean_radius"] == pytest.approx(x[:150, 0].mean(), rel=1e-5)
    assert preprocessing["columns"]["levels"] == {"ward": ["A", "B", "C"]}
