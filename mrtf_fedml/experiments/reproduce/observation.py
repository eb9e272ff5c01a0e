"""Fig. obser: one-shot training from theta_0, centralised against decentralised, by levels of heterogeneity."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch

from ...models.feature_tap import FeatureTap
from ...models.inference import predict_logits, predict_logits_and_features
from ...models.weights import StateDict, average, load, snapshot
from .observation_figure import Rows, draw_observation
from .one_shot import Workshop, gradient_variance, weight_divergence
from .parameters import Budget, Split
from .pieces import Arrays, Pieces
from .scene import Number, Outcome, Request, Scene, Verdict, Work
from .shelf import Data

#: The paper's rows: each dataset with its split, from homogeneous to heterogeneous.
ROWS: dict[str, tuple[Split, ...]] = {
    "mnist": tuple(Split("dirichlet", alpha) for alpha in (10.0, 1.0, 0.1)),
    "svhn": tuple(Split("label", classes) for classes in (10, 5, 3)),
}
CLIENTS, STEPS = 10, 50
#: r_0, of which the last but one is drawn; the paper says none of them, nor its rate: larger ones destroy theta_0.
PRETRAINING = (0, 50, 100, 200, 400)
FEW_PRETRAININGS = (0, 100, 400)
RATE = 0.02
#: Samples whose features are drawn: the clients', since their classes may be seen.
DRAWN = 500
LEAST_CLIENTS, LEAST_STEPS, LEAST_SERVER = 5, 20, 500
#: MLPNet's two features before the ReLU, which would fold the plane onto two half lines.
PLANE = "hidden.5"
MODELS = ("theta_0", "theta_Cen")


def _play(request: Request) -> Outcome:
    names = request.wanted(tuple(ROWS))
    starts = PRETRAINING if request.budget.share == 1 else FEW_PRETRAININGS
    pieces = Pieces(request.out, "obser", request.progress, len(names) * len(starts) * request.seeds)
    rows, numbers, verdicts = [], [], []
    for name in names:
        data, splits = request.data(name), ROWS[name]
        runs = [
            [
                pieces.get(data, _facts(request, data, steps, seed), partial(_one, request, data, steps, seed))
                for seed in range(request.seeds)
            ]
            for steps in starts
        ]
        accuracies = np.array([np.mean([run["accuracies"] for run in seeds], axis=0) for seeds in runs])
        drawn = runs[len(starts) - 2][0]
        measured = {
            key: np.mean([run[key] for run in runs[len(starts) - 2]], axis=0) for key in ("variance", "divergence")
        }
        row = Rows(
            data.dataset.title + (" (stand-in)" if data.stands_in else ""), [split.title for split in splits],
            list(starts), accuracies, drawn["features"], drawn["labels"], measured["variance"], measured["divergence"],
        )  # fmt: skip
        rows.append(row)
        numbers += _numbers(row)
        verdicts += _judged(row)
    pieces.close()
    notes = [
        f"theta_0 of the drawn features: {starts[-2]} steps; features are those of the clients' samples, whose classes "
        "may be seen; accuracies are on the server's set",
        f"{_steps(request.budget)} steps each, centralised and on each of {_clients(request.budget)} clients",
    ]
    return Outcome(draw_observation(rows), numbers, verdicts, pieces.seconds, notes)


def _one(request: Request, data: Data, pretraining: int, seed: int) -> Arrays:
    """From one theta_0: accuracies of the five models, features, and the two measures of divergence."""
    size: dict[str, Any] = {"feature_size": 2} if data.model == "mlp" else {}
    shop = Workshop.open(data, RATE, seed, **size)
    clients, steps = _clients(request.budget), _steps(request.budget)
    server = request.budget.of(data.sizes[1], LEAST_SERVER)
    central = shop.dealt(Split("iid"), 1, server)
    start, _ = shop.trained(snapshot(shop.model), central[2], pretraining, "pre-training")
    centralised, _ = shop.trained(start, central[2], steps, "centralised")
    models: list[StateDict] = [start, centralised]
    variance, divergence = [], []
    for split in ROWS[data.dataset.name]:
        dealt = shop.dealt(split, clients, server)
        local = [shop.trained(start, dealt[5][k], steps, "client", k)[0] for k in range(clients)]
        models.append(average(local, [1 / clients] * clients))
        variance.append(gradient_variance(local, models[-1]))
        divergence.append(weight_divergence(models[-1], centralised))
    samples = central[2].indices[torch.linspace(0, central[2].samples - 1, min(DRAWN, central[2].samples)).long()]
    tap = FeatureTap(shop.model, PLANE if data.model == "mlp" else None, central.server_inputs[:2])
    accuracies, features = [], []
    assert central.examiner is not None, "the paper's datasets and what stands in for them have labels"
    for weights in models:
        load(shop.model, weights)
        accuracies.append(100 * central.examiner.score(predict_logits(shop.model, central.server_inputs).argmax(1)))
        features.append(predict_logits_and_features(shop.model, central[2].inputs[samples], tap)[1].numpy())
    labels = data.source.y_train[samples.numpy()]
    return {
        "accuracies": np.array(accuracies), "features": np.stack(features), "labels": labels,
        "variance": np.array(variance), "divergence": np.array(divergence),
    }  # fmt: skip


def _numbers(row: Rows) -> list[Number]:
    names = [*MODELS, *(f"theta_Agg {level}" for level in row.levels)]
    numbers = [
        Number(f"{row.title}, {steps} pre-training steps, accuracy of {name}", float(row.accuracies[place, model]))
        for place, steps in enumerate(row.starts)
        for model, name in enumerate(names)
    ]
    for key, values in (("gradient variance", row.variance), ("weight divergence", row.divergence)):
        numbers += [
            Number(f"{row.title}, {key}, {level}", float(value), digits=-3)
            for level, value in zip(row.levels, values, strict=True)
        ]
    return numbers


def _judged(row: Rows) -> list[Verdict]:
    drawn = row.accuracies[len(row.starts) - 2]
    gaps = row.accuracies[:, 2] - row.accuracies[:, 4]
    first = max(range(len(gaps) - 1), key=lambda place: gaps[place])
    return [
        Verdict(
            f"{row.title}: with homogeneous data the clients' average is above the centralised model",
            bool(drawn[2] > drawn[1]),
            f"{drawn[2]:.1f} % with {row.levels[0]}, {drawn[1]:.1f} % centralised",
        ),
        Verdict(
            f"{row.title}: heterogeneous data degrade the aggregated model", bool(drawn[4] < drawn[2]),
            f"{drawn[2]:.1f} % with {row.levels[0]}, {drawn[4]:.1f} % with {row.levels[2]}",
        ),
        Verdict(
            f"{row.title}: gradient variance and weight divergence grow with heterogeneity",
            bool(row.variance[2] > row.variance[0] and row.divergence[2] > row.divergence[0]),
            f"variance {row.variance[0]:.3g} to {row.variance[2]:.3g}, divergence {row.divergence[0]:.3g} to "
            f"{row.divergence[2]:.3g}",
        ),
        Verdict(
            f"{row.title}: the gap is large from a poor theta_0 and small from a good one",
            bool(gaps[-1] < gaps[first]),
            f"{gaps[first]:.1f} points after {row.starts[first]} steps, {gaps[-1]:.1f} after {row.starts[-1]}",
        ),
    ]  # fmt: skip


def _facts(request: Request, data: Data, pretraining: int, seed: int) -> dict[str, Any]:
    sizes = [_clients(request.budget), _steps(request.budget), request.budget.share]
    facts = {"pretraining": pretraining, "seed": seed, "sizes": sizes, "rate": RATE}
    return facts | ({"features": PLANE} if data.model == "mlp" else {})


def _clients(budget: Budget) -> int:
    return budget.of(CLIENTS, LEAST_CLIENTS)


def _steps(budget: Budget) -> int:
    return budget.of(STEPS, LEAST_STEPS)


def _cost(budget: Budget) -> list[Work]:
    starts = PRETRAINING if budget.share == 1 else FEW_PRETRAININGS
    steps = sum(starts) + len(starts) * _steps(budget) * (1 + 3 * _clients(budget))
    return [
        Work(name, model, 64.0 * steps, 5.0 * len(starts) * max(LEAST_SERVER, size * budget.share))
        for name, model, size in (("mnist", "mlp", 10000), ("svhn", "convnet", 26032))
    ]


OBSER = Scene(
    "obser", "Fig. obser (Sect. 3.3)", "FedAvg's one-shot training on heterogeneous data",
    "homogeneous clients' average beats centralised training, heterogeneous data degrade it, most from a poor start",
    tuple(ROWS),
    (
        "MNIST by Dirichlet α=10, 1, 0.1; SVHN by label C̄=10, 5, 3; K=10; 50 steps, centralised and on each client",
        f"MLPNet with 2 features on MNIST; ConvNet and t-SNE on SVHN; r_0 = {', '.join(map(str, PRETRAINING))}; rate "
        f"{RATE:g}, batches of 64 (the paper does not say r_0, the rate and the middle level of each split)",
    ),
    _play, _cost, refines=False,
    lowers=f"clients (at least {LEAST_CLIENTS}), steps (at least {LEAST_STEPS}) and server samples (at least "
    f"{LEAST_SERVER}), from {len(FEW_PRETRAININGS)} starts in place of {len(PRETRAINING)}",
)  # fmt: skip
