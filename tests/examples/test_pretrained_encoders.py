"""The examples with pretrained encoders, each by its one command, with real weights from packages."""

from __future__ import annotations

import csv
import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: The command installs packages and encodes: some ten seconds on an idle machine.
SECONDS = 1200


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """An environment of its own that also has this one's packages, so that the command installs into the former."""
    venv.create(tmp_path / "venv", with_pip=False)
    (site,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    (site / "parent.pth").write_text("\n".join([str(ROOT), *(path for path in sys.path if "site-packages" in path)]))
    return os.environ | {"PATH": f"{tmp_path / 'venv' / 'bin'}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}


def run_example(name: str, folder: Path, environment: dict[str, str], *words: str) -> str:
    """What the example's command prints."""
    example = shutil.copytree(ROOT / "examples" / name, folder / name)
    done = subprocess.run(
        ["bash", str(example / "run.sh"), *words], env=environment, capture_output=True, text=True, timeout=SECONDS
    )
    if done.returncode != 0 and "No matching distribution" in done.stderr:
        pytest.skip("there is no network to install the weights from")
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_image_example_labels_patches_better_than_a_network_from_scratch(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    printed = run_example("pretrained_image_encoder", tmp_path, environment, "--rounds", "5")
    scratch, encoded = (float(accuracy) for accuracy in re.findall(r"accuracy (\d\.\d+)", printed))
    assert encoded > 0.7
    assert encoded > scratch + 0.2


@pytest.mark.slow
def test_text_example_labels_descriptions(tmp_path: Path, environment: dict[str, str]) -> None:
    printed = run_example("pretrained_text_encoder", tmp_path, environment, "--rounds", "5")
    (accuracy,) = re.findall(r"accuracy (\d\.\d+)", printed)
    assert float(accuracy) > 0.6, "one of five classes by chance is 0.2"
    with (tmp_path / "pretrained_text_encoder" / "predictions.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 300
