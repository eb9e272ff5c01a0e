"""`register()`: our words run, FedML's algorithms stay FedML's, and all can be undone."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fedml
import pytest
import torch
from fedml.runner import FedMLRunner

import mrtf_fedml
from mrtf_fedml.data import load
from mrtf_fedml.errors import UserError
from mrtf_fedml.fedml_bridge.fedml_init import initialize
from mrtf_fedml.models import create_model
from tests.conftest import output_bytes, read_metrics, small_config, small_settings, write_yaml
from tests.fedml_bridge.fedml_project import fedml_arguments

PLAIN_INIT = FedMLRunner.__init__


@pytest.fixture(autouse=True)
def _unregistered() -> Iterator[None]:
    yield
    mrtf_fedml.unregister()


def project(folder: Path, **changes: Any) -> tuple[Any, Any, Any, Any]:
    """What a FedML project holds when it calls FedMLRunner."""
    config = small_config(run_dir=str(folder / "run"), frequency_of_the_test=1, **changes)
    args = initialize(fedml_arguments(write_yaml(folder / "fedml_config.yaml", config)))
    settings = small_settings(**changes)
    dataset = load(settings)
    model = create_model(settings.model, dataset.input_shape, dataset.class_num, seed=0)
    return args, fedml.device.get_device(args), dataset, model


def as_foreign_tuple(dataset: Any) -> list[Any]:
    """FedML's eight entries: DataLoaders with labels, as in a project without the plugin."""
    shard = dataset[5][0]
    labels = torch.arange(len(dataset.server_inputs)) % dataset.class_num
    tests = torch.utils.data.TensorDataset(dataset.server_inputs, labels)
    loaders = {
        client: torch.utils.data.DataLoader(
            torch.utils.data.TensorDataset(part.inputs[part.indices], part.labels),
            batch_size=16,
            shuffle=True,
        )
        for client, part in dataset[5].items()
    }
    test_global = torch.utils.data.DataLoader(tests, batch_size=50, shuffle=True)
    assert shard.samples == dataset[4][0]
    return [
        dataset[0],
        len(tests),
        None,
        test_global,
        dataset[4],
        loaders,
        dict.fromkeys(loaders),
        dataset[7],
    ]


def test_registered_runner_runs_mrtf_on_a_projects_own_loaders(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args, device, dataset, model = project(tmp_path)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    mrtf_fedml.register()
    runner = FedMLRunner(args, device, as_foreign_tuple(dataset), model)
    runner.run()
    run_dir = runner.runner.run_dir
    assert run_dir == tmp_path / "run"
    assert f"report            {run_dir / 'report.html'}" in capsys.readouterr().out, "the ending of mrtf run"
    assert (run_dir / "predictions.csv").read_text().count("\n") == 600
    assert '"estimated_accuracy": 0' not in (run_dir / "metrics.jsonl").read_text(), "loaders hold no samples out"
    from safetensors.torch import load_file

    final = load_file(run_dir / "model.safetensors")
    assert all(torch.equal(model.state_dict()[key], final[key]) for key in final)
    assert any(not torch.equal(before[key], final[key]) for key in final)


def test_adapters_override_federated_optimizer(tmp_path: Path) -> None:
    args, device, dataset, model = project(tmp_path, federated_optimizer="FedAvg")
    mrtf_fedml.register()
    trainer, aggregator = mrtf_fedml.MrTFTrainer(model, args), mrtf_fedml.MrTFAggregator(model, args)
    FedMLRunner(args, device, dataset, model, trainer, aggregator).run()
    assert '"acc_refined": null' not in (tmp_path / "run" / "metrics.jsonl").read_text()


def test_users_trainer_without_loss_uses_the_fallback_and_warns(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from fedml.ml.trainer.my_model_trainer_classification import ModelTrainerCLS

    args, device, dataset, model = project(tmp_path, weight_decay=0.0)
    mrtf_fedml.register()
    with caplog.at_level(logging.WARNING):
        FedMLRunner(args, device, dataset, model, ModelTrainerCLS(model, args)).run()
    assert '"train_loss": null' in (tmp_path / "run" / "metrics.jsonl").read_text()
    assert caplog.text.count("no client reports its training loss") == 1


def test_users_trainer_reports_its_loss_as_train_loss(tmp_path: Path) -> None:
    from fedml.ml.trainer.my_model_trainer_classification import ModelTrainerCLS

    class Reporting(ModelTrainerCLS):
        def train(self, train_data: Any, device: Any, args: Any) -> None:
            super().train(train_data, device, args)
            self.train_loss = 0.25

    args, device, dataset, model = project(tmp_path, weight_decay=0.0)
    mrtf_fedml.register()
    FedMLRunner(args, device, dataset, model, Reporting(model, args)).run()
    assert {line["train_loss"] for line in read_metrics(tmp_path / "run")} == {0.25}


def test_users_aggregator_is_called_to_test_and_changes_nothing(tmp_path: Path) -> None:
    from fedml.ml.aggregator.default_aggregator import DefaultServerAggregator

    seen: list[Any] = []

    class Testing(DefaultServerAggregator):
        def test(self, test_data: Any, device: Any, args: Any) -> None:
            self.model.eval()
            seen.append((args.round_idx, test_data, float(next(iter(self.model.parameters())).sum())))

        def test_all(self, train_data_local_dict: Any, test_data_local_dict: Any, device: Any, args: Any) -> bool:
            return True

    for name in ("plain", "tested"):
        (tmp_path / name).mkdir()
        args, device, dataset, model = project(tmp_path / name)
        mrtf_fedml.register()
        tested = Testing(model, args) if name == "tested" else None
        FedMLRunner(args, device, dataset, model, None, tested).run()
    assert output_bytes(tmp_path / "plain" / "run") == output_bytes(tmp_path / "tested" / "run")
    rounds = len(read_metrics(tmp_path / "tested" / "run"))
    assert len(seen) == rounds
    assert len({weights for _, _, weights in seen}) == rounds, "the weights of each round"
    assert all(data is dataset[3] for _, data, _ in seen)


def test_users_aggregator_that_aggregates_is_refused(tmp_path: Path) -> None:
    from fedml.ml.aggregator.default_aggregator import DefaultServerAggregator

    class Median(DefaultServerAggregator):
        def aggregate(self, raw_client_model_or_grad_list: Any) -> Any:
            return raw_client_model_or_grad_list[0][1]

    args, device, dataset, model = project(tmp_path)
    mrtf_fedml.register()
    with pytest.raises(UserError, match=r"Median overrides aggregate.*callbacks"):
        FedMLRunner(args, device, dataset, model, None, Median(model, args))


def test_register_twice_then_unregister_restores_fedml() -> None:
    mrtf_fedml.register()
    hooked = FedMLRunner.__init__
    mrtf_fedml.register()
    assert FedMLRunner.__init__ is hooked is not PLAIN_INIT
    mrtf_fedml.unregister()
    assert FedMLRunner.__init__ is PLAIN_INIT
    mrtf_fedml.unregister()
    assert FedMLRunner.__init__ is PLAIN_INIT


def test_fedml_fedavg_after_register_gives_equal_weights(tmp_path: Path) -> None:
    def weights() -> dict[str, torch.Tensor]:
        args, device, dataset, model = project(tmp_path, federated_optimizer="FedAvg")
        args.enable_wandb = False
        runner = FedMLRunner(args, device, list(dataset), model)
        assert type(runner.runner).__name__ == "SimulatorSingleProcess"
        runner.run()
        return {key: value.clone() for key, value in model.state_dict().items()}

    without = weights()
    mrtf_fedml.register()
    with_us = weights()
    assert all(torch.equal(without[key], with_us[key]) for key in without)


def test_trainer_adapter_alone_selects_its_aggregator(tmp_path: Path) -> None:
    args, device, dataset, model = project(tmp_path, federated_optimizer="FedAvg")
    mrtf_fedml.register()
    runner = FedMLRunner(args, device, dataset, model, mrtf_fedml.MrTFTrainer(model, args))
    assert type(runner.runner.aggregator) is mrtf_fedml.MrTFAggregator


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"enable_fhe": True}, "homomorphic encryption"),
        ({"enable_dp": True, "dp_solution_type": "cdp", "delta": 1e-5}, "dp_solution_type 'cdp'"),
        ({"enable_dp": True, "dp_solution_type": "nbafl", "delta": 1e-5}, "dp_solution_type 'nbafl'"),
    ],
)
def test_fedml_options_that_contradict_the_algorithm_are_refused_before_the_run(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    args, device, dataset, model = project(tmp_path)
    vars(args).update(options)
    mrtf_fedml.register()
    with pytest.raises(UserError, match=message):
        FedMLRunner(args, device, dataset, model)
    assert not (tmp_path / "run").exists()


def test_dataset_with_fewer_clients_is_refused_and_with_more_warns(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    args, device, dataset, model = project(tmp_path)
    mrtf_fedml.register()
    args.client_num_in_total = 9
    with pytest.raises(UserError, match=r"client_num_in_total is 9, but the dataset holds 8 clients .*no client 8"):
        FedMLRunner(args, device, dataset, model)
    args.client_num_in_total = 7
    with caplog.at_level(logging.WARNING):
        FedMLRunner(args, device, dataset, model)
    assert "holds 8 clients but train_args.client_num_in_total is 7" in caplog.text


def test_register_with_other_fedml_version_warns_or_refuses(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(fedml, "__version__", "0.9.7")
    with caplog.at_level(logging.WARNING):
        mrtf_fedml.register()
    assert "FedML 0.9.7 is installed" in caplog.text
    mrtf_fedml.unregister()
    monkeypatch.setattr(FedMLRunner, "__init__", lambda self, args, plan: None)
    with pytest.raises(UserError, match=r"FedML 0\.9\.7 has another FedMLRunner .* pip install fedml==0\.9\.6"):
        mrtf_fedml.register()


def test_unsupported_backend_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    args, device, dataset, model = project(tmp_path)
    args.backend = "GRPC"
    mrtf_fedml.register()
    known = r"simulation with sp.*cross_silo with GRPC.*cross_device with MQTT_S3_MNN"
    with pytest.raises(UserError, match=rf"'simulation' with backend 'GRPC' .*{known}"):
        FedMLRunner(args, device, dataset, model)
    args.backend = "sp"
    args.training_type = "cross_device"
    with pytest.raises(UserError, match="backend is 'sp'; devices support only MQTT_S3_MNN"):
        FedMLRunner(args, device, dataset, model)


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ({"backend": "sp"}, "comm_args.backend is 'sp'"),
        ({"role": "client"}, "role 'client' does not fit rank 0"),
        ({"scenario": "hierarchical"}, "common_args.scenario is 'hierarchical'"),
    ],
)
def test_role_and_rank_that_do_not_fit_are_refused(tmp_path: Path, place: dict[str, Any], message: str) -> None:
    args, device, dataset, model = project(tmp_path)
    vars(args).update({"training_type": "cross_silo", "backend": "GRPC", "role": "server", "comm": None, **place})
    mrtf_fedml.register()
    with pytest.raises(UserError, match=message):
        FedMLRunner(args, device, dataset, model)
    assert not (tmp_path / "run").exists()
