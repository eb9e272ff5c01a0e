"""`mrtf run --profile`: CPU seconds by phase in each round's metrics, and a trace; the predictions do not change."""

from __future__ import annotations

import json
from pathlib import Path

import yaml

from mrtf_fedml.cli import main
from tests.conftest import small_config


def test_profiled_run_reports_phases_and_gives_equal_predictions(tmp_path: Path) -> None:
    config = small_config(model="mlp", refine_steps=3)
    config["model_args"]["hidden_size"] = 16
    file = tmp_path / "config.yaml"
    for name, more in (("plain", []), ("profiled", ["--profile"])):
        config["common_args"]["run_dir"] = str(tmp_path / name)
        file.write_text(yaml.safe_dump(config))
        assert main(["run", "--cf", str(file), *more]) == 0
    profiled = tmp_path / "profiled"
    lines = [json.loads(line) for line in (profiled / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        for column in ("cpu_local", "cpu_teachers", "cpu_targets", "cpu_distilling"):
            assert line[column] > 0
    traced = json.loads((profiled / "trace.json").read_text())["traceEvents"]
    assert {"local training", "teachers", "targets", "distilling"} <= {event.get("name") for event in traced}
    assert "cpu distilling" in (profiled / "report.html").read_text().replace("_", " ")
    assert not (tmp_path / "plain" / "trace.json").exists()
    predictions = [(tmp_path / name / "predictions.csv").read_bytes() for name in ("plain", "profiled")]
    assert predictions[0] == predictions[1]
