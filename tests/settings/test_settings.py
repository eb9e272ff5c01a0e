"""Settings: the paper's defaults, presets under explicit keys, and a sentence for every mistake."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import yaml

from mrtf_fedml.algorithms import algorithm_of
from mrtf_fedml.errors import UserError
from mrtf_fedml.settings import MrTFSettings, RunSettings, section_keys
from mrtf_fedml.settings.presets import PRESETS
from mrtf_fedml.settings.sections import in_their_homes
from mrtf_fedml.settings.yaml_file import with_changes

DESIGN = """
  preset: paper
  teacher: avg_prob
  temperature: 4.0
  entropy_weights: true
  self_teaching: true
  cluster_refinery: true
  cluster_warmup: 5
  cluster_temperature: 4.0
  cluster_steps: 1
  class_balance: 0.0
  balance_fade: 0.0
  shares_fade: 0.0
  feedback: always
  target_smoothing: 0.0
  smoothing_fade: 0.0
  target_sharpness: 1.0
  refine_steps: 500
  refine_lr: 0.0003
  refine_lr_decay: 1.0
  refine_batch_size: 64
"""


def test_the_defaults_are_the_papers_words() -> None:
    settings = MrTFSettings()
    for key, value in yaml.safe_load(DESIGN).items():
        assert getattr(settings, key) == value


def test_tuned_changes_fourteen_things_and_explicit_keys_win() -> None:
    tuned, paper = MrTFSettings(preset="tuned"), MrTFSettings()
    assert (tuned.feedback, tuned.target_smoothing, tuned.target_sharpness) == ("judged", 0.75, 3.0)
    assert (tuned.class_balance, tuned.class_shares, tuned.cluster_refinery) == (0.5, "estimated", False)
    assert tuned.base == "auto"
    assert (tuned.balance_fade, tuned.shares_fade, tuned.smoothing_fade) == (0.5, 0.25, 0.75)
    assert (tuned.teacher_weights, tuned.answer, tuned.client_judgement) == ("familiarity", "judged", True)
    assert tuned.estimate_classes == "server"
    unchanged = {name: getattr(paper, name) for name in ("preset", *PRESETS["tuned"])}
    assert len(PRESETS["tuned"]) == 14
    assert replace(tuned, **unchanged) == paper
    mixed = MrTFSettings.from_mapping({"preset": "tuned", "feedback": "adaptive"})
    assert (mixed.feedback, mixed.target_smoothing) == ("adaptive", 0.75)


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"mrtf_args": {"temprature": 1}}, "mrtf_args has no key 'temprature'; did you mean 'temperature'?"),
        ({"mrtf_args": {"preset": ["tuned"]}}, "mrtf_args.preset is ['tuned']; it should be 'paper', 'tuned'"),
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
        ({"mrtf_args": {"preset": "best"}}, "it should be 'paper', 'tuned' or 'released'"),
        ({"mrtf_args": {"refine_steps": 1.5}}, "mrtf_args.refine_steps is 1.5; it should be a valid integer"),
        ({"device_args": {"precision": ["bf16"]}}, "device_args.precision is ['bf16']; it should be float32, bf16 or"),
        (
            {"device_args": {"precision": {"teacher": "bf16"}}},
            "device_args.precision is {'teacher': 'bf16'}; it should be float32, bf16 or auto; or a mapping of teach",
        ),
        (
            {"device_args": {"precision": {"teachers": ["bf16"]}}},
            "to such a word, as in precision: {teachers: bf16}",
        ),
        ({"mrtf_args": {"class_balance": -0.1}}, "mrtf_args.class_balance is -0.1"),
        ({"mrtf_args": {"target_sharpness": 0.5}}, "mrtf_args.target_sharpness is 0.5"),
        ({"mrtf_args": {"refine_lr_decay": 0}}, "mrtf_args.refine_lr_decay is 0"),
        ({"mrtf_args": {"target_smoothing": 1.01}}, "mrtf_args.target_smoothing is 1.01"),
        ({"train_args": {"batch_size": 0}}, "train_args.batch_size is 0"),
        ({"train_args": {"epochs": "three"}}, "train_args.epochs is 'three'"),
        ({"train_args": {"client_num_in_total": 5, "client_num_per_round": 6}}, "there are only 5 clients"),
        ({"data_args": {"partition_method": "by_hand"}}, "data_args.partition_method is 'by_hand'"),
        ({"data_args": {"partition_alpha": -1}}, "data_args.partition_alpha is -1"),
        ({"device_args": {"threads": 0}}, "device_args.threads is 0"),
        ({"train_args": 5}, "section 'train_args' must hold keys and values"),
    ],
)
def test_a_wrong_setting_is_one_sentence(config: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError) as told:
        RunSettings.from_config(config)
    assert sentence in str(told.value)
    assert "\n" not in str(told.value)


def test_a_wrong_value_in_python_is_refused_too() -> None:
    with pytest.raises(ValueError, match="greater than 0"):
        MrTFSettings(temperature=-2)
    with pytest.raises(ValueError, match="temprature"):
        MrTFSettings(temprature=2)  # type: ignore[call-arg]


def test_fedmls_sections_may_hold_keys_that_we_do_not_know() -> None:
    config = {
        "train_args": {"client_id_list": "[]", "learning_rate": "1e-3"},
        "attack_args": {"enable_attack": False},
    }
    assert RunSettings.from_config(config).train.learning_rate == 0.001


def test_fedmls_words_for_splits() -> None:
    def method(word: str) -> str:
        return RunSettings.from_config({"data_args": {"partition_method": word}}).data.partition_method

    assert (method("hetero"), method("homo")) == ("dirichlet", "iid")


def test_resolved_settings_read_back_as_themselves() -> None:
    settings = RunSettings.from_config({"mrtf_args": {"preset": "tuned"}, "comm_args": {"backend": "MPI"}})
    first = algorithm_of(settings)
    again = algorithm_of(RunSettings.from_config({**settings.to_config(), **first.sections()}))
    assert again.own == first.own
    assert replace(again.settings, given={}) == replace(settings, given={})


def test_every_key_has_one_section() -> None:
    keys = [key for names in section_keys().values() for key in names]
    assert len(keys) == len(set(keys))


def test_a_key_is_heard_wherever_it_stands_and_has_one_home() -> None:
    tidy = in_their_homes({"train_args": {"run_dir": "out", "epochs": 2}, "comm_args": {"own_data_file": "x.npz"}})
    assert tidy["common_args"] == {"run_dir": "out"}
    assert tidy["data_args"] == {"own_data_file": "x.npz"}
    assert RunSettings.from_config(tidy).common.run_dir == "out"
    with pytest.raises(UserError, match=r"run_dir is 'a' in common_args and 'b' in train_args; keep the first"):
        in_their_homes({"common_args": {"run_dir": "a"}, "train_args": {"run_dir": "b"}})


def test_what_is_called_alike_in_fedmls_own_sections_is_not_ours() -> None:
    settings = RunSettings.from_config({"defense_args": {"enable_defense": True, "sigma": 0.5}})
    assert settings.privacy.sigma == 0.0
    assert not settings.privacy.active


def test_another_preset_takes_the_place_of_a_resolved_one() -> None:
    tuned = algorithm_of(RunSettings.from_config({"mrtf_args": {"preset": "tuned", "refine_steps": 9}}))
    resolved = {**tuned.settings.to_config(), **tuned.sections()}
    again = algorithm_of(RunSettings.from_config(with_changes(resolved, ["preset=paper"]))).own
    assert again == MrTFSettings(refine_steps=9)
    written = with_changes({"mrtf_args": {"feedback": "never"}}, ["preset=tuned"])
    assert written == {"mrtf_args": {"feedback": "never", "preset": "tuned"}}, "what a user wrote himself stays"


def test_own_data_get_the_preset_that_measurements_support_and_a_named_one_stays() -> None:
    def preset(data_args: dict[str, Any], **own: Any) -> str:
        return str(algorithm_of(RunSettings.from_config({"data_args": data_args, "mrtf_args": own})).own.preset)

    own: list[dict[str, Any]] = [{"dataset": name} for name in ("npz", "images", "csv")]
    for data_args in [*own, {"loader": "mine:load"}, {"own_data_file": "silo{rank}.npz"}]:
        assert preset(data_args, refine_steps=5) == "tuned"
        assert preset(data_args, preset="paper") == "paper"
    assert preset({"dataset": "digits"}) == preset({"dataset": "mnist"}) == MrTFSettings().preset == "paper"
