"""Which base a user gets without being asked: by how often a client is chosen, and by what Scaffold can bear."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from mrtf_fedml import RunSettings, UserError
from mrtf_fedml.algorithms import MrTF, algorithm_of
from mrtf_fedml.settings.mrtf import MrTFSettings, without_preset
from tests.conftest import small_config


def standing(**changes: Any) -> MrTF:
    config = small_config(federated_optimizer="MrTF", preset="tuned", client_num_in_total=20, **changes)
    algorithm = algorithm_of(RunSettings.from_config(config))
    assert isinstance(algorithm, MrTF)
    return algorithm


@pytest.mark.parametrize(
    ("chosen", "base"),
    [(1, "FedAvg"), (4, "FedAvg"), (5, "FadingScaffold"), (19, "FadingScaffold"), (20, "FedAvg")],
)
def test_variates_stand_in_from_a_quarter_of_the_clients_on_and_not_with_all_of_them(chosen: int, base: str) -> None:
    algorithm = standing(client_num_per_round=chosen)
    assert algorithm.base.name == base
    assert (algorithm.refinery.base, algorithm.refinery.feedback) == (base, "judged")
    assert algorithm.sections()["mrtf_args"]["base"] == base, "what a run writes down is what it does"


@pytest.mark.parametrize("change", [{"clip": 1.0, "sigma": 0.1}, {"enable_dp": True}, {"client_optimizer": "adam"}])
def test_where_scaffold_cannot_stand_it_is_fedavg(change: dict[str, Any]) -> None:
    assert standing(client_num_per_round=10, **change).base.name == "FedAvg"
    with pytest.raises(UserError, match="Scaffold's variates"):
        standing(client_num_per_round=10, base="Scaffold", **change)


def test_a_base_that_is_named_stays_and_clients_that_only_train_get_fedavg() -> None:
    assert standing(client_num_per_round=10, base="FedOpt").base.name == "FedOpt"
    assert MrTF.where_clients_only_train({})["base"] == "FedAvg"
    assert MrTF.where_clients_only_train({"base": "auto"})["base"] == "FedAvg"
    assert "base" not in MrTF.where_clients_only_train({"base": "Scaffold"}), "it is refused where the run begins"


def test_the_paper_stands_on_fedavg_however_many_take_part() -> None:
    config = small_config(federated_optimizer="MrTF", client_num_in_total=20, client_num_per_round=10)
    algorithm = algorithm_of(RunSettings.from_config(config))
    assert isinstance(algorithm, MrTF)
    assert algorithm.base.name == "FedAvg"


@pytest.mark.parametrize("chosen", [1, 10])
def test_another_preset_can_be_put_on_what_a_run_has_written(chosen: int) -> None:
    written = standing(client_num_per_round=chosen, clip=1.0, sigma=0.1).sections()["mrtf_args"]
    assert set(without_preset(written)) == {"refine_steps", "refine_batch_size", "cluster_warmup"}
    own = {**dataclasses.asdict(MrTFSettings(preset="tuned")), "base": "FedOpt", "feedback": "adaptive"}
    assert without_preset(own) == {"base": "FedOpt", "feedback": "adaptive"}
