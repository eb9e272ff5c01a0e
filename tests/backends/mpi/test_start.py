"""Errors in settings, data, devices or the start are reported once, and every rank exits with 2."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from mrtf_fedml.cli import main

from .conftest import changed_config, configuration, launched


def run_refused(ranks: int, *words: str | Path) -> str:
    """The single error line of mrtf."""
    result = launched(ranks, *words)
    assert result.returncode == 2, result.stderr
    assert "Traceback" not in result.stderr
    errors = [line for line in result.stderr.splitlines() if line.startswith("mrtf: ")]
    assert len(errors) == 1, result.stderr
    return errors[0]


def test_mpi_without_mpirun_names_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--cf", str(configuration(tmp_path))]) == 2
    assert "mpirun -n" in capsys.readouterr().err


@pytest.mark.slow
def test_mpi_with_one_rank_is_refused(tmp_path: Path) -> None:
    assert "mpirun -n" in run_refused(1, configuration(tmp_path))


@pytest.mark.slow
def test_sp_under_mpirun_is_refused(tmp_path: Path) -> None:
    file = configuration(tmp_path, backend="sp", run_dir=str(tmp_path / "run"))
    assert "backend: MPI" in run_refused(2, file)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_invalid_setting_is_reported_once_by_all_ranks(tmp_path: Path) -> None:
    assert "dataset is 'nope'" in run_refused(3, configuration(tmp_path, dataset="nope"))


@pytest.mark.slow
def test_rank_with_another_encoder_is_refused(tmp_path: Path) -> None:
    file = configuration(
        tmp_path, run_dir=str(tmp_path / "run"), encoder="tests.encoders.other_per_rank:ENCODER", model="linear"
    )
    assert "encoder of rank 1" in run_refused(2, file)
    assert not (tmp_path / "run").exists()


def test_refine_on_teachers_without_mpi_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--cf", str(configuration(tmp_path, backend="sp", refine_on="teachers"))]) == 2
    assert "refine_on: server" in capsys.readouterr().err


@pytest.mark.slow
def test_gpu_mapping_of_other_rank_count_is_refused_by_all_ranks(tmp_path: Path) -> None:
    mapping = tmp_path / "gpus.yaml"
    mapping.write_text(yaml.safe_dump({"mine": {"host": [1, 2]}}))
    file = configuration(tmp_path, run_dir=str(tmp_path / "run"), using_gpu=True)
    changed_config(file, gpu_mapping_file=str(mapping), gpu_mapping_key="mine")
    error = run_refused(2, file)
    assert "places 3 ranks, but mpirun started 2" in error
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_nccl_without_a_gpu_per_rank_is_refused_by_all_ranks(tmp_path: Path) -> None:
    file = configuration(tmp_path, run_dir=str(tmp_path / "run"), backend="NCCL")
    error = run_refused(2, file)
    assert "backend NCCL needs a GPU for each rank, but rank 0 on" in error
    assert "computes on cpu" in error
    assert not (tmp_path / "run").exists()


def test_mpirun_script_without_rank_count_prints_usage() -> None:
    import subprocess

    from .conftest import ROOT

    result = subprocess.run(["bash", str(ROOT / "launch" / "mpirun.sh"), "some.yaml"], capture_output=True, text=True)
    assert result.returncode == 2
    assert "usage" in result.stderr
