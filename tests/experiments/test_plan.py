"""Which runs a comparison is made of, and when two of them are one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mrtf_fedml.algorithms import algorithm_of
from mrtf_fedml.errors import UserError
from mrtf_fedml.experiments.plan import ABLATION, key_of, planned
from mrtf_fedml.settings import RunSettings, TrainSettings
from mrtf_fedml.settings.presets import PRESETS
from tests.conftest import small_config


def keys(*labels: str, **changes: Any) -> list[str]:
    return [trial.key for trial in planned(small_config(**changes), labels, seeds=1)]


def own(config: dict[str, dict[str, Any]]) -> Any:
    """The algorithm's own settings."""
    return algorithm_of(RunSettings.from_config(config)).own


def test_each_seed_runs_every_algorithm() -> None:
    trials = planned(small_config(), ["FedAvg", "MrTF"], seeds=2)
    assert [(trial.label, trial.seed) for trial in trials] == [("FedAvg", 3), ("MrTF", 3), ("FedAvg", 4), ("MrTF", 4)]
    assert [trial.config["common_args"]["random_seed"] for trial in trials] == [3, 3, 4, 4]
    assert len({trial.key for trial in trials}) == 4
    assert RunSettings.from_config(trials[0].config).data.partition_seed is None, "the split follows the seed"
    fixed = planned(small_config(partition_seed=5), ["FedAvg"], seeds=2)
    assert [RunSettings.from_config(trial.config).data.partition_seed for trial in fixed] == [5, 5]


def test_presets_of_mrtf_stand_side_by_side_and_explicit_keys_stay() -> None:
    paper, tuned = (own(trial.config) for trial in planned(small_config(), ["MrTF:paper", "MrTF:tuned"], 1))
    assert (paper.preset, paper.feedback) == ("paper", "always")
    assert (tuned.preset, tuned.feedback) == ("tuned", "judged")
    assert paper.refine_steps == tuned.refine_steps == 8


def test_a_run_is_known_by_what_its_result_depends_on() -> None:
    assert keys("FedAvg") == keys("fedavg") == keys("FedAvg", run_dir="elsewhere", threads=2, backend="MPI")
    assert keys("FedAvg") == keys("FedAvg", preset="tuned", fedprox_mu=0.5), "FedAvg reads neither"
    assert keys("FedProx") != keys("FedProx", fedprox_mu=0.5)
    assert keys("FedDF") != keys("FedDF", refine_steps=9)
    assert keys("FedDF") == keys("FedDF", preset="tuned", cluster_temperature=8), "FedDF reads what begins with refine_"
    assert keys("FedAvg") != keys("FedAvg", epochs=2)


def test_other_inputs_of_the_same_name_make_another_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "folder" / "cat").mkdir(parents=True)
    for name in ("x.npz", "y.csv", "folder/cat/1.png", "mine.py", "beside.py"):
        (tmp_path / name).write_text("import beside\n" if name == "mine.py" else "Net = load = dict\n")
    (tmp_path / "mine.py").write_text(
        "import beside\nfrom mrtf_fedml import Algorithm, Callback\nNet = load = dict\n"
        "class Mine(Algorithm):\n    name = 'MineOfThePlan'\nclass Watch(Callback):\n    pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    scenes: dict[str, dict[str, Any]] = {
        "x.npz": {"dataset": "npz", "data_file": str(tmp_path / "x.npz")},
        "y.csv": {"dataset": "csv", "data_file": str(tmp_path / "x.npz"), "server_file": str(tmp_path / "y.csv")},
        "folder/cat/1.png": {"dataset": "images", "data_file": str(tmp_path / "folder")},
        "mine.py": {"loader": "mine:load"},
        "beside.py": {"model": "mine:Net"},
    }
    scenes["mine.py "] = {"federated_optimizer": "mine:Mine"}
    scenes["beside.py "] = {"callbacks": ["mine:Watch"]}
    for name, changes in scenes.items():
        first = key_of(small_config(**changes))
        assert key_of(small_config(**changes)) == first, name
        file = tmp_path / name.strip()
        file.write_text(file.read_text() + "# changed\n")
        assert key_of(small_config(**changes)) != first, name


def test_a_file_may_be_called_as_the_algorithm_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "namesake.py").write_text(
        "from mrtf_fedml import Algorithm, register_algorithm\n"
        "@register_algorithm\nclass Namesake(Algorithm):\n    name = 'Namesake'\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    for _ in ("not yet registered", "registered"):
        trials = planned(small_config(), ["namesake:Namesake", "MrTF:tuned"], 1)
        assert [trial.config["train_args"]["federated_optimizer"] for trial in trials] == ["namesake:Namesake", "MrTF"]


def test_a_grid_is_every_combination_and_runs_nothing_twice() -> None:
    trials = planned(small_config(), ["FedAvg", "FedProx"], 1, ["learning_rate=0.1,0.01", "fedprox_mu=0.1,1"])
    assert len(trials) == 8
    assert len({trial.key for trial in trials}) == 2 + 4, "fedprox_mu makes no difference to FedAvg"
    assert trials[0].point == "learning_rate=0.1, fedprox_mu=0.1"


def test_variations_stand_beside_the_algorithm_and_are_not_combined() -> None:
    vary = ["feedback=never,adaptive", "target_smoothing=0.5 cluster_temperature=4,8"]
    trials = planned(small_config(), ["FedAvg", "MrTF:paper"], 1, vary=vary)
    assert [trial.label for trial in trials] == [
        "FedAvg",
        "MrTF:paper",
        "MrTF:paper, feedback=never",
        "MrTF:paper, feedback=adaptive",
        "MrTF:paper, target_smoothing=0.5, cluster_temperature=4",
        "MrTF:paper, target_smoothing=0.5, cluster_temperature=8",
    ], "what FedAvg does not read is left out"
    settings = [own(trial.config) for trial in trials[2:]]
    assert [(one.feedback, one.target_smoothing, one.cluster_temperature) for one in settings] == [
        ("never", 0.0, 4.0),
        ("adaptive", 0.0, 4.0),
        ("always", 0.5, 4.0),
        ("always", 0.5, 8.0),
    ]


def test_a_preset_and_its_values_written_out_are_one_run() -> None:
    written = {**PRESETS["tuned"], "weight_decay": TrainSettings().weight_decay}
    assert keys("MrTF:tuned") == keys("MrTF:paper", **written), "nor does a default that is written out"
    assert keys("MrTF:tuned") != keys("MrTF:paper")


def test_the_ablation_switches_one_module_after_another_by_settings_alone() -> None:
    trials = planned(small_config(preset="tuned"), list(ABLATION), 1, ablation=True)
    assert [trials[-1].key] == keys("MrTF:paper"), "all modules on are the paper's MrTF, whatever the preset"
    settings = {trial.label: own(trial.config) for trial in trials}
    assert list(settings) == ["PA", "AL", "ST", "ST+RD", "ST+RD+CLR"]
    assert {trial.config["train_args"]["federated_optimizer"] for trial in trials} == {"MrTF"}
    switches = {
        label: (run.refine_steps, run.teacher, run.entropy_weights, run.self_teaching)
        for label, run in settings.items()
    }
    assert switches == {
        "PA": (0, "avg_prob", False, False),
        "AL": (8, "avg_logit", False, False),
        "ST": (8, "avg_prob", False, False),
        "ST+RD": (8, "avg_prob", True, True),
        "ST+RD+CLR": (8, "avg_prob", True, True),
    }
    assert [run.cluster_refinery for run in settings.values()] == [False, False, False, False, True]


def test_a_base_is_named_after_a_plus() -> None:
    plain, based, distilled = (
        own(trial.config) for trial in planned(small_config(), ["MrTF:paper", "MrTF:paper+Scaffold", "FedDF+FedOpt"], 1)
    )
    assert (plain.base, based.base, distilled.base) == ("FedAvg", "Scaffold", "FedOpt")
    assert (plain.feedback, based.feedback) == ("always", "never"), "what suits a base that keeps client state"
    assert keys("MrTF+Scaffold") != keys("MrTF+Scaffold", scaffold_option=1) != keys("MrTF", scaffold_option=1)
    assert keys("MrTF") == keys("MrTF", scaffold_option=1)
    with pytest.raises(UserError, match="FedAvg has none"):
        planned(small_config(), ["FedAvg+Scaffold"], 1)
    with pytest.raises(UserError, match="refines already"):
        planned(small_config(), ["MrTF+FedDF"], 1)


@pytest.mark.parametrize(
    ("labels", "options", "told"),
    [
        (["FedAvgg"], {}, "did you mean 'FedAvg'"),
        (["MrTF:papr"], {}, "MrTF:paper, MrTF:tuned"),
        (["FedAvg:tuned"], {}, "only MrTF has some"),
        (["FedAvg", "FedAvg"], {}, "name each once"),
        (["FedAvg"], {"seeds": 0}, "at least one"),
        (["FedAvg"], {"grid": ["learning_rate"]}, "key=value,value"),
        (["FedAvg"], {"vary": ["epochs"]}, "--vary takes key=value"),
        (["MrTF"], {"vary": ["feedbak=never"]}, "feedback"),
        (["FedAvg"], {"grid": ["learnin_rate=1"]}, "learning_rate"),
        (["FedAvg"], {"grid": ["learning_rate=-1"]}, "greater than 0"),
    ],
)
def test_what_cannot_be_is_said(labels: list[str], options: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError, match=told):
        planned(small_config(), labels, **{"seeds": 1, **options})
