"""What is wrong with settings, data, devices or the way of starting is said once, and every rank exits with 2."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from mrtf_fedml.cli import main

from .conftest import changed_config, configuration, launched


def refused(ranks: int, *words: str | Path) -> str:
    """What was said by mrtf, once."""
    told = launched(ranks, *words)
    assert told.returncode == 2, told.stderr
    assert "Traceback" not in told.stderr
    said = [line for line in told.stderr.splitlines() if line.startswith("mrtf: ")]
    assert len(said) == 1, told.stderr
    return said[0]


def test_without_mpirun_it_says_how_to_start(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--cf", str(configuration(tmp_path))]) == 2
    assert "mpirun -n" in capsys.readouterr().err


def test_one_rank_is_no_federation(tmp_path: Path) -> None:
    assert "mpirun -n" in refused(1, configuration(tmp_path))


def test_one_process_under_mpirun_is_refused_instead_of_run_twice(tmp_path: Path) -> None:
    file = configuration(tmp_path, backend="sp", run_dir=str(tmp_path / "run"))
    assert "backend: MPI" in refused(2, file)
    assert not (tmp_path / "run").exists()


def test_a_wrong_setting_is_said_once(tmp_path: Path) -> None:
    assert "dataset is 'nope'" in refused(3, configuration(tmp_path, dataset="nope"))


def test_sharing_the_refining_needs_ranks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--cf", str(configuration(tmp_path, backend="sp", refine_on="ranks"))]) == 2
    assert "refine_on: server" in capsys.readouterr().err


def test_a_mapping_that_does_not_add_up_is_refused_by_all_ranks(tmp_path: Path) -> None:
    mapping = tmp_path / "gpus.yaml"
    mapping.write_text(yaml.safe_dump({"mine": {"host": [1, 2]}}))
    file = configuration(tmp_path, run_dir=str(tmp_path / "run"), using_gpu=True)
    changed_config(file, gpu_mapping_file=str(mapping), gpu_mapping_key="mine")
    said = refused(2, file)
    assert "places 3 ranks, but mpirun started 2" in said
    assert not (tmp_path / "run").exists()


def test_nccl_without_a_gpu_for_each_rank_is_refused_by_all_ranks(tmp_path: Path) -> None:
    file = configuration(tmp_path, run_dir=str(tmp_path / "run"), backend="NCCL")
    said = refused(2, file)
    assert "backend NCCL needs a GPU for each rank, but rank 0 on" in said
    assert "computes on cpu" in said
    assert not (tmp_path / "run").exists()


def test_the_script_asks_for_ranks_and_a_configuration() -> None:
    import subprocess

    from .conftest import ROOT

    told = subprocess.run(["bash", str(ROOT / "launch" / "mpirun.sh"), "some.yaml"], capture_output=True, text=True)
    assert told.returncode == 2
    assert "usage" in told.stderr
