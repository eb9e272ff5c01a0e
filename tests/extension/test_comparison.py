"""`mrtf compare` with a user's algorithm, with bases, with their own keys, and with a callback that stops the run."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from mrtf_fedml.cli import main
from tests.conftest import write_yaml
from tests.extension.conftest import STRANGER, WANDERER, extension_config

LABELS = (STRANGER, "MrTF:tuned+Scaffold", "FedDF+Scaffold", f"MrTF:paper+{WANDERER}")


@pytest.mark.slow
def test_compare_lists_user_algorithms_and_bases(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = extension_config("FedAvg", comm_round=2, callbacks=["tests.extension.watching:Enough"])
    words = ["compare", "--cf", str(write_yaml(tmp_path / "scene.yaml", config)), "--out", str(tmp_path / "out")]
    words += ["--seeds", "1", "--jobs", "2", "--algorithms", ",".join(LABELS), "--vary", "voting=hard"]
    words += ["--set", "stranger_args.pull=0.3", "--set", "wanderer.memory_share=0.1"]
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert all(label in shown for label in LABELS)
    assert shown.count("voting=hard") == 1, "the others have no such key"
    assert "Stranger" in (tmp_path / "out" / "comparison.html").read_text()

    runs = [yaml.safe_load(path.read_text()) for path in (tmp_path / "out" / "runs").glob("*/config.yaml")]
    own = [run["stranger_args"] for run in runs if run["train_args"]["federated_optimizer"] == STRANGER]
    assert sorted(keys["voting"] for keys in own) == ["hard", "soft"]
    assert [keys["pull"] for keys in own] == [0.3, 0.3]
    others = [run for run in runs if run["train_args"]["federated_optimizer"] != STRANGER]
    bases = sorted((run["train_args"]["federated_optimizer"], run["mrtf_args"]["base"]) for run in others)
    assert bases == [("FedDF", "Scaffold"), ("MrTF", "Scaffold"), ("MrTF", WANDERER)]
    (share,) = [run["wanderer"]["memory_share"] for run in others if run["mrtf_args"]["base"] == WANDERER]
    assert share == 0.1

    assert main(words) == 0
    assert "5 runs, 0 of them to be done" in capsys.readouterr().err, "a run that a callback has stopped is done"


def test_compare_rejects_unknown_base(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write_yaml(tmp_path / "scene.yaml", extension_config("FedAvg"))
    for label, message in (("FedAvg+Scaffold", "FedAvg has none"), ("MrTF+Scafold", "did you mean 'Scaffold'?")):
        assert main(["compare", "--cf", str(file), "--algorithms", label, "--out", str(tmp_path / "out")]) == 2
        assert message in capsys.readouterr().err
