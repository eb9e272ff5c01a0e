"""Fig. logi as the paper lays it out: each client's logits and probabilities above, what they are averaged to below."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from .drawing import COLOURS, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LOGI, _PROB, _MOST = COLOURS[0], COLOURS[1], COLOURS[6]
_BELOW = {
    "uniform": "Uniform weights",
    "weights 0.6/0.3/0.1": "Weights 0.6/0.3/0.1",
    "with the aggregated models": "With the aggregated models",
}
Said = Mapping[tuple[str, str], Tensor]


def draw_demo(logits: npt.NDArray[Any], said: Said, accuracies: Mapping[tuple[str, str], float]) -> Figure:
    """Stems by class, averaged over the server's samples; the class that stands out most is red and filled."""
    figure, panels = new_figure(4, 3, height=1.35)
    for client in range(3):
        what = (f"local model {client + 1}", "")
        upper, lower = panels[0][client], panels[1][client]
        _stems(upper, logits[client].mean(axis=0), _LOGI)
        _stems(lower, said[what].mean(dim=0).numpy(), _PROB)
        upper.set_title(f"Client {client + 1}: accuracy {accuracies[what]:.1f} %")
    for column, (key, title) in enumerate(_BELOW.items()):
        # Eq. 3 against Eq. 4 in every panel; what the presets make of it is in the table.
        variant = "Eq. 4" if key == "with the aggregated models" else ""
        logi, prob = (f"AvgLogi, {key}", ""), (f"AvgProb, {key}", variant)
        upper, lower = panels[2][column], panels[3][column]
        _stems(upper, said[logi].mean(dim=0).numpy(), _LOGI)
        _stems(lower, said[prob].mean(dim=0).numpy(), _PROB)
        upper.set_title(f"{title}\nAvgLogi: accuracy {accuracies[logi]:.1f} %")
        lower.set_title(f"AvgProb: accuracy {accuracies[prob]:.1f} %")
        lower.set_xlabel("Class")
        high = 1.15 * max(float(said[name].mean(dim=0).max()) for name in (logi, prob))
        for axes in (upper, lower):
            axes.set_ylim(0, high)
    for row, name in zip(panels, ("Mean logit", "Mean prob.", "Mean prob.", "Mean prob."), strict=True):
        row[0].set_ylabel(name)
    return figure


def _stems(axes: Axes, values: npt.NDArray[Any], colour: str) -> None:
    most = int(np.argmax(values))
    for label, value in enumerate(values.tolist()):
        own = _MOST if label == most else colour
        axes.vlines(label, 0, value, color=own, linewidth=1.6)
        axes.plot(label, value, "s" if label == most else "o", color=own, markersize=4)
    axes.margins(y=0.12)
    axes.axhline(0, color="0.4", linewidth=0.6)
    step = max(1, len(values) // 10)
    axes.set_xticks(range(0, len(values), step))
