"""Which runs a comparison is made of, and when two of them are one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from mrtf_fedml.algorithms import build_algorithm
from mrtf_fedml.config import RunSettings, TrainSettings
from mrtf_fedml.config.presets import PRESETS
from mrtf_fedml.errors import UserError
from mrtf_fedml.experiments.plan import ABLATION, input_stamps, plan_trials, run_key
from tests.conftest import small_config, small_settings


def keys(*labels: str, **changes: Any) -> list[str]:
    return [trial.key for trial in plan_trials(small_config(**changes), labels, seeds=1)]


def own(config: dict[str, dict[str, Any]]) -> Any:
    """The algorithm's own settings."""
    return build_algorithm(RunSettings.from_config(config)).hparams


def test_plan_trials_has_every_algorithm_for_each_seed() -> None:
    trials = plan_trials(small_config(), ["FedAvg", "MrTF"], seeds=2)
    assert [(trial.label, trial.seed) for trial in trials] == [("FedAvg", 3), ("MrTF", 3), ("FedAvg", 4), ("MrTF", 4)]
    assert [trial.config["common_args"]["random_seed"] for trial in trials] == [3, 3, 4, 4]
    assert len({trial.key for trial in trials}) == 4
    assert RunSettings.from_config(trials[0].config).data.partition_seed is None, "the split follows the seed"
    fixed = plan_trials(small_config(partition_seed=5), ["FedAvg"], seeds=2)
    assert [RunSettings.from_config(trial.config).data.partition_seed for trial in fixed] == [5, 5]


def test_plan_trials_run_all_rounds_without_early_stopping() -> None:
    (trial,) = plan_trials(small_config(early_stopping=3), ["MrTF"], seeds=1)
    assert RunSettings.from_config(trial.config).train.early_stopping is None
    assert trial.key == keys("MrTF")[0]


def test_plan_trials_with_two_presets_keeps_explicit_keys() -> None:
    paper, tuned = (own(trial.config) for trial in plan_trials(small_config(), ["MrTF:paper", "MrTF:tuned"], 1))
    assert (paper.preset, paper.broadcast) == ("paper", "refined")
    assert (tuned.preset, tuned.broadcast) == ("tuned", "client_validated")
    assert paper.refine_steps == tuned.refine_steps == 8


def test_run_key_depends_only_on_what_changes_the_result() -> None:
    assert keys("FedAvg") == keys("fedavg") == keys("FedAvg", run_dir="elsewhere", threads=2, backend="MPI")
    assert keys("FedAvg") == keys("FedAvg", preset="tuned", fedprox_mu=0.5), "FedAvg reads neither"
    assert keys("FedProx") != keys("FedProx", fedprox_mu=0.5)
    assert keys("FedDF") != keys("FedDF", refine_steps=9)
    assert keys("FedDF") == keys("FedDF", preset="tuned", cluster_temperature=8), "FedDF reads what begins with refine_"
    assert keys("FedAvg") != keys("FedAvg", epochs=2)


def test_run_key_changes_with_the_content_of_inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "folder" / "cat").mkdir(parents=True)
    for name in ("x.npz", "y.csv", "folder/cat/1.png", "mine.py", "beside.py"):
        (tmp_path / name).write_text("import beside\n" if name == "mine.py" else "Net = load = dict\n")
    (tmp_path / "mine.py").write_text(
        "import beside\nfrom mrtf_fedml import Algorithm, Callback\nNet = load = dict\n"
        "class Mine(Algorithm):\n    name = 'MineOfThePlan'\nclass Watch(Callback):\n    pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    setups: dict[str, dict[str, Any]] = {
        "x.npz": {"dataset": "npz", "data_file": str(tmp_path / "x.npz")},
        "y.csv": {"dataset": "csv", "data_file": str(tmp_path / "x.npz"), "server_file": str(tmp_path / "y.csv")},
        "folder/cat/1.png": {"dataset": "images", "data_file": str(tmp_path / "folder")},
        "mine.py": {"loader": "mine:load"},
        "beside.py": {"model": "mine:Net"},
    }
    setups["mine.py "] = {"federated_optimizer": "mine:Mine"}
    setups["beside.py "] = {"callbacks": ["mine:Watch"]}
    for name, changes in setups.items():
        first = run_key(small_config(**changes))
        assert run_key(small_config(**changes)) == first, name
        file = tmp_path / name.strip()
        file.write_text(file.read_text() + "# changed\n")
        assert run_key(small_config(**changes)) != first, name


def test_plan_trials_accepts_a_module_with_the_name_of_an_algorithm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "namesake.py").write_text(
        "from mrtf_fedml import Algorithm, register_algorithm\n"
        "@register_algorithm\nclass Namesake(Algorithm):\n    name = 'Namesake'\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    for _ in ("not yet registered", "registered"):
        trials = plan_trials(small_config(), ["namesake:Namesake", "MrTF:tuned"], 1)
        assert [trial.config["train_args"]["federated_optimizer"] for trial in trials] == ["namesake:Namesake", "MrTF"]


def test_grid_gives_every_combination_and_equal_trials_share_a_run() -> None:
    trials = plan_trials(small_config(), ["FedAvg", "FedProx"], 1, ["learning_rate=0.1,0.01", "fedprox_mu=0.1,1"])
    assert len(trials) == 8
    assert len({trial.key for trial in trials}) == 2 + 4, "fedprox_mu makes no difference to FedAvg"
    assert trials[0].point == "learning_rate=0.1, fedprox_mu=0.1"


def test_vary_adds_rows_and_does_not_combine_entries() -> None:
    vary = ["broadcast=aggregated,loss_interpolated", "target_smoothing=0.5 cluster_temperature=4,8"]
    trials = plan_trials(small_config(), ["FedAvg", "MrTF:paper"], 1, vary=vary)
    assert [trial.label for trial in trials] == [
        "FedAvg",
        "MrTF:paper",
        "MrTF:paper, broadcast=aggregated",
        "MrTF:paper, broadcast=loss_interpolated",
        "MrTF:paper, target_smoothing=0.5, cluster_temperature=4",
        "MrTF:paper, target_smoothing=0.5, cluster_temperature=8",
    ], "keys that FedAvg does not read are excluded"
    settings = [own(trial.config) for trial in trials[2:]]
    assert [(one.broadcast, one.target_smoothing, one.cluster_temperature) for one in settings] == [
        ("aggregated", 0.0, 4.0),
        ("loss_interpolated", 0.0, 4.0),
        ("refined", 0.5, 4.0),
        ("refined", 0.5, 8.0),
    ]


def test_run_key_of_a_preset_equals_that_of_its_values() -> None:
    written = {**PRESETS["tuned"], "weight_decay": TrainSettings().weight_decay}
    assert keys("MrTF:tuned") == keys("MrTF:paper", **written), "nor does a default that is written out"
    assert keys("MrTF:tuned") != keys("MrTF:paper")


def test_ablation_enables_one_module_after_another() -> None:
    trials = plan_trials(small_config(preset="tuned"), list(ABLATION), 1, ablation=True)
    assert [trials[-1].key] == keys("MrTF:paper"), "all modules on are the paper's MrTF, whatever the preset"
    settings = {trial.label: own(trial.config) for trial in trials}
    assert list(settings) == ["PA", "AL", "ST", "ST+RD", "ST+RD+CLR"]
    assert {trial.config["train_args"]["federated_optimizer"] for trial in trials} == {"MrTF"}
    switches = {
        label: (run.refine_steps, run.teacher, run.teacher_weighting, run.self_teaching)
        for label, run in settings.items()
    }
    assert switches == {
        "PA": (0, "avg_prob", "uniform", False),
        "AL": (8, "avg_logit", "uniform", False),
        "ST": (8, "avg_prob", "uniform", False),
        "ST+RD": (8, "avg_prob", "entropy", True),
        "ST+RD+CLR": (8, "avg_prob", "entropy", True),
    }
    assert [run.cluster_refinery for run in settings.values()] == [False, False, False, False, True]


def test_label_with_plus_names_the_base() -> None:
    plain, based, distilled = (
        own(trial.config)
        for trial in plan_trials(small_config(), ["MrTF:paper", "MrTF:paper+Scaffold", "FedDF+FedOpt"], 1)
    )
    assert (plain.base, based.base, distilled.base) == ("FedAvg", "Scaffold", "FedOpt")
    assert (plain.broadcast, based.broadcast) == ("refined", "aggregated"), "what suits a base that keeps client state"
    assert keys("MrTF+Scaffold") != keys("MrTF+Scaffold", scaffold_option=1) != keys("MrTF", scaffold_option=1)
    assert keys("MrTF") == keys("MrTF", scaffold_option=1)
    with pytest.raises(UserError, match="FedAvg has none"):
        plan_trials(small_config(), ["FedAvg+Scaffold"], 1)
    with pytest.raises(UserError, match="refines already"):
        plan_trials(small_config(), ["MrTF+FedDF"], 1)


@pytest.mark.parametrize(
    ("labels", "options", "message"),
    [
        (["FedAvgg"], {}, "did you mean 'FedAvg'"),
        (["MrTF:papr"], {}, "MrTF:paper, MrTF:tuned"),
        (["FedAvg:tuned"], {}, "only MrTF has some"),
        (["FedAvg", "FedAvg"], {}, "name each once"),
        (["FedAvg"], {"seeds": 0}, "at least one"),
        (["FedAvg"], {"grid": ["learning_rate"]}, "key=value,value"),
        (["FedAvg"], {"vary": ["epochs"]}, "--vary takes key=value"),
        (["MrTF"], {"vary": ["broadcas=aggregated"]}, "broadcast"),
        (["FedAvg"], {"grid": ["learnin_rate=1"]}, "learning_rate"),
        (["FedAvg"], {"grid": ["learning_rate=-1"]}, "greater than 0"),
    ],
)
def test_plan_trials_rejects_invalid_options(labels: list[str], options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        plan_trials(small_config(), labels, **{"seeds": 1, **options})


def test_input_stamps_change_with_the_file_of_a_component(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    source = "from mrtf_fedml.algorithms.mrtf import TargetTransform\n\nclass Mine(TargetTransform):\n    pass\n"
    (tmp_path / "own_component.py").write_text(source)
    settings = small_settings(target_transforms=["own_component:Mine"])
    algorithm = build_algorithm(settings)
    before = input_stamps(settings, algorithm)
    assert "own_component" in before
    (tmp_path / "own_component.py").write_text(source + "# changed\n")
    assert input_stamps(settings, algorithm) != before
    monkeypatch.delitem(sys.modules, "own_component")
