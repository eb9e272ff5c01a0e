"""The files of a comparison: they contain no secret, and user text is escaped."""

from __future__ import annotations

from pathlib import Path

import yaml

from mrtf_fedml.cli import main
from mrtf_fedml.experiments.report import comparison_page
from tests.conftest import small_config, write_yaml

SECRET = "s3cret"


def test_files_of_a_comparison_contain_no_secret(tmp_path: Path) -> None:
    config = small_config(model="mlp", comm_round=1)
    config["comm_args"]["customized_training_s3_config"] = {"BUCKET_NAME": "federation", "CN_S3_SAK": SECRET}
    config["tracking_args"] = {"enable_tracking": False, "wandb_key": SECRET}
    words = ["--cf", str(write_yaml(tmp_path / "scene.yaml", config)), "--seeds", "1", "--algorithms", "FedAvg"]
    assert main(["compare", *words, "--out", str(tmp_path / "out")]) == 0
    files = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert not [path for path in files if SECRET.encode() in path.read_bytes()]
    assert "federation" in (tmp_path / "out" / "comparison.html").read_text(), "the rest of the configuration is shown"
    (file,) = (tmp_path / "out" / "runs").glob("*.yaml")
    assert "wandb_key" not in yaml.safe_load(file.read_text())["tracking_args"], "nor a mask that is read as the key"


def test_comparison_page_escapes_user_text() -> None:
    page = comparison_page("<b>", [["<i>"], ["<u>"]], ["<s>"], {}, "mrtf <q>", {"data_args": {"dataset": "<p1>"}})
    assert not [tag for tag in ("<b>", "<i>", "<u>", "<s>", "<q>", "<p1>") if tag in page]
