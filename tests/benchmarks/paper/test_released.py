"""ReleasedMrTF: what the authors' program does, a second time in plain NumPy, against ours."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from benchmarks.paper.released import (
    ReleasedMrTF,
    ReleasedSettings,
    batch_normalized_probabilities,
    released_batches,
    squared_distances,
    train_mode_logits,
)
from mrtf_fedml.algorithms import ClientTask, ClientUpdate, ModelPredictions, MrTF, ServerContext
from mrtf_fedml.algorithms.local_training import train_locally
from mrtf_fedml.algorithms.mrtf import ComponentMemory, RoundContext
from mrtf_fedml.algorithms.mrtf.components import RoundTargets
from mrtf_fedml.config import MrTFSettings, RunSettings, TrainSettings
from mrtf_fedml.models import FeatureExtractor
from mrtf_fedml.models.state_dict import snapshot
from mrtf_fedml.refinery.clustering import reassign_by_prototypes
from mrtf_fedml.refinery.distillation import DistillationSteps, distill
from mrtf_fedml.refinery.teachers import predicted_classes
from tests.refinery.cases import Case, complete_case

Array = NDArray[np.float64]
RELEASED = ReleasedSettings()


def released(batch_size: int = 32, **mrtf_args: Any) -> ReleasedMrTF:
    config = {"train_args": {"batch_size": batch_size}, "mrtf_args": mrtf_args}
    return ReleasedMrTF(RunSettings.from_config(config))


def softmax(scores: Array, axis: int = -1) -> Array:
    powers = np.exp(scores - scores.max(axis=axis, keepdims=True))
    return np.asarray(powers / powers.sum(axis=axis, keepdims=True))


def learnt(losses: list[float], classes: int) -> float:
    """How much has been learnt, 0 to 1, by the last five losses that are on record; nothing before there is one."""
    loss = np.mean(losses[-5:]) if losses else np.log(classes)
    return float(1 - np.clip(loss, 0, np.log(classes)) / np.log(classes))


def read_model(logits: Array, rows: int) -> tuple[Array, Array]:
    """Probabilities and entropies of one model: batch after batch divided by its deviation, no temperature."""
    probabilities, entropies = [], []
    for start in range(0, len(logits), rows):
        batch = logits[start : start + rows]
        batch = batch / (np.std(batch, ddof=1) + 1e-8)
        q = softmax(batch)
        probabilities.append(q)
        entropies.append(-(q * np.log(q + 1e-8)).sum(axis=1) / logits.shape[1])
    return np.concatenate(probabilities), np.concatenate(entropies)


def pseudo_labels(local: Array, taught: Array, features: Array, rows: int, global_weight: float) -> tuple[Array, Array]:
    """The targets, and the ensemble before prototypes, up to each row's sum."""
    read = [read_model(logits, rows) for logits in [*local, *taught]]
    shares = [(1 - global_weight) / len(local)] * len(local) + [global_weight / 2] * 2
    confidence = softmax(-np.stack([entropies for _, entropies in read]), axis=0)
    ensemble = sum(shares[k] * confidence[k][:, None] * q for k, (q, _) in enumerate(read))
    assert isinstance(ensemble, np.ndarray)
    mass = ensemble.sum(axis=0)
    centres = ensemble.T @ features / (mass[:, None] + 1e-8)
    unit = features / (np.linalg.norm(features, axis=1, keepdims=True) + 1e-8)
    centres = centres / (np.linalg.norm(centres, axis=1, keepdims=True) + 1e-8)
    distances = np.array([[((h - v) ** 2).sum() for v in centres] for h in unit])
    distances[:, mass <= 1e-6] = 1e8
    return softmax(-4 * distances), ensemble


def targets_of(case: Case, rows: int, monkeypatch: pytest.MonkeyPatch, loss: float = 0.5) -> RoundTargets:
    """Ours, with batches of so many rows."""
    assert case.global_logits is not None
    monkeypatch.setattr("benchmarks.paper.released.STD_BATCHES", rows)
    predictions = ModelPredictions(
        case.local_logits,
        predicted_classes(case.local_logits),
        case.global_logits[1],
        case.global_logits[0],
        case.features,
    )
    algorithm = released(batch_size=1, target_smoothing=0.0)
    return algorithm.make_targets(RoundContext.of(algorithm.refinery, predictions, loss), ComponentMemory({}))


def test_settings_are_those_of_the_program() -> None:
    changed = {key for key, value in vars(RELEASED).items() if value != getattr(MrTFSettings(), key)}
    assert changed == {"temperature", "cluster_warmup", "broadcast", "target_smoothing", "refine_lr"}
    assert (RELEASED.broadcast, RELEASED.refine_steps, RELEASED.cluster_temperature) == ("aggregated", 500, 4.0)


def test_targets_agree_with_the_program_read_a_second_time(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed, rows in ((1, 4), (2, 11), (3, 3), (4, 40)):
        case = complete_case(seed, shape=(5, 23, 6, 4))
        assert case.global_logits is not None
        assert case.features is not None
        loss = 0.3 * seed
        arrays = (case.local_logits.numpy(), case.global_logits.numpy(), case.features.numpy())
        expected, ensemble = pseudo_labels(*arrays, rows, 0.75 * learnt([loss], 6))
        ours = targets_of(case, rows, monkeypatch, loss)
        np.testing.assert_allclose(ours.targets.numpy(), expected, rtol=0, atol=1e-6)
        np.testing.assert_allclose(ours.ensemble.numpy(), ensemble / ensemble.sum(1, keepdims=True), atol=1e-6)
        assert ours.local_weight == pytest.approx(1 - 0.75 * learnt([loss], 6))


def test_std_per_batch_by_hand() -> None:
    # [1, -1] has the sample's deviation sqrt 2, [6, 0] has sqrt 18: both become [1, -1] / sqrt 2 up to a shift.
    logits = torch.tensor([[1.0, -1.0], [6.0, 0.0]], dtype=torch.float64)
    sure = 1 / (1 + math.exp(-math.sqrt(2)))
    expected = torch.tensor([[sure, 1 - sure]] * 2, dtype=torch.float64)
    torch.testing.assert_close(batch_normalized_probabilities(logits, 1.0, rows=1), expected, atol=1e-7, rtol=0)
    constant = batch_normalized_probabilities(torch.full((3, 4), 7.0), 1.0, rows=2)
    torch.testing.assert_close(constant, torch.full((3, 4), 0.25))


def test_squared_distance_is_twice_the_cosine_distance_and_leaves_massless_classes_out() -> None:
    features = torch.tensor([[3.0, 4.0], [0.0, 0.0]], dtype=torch.float64)
    centres = torch.tensor([[3.0, 4.0], [-3.0, -4.0], [4.0, -3.0], [0.0, 0.0]], dtype=torch.float64)
    expected = torch.tensor([[0.0, 4.0, 2.0, math.inf], [1.0, 1.0, 1.0, math.inf]], dtype=torch.float64)
    torch.testing.assert_close(squared_distances(features, centres), expected)
    shares = torch.tensor([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]], dtype=torch.float64)
    given = reassign_by_prototypes(shares, torch.eye(2, dtype=torch.float64), 4.0, squared_distances)
    assert (given[:, 2] == 0).all()


def adam_as_released(weight: Array, inputs: Array, targets: Array, settings: dict[str, float]) -> Array:
    """Adam with L2 decay, a clipped gradient and a rate that falls by half a cosine; all samples in every step."""
    weight, first, second = weight.copy(), np.zeros_like(weight), np.zeros_like(weight)
    steps = int(settings["steps"])
    for step in range(steps):
        gradient = (softmax(inputs @ weight.T) - targets).T @ inputs / len(inputs)
        norm = np.sqrt((gradient**2).sum())
        gradient = gradient * min(1.0, settings["clip"] / (norm + 1e-6)) + settings["decay"] * weight
        first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
        rate = 1e-8 + (settings["rate"] - 1e-8) * (1 + np.cos(np.pi * step / steps)) / 2
        weight -= rate * (first / (1 - 0.9 ** (step + 1))) / (np.sqrt(second / (1 - 0.999 ** (step + 1))) + 1e-8)
    return weight


@pytest.mark.parametrize("clip", [100.0, 0.05])
def test_student_steps_equal_those_of_the_released_program(clip: float) -> None:
    rng = np.random.default_rng(5)
    inputs, weight = rng.normal(size=(8, 3)), rng.normal(size=(4, 3))
    targets = softmax(2 * rng.normal(size=(8, 4)))
    student = nn.Linear(3, 4, bias=False, dtype=torch.float64)
    student.load_state_dict({"weight": torch.tensor(weight)})
    assert released().distillation() == DistillationSteps(500, 1e-3, 64, "cosine", 1e-6, 100.0)
    settings = DistillationSteps(30, 1e-3, 8, "cosine", weight_decay=0.1, clip_norm=clip)
    distill(student, torch.tensor(inputs), torch.tensor(targets), settings, torch.Generator())
    numbers = {"steps": 30, "clip": clip, "decay": 0.1, "rate": 1e-3}
    expected = adam_as_released(weight, inputs, targets, numbers)
    np.testing.assert_allclose(student.weight.detach().numpy(), expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize(("epochs", "extra"), [(2, 1), (1, 3)])
@pytest.mark.parametrize("base", ["FedAvg", "Scaffold"])
def test_clients_train_on_one_batch_more_and_on_six_at_least(epochs: int, extra: int, base: str) -> None:
    config = {"train_args": {"epochs": epochs}, "mrtf_args": {"base": base}}
    algorithm = ReleasedMrTF(RunSettings.from_config(config))
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    start = snapshot(model)
    # A loader that does not shuffle; its last batch is smaller, and counts as much in the loss.
    batches = [(torch.randn(size, 3), torch.randint(2, (size,))) for size in (4, 4, 1)]
    update = algorithm.train_client(model, ClientTask(0, 0, start, batches, 9, {}))
    taken = batches * epochs + batches[:extra]
    assert len(taken) == max(3 * epochs, 5) + 1
    single = TrainSettings(epochs=1)
    trained = [train_locally(model, start, taken[: n + 1], single, 0, 0, 0) for n in range(len(taken))]
    assert all(torch.equal(update.weights[name], trained[-1][0][name]) for name in start)
    sums = [0.0] + [loss * sum(len(y) for _, y in taken[: n + 1]) for n, (_, loss) in enumerate(trained)]
    by_batch = [(after - before) / len(y) for before, after, (_, y) in zip(sums, sums[1:], taken, strict=False)]
    assert update.loss == pytest.approx(sum(by_batch) / len(by_batch), rel=1e-5)
    by_words = MrTF(RunSettings.from_config({"train_args": {"epochs": epochs}, "mrtf_args": {"base": base}}))
    paper = by_words.train_client(model, ClientTask(0, 0, start, batches, 9, {}))
    expected = train_locally(model, start, batches * epochs, single, 0, 0, 0)
    assert all(torch.equal(paper.weights[name], expected[0][name]) for name in start)


def test_exhausted_loader_ends_the_training() -> None:
    model = nn.Linear(3, 2)
    once = iter([(torch.randn(4, 3), torch.randint(2, (4,)))])
    _, loss = train_locally(model, snapshot(model), once, TrainSettings(epochs=1), 0, 0, 0, batches=released_batches)
    assert math.isfinite(loss)


def test_local_teachers_predict_in_train_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3))
    inputs = torch.randn(21, 4)
    server = ServerContext(model, inputs, FeatureExtractor(model, None, inputs[:2]), 3)
    weights = snapshot(model)
    updates = [ClientUpdate(0, 1, weights, 0.5)]
    # Batches of 2 * 5 samples; the last one of 1 joins the one before it.
    monkeypatch.setattr("benchmarks.paper.released.STD_BATCHES", 2)
    read = released(batch_size=5).known_logits(updates, server)[0]
    hidden = inputs @ weights["0.weight"].T + weights["0.bias"]
    parts = [
        (part - part.mean(dim=0)) / (part.var(dim=0, correction=0) + 1e-5).sqrt() for part in (hidden[:10], hidden[10:])
    ]
    by_hand = torch.relu(torch.cat(parts)) @ weights["3.weight"].T + weights["3.bias"]
    torch.testing.assert_close(read, by_hand)
    assert (read - server.logits(weights)).abs().max() > 1e-3
    assert not MrTF(RunSettings()).known_logits(updates, server)


def test_teacher_logits_are_unchanged_if_train_mode_has_no_effect() -> None:
    torch.manual_seed(0)
    inputs = torch.randn(21, 4)
    plain = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))
    server = ServerContext(plain, inputs, FeatureExtractor(plain, None, inputs[:2]), 3)
    updates = [ClientUpdate(0, 1, snapshot(plain), 0.5)]
    assert not released(batch_size=5).known_logits(updates, server)
    torch.testing.assert_close(train_mode_logits(server, snapshot(plain), 10), server.logits(snapshot(plain)))


def test_rounds_go_on_as_in_the_program() -> None:
    """Seven rounds: u_t and smoothing by the five losses before, and what is refined never comes back."""
    rng = np.random.default_rng(6)
    classes, rows = 3, 20
    algorithm = released(batch_size=2, refine_steps=2)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, classes)).double()
    inputs = torch.tensor(rng.normal(size=(47, 4)))
    server = ServerContext(model, inputs, FeatureExtractor(model, None, inputs[:2]), classes)
    state, losses, smoothed = algorithm.init_state(snapshot(model)), list[float](), None
    for round_index in range(7):
        updates = [
            ClientUpdate(k, 1, {n: v + torch.tensor(rng.normal(size=v.shape)) for n, v in state.weights.items()}, loss)
            for k, loss in enumerate(rng.uniform(0, 1.2, 3))
        ]
        aggregated = algorithm.aggregate(updates)
        taught = np.stack([server.logits(state.weights).numpy(), server.logits(aggregated).numpy()])
        features = server.features(aggregated, torch.arange(47)).numpy()
        local = np.stack([server.logits(update.weights).numpy() for update in updates])
        share = 0.75 * learnt(losses, classes)
        targets, _ = pseudo_labels(local, taught, features, rows, share)
        smoothed = targets if smoothed is None else (1 - share) * targets + share * smoothed
        state, report = algorithm.server_update(state, updates, aggregated, server)
        assert report.metrics["local_weight"] == pytest.approx(1 - share), round_index
        np.testing.assert_allclose(report.predictions["targets"].numpy(), smoothed, rtol=0, atol=1e-6)
        losses.append(float(np.mean([update.loss for update in updates if update.loss is not None])))
        assert all(torch.equal(state.weights[name], aggregated[name]) for name in aggregated)
        assert not torch.equal(state.prediction_weights["0.weight"], aggregated["0.weight"])
    assert state.memory["refinery/loss_window/losses"] == pytest.approx(losses[-5:])


def test_released_ignores_the_preset() -> None:
    assert released(preset="tuned").hparams == released().hparams
