"""`mrtf_fedml.run`: a configuration run from Python is the run that the command makes, to the byte."""

from __future__ import annotations

from pathlib import Path

import mrtf_fedml
from mrtf_fedml.cli import main
from tests.conftest import output_bytes, small_config, write_yaml


def test_run_gives_the_results_of_the_command_as_objects(tmp_path: Path) -> None:
    file = write_yaml(tmp_path / "small.yaml", small_config(comm_round=1, run_dir=str(tmp_path / "command")))
    assert main(["run", "--cf", str(file)]) == 0
    by_file = mrtf_fedml.run(file, run_dir=str(tmp_path / "file"), progress=False)
    by_mapping = mrtf_fedml.run(small_config(comm_round=5), rounds=1, run_dir=str(tmp_path / "mapping"), progress=False)
    assert output_bytes(tmp_path / "file") == output_bytes(tmp_path / "mapping") == output_bytes(tmp_path / "command")
    assert by_file.run_dir == tmp_path / "file"
    assert by_mapping.accuracy == by_file.accuracy is not None
    assert by_file.classes.tolist() == list(range(10)), "digits are numbers"
    assert len(by_file.labels) == len(by_file.ids) == 599
