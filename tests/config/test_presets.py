"""How preset, explicit keys and the facts of a run determine MrTF's settings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mrtf_fedml import RunSettings, UserError
from mrtf_fedml.algorithms import MrTF, build_algorithm
from mrtf_fedml.config.presets import explicit_mrtf_args, record_explicit_keys
from tests.conftest import small_config, small_settings


def tuned(**changes: Any) -> MrTF:
    config = small_config(federated_optimizer="MrTF", preset="tuned", client_num_in_total=20, **changes)
    algorithm = build_algorithm(RunSettings.from_config(config))
    assert isinstance(algorithm, MrTF)
    return algorithm


@pytest.mark.parametrize("chosen", [1, 10, 20])
def test_auto_is_measured_scaffold_for_any_participation(chosen: int) -> None:
    algorithm, base = tuned(client_num_per_round=chosen), "MeasuredScaffold"
    assert algorithm.base.name == base
    assert (algorithm.refinery.base, algorithm.refinery.broadcast) == (base, "client_validated")
    assert algorithm.sections()["mrtf_args"]["base"] == base, "a run records what it does"


@pytest.mark.parametrize("change", [{"clip": 1.0, "sigma": 0.1}, {"enable_dp": True}, {"client_optimizer": "adam"}])
def test_auto_is_fedavg_where_scaffold_cannot_be_used(change: dict[str, Any]) -> None:
    assert tuned(client_num_per_round=10, **change).base.name == "FedAvg"
    with pytest.raises(UserError, match="Scaffold"):
        tuned(client_num_per_round=10, base="Scaffold", **change)


def test_auto_is_fedridge_for_a_linear_model_on_an_encoder() -> None:
    encoded = {"encoder": "tests.encoders.tiny:pooled", "model": "linear"}
    assert tuned(**encoded).base.name == "FedRidge"
    assert tuned(**encoded, client_optimizer="adam").base.name == "FedRidge", "nothing is trained"
    assert tuned(**encoded, clip=1.0).base.name == "FedAvg"
    assert tuned(**encoded, base="FedAvg", initial_weights="start.pt").base.name == "FedAvg"
    with pytest.raises(UserError, match="initial_weights"):
        tuned(**encoded, initial_weights="start.pt")
    assert tuned(**{**encoded, "model": "mlp"}).base.name == "MeasuredScaffold"
    assert tuned(model="linear").base.name == "MeasuredScaffold"


def test_clients_only_train_gives_fedavg_without_validation_unless_explicit() -> None:
    def restricted(**changes: Any) -> MrTF:
        return MrTF(replace(small_settings(preset="tuned", **changes), clients_only_train=True))

    assert tuned(client_num_per_round=10, base="FedOpt").base.name == "FedOpt"
    plain = restricted()
    assert (plain.refinery.base, plain.refinery.client_validation, plain.has_own_client_rule()) == (
        "FedAvg",
        False,
        False,
    )
    assert restricted(base="auto").refinery.base == "FedAvg"
    assert restricted(base="Scaffold").has_own_client_rule(), "it is refused where the run begins"
    assert restricted(client_validation=True).has_own_client_rule(), "it is refused where the run begins"


def test_paper_preset_uses_fedavg_for_any_participation() -> None:
    config = small_config(federated_optimizer="MrTF", client_num_in_total=20, client_num_per_round=10)
    algorithm = build_algorithm(RunSettings.from_config(config))
    assert isinstance(algorithm, MrTF)
    assert algorithm.base.name == "FedAvg"


def test_privacy_overrides_the_preset_and_refuses_explicit_keys() -> None:
    # Ours, and FedML's own: its noise is on the weights alone, too.
    for promised in ({"clip": 1.0, "sigma": 1.0}, {"enable_dp": True}):
        private = build_algorithm(small_settings(preset="tuned", **promised)).hparams
        assert (private.client_validation, private.predict_with, private.broadcast) == (False, "refined", "aggregated")
    for key, value in (("validation_fraction", 0.1), ("client_validation", True)):
        with pytest.raises(UserError, match=key):
            build_algorithm(small_settings(**{key: value}, clip=1.0, sigma=1.0))


@pytest.mark.parametrize("key", ["predict_with", "broadcast"])
def test_client_validated_without_validation_is_refused(key: str) -> None:
    with pytest.raises(UserError, match=f"{key} is 'client_validated' but no client validates"):
        build_algorithm(small_settings(**{key: "client_validated"}))


def test_validation_fraction_above_half_is_refused() -> None:
    with pytest.raises(UserError, match=r"validation_fraction is 0\.9"):
        small_settings(validation_fraction=0.9)


def test_validation_fraction_is_a_tenth_where_clients_validate() -> None:
    def fraction(**changes: Any) -> float:
        algorithm = build_algorithm(small_settings(preset="tuned", **changes))
        assert algorithm.hparams.client_validation
        return float(algorithm.hparams.validation_fraction)

    assert fraction() == fraction(client_num_per_round=8) == 0.1
    assert fraction(validation_fraction=0.0) == 0.0, "explicit keys win"
    assert fraction(validation_fraction=0.25) == 0.25
    silent = build_algorithm(small_settings(preset="tuned", client_validation=False)).hparams
    assert (silent.predict_with, silent.broadcast) == ("refined", "aggregated")


@pytest.mark.parametrize("chosen", [1, 10])
def test_explicit_keys_of_a_run_are_recorded_separately_from_its_preset(chosen: int) -> None:
    written = small_config(preset="tuned", client_num_in_total=20, client_num_per_round=chosen, clip=1.0, sigma=0.1)
    algorithm = build_algorithm(RunSettings.from_config(written))
    recorded = record_explicit_keys({**written, **algorithm.sections()}, written)
    assert set(explicit_mrtf_args(recorded)) == {"refine_steps", "refine_batch_size", "cluster_warmup"}
    again = record_explicit_keys({**recorded, **algorithm.sections()}, recorded)
    assert explicit_mrtf_args(again) == explicit_mrtf_args(recorded), "a resumed run records the same"


def test_resolved_configuration_resolves_to_itself() -> None:
    for changes in ({"preset": "tuned"}, {"preset": "tuned", "clip": 1.0, "sigma": 0.1}, {"base": "Scaffold"}):
        first = build_algorithm(small_settings(**changes))
        again = build_algorithm(RunSettings.from_config({**first.settings.to_config(), **first.sections()}))
        assert again.hparams == first.hparams


def test_tuned_averages_the_rounds_where_the_base_averages_one_kind_of_model() -> None:
    for changes in ({}, {"base": "FedAvg"}, {"clip": 1.0, "sigma": 0.1}):
        assert tuned(client_num_per_round=10, **changes).refinery.average_rounds
    for changes in ({"base": "FedOpt"}, {"refine_steps": 0}, {"models": {"one": "lenet", "two": "mlp"}}):
        assert not tuned(client_num_per_round=10, **changes).refinery.average_rounds
    assert not build_algorithm(small_settings(base="MeasuredScaffold")).hparams.average_rounds, "the paper does not"


def test_tuned_has_momentum_where_the_base_allows_it() -> None:
    for changes in ({}, {"base": "FedAvg"}, {"client_optimizer": "adam"}):
        assert tuned(client_num_per_round=10, **changes).refinery.loss_momentum
    encoded = {"encoder": "tests.encoders.tiny:pooled", "model": "linear"}
    for changes in ({"base": "FedOpt"}, {"clip": 1.0, "sigma": 0.1}, {"refine_steps": 0}, encoded):
        assert not tuned(client_num_per_round=10, **changes).refinery.loss_momentum
    assert not build_algorithm(small_settings(base="MeasuredScaffold")).hparams.loss_momentum, "the paper has none"


@pytest.mark.parametrize("change", [{"base": "FedOpt"}, {"base": "FedRidge"}])
@pytest.mark.parametrize("key", ["loss_momentum", "average_rounds"])
def test_explicit_key_on_a_base_with_its_own_server_step_is_refused(key: str, change: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=key):
        tuned(client_num_per_round=10, **{key: True}, **change)
