"""A small run in one process, from its YAML to its folder, and digits in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from mrtf_fedml.cli import main
from tests.conftest import small_config, write_yaml


def run(folder: Path, **changes: Any) -> Path:
    """A finished run's folder."""
    run_dir = folder / "run"
    file = write_yaml(folder / "config.yaml", small_config(run_dir=str(run_dir), **changes))
    assert main(["run", "--cf", str(file)]) == 0
    return run_dir


def digits_file(path: Path, permuted: bool, labels: bool = True) -> Path:
    from mrtf_fedml.config import DataSettings
    from mrtf_fedml.data.sources import load_source

    source = load_source(DataSettings(dataset="digits"))
    arrays = {"x_train": source.x_train, "y_train": source.y_train, "x_test": source.x_test}
    if labels:
        assert source.y_test is not None
        order = np.random.default_rng(0).permutation(len(source.y_test)) if permuted else slice(None)
        arrays["y_test"] = source.y_test[order]
    np.savez(path, **arrays)
    return path
