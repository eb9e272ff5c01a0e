"""FedBE, FedAUX and UWA: their targets by hand, and what they become when nothing is left of them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from mrtf_fedml.algorithms import UWA, ClientTask, ClientUpdate, FedAUX, FedAvg, FedBE, FedDF
from mrtf_fedml.algorithms.baselines.fedaux import certainty_scores, fit_certainty
from mrtf_fedml.algorithms.baselines.fedbe import dirichlet_shares, gaussian_deviations, gaussian_model
from mrtf_fedml.algorithms.baselines.uwa import fit_density, log_density
from mrtf_fedml.config import RunSettings
from mrtf_fedml.errors import UserError
from mrtf_fedml.models.state_dict import snapshot

from ..test_server_rules import equal, finish, server_setup


def settings(**refinery: Any) -> RunSettings:
    return RunSettings.from_config({"mrtf_args": {"refine_steps": 6, "refine_batch_size": 8, **refinery}})


@pytest.mark.parametrize("algorithm", [FedBE, FedAUX, UWA])
def test_without_steps_they_are_fedavg(algorithm: Any) -> None:
    after, report, aggregated = finish(algorithm(settings(refine_steps=0)))
    assert equal(after.weights, aggregated)
    assert not report.predictions
    taught, _, _ = finish(algorithm(settings()))
    assert not equal(taught.weights, aggregated)
    assert equal(taught.weights, taught.prediction_weights), "the student goes back to the clients"


@pytest.mark.parametrize("promised", [{"clip": 1.0, "sigma": 0.1}, {"enable_dp": True}])
@pytest.mark.parametrize("algorithm", [FedAUX, UWA])
def test_algorithm_with_payload_without_noise_rejects_privacy(algorithm: Any, promised: dict[str, Any]) -> None:
    private = RunSettings.from_config({"dp_args": promised})
    with pytest.raises(UserError, match=r"dp_args"):
        algorithm(private)


# FedBE ---------------------------------------------------------------------------------------------------------------


def two_models() -> list[dict[str, torch.Tensor]]:
    return [{"w": torch.tensor([0.0, 1.0])}, {"w": torch.tensor([4.0, 1.0])}]


def test_gaussian_has_mean_and_variance_of_the_clients() -> None:
    # Shares 1/4 and 3/4: mu = [3, 1], variance [1/4 * 9 + 3/4 * 1, 0] = [3, 0].
    mean = {"w": torch.tensor([3.0, 1.0]), "counter": torch.tensor(7)}
    deviations = gaussian_deviations(two_models(), [0.25, 0.75], mean, ["w"])
    torch.testing.assert_close(deviations["w"], torch.tensor([math.sqrt(3), 0.0]))
    generator = torch.Generator().manual_seed(0)
    drawn = torch.stack([gaussian_model(mean, deviations, generator)["w"] for _ in range(4000)])
    torch.testing.assert_close(drawn.mean(dim=0), mean["w"], atol=0.1, rtol=0)
    torch.testing.assert_close(drawn.var(dim=0), torch.tensor([3.0, 0.0]), atol=0.2, rtol=0)
    assert gaussian_model(mean, deviations, generator)["counter"] is mean["counter"]


def test_dirichlet_shares_have_the_clients_shares_as_mean() -> None:
    generator = np.random.default_rng(0)
    drawn = np.array([dirichlet_shares([0.2, 0.8], 1.0, generator) for _ in range(500)])
    np.testing.assert_allclose(drawn.sum(axis=1), 1)
    assert drawn[:, 0].min() < 0.05
    assert drawn[:, 0].max() > 0.6
    np.testing.assert_allclose(dirichlet_shares([0.2, 0.8], 1e9, generator), [0.2, 0.8], atol=1e-3)
    for _ in range(20):
        assert max(dirichlet_shares([0.5, 0.5], 1e-3, generator)) > 0.999, "a single client"


@pytest.mark.parametrize("distribution", ["gaussian", "dirichlet", "both"])
def test_fedbe_ensemble_has_clients_average_and_sampled_models(distribution: str) -> None:
    algorithm = FedBE(settings(fedbe_models=4, fedbe_distribution=distribution))
    server, updates, state = server_setup()
    aggregated = algorithm.aggregate(updates)
    sampled = list(algorithm.sample_models(state.round, updates, aggregated, server))
    assert len(sampled) == 4
    for weights in sampled:
        assert (weights["norm.running_var"] > 0).all()
        assert not torch.equal(weights["hidden.weight"], aggregated["hidden.weight"])
    models = [*(update.weights for update in updates), aggregated, *sampled]
    by_hand = torch.stack([server.logits(weights).softmax(dim=1) for weights in models]).mean(dim=0)
    _, report, _ = finish(algorithm)
    torch.testing.assert_close(report.predictions["ensemble"], by_hand)


def test_fedbe_of_equal_clients_samples_equal_models() -> None:
    server, updates, state = server_setup()
    same = [replace(updates[0], client=k) for k in range(3)]
    algorithm = FedBE(settings(fedbe_models=4, fedbe_distribution="both"))
    aggregated = algorithm.aggregate(same)
    _, report = algorithm.server_update(state, same, aggregated, server)
    torch.testing.assert_close(report.predictions["ensemble"], server.logits(aggregated).softmax(dim=1))


def test_swa_averages_where_the_later_cycles_end() -> None:
    server, updates, _ = server_setup()
    plain = FedBE(settings(fedbe_swa_cycles=1))
    start = plain.aggregate(updates)
    targets = torch.softmax(torch.arange(90.0).reshape(30, 3) % 5, dim=1)
    once = plain.distill(start, targets, 0, server)
    cyclic = FedBE(settings(fedbe_swa_cycles=4)).distill(start, targets, 0, server)
    seen: list[Any] = []

    class Watched(type(server)):  # type: ignore[misc]
        def distill(self, student: nn.Module, *rest: Any) -> float:
            loss = super().distill(student, *rest)
            seen.append((rest[2].refine_steps, rest[2].schedule, snapshot(student)))
            return float(loss)

    watched = Watched(server.model, server.inputs, server.extractor, server.classes)
    assert equal(FedBE(settings(fedbe_swa_cycles=4)).distill(start, targets, 0, watched), cyclic)
    assert [(steps, schedule) for steps, schedule, _ in seen] == [(s, "cosine") for s in (1, 2, 1, 2)]
    torch.testing.assert_close(cyclic["out.bias"], (seen[2][2]["out.bias"] + seen[3][2]["out.bias"]) / 2)
    assert not equal(once, cyclic)


# FedAUX --------------------------------------------------------------------------------------------------------------


def test_scores_by_hand() -> None:
    # Unit vectors (1, 0) and (0.6, 0.8); x' = (h, 1) / sqrt 2; b = sqrt 2 (1, 0, -0.6): sigmoid of 0.4 and of 0.
    features = torch.tensor([[5.0, 0.0], [3.0, 4.0]], dtype=torch.float64)
    certainty = math.sqrt(2) * torch.tensor([1.0, 0.0, -0.6], dtype=torch.float64)
    expected = torch.tensor([1 / (1 + math.exp(-0.4)), 0.5], dtype=torch.float64)
    torch.testing.assert_close(certainty_scores(features, certainty), expected)


def test_fit_certainty_gives_zero_gradient() -> None:
    generator = torch.Generator().manual_seed(0)
    own = torch.randn(40, 3, generator=generator, dtype=torch.float64) + torch.tensor([2.0, 0.0, 0.0])
    others = torch.randn(40, 3, generator=generator, dtype=torch.float64)
    certainty = fit_certainty(own, others, penalty=0.1)
    rows = torch.cat([own, others])
    rows = rows / rows.norm(dim=1, keepdim=True)
    rows = torch.cat([rows, torch.ones(80, 1)], dim=1) / math.sqrt(2)
    wanted = torch.cat([torch.ones(40), torch.zeros(40)]).double()
    gradient = rows.T @ (torch.sigmoid(rows @ certainty) - wanted) / 80 + 0.1 * certainty
    assert gradient.abs().max() < 1e-6
    assert certainty_scores(own, certainty).mean() > certainty_scores(others, certainty).mean() + 0.1
    same = fit_certainty(own, own, penalty=0.1)
    torch.testing.assert_close(certainty_scores(own, same), torch.full((40,), 0.5, dtype=torch.float64))


def test_equal_scores_give_feddf() -> None:
    # In round 0 no client has received the statistics of the server's features.
    aux, aux_report, _ = finish(FedAUX(settings()))
    df, df_report, _ = finish(FedDF(settings()))
    torch.testing.assert_close(aux_report.predictions["ensemble"], df_report.predictions["ensemble"])
    torch.testing.assert_close(aux.weights["out.weight"], df.weights["out.weight"])


def test_fedaux_weights_a_certain_teacher_more() -> None:
    server, updates, state = server_setup()
    # h(x) is not negative, so a constant of +-40 dominates.
    certainties = [torch.tensor([0.0] * 6 + [c]) for c in (40.0, -40.0, -40.0)]
    certain = [replace(update, payload={"certainty": c}) for update, c in zip(updates, certainties, strict=True)]
    algorithm = FedAUX(settings())
    _, report = algorithm.server_update(state, certain, algorithm.aggregate(certain), server)
    alone = server.logits(updates[0].weights).softmax(dim=1)
    torch.testing.assert_close(report.predictions["ensemble"], alone, atol=1e-4, rtol=0)


def client_task(algorithm: Any, extra: dict[str, torch.Tensor]) -> tuple[nn.Module, ClientTask]:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 3))
    data = [(torch.randn(20, 3), torch.randint(3, (20,)))]
    return model, ClientTask(2, 1, snapshot(model), data, 20, extra)


def test_fedaux_client_sends_its_regression_with_noise() -> None:
    after, _, _ = finish(FedAUX(settings()))
    facts = FedAUX(settings()).client_payload(after, 0)
    assert {name: tuple(value.shape) for name, value in facts.items()} == {
        "fedaux/mean": (6,),
        "fedaux/deviation": (6,),
    }
    extra = {"fedaux/mean": torch.zeros(4), "fedaux/deviation": torch.ones(4)}
    certainties = {}
    for epsilon in (None, 1e9, 0.1):
        algorithm = FedAUX(settings(fedaux_epsilon=epsilon))
        update = algorithm.train_client(*client_task(algorithm, extra))
        assert equal(update.weights, FedAvg(settings()).train_client(*client_task(algorithm, extra)).weights)
        certainties[epsilon] = update.payload["certainty"]
    torch.testing.assert_close(certainties[None], certainties[1e9], atol=1e-4, rtol=0)
    # n = 40, lambda = 0.01, delta = 1e-5: sigma = sqrt(2 log 125000) * 5 / 0.1 = 242.
    assert 80 < (certainties[0.1] - certainties[None]).std() < 500
    assert not FedAUX(settings()).train_client(*client_task(None, {})).payload


# UWA -----------------------------------------------------------------------------------------------------------------


def test_fit_density_equals_values_by_hand() -> None:
    # Classes 3 and 5: shares 2/3 and 1/3, means (1, 0) and (10, 3). Within: first feature (1 + 1 + 0) / 3, second 0.
    features = torch.tensor([[0.0, 0.0], [2.0, 0.0], [10.0, 3.0]], dtype=torch.float64)
    shares, means, variance = fit_density(features, torch.tensor([3, 3, 5]))
    assert shares.tolist() == pytest.approx([2 / 3, 1 / 3])
    assert means.tolist() == [[1.0, 0.0], [10.0, 3.0]]
    assert variance.tolist() == pytest.approx([2 / 3 + 0.1 / 3 + 1e-6, 0.1 / 3 + 1e-6])
    points = torch.tensor([[1.0, 0.0], [9.0, 2.0]], dtype=torch.float64)
    for point, height in zip(points, log_density(points, shares, means, variance), strict=True):
        exact = sum(
            share * torch.distributions.Normal(mean, variance.sqrt()).log_prob(point).sum().exp()
            for share, mean in zip(shares, means, strict=True)
        )
        assert float(height) == pytest.approx(math.log(exact), abs=1e-9)


def test_samples_of_one_class_each_still_have_a_density() -> None:
    _, _, variance = fit_density(torch.tensor([[0.0], [4.0]]), torch.tensor([0, 1]))
    assert variance.item() == pytest.approx(0.1 * 4.0 + 1e-6)


def uwa_round(sharpness: float, updates: list[ClientUpdate] | None = None) -> tuple[Any, Any, list[ClientUpdate]]:
    server, sent, state = server_setup()
    features = server.features(state.weights, torch.arange(30)).double()
    # Client k has seen what the server's samples 10 k to 10 k + 9 look like.
    densities = [fit_density(features[10 * k : 10 * k + 10], torch.zeros(10, dtype=torch.long)) for k in range(3)]
    names = ("shares", "means", "variance")
    sent = updates or [
        replace(update, payload=dict(zip(names, density, strict=True)))
        for update, density in zip(sent, densities, strict=True)
    ]
    algorithm = UWA(settings(uwa_sharpness=sharpness))
    _, report = algorithm.server_update(state, sent, algorithm.aggregate(sent), server)
    probabilities = torch.stack([server.logits(update.weights).softmax(dim=1) for update in sent])
    heights = torch.stack([log_density(features, *density) for density in densities])
    return report.predictions["ensemble"], (probabilities, heights), sent


def test_uwa_weights_teachers_by_their_densities() -> None:
    ensemble, (probabilities, heights), _ = uwa_round(4.0)
    weights = torch.softmax(4.0 * heights / 6, dim=0).float()
    by_hand = (weights[:, :, None] * probabilities).sum(dim=0)
    torch.testing.assert_close(ensemble, by_hand, atol=1e-5, rtol=0)
    sharp, _, _ = uwa_round(1e6)
    best = probabilities[heights.argmax(dim=0), torch.arange(30)]
    torch.testing.assert_close(sharp, best, atol=1e-5, rtol=0)


def test_uwa_without_sharpness_or_densities_weights_teachers_equally() -> None:
    ensemble, (probabilities, _), sent = uwa_round(0.0)
    torch.testing.assert_close(ensemble, probabilities.mean(dim=0))
    silent, (probabilities, _), _ = uwa_round(4.0, [replace(update, payload={}) for update in sent])
    torch.testing.assert_close(silent, probabilities.mean(dim=0))


def test_uwa_client_sends_its_density_and_trains_as_fedavg() -> None:
    algorithm = UWA(settings())
    update = algorithm.train_client(*client_task(algorithm, {}))
    plain = FedAvg(settings()).train_client(*client_task(algorithm, {}))
    assert equal(update.weights, plain.weights)
    assert update.loss == plain.loss
    assert {name: value.shape[-1] for name, value in update.payload.items()} == {"shares": 3, "means": 4, "variance": 4}
