"""FedRidge compared with scikit-learn's Ridge on the pooled samples, and what it refuses."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge
from torch import Tensor, nn

from mrtf_fedml.algorithms import ClientTask, ClientUpdate, FedRidge, MrTF, ServerContext, ServerState
from mrtf_fedml.algorithms.fedridge import RELATIVE_STRENGTHS, Sums, find_impossible_sum, head_name
from mrtf_fedml.algorithms.types import RoundReport
from mrtf_fedml.config import ModelSettings, RunSettings
from mrtf_fedml.data.shards import TensorShard
from mrtf_fedml.errors import UserError
from mrtf_fedml.models import FeatureExtractor, create_model
from mrtf_fedml.models.state_dict import snapshot

SAMPLES, FEATURES, CLASSES, CLIENTS = 120, 7, 3, 4


def make_samples() -> tuple[Tensor, Tensor]:
    """Samples whose features are correlated and far from zero on average."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(CLASSES, (SAMPLES,), generator=generator)
    mixing = torch.randn(FEATURES, FEATURES, generator=generator)
    inputs = torch.randn(SAMPLES, FEATURES, generator=generator) @ mixing + 5.0
    inputs[:, 0] += labels
    return inputs, labels


INPUTS, LABELS = make_samples()
#: Rows of each client: by class and unequal, or round robin.
SPLITS = {
    "by class": [np.flatnonzero(LABELS == 0), np.flatnonzero(LABELS == 1), *np.split(np.flatnonzero(LABELS == 2), [5])],
    "even": [np.arange(client, SAMPLES, CLIENTS) for client in range(CLIENTS)],
}


def shards(split: str) -> list[TensorShard]:
    return [TensorShard(INPUTS, LABELS, rows, batch_size=16) for rows in SPLITS[split]]


def settings(model: str = "linear", **changes: Any) -> RunSettings:
    train = {"client_num_in_total": CLIENTS, "client_num_per_round": CLIENTS, "federated_optimizer": "FedRidge"}
    private = {key: changes.pop(key) for key in ("clip", "sigma") if key in changes}
    config = {"train_args": {**train, **changes}, "model_args": {"model": model}, "dp_args": private}
    return RunSettings.from_config(config)


class Federation:
    """A server and clients in memory."""

    def __init__(self, split: str = "even", model: str = "linear", **changes: Any) -> None:
        self.algorithm = FedRidge(settings(model, **changes))
        self.shards = shards(split)
        self.model = create_model(ModelSettings(model=model, hidden_size=20), (FEATURES,), CLASSES, seed=0)
        self.state = self.algorithm.init_state(snapshot(self.model))
        self.context = ServerContext(self.model, INPUTS, FeatureExtractor(self.model, None, INPUTS[:2]), CLASSES)
        self.rejected: dict[int, str] = {}

    def ask(self, client: int) -> ClientUpdate:
        payload = {key: torch.as_tensor(value) for key, value in self._payload(client).items()}
        task = ClientTask(
            client, self.state.round, self.state.weights, self.shards[client], self.shards[client].samples, payload
        )
        return self.algorithm.train_client(copy.deepcopy(self.model), task)

    def _payload(self, client: int) -> Any:
        return self.algorithm.client_payload(self.state, client)

    def run_round(self, clients: Sequence[int] | None = None) -> RoundReport:
        chosen = self.algorithm.eligible_clients(self.state, range(CLIENTS)) if clients is None else clients
        updates = []
        for client in chosen:
            update = self.ask(client)
            reason = self.algorithm.validate_update(self.state, update)
            if reason is None:
                updates.append(update)
            else:
                self.rejected[client] = reason
        self.state, report = self.algorithm.server_update(self.state, updates, self.state.weights, self.context)
        return report

    def outputs(self) -> Tensor:
        """The logits of all samples."""
        return self.context.logits(self.state.prediction_weights).double()


def pooled_outputs(strength: float, rows: Any = slice(None), features: Tensor = INPUTS) -> Tensor:
    """What scikit-learn's Ridge on the pooled samples predicts for all of them."""
    targets = np.eye(CLASSES)[LABELS.numpy()]
    ridge = Ridge(alpha=strength).fit(features.double().numpy()[rows], targets[rows])
    return torch.from_numpy(ridge.predict(features.double().numpy()))


def assert_proportional(logits: Tensor, outputs: Tensor) -> None:
    """The logits are the outputs times one positive factor."""
    scale = (logits * outputs).sum() / (outputs * outputs).sum()
    assert scale > 0
    torch.testing.assert_close(logits, scale * outputs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("split", SPLITS)
def test_given_strength_gives_scikit_learns_ridge_in_one_round(split: str) -> None:
    federation = Federation(split, ridge_strength=2.5)
    report = federation.run_round()
    assert report.stop_reason is not None
    assert report.metrics["ridge_strength"] == 2.5
    assert_proportional(federation.outputs(), pooled_outputs(2.5))
    solution = Sums.from_tensors(federation.state.memory).solve([2.5])[0]
    targets = np.eye(CLASSES)[LABELS.numpy()]
    ridge = Ridge(alpha=2.5).fit(INPUTS.double().numpy(), targets)
    np.testing.assert_allclose(solution[:-1].T, ridge.coef_, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(solution[-1], ridge.intercept_, rtol=1e-9)


@pytest.mark.parametrize("split", SPLITS)
def test_validated_strength_gives_ridge_on_all_samples_in_two_rounds(split: str) -> None:
    federation = Federation(split)
    first, second = federation.run_round(), federation.run_round()
    assert first.stop_reason is None
    assert second.stop_reason is not None
    strength = second.metrics["ridge_strength"]
    assert strength is not None
    assert_proportional(federation.outputs(), pooled_outputs(strength))
    assert float(Sums.from_tensors(federation.state.memory).gram[-1, -1]) == SAMPLES


def test_two_splits_give_the_same_model() -> None:
    one, other = (Federation(split, ridge_strength=0.5) for split in SPLITS)
    one.run_round()
    other.run_round()
    for name, value in one.state.weights.items():
        torch.testing.assert_close(value, other.state.weights[name], rtol=1e-5, atol=1e-6)


def test_chosen_strength_has_the_most_correct_held_out_predictions() -> None:
    federation = Federation()
    federation.run_round()
    candidates = federation.state.memory["candidates"]
    counts = torch.zeros(len(RELATIVE_STRENGTHS), dtype=torch.float64)
    for client in range(CLIENTS):
        update = federation.ask(client)
        counts += update.payload["correct"]
        held_out = int(update.payload["class_sums"][-1].sum())
        assert 0 < held_out <= 4
        assert bool((update.payload["correct"] <= held_out).all())
    assert candidates.shape == (len(RELATIVE_STRENGTHS), FEATURES + 1, CLASSES)
    report = federation.run_round()
    chosen = max(range(len(counts)), key=lambda index: (counts[index], index))
    sums = Sums.from_tensors(federation.state.memory)
    assert report.metrics["ridge_strength"] == pytest.approx(sums.strength(RELATIVE_STRENGTHS[chosen]))


def test_late_client_is_added_and_removed_client_is_subtracted() -> None:
    rows = SPLITS["by class"]
    federation = Federation("by class", ridge_strength=1.0)
    assert federation.run_round(clients=[0, 1, 2]).stop_reason is None
    assert_proportional(federation.outputs(), pooled_outputs(1.0, np.concatenate(rows[:3])))
    assert list(federation.algorithm.eligible_clients(federation.state, range(CLIENTS))) == [3]
    assert federation.run_round().stop_reason is not None
    assert_proportional(federation.outputs(), pooled_outputs(1.0))
    federation.algorithm = FedRidge(settings(ridge_strength=1.0, ridge_removed_clients=[1]))
    assert list(federation.algorithm.eligible_clients(federation.state, range(CLIENTS))) == [1]
    report = federation.run_round()
    assert report.metrics["clients_added"] == 3
    assert report.stop_reason is not None
    assert_proportional(federation.outputs(), pooled_outputs(1.0, np.concatenate([rows[0], rows[2], rows[3]])))


def test_removed_client_with_other_samples_is_rejected() -> None:
    federation = Federation("by class", ridge_strength=1.0)
    federation.run_round()
    before = federation.state.memory["gram"]
    federation.algorithm = FedRidge(settings(ridge_strength=1.0, ridge_removed_clients=[1]))
    federation.shards[1] = federation.shards[0]
    federation.run_round()
    assert "other samples" in federation.rejected[1]
    torch.testing.assert_close(federation.state.memory["gram"], before, rtol=0, atol=0)


def test_round_selects_new_clients_before_clients_that_validate() -> None:
    federation = Federation()
    assert list(federation.algorithm.eligible_clients(federation.state, range(CLIENTS))) == [0, 1, 2, 3]
    federation.run_round(clients=[0, 1])
    assert list(federation.algorithm.eligible_clients(federation.state, range(CLIENTS))) == [2, 3]
    federation.run_round()
    assert list(federation.algorithm.eligible_clients(federation.state, range(CLIENTS))) == [0, 1, 2, 3]


def test_random_features_keep_their_layer_and_give_ridge_on_them() -> None:
    federation = Federation("by class", model="random_features", ridge_strength=1.0)
    buffers = dict(federation.model.named_buffers())
    projection = buffers["projection"].clone()
    features = nn.functional.relu(INPUTS @ projection.T + buffers["offset"])
    federation.run_round()
    torch.testing.assert_close(federation.state.weights["projection"], projection, rtol=0, atol=0)
    assert_proportional(federation.outputs(), pooled_outputs(1.0, features=features))


def test_base_uses_the_initial_layers_where_refined_ones_are_broadcast() -> None:
    federation, plain = (Federation(model="random_features", ridge_strength=1.0) for _ in range(2))
    config = {"client_num_in_total": CLIENTS, "client_num_per_round": CLIENTS, "ridge_strength": 1.0}
    mrtf = MrTF(RunSettings.from_config({"train_args": config, "mrtf_args": {"base": "FedRidge"}}))
    federation.algorithm = mrtf.base  # type: ignore[assignment]
    state = mrtf.init_state(federation.state.weights)
    federation.state = replace(state, weights={key: value + 1 for key, value in state.weights.items()})
    federation.run_round()
    plain.run_round()
    torch.testing.assert_close(federation.state.weights["classifier.weight"], plain.state.weights["classifier.weight"])


def test_probabilities_are_neither_uniform_nor_certain() -> None:
    federation = Federation(ridge_strength=1.0)
    federation.run_round()
    assert float(federation.outputs().std()) == pytest.approx(4.0, rel=0.01)


def tampered(update: ClientUpdate, name: str, value: Tensor) -> ClientUpdate:
    return replace(update, payload={**update.payload, name: value})


def test_impossible_sums_are_rejected() -> None:
    federation = Federation(ridge_strength=1.0)
    update = federation.ask(0)
    validate = federation.algorithm.validate_update
    state: ServerState = federation.state
    assert validate(state, update) is None
    gram, sums = update.payload["gram"], update.payload["class_sums"]
    assert "shape" in str(validate(state, tampered(update, "gram", gram[:-1])))
    assert "shape" in str(validate(state, replace(update, payload={})))
    assert "add up" in str(validate(state, tampered(update, "class_sums", sums + torch.eye(*sums.shape) * 9)))
    more = torch.cat([sums[:-1], sums[-1:] * 1000])
    assert "announced" in str(validate(state, tampered(update, "class_sums", more)))
    assert "per class" in str(validate(state, tampered(update, "class_sums", sums + 0.5)))
    indefinite = gram.clone()
    indefinite[1] = 1e6
    assert "semidefinite" in str(validate(state, tampered(update, "gram", indefinite)))


def test_impossible_counts_are_rejected() -> None:
    federation = Federation()
    federation.run_round()
    update = federation.ask(0)
    assert federation.algorithm.validate_update(federation.state, update) is None
    for counts in (torch.full((6,), 99.0), torch.full((6,), -1.0), torch.full((6,), 0.5), torch.zeros(5)):
        assert "counts" in str(
            federation.algorithm.validate_update(federation.state, tampered(update, "correct", counts))
        )


def test_sums_survive_packing() -> None:
    sums = Sums.of([(INPUTS, LABELS)], FEATURES, CLASSES)
    again = Sums.from_tensors(sums.to_tensors())
    torch.testing.assert_close(again.gram, sums.gram, rtol=1e-12, atol=1e-12)
    assert find_impossible_sum(again, SAMPLES) is None


def test_noise_that_makes_sums_indefinite_still_gives_a_finite_model() -> None:
    federation = Federation(clip=1.0, sigma=0.5)
    updates = []
    for client in range(CLIENTS):
        update = federation.ask(client)
        noise = torch.Generator().manual_seed(client)
        payload = {
            name: value / 1e4 + torch.randn(value.shape, generator=noise, dtype=torch.float64)
            for name, value in update.payload.items()
        }
        updates.append(replace(update, payload=payload))
    state, _ = federation.algorithm.server_update(
        federation.state, updates, federation.state.weights, federation.context
    )
    assert all(bool(value.isfinite().all()) for value in state.weights.values())


def test_sums_whose_noise_exceeds_them_are_kept_and_not_asked_for_again() -> None:
    federation = Federation(clip=1.0, sigma=0.5)
    update = federation.ask(0)
    negative = {name: -value for name, value in update.payload.items()}
    state, report = federation.algorithm.server_update(
        federation.state, [replace(update, payload=negative)], federation.state.weights, federation.context
    )
    assert report.stop_reason is None
    assert list(federation.algorithm.eligible_clients(state, range(CLIENTS))) == [1, 2, 3]
    torch.testing.assert_close(state.memory["gram"], negative["gram"])


def test_removed_client_takes_its_validation_counts_along() -> None:
    federation, without = Federation(), Federation(ridge_removed_clients=[2])
    for each in (federation, without):
        each.run_round()
        each.run_round()
    federation.algorithm = FedRidge(settings(ridge_removed_clients=[2]))
    federation.run_round()
    assert "2" not in federation.state.memory["clients"]
    assert federation.state.memory["clients"].keys() == without.state.memory["clients"].keys()
    for name, value in federation.state.weights.items():
        torch.testing.assert_close(value, without.state.weights[name], rtol=1e-5, atol=1e-6)


def test_base_of_mrtf_sends_its_own_solution_and_loss() -> None:
    config = {"client_num_in_total": CLIENTS, "client_num_per_round": CLIENTS, "federated_optimizer": "MrTF"}
    mrtf = MrTF(RunSettings.from_config({"train_args": config, "mrtf_args": {"base": "FedRidge"}}))
    federation = Federation("by class")
    assert isinstance(mrtf.base, FedRidge)
    federation.algorithm = mrtf.base
    update = federation.ask(0)
    assert update.loss is not None
    assert update.loss < 0.1, "all samples of client 0 have one class"
    assert federation.context.logits(update.weights).argmax(dim=1).eq(0).all()


def test_models_without_a_last_linear_layer_are_refused() -> None:
    with pytest.raises(UserError, match="model: linear"):
        head_name(snapshot(nn.Sequential(nn.Conv2d(1, 2, 3))))

    class Squashed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(FEATURES, CLASSES)

        def forward(self, inputs: Tensor) -> Tensor:
            return torch.sigmoid(self.head(inputs))

    federation = Federation(ridge_strength=1.0)
    federation.model = Squashed()
    federation.state = federation.algorithm.init_state(snapshot(federation.model))
    with pytest.raises(UserError, match="head"):
        federation.ask(0)


def test_too_many_features_are_refused_before_anything_is_computed() -> None:
    with pytest.raises(UserError, match="86528 features"):
        Federation().algorithm.init_state({"head.weight": torch.zeros(2, 86528), "head.bias": torch.zeros(2)})


@pytest.mark.parametrize(
    ("changes", "match"), [({"enable_dp": True}, "enable_dp"), ({"clip": 1.0, "base": "FedRidge"}, "mrtf_args.base")]
)
def test_privacy_that_does_not_cover_the_sums_is_refused(changes: dict[str, Any], match: str) -> None:
    base = changes.pop("base", None)
    config = {
        "train_args": {"federated_optimizer": "MrTF" if base else "FedRidge"},
        "dp_args": changes,
        **({"mrtf_args": {"base": base}} if base else {}),
    }
    with pytest.raises(UserError, match=match):
        (MrTF if base else FedRidge)(RunSettings.from_config(config))


def test_too_few_rounds_give_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    FedRidge(settings(client_num_per_round=1, comm_round=5))
    assert "needs 8 rounds" in caplog.text


def test_client_with_a_single_sample_of_a_class_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    federation = Federation(ridge_strength=1.0)
    federation.run_round()
    assert "single sample" not in caplog.text
    for client in (1, 2):
        shard = federation.shards[client]
        kept = [
            int((shard.labels == shard.labels[0]).nonzero()[0]),
            *(shard.labels != shard.labels[0]).nonzero().flatten(),
        ]
        federation.shards[client] = shard.part(torch.tensor(kept).sort().values)
        federation.algorithm.train_client(
            federation.model, ClientTask(client, 0, federation.state.weights, federation.shards[client], len(kept), {})
        )
    (message,) = [record.message for record in caplog.records if "single sample" in record.message]
    assert message.startswith("client 1 ")


def test_client_with_a_single_sample_and_noise_gives_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    federation = Federation()
    FedRidge(
        RunSettings.from_config(
            {"train_args": {"federated_optimizer": "FedRidge"}, "dp_args": {"clip": 1.0, "sigma": 1.0}}
        )
    ).train_client(
        federation.model,
        ClientTask(0, 0, federation.state.weights, federation.shards[0].part(torch.tensor([0])), 1, {}),
    )
    assert "single sample" not in caplog.text
