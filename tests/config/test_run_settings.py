"""RunSettings: defaults, presets, normalized sections, and one sentence per error."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import yaml

from mrtf_fedml.algorithms import build_algorithm
from mrtf_fedml.config import MrTFSettings, RunSettings, section_keys
from mrtf_fedml.config.loader import apply_overrides
from mrtf_fedml.config.presets import PRESETS, record_explicit_keys
from mrtf_fedml.config.schema import normalize_sections
from mrtf_fedml.errors import UserError

DESIGN = """
  preset: paper
  teacher: avg_prob
  temperature: 4.0
  teacher_weighting: entropy
  self_teaching: true
  cluster_refinery: true
  cluster_warmup: 5
  cluster_temperature: 4.0
  class_balance: 0.0
  broadcast: refined
  target_smoothing: 0.0
  target_sharpness: 1.0
  refine_steps: 500
  refine_lr: 0.0003
  refine_batch_size: 64
"""


def test_mrtf_defaults_are_the_papers() -> None:
    settings = MrTFSettings()
    for key, value in yaml.safe_load(DESIGN).items():
        assert getattr(settings, key) == value


def test_preset_tuned_sets_its_keys_and_explicit_keys_override_it() -> None:
    tuned, paper = MrTFSettings(preset="tuned"), MrTFSettings()
    assert (tuned.broadcast, tuned.target_smoothing, tuned.target_sharpness) == ("client_validated", 0.75, 3.0)
    assert (tuned.class_balance, tuned.class_prior, tuned.cluster_refinery) == (0.5, "estimated", False)
    assert (tuned.base, tuned.loss_momentum, tuned.average_rounds) == ("auto", True, True)
    assert (tuned.teacher_weighting, tuned.client_validation) == ("familiarity", True)
    assert tuned.predict_with == "client_validated"
    unchanged = {name: getattr(paper, name) for name in ("preset", *PRESETS["tuned"])}
    assert len(PRESETS["tuned"]) == 12
    assert replace(tuned, **unchanged) == paper
    mixed = MrTFSettings(preset="tuned", broadcast="loss_interpolated")
    assert (mixed.broadcast, mixed.target_smoothing) == ("loss_interpolated", 0.75)


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"mrtf_args": {"temprature": 1}}, "mrtf_args has no key 'temprature'; did you mean 'temperature'?"),
        ({"mrtf_args": {"preset": ["tuned"]}}, "mrtf_args.preset is ['tuned']; it should be 'paper' or 'tuned'"),
        ({"train_args": {"comm_round": True}}, "train_args.comm_round is True; it should be a number"),
        ({"train_args": {"learning_rate": False}}, "train_args.learning_rate is False; it should be a number"),
        (
            {"common_args": {"random_seed": -1}},
            "common_args.random_seed is -1; it should be greater",
        ),
        ({"common_args": {"random_seed": 2**32}}, "common_args.random_seed is 4294967296; it should be less than"),
        ({"device_args": {"precision": "half"}}, "device_args.precision is 'half'; it should be float32, bf16 or auto"),
        ({"mrtf_args": {"temperature": 0}}, "mrtf_args.temperature is 0; it should be greater than 0"),
        ({"mrtf_args": {"temperature": "warm"}}, "mrtf_args.temperature is 'warm'"),
        (
            {"mrtf_args": {"refine_lr": float("nan")}},
            "mrtf_args.refine_lr is nan; it should be a finite number",
        ),
        ({"mrtf_args": {"teacher": "avg"}}, "it should be 'avg_prob' or 'avg_logit'"),
        ({"mrtf_args": {"preset": "best"}}, "it should be 'paper' or 'tuned'"),
        ({"mrtf_args": {"refine_steps": 1.5}}, "mrtf_args.refine_steps is 1.5; it should be a valid integer"),
        ({"device_args": {"precision": ["bf16"]}}, "device_args.precision is ['bf16']; it should be float32, bf16 or"),
        (
            {"device_args": {"precision": {"teacher": "bf16"}}},
            "device_args.precision is {'teacher': 'bf16'}; it should be float32, bf16 or auto; or a mapping of teach",
        ),
        (
            {"device_args": {"precision": {"teachers": ["bf16"]}}},
            "to one of these, as in precision: {teachers: bf16}",
        ),
        ({"mrtf_args": {"class_balance": -0.1}}, "mrtf_args.class_balance is -0.1"),
        ({"mrtf_args": {"target_sharpness": 0.5}}, "mrtf_args.target_sharpness is 0.5"),
        ({"mrtf_args": {"target_smoothing": 1.01}}, "mrtf_args.target_smoothing is 1.01"),
        ({"train_args": {"batch_size": 0}}, "train_args.batch_size is 0"),
        ({"train_args": {"epochs": "three"}}, "train_args.epochs is 'three'"),
        ({"train_args": {"client_num_in_total": 5, "client_num_per_round": 6}}, "there are only 5 clients"),
        ({"data_args": {"partition_method": "by_hand"}}, "data_args.partition_method is 'by_hand'"),
        ({"data_args": {"partition_alpha": -1}}, "data_args.partition_alpha is -1"),
        ({"device_args": {"threads": 0}}, "device_args.threads is 0"),
        ({"train_args": 5}, "section 'train_args' must have keys and values"),
    ],
)
def test_from_config_rejects_wrong_setting_in_one_sentence(config: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError) as raised:
        RunSettings.from_config(config)
    assert sentence in str(raised.value)
    assert "\n" not in str(raised.value)


def test_mrtf_settings_rejects_wrong_value_in_python() -> None:
    with pytest.raises(ValueError, match="greater than 0"):
        MrTFSettings(temperature=-2)
    with pytest.raises(ValueError, match="temprature"):
        MrTFSettings(temprature=2)  # type: ignore[call-arg]


def test_from_config_accepts_unknown_keys_in_fedml_sections() -> None:
    config = {
        "train_args": {"client_id_list": "[]", "learning_rate": "1e-3"},
        "attack_args": {"enable_attack": False},
    }
    assert RunSettings.from_config(config).train.learning_rate == 0.001


def test_partition_method_accepts_fedml_names() -> None:
    def method(word: str) -> str:
        return RunSettings.from_config({"data_args": {"partition_method": word}}).data.partition_method

    assert (method("hetero"), method("homo")) == ("dirichlet", "iid")


def test_to_config_read_back_gives_equal_settings() -> None:
    settings = RunSettings.from_config({"mrtf_args": {"preset": "tuned"}, "comm_args": {"backend": "MPI"}})
    first = build_algorithm(settings)
    again = build_algorithm(RunSettings.from_config({**settings.to_config(), **first.sections()}))
    assert again.hparams == first.hparams
    assert replace(again.settings, explicit={}) == replace(settings, explicit={})


def test_section_keys_has_each_key_once() -> None:
    keys = [key for names in section_keys().values() for key in names]
    assert len(keys) == len(set(keys))


def test_normalize_sections_moves_keys_and_rejects_conflicting_values() -> None:
    normalized = normalize_sections(
        {"train_args": {"run_dir": "out", "epochs": 2}, "comm_args": {"own_data_file": "x.npz"}}
    )
    assert normalized["common_args"] == {"run_dir": "out"}
    assert normalized["data_args"] == {"own_data_file": "x.npz"}
    assert RunSettings.from_config(normalized).common.run_dir == "out"
    with pytest.raises(UserError, match=r"run_dir is 'a' in common_args and 'b' in train_args; keep the first"):
        normalize_sections({"common_args": {"run_dir": "a"}, "train_args": {"run_dir": "b"}})


def test_key_in_fedml_only_section_is_not_ours() -> None:
    settings = RunSettings.from_config({"defense_args": {"enable_defense": True, "sigma": 0.5}})
    assert settings.privacy.sigma == 0.0
    assert not settings.privacy.is_active


def test_preset_override_replaces_a_resolved_preset() -> None:
    written = {"mrtf_args": {"preset": "tuned", "refine_steps": 9}}
    tuned = build_algorithm(RunSettings.from_config(written))
    resolved = record_explicit_keys({**tuned.settings.to_config(), **tuned.sections()}, written)
    again = build_algorithm(RunSettings.from_config(apply_overrides(resolved, ["preset=paper"]))).hparams
    assert again == MrTFSettings(refine_steps=9, validation_fraction=0.0)
    changed = apply_overrides({"mrtf_args": {"broadcast": "aggregated"}}, ["preset=tuned"])
    assert changed == {"mrtf_args": {"broadcast": "aggregated", "preset": "tuned"}}, "explicit keys stay"


def test_user_data_defaults_to_preset_tuned() -> None:
    def preset(data_args: dict[str, Any], **own: Any) -> str:
        return str(build_algorithm(RunSettings.from_config({"data_args": data_args, "mrtf_args": own})).hparams.preset)

    own: list[dict[str, Any]] = [{"dataset": name} for name in ("npz", "images", "csv")]
    for data_args in [*own, {"loader": "mine:load"}, {"own_data_file": "silo{rank}.npz"}]:
        assert preset(data_args, refine_steps=5) == "tuned"
        assert preset(data_args, preset="paper") == "paper"
    assert preset({"dataset": "digits"}) == preset({"dataset": "mnist"}) == MrTFSettings().preset == "paper"


def test_from_config_validates_only_the_sections_of_the_algorithm_and_its_base() -> None:
    config = {"train_args": {"federated_optimizer": "mrtf:FedAvg"}, "mrtf_args": {"temperature": 0}}
    assert RunSettings.from_config(config).train.federated_optimizer == "mrtf:FedAvg"
    with pytest.raises(UserError, match=r"mrtf_args\.temperature"):
        RunSettings.from_config({**config, "train_args": {"federated_optimizer": "MrTF"}})
    with pytest.raises(UserError, match=r"train_args\.fedprox_mu"):
        RunSettings.from_config({"mrtf_args": {"base": "FedProx"}, "train_args": {"fedprox_mu": -1}})
    with pytest.raises(UserError, match="temperature"):
        RunSettings.from_config({"train_args": {"federated_optimizer": "FedAvg"}, "mrtf_args": {"temprature": 1}})


def test_user_data_sets_no_preset_for_a_users_own_algorithm() -> None:
    config = {"data_args": {"dataset": "npz"}, "train_args": {"federated_optimizer": "released:ReleasedMrTF"}}
    assert "preset" not in RunSettings.from_config(config).explicit.get("mrtf_args", {})
