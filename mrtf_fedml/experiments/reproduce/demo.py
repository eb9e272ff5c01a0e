"""Fig. logi, the demo of Sect. 5.1: three clients of two classes each, and what their models say together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ...errors import UserError
from ...models.inference import predict_logits
from ...models.weights import average, load, snapshot
from ...refinery import distillation_targets
from ...refinery.rectify import local_weight
from ...refinery.teachers import average_logits, average_probabilities
from ...settings import MrTFSettings
from .demo_figure import draw_demo
from .one_shot import Workshop
from .parameters import Budget, Split
from .pieces import Arrays, Pieces
from .scene import Number, Outcome, Request, Scene, Verdict, Work

CLIENTS, CLASSES = 3, 2
#: theta_0 knows all classes: the paper's 79.9% is beyond models that have seen six classes of ten. The paper says no
#: number of steps and no rate: 50 local steps are those of Fig. obser, and 0.05 is one of the paper's rates. With lower
#: ones the logits of all clients are of one size, and AvgLogi loses nothing.
PRETRAINING, LOCAL_STEPS, PRE_RATE, RATE = 50, 50, 0.02, 0.05
#: The paper's own weights of the three clients.
UNEVEN = (0.6, 0.3, 0.1)
LEAST_SERVER = 500


def _play(request: Request) -> Outcome:
    data = request.data("mnist")
    server = request.budget.of(data.sizes[1], LEAST_SERVER)
    pieces = Pieces(request.out, "logi", request.progress, request.seeds)
    facts = {"steps": [PRETRAINING, LOCAL_STEPS], "rates": [PRE_RATE, RATE], "server": server}
    runs = [
        pieces.get(data, {**facts, "seed": seed}, lambda seed=seed: _logits(request, server, seed))  # type: ignore[misc]
        for seed in range(request.seeds)
    ]
    pieces.close()
    by_seed = []
    # The server's set is the same for all seeds, however the clients' samples are dealt.
    examiner = Workshop.open(data, RATE, 0).dealt(Split("iid"), 1, server).examiner
    if examiner is None:
        raise UserError(f"reproduce logi scores the server's set, but {data.title} has no y_test; give it some")
    for run in runs:
        ensembles = ensembles_of(torch.from_numpy(run["logits"]), float(run["loss"]), request.presets)
        by_seed.append({name: 100 * examiner.score(q.argmax(dim=1)) for name, q in ensembles.items()})
    accuracies = {name: float(np.mean([one[name] for one in by_seed])) for name in by_seed[0]}
    numbers = [Number(what, value, variant) for (what, variant), value in accuracies.items()]
    first = torch.from_numpy(runs[0]["logits"])
    figure = draw_demo(first.numpy(), ensembles_of(first, float(runs[0]["loss"]), ()), accuracies)
    notes = [
        f"theta_0 is pre-trained for {PRETRAINING} steps on all clients' samples: the paper's 79.9 % cannot come from "
        "models that have seen six classes of ten",
        "Accuracies are "
        + (f"means over {request.seeds} seeds; stems are seed 0's" if request.seeds > 1 else "of seed 0"),
    ]
    return Outcome(figure, numbers, _judged(accuracies, by_seed, request.presets), pieces.seconds, notes)


def ensembles_of(logits: Tensor, loss: float, presets: Sequence[str]) -> dict[tuple[str, str], Tensor]:
    """What is said of each sample, [M, C], by (what, preset), from the logits of the local, initial and average models.

    With the aggregated models added, AvgLogi is Eq. 3 and AvgProb Eq. 4 over all five with Eq. 10's weights; and for
    each preset the targets that a round would make of them (Eq. 6 and 10).
    """
    local, both = logits[:CLIENTS], logits[CLIENTS:]
    probabilities = local.softmax(dim=-1)
    even, uneven = torch.ones(CLIENTS), torch.tensor(UNEVEN)
    share = local_weight(loss, logits.shape[-1])
    weights = torch.tensor([share / CLIENTS] * CLIENTS + [(1 - share) / 2] * 2)
    said = {(f"local model {k + 1}", ""): probabilities[k] for k in range(CLIENTS)}
    said |= {
        ("AvgLogi, uniform", ""): average_logits(local, even),
        ("AvgProb, uniform", ""): average_probabilities(probabilities, even),
        ("AvgLogi, weights 0.6/0.3/0.1", ""): average_logits(local, uneven),
        ("AvgProb, weights 0.6/0.3/0.1", ""): average_probabilities(probabilities, uneven),
        ("AvgLogi, with the aggregated models", ""): average_logits(logits, weights),
        ("AvgProb, with the aggregated models", "Eq. 4"): average_probabilities(logits.softmax(dim=-1), weights),
    }
    for preset in presets:
        settings = MrTFSettings.from_mapping({"preset": preset})
        targets = distillation_targets(local, both, None, loss, settings)
        said["AvgProb, with the aggregated models", preset] = targets.probabilities
    return said


def _logits(request: Request, server: int, seed: int) -> Arrays:
    data = request.data("mnist")
    pre = Workshop.open(data, PRE_RATE, seed)
    start, _ = pre.trained(snapshot(pre.model), pre.dealt(Split("iid"), 1)[2], PRETRAINING, "pre-training")
    shop = Workshop(data, pre.model, RATE, seed)
    dealt = shop.dealt(Split("label", CLASSES), CLIENTS, server)
    trained = [shop.trained(start, dealt[5][k], LOCAL_STEPS, "client", k) for k in range(CLIENTS)]
    local = [weights for weights, _ in trained]
    logits = []
    for weights in (*local, start, average(local, [1 / CLIENTS] * CLIENTS)):
        load(shop.model, weights)
        logits.append(predict_logits(shop.model, dealt.server_inputs).numpy())
    return {"logits": np.stack(logits), "loss": np.array(np.mean([loss for _, loss in trained]))}


def _judged(
    accuracies: dict[tuple[str, str], float], by_seed: list[dict[tuple[str, str], float]], presets: Sequence[str]
) -> list[Verdict]:
    def compared(claim: str, higher: tuple[str, str], lower: tuple[str, str], variant: str = "") -> Verdict:
        seeds = sum(one[higher] > one[lower] for one in by_seed)
        evidence = f"{accuracies[higher]:.1f} against {accuracies[lower]:.1f}; in {seeds} of {len(by_seed)} seeds"
        return Verdict(claim, accuracies[higher] > accuracies[lower], evidence, variant)

    logi, prob = ("AvgLogi, uniform", ""), ("AvgProb, uniform", "")
    logi_more = ("AvgLogi, with the aggregated models", "")
    verdicts = [
        compared("AvgProb is above AvgLogi", prob, logi),
        compared("AvgLogi rises with the aggregated models", logi_more, logi),
    ]
    uneven = [("AvgLogi, weights 0.6/0.3/0.1", ""), ("AvgProb, weights 0.6/0.3/0.1", "")]
    lost = [accuracies[even] - accuracies[other] for even, other in zip((logi, prob), uneven, strict=True)]
    evidence = f"AvgLogi loses {lost[0]:.1f} points, AvgProb {lost[1]:.1f}"
    verdicts.append(Verdict("uneven weights cost AvgLogi more than AvgProb", lost[0] > lost[1], evidence))
    for variant in ("Eq. 4", *presets):
        more = ("AvgProb, with the aggregated models", variant)
        verdicts.append(compared("AvgProb rises with the aggregated models", more, prob, variant))
        verdicts.append(compared("with them AvgProb is above AvgLogi", more, logi_more, variant))
    return verdicts


def _cost(budget: Budget) -> list[Work]:
    steps = PRETRAINING + CLIENTS * LOCAL_STEPS
    return [Work("mnist", "mlp", 64.0 * steps, (CLIENTS + 2) * 10000.0 * budget.share)]


LOGI = Scene(
    "logi", "Fig. logi (Sect. 5.1)", "The demo: logits and probabilities of three clients, and their averages",
    "AvgProb is above AvgLogi, bears uneven weights better, and both rise with the aggregated models added",
    ("mnist",),
    (
        f"three clients of {CLASSES} classes; weights uniform and {'/'.join(map(str, UNEVEN))}; MLPNet",
        f"theta_0: {PRETRAINING} steps on all samples, rate {PRE_RATE:g}; then {LOCAL_STEPS} steps of each client, "
        f"rate {RATE:g}, batches of 64 (the paper says none of these)",
    ),
    _play, _cost, seeds=3, lowers=f"server samples (at least {LEAST_SERVER})",
)  # fmt: skip
