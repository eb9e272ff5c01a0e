"""Ids, ranks and roles of the parties."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from mrtf_fedml.cli import main
from mrtf_fedml.fedml_bridge.backends.cross_silo.party import _silo_ranks
from tests.conftest import small_config, write_yaml


def test_silo_ids_are_ranks_unless_the_platform_has_assigned_ids() -> None:
    assert _silo_ranks(SimpleNamespace(client_id_list="[1, 2]"), rank=0, silos=3) == {1: 1, 2: 2, 3: 3}
    assert _silo_ranks(SimpleNamespace(client_id_list="[41, 52]"), rank=0, silos=2) == {41: 1, 52: 2}
    assert _silo_ranks(SimpleNamespace(client_id_list="[52]"), rank=2, silos=2) == {52: 2}
    assert _silo_ranks(SimpleNamespace(), rank=2, silos=2) == {2: 2}


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ([], "--role server"),
        (["--role", "client"], "--role client --rank R"),
        (["--role", "server", "--rank", "2"], "--rank 2"),
        (["--rank", "9"], "--rank 9"),
    ],
)
def test_run_with_missing_or_wrong_role_and_rank_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], named: str
) -> None:
    config = small_config(training_type="cross_silo", backend="GRPC", run_dir=str(tmp_path / "run"))
    assert main(["run", "--cf", str(write_yaml(tmp_path / "c.yaml", config)), *words]) == 2
    assert named in capsys.readouterr().err


def test_run_of_simulation_with_rank_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--cf", str(write_yaml(tmp_path / "c.yaml", small_config())), "--rank", "1"]) == 2
    assert "training_type: cross_silo" in capsys.readouterr().err
