"""Fig. obser: one-shot training from theta_0, centralised against decentralised, by level of heterogeneity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from mrtf_fedml.models.feature_extraction import FeatureExtractor
from mrtf_fedml.models.inference import predict_logits, predict_logits_and_features
from mrtf_fedml.models.state_dict import StateDict, average, load_weights, snapshot
from mrtf_fedml.report.feature_map import embed_2d

from .datasets import Data
from .experiment import Budget, ClaimCheck, Experiment, Number, Outcome, Request, Split, Workload
from .figures import COLOURS, DASHES, MARKS, add_legend, new_figure
from .one_shot import Arrays, OneShotTraining, ResultCache, gradient_variance, weight_divergence

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class FigureRow:
    """One row of the figure.

    Attributes:
        title: the dataset.
        levels: the splits' names, from homogeneous to heterogeneous.
        starts: r_0 of each theta_0.
        accuracies: [starts, 5] of theta_0, theta_Cen and theta_Agg at each level, in percent.
        features: [5, samples, D] of the same models.
        labels: [samples].
        variance: of the clients' weights, by level.
        divergence: of the aggregated weights from the centralised, by level.
    """

    title: str
    levels: list[str]
    starts: list[int]
    accuracies: Array
    features: Array
    labels: Array
    variance: Array
    divergence: Array


def draw_observation(rows: Sequence[FigureRow]) -> Figure:
    """The rows below each other, each with the paper's eight panels."""
    figure, panels = new_figure(len(rows), 8, height=1.75, width=13.5)
    for axes, row in zip(panels, rows, strict=True):
        names = ["θ₀", "θ Cen", *(f"θ Agg, {level}" for level in row.levels)]
        for place, name in enumerate(names):
            _scatter(axes[place], row.features[place], row.labels)
            axes[place].set_title(name)
            axes[place].text(
                0.97, 0.97, f"{row.accuracies[len(row.starts) - 2, place]:.1f} %", ha="right", va="top", fontsize=8,
                transform=axes[place].transAxes, bbox={"facecolor": "white", "alpha": 0.8, "linewidth": 0, "pad": 1},
            )  # fmt: skip
        axes[0].set_ylabel(row.title)
        _bars(axes[5], row.levels, row.variance, "Gradient variance")
        _bars(axes[6], row.levels, row.divergence, "Weight divergence")
        for model in range(len(names)):
            shown = ("θ₀", "θ Cen")[model] if model < 2 else f"θ Agg, level {model - 1} of the row"
            axes[7].plot(
                row.starts, row.accuracies[:, model], linestyle=DASHES[model], color=COLOURS[(7, 0, 2, 1, 6)[model]],
                marker=MARKS[model], markersize=3, linewidth=1.2, label=shown,
            )  # fmt: skip
        axes[7].set_title("Accuracy (%)")
        axes[7].set_xlabel("Pre-training steps")
    add_legend(figure, panels)
    return figure


def _scatter(axes: Axes, features: Array, labels: Array) -> None:
    """Features in two dimensions: as they are where there are two, else by t-SNE."""
    flat = features.reshape(len(features), -1).astype(np.float64)
    places = flat if flat.shape[1] == 2 else _by_tsne(flat)
    for label in np.unique(labels).tolist():
        own = places[labels == label]
        axes.scatter(
            own[:, 0], own[:, 1], s=5, color=COLOURS[label % len(COLOURS)], marker=MARKS[label % len(MARKS)],
            linewidths=0, rasterized=True,
        )  # fmt: skip
    axes.set_xticks([])
    axes.set_yticks([])
    axes.margins(0.08)
    low, high = axes.get_ylim()
    # Room for the accuracy in the corner.
    axes.set_ylim(low, high + 0.15 * (high - low))


def _by_tsne(flat: Array) -> Array:
    # A network that has learnt nothing gives all samples the same features: there is nothing to spread out.
    if not np.isfinite(flat).all() or np.ptp(flat, axis=0).max(initial=0) == 0:
        return np.zeros((len(flat), 2))
    return embed_2d(flat).astype(np.float64)


def _bars(axes: Axes, levels: Sequence[str], values: Array, title: str) -> None:
    drawn = axes.bar(range(len(levels)), values, color=[COLOURS[place] for place in (2, 1, 6)], edgecolor="black")
    for bar, hatch in zip(drawn, ("", "//", "xx"), strict=True):
        bar.set_hatch(hatch)
    axes.set_xticks(range(len(levels)), levels, fontsize=6)
    axes.bar_label(drawn, labels=[f"{value:.2g}" for value in values], fontsize=6)
    axes.margins(y=0.15)
    axes.set_title(title)


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
DRAWN_SAMPLES = 500
MIN_CLIENTS, MIN_STEPS, MIN_SERVER_SAMPLES = 5, 20, 500
#: MLPNet's two features before the ReLU, which would fold the plane onto two half lines.
PLANE = "hidden.5"
MODELS = ("theta_0", "theta_Cen")


def _run(request: Request) -> Outcome:
    names = request.select(tuple(ROWS))
    starts = PRETRAINING if request.budget.share == 1 else FEW_PRETRAININGS
    cache = ResultCache(request.out, "obser", request.progress, len(names) * len(starts) * request.seeds)
    rows, numbers, checks = [], [], []
    for name in names:
        data, splits = request.data(name), ROWS[name]
        runs = [
            [
                cache.get(
                    data, _identity(request, data, steps, seed), partial(_train_and_measure, request, data, steps, seed)
                )
                for seed in range(request.seeds)
            ]
            for steps in starts
        ]
        accuracies = np.array([np.mean([run["accuracies"] for run in seeds], axis=0) for seeds in runs])
        drawn = runs[len(starts) - 2][0]
        measured = {
            key: np.mean([run[key] for run in runs[len(starts) - 2]], axis=0) for key in ("variance", "divergence")
        }
        row = FigureRow(
            data.dataset.title + (" (stand-in)" if data.stand_in else ""), [split.title for split in splits],
            list(starts), accuracies, drawn["features"], drawn["labels"], measured["variance"], measured["divergence"],
        )  # fmt: skip
        rows.append(row)
        numbers += _numbers(row)
        checks += _check_claims(row)
    cache.close()
    notes = [
        f"theta_0 of the drawn features: {starts[-2]} steps; features are those of the clients' samples, whose classes "
        "may be seen; accuracies are on the server's set",
        f"{_steps(request.budget)} steps each, centralised and on each of {_clients(request.budget)} clients",
    ]
    return Outcome(draw_observation(rows), numbers, checks, cache.seconds, notes)


def _train_and_measure(request: Request, data: Data, pretraining: int, seed: int) -> Arrays:
    """From one theta_0: accuracies of the five models, features, and the two measures of divergence."""
    size: dict[str, Any] = {"feature_size": 2} if data.model == "mlp" else {}
    training = OneShotTraining.create(data, RATE, seed, **size)
    clients, steps = _clients(request.budget), _steps(request.budget)
    server = request.budget.scale(data.sizes[1], MIN_SERVER_SAMPLES)
    central = training.split_data(Split("iid"), 1, server)
    start, _ = training.train(snapshot(training.model), central[2], pretraining, "pre-training")
    centralised, _ = training.train(start, central[2], steps, "centralised")
    models: list[StateDict] = [start, centralised]
    variance, divergence = [], []
    for split in ROWS[data.dataset.name]:
        dataset = training.split_data(split, clients, server)
        local = [training.train(start, dataset[5][k], steps, "client", k)[0] for k in range(clients)]
        models.append(average(local, [1 / clients] * clients))
        variance.append(gradient_variance(local, models[-1]))
        divergence.append(weight_divergence(models[-1], centralised))
    samples = central[2].indices[
        torch.linspace(0, central[2].samples - 1, min(DRAWN_SAMPLES, central[2].samples)).long()
    ]
    extractor = FeatureExtractor(training.model, PLANE if data.model == "mlp" else None, central.server_inputs[:2])
    accuracies, features = [], []
    assert central.evaluator is not None, "the paper's datasets and what stands in for them have labels"
    for weights in models:
        load_weights(training.model, weights)
        accuracies.append(
            100 * central.evaluator.score(predict_logits(training.model, central.server_inputs).argmax(1))
        )
        features.append(predict_logits_and_features(training.model, central[2].inputs[samples], extractor)[1].numpy())
    labels = data.source.y_train[samples.numpy()]
    return {
        "accuracies": np.array(accuracies), "features": np.stack(features), "labels": labels,
        "variance": np.array(variance), "divergence": np.array(divergence),
    }  # fmt: skip


def _numbers(row: FigureRow) -> list[Number]:
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


def _check_claims(row: FigureRow) -> list[ClaimCheck]:
    drawn = row.accuracies[len(row.starts) - 2]
    gaps = row.accuracies[:, 2] - row.accuracies[:, 4]
    first = max(range(len(gaps) - 1), key=lambda place: gaps[place])
    return [
        ClaimCheck(
            f"{row.title}: with homogeneous data the clients' average is above the centralised model",
            bool(drawn[2] > drawn[1]),
            f"{drawn[2]:.1f} % with {row.levels[0]}, {drawn[1]:.1f} % centralised",
        ),
        ClaimCheck(
            f"{row.title}: heterogeneous data degrade the aggregated model", bool(drawn[4] < drawn[2]),
            f"{drawn[2]:.1f} % with {row.levels[0]}, {drawn[4]:.1f} % with {row.levels[2]}",
        ),
        ClaimCheck(
            f"{row.title}: gradient variance and weight divergence grow with heterogeneity",
            bool(row.variance[2] > row.variance[0] and row.divergence[2] > row.divergence[0]),
            f"variance {row.variance[0]:.3g} to {row.variance[2]:.3g}, divergence {row.divergence[0]:.3g} to "
            f"{row.divergence[2]:.3g}",
        ),
        ClaimCheck(
            f"{row.title}: the gap is large from a poor theta_0 and small from a good one",
            bool(gaps[-1] < gaps[first]),
            f"{gaps[first]:.1f} points after {row.starts[first]} steps, {gaps[-1]:.1f} after {row.starts[-1]}",
        ),
    ]  # fmt: skip


def _identity(request: Request, data: Data, pretraining: int, seed: int) -> dict[str, Any]:
    sizes = [_clients(request.budget), _steps(request.budget), request.budget.share]
    identity = {"pretraining": pretraining, "seed": seed, "sizes": sizes, "rate": RATE}
    return identity | ({"features": PLANE} if data.model == "mlp" else {})


def _clients(budget: Budget) -> int:
    return budget.scale(CLIENTS, MIN_CLIENTS)


def _steps(budget: Budget) -> int:
    return budget.scale(STEPS, MIN_STEPS)


def _cost(budget: Budget) -> list[Workload]:
    starts = PRETRAINING if budget.share == 1 else FEW_PRETRAININGS
    steps = sum(starts) + len(starts) * _steps(budget) * (1 + 3 * _clients(budget))
    return [
        Workload(name, model, 64.0 * steps, 5.0 * len(starts) * max(MIN_SERVER_SAMPLES, size * budget.share))
        for name, model, size in (("mnist", "mlp", 10000), ("svhn", "convnet", 26032))
    ]


OBSER = Experiment(
    "obser", "Fig. obser (Sect. 3.3)", "FedAvg's one-shot training on heterogeneous data",
    "homogeneous clients' average beats centralised training, heterogeneous data degrade it, most from a poor start",
    tuple(ROWS),
    (
        "MNIST by Dirichlet α=10, 1, 0.1; SVHN by label C̄=10, 5, 3; K=10; 50 steps, centralised and on each client",
        f"MLPNet with 2 features on MNIST; ConvNet and t-SNE on SVHN; r_0 = {', '.join(map(str, PRETRAINING))}; rate "
        f"{RATE:g}, batches of 64 (the paper does not say r_0, the rate and the middle level of each split)",
    ),
    _run, _cost, refines=False,
    reduces=f"clients (at least {MIN_CLIENTS}), steps (at least {MIN_STEPS}) and server samples (at least "
    f"{MIN_SERVER_SAMPLES}), from {len(FEW_PRETRAININGS)} starts in place of {len(PRETRAINING)}",
)  # fmt: skip
