"""FedML's arguments: read into our settings once, and shown to FedML as FedAvg's."""

from __future__ import annotations

from pathlib import Path

import pytest

from mrtf_fedml.algorithms import build_algorithm
from mrtf_fedml.errors import UserError
from mrtf_fedml.fedml_bridge.args import FedAvgArguments, settings_of
from tests.conftest import small_config, write_yaml
from tests.fedml_bridge.test_adapters import arguments


def test_fedavg_arguments_report_fedavg_and_write_to_the_user_object(tmp_path: Path) -> None:
    args = arguments(tmp_path)
    shown = FedAvgArguments(args)
    assert shown.federated_optimizer == "FedAvg"
    assert args.federated_optimizer == "MrTF"
    shown.round_idx = 9
    assert args.round_idx == 9
    args.random_seed = 77
    assert shown.random_seed == 77


def test_settings_of_args_follow_changed_values_and_reject_unknown_keys(tmp_path: Path) -> None:
    args = arguments(tmp_path, temperature=2.0)
    args.temperature = 3.0
    assert build_algorithm(settings_of(args)).hparams.temperature == 3.0
    args.refine_steps, args.cluster_warmup = 7, 2
    own = build_algorithm(settings_of(args)).hparams
    assert (own.refine_steps, own.cluster_warmup) == (7, 2), "set by a program, whether in the file or not"
    assert settings_of(args) is settings_of(args), "resolved once"
    config = small_config()
    config["mrtf_args"]["temprature"] = 1.0
    args = arguments(tmp_path)
    args.yaml_paths = [str(write_yaml(tmp_path / "wrong.yaml", config))]
    with pytest.raises(UserError, match="did you mean 'temperature'"):
        settings_of(args)


def test_settings_of_project_without_preset_use_the_preset_for_user_data(tmp_path: Path) -> None:
    own = build_algorithm(settings_of(arguments(tmp_path, temperature=2.0))).hparams
    assert (own.preset, own.broadcast, own.temperature) == ("tuned", "client_validated", 2.0)
    assert build_algorithm(settings_of(arguments(tmp_path, preset="paper"))).hparams.preset == "paper"
    by_program = arguments(tmp_path)
    by_program.preset = "paper"
    assert build_algorithm(settings_of(by_program)).hparams.preset == "paper"
