"""One panel of the paper's main figure at the paper's own size: MNIST, 100 clients, 200 rounds.

    python -m benchmarks.paper.full_size mnist.npz OUT --panel C=3 FedAvg Scaffold paper released tuned
    python -m benchmarks.paper.full_size --draw benchmarks/paper/results/mnist_C3_full_size.json FIGURE.png

A curve is an algorithm, a preset of MrTF, or `paper/aggregated`: the paper's refinery, whose refined model is not sent
back. Curves run one after another with one thread; a run that was stopped is resumed. After each one the results'
file in OUT is written, also for runs that have not ended. A round takes about 4 s for algorithms that average and 14 s
for those that distil.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from . import experiment
from .comparison import RELEASED_ALGORITHM
from .datasets import DataFolder
from .experiment import Budget, Parameters, Split

ROOT = Path(__file__).resolve().parents[2]
PANELS = {
    "C=3": Split("label", 3),
    "C=5": Split("label", 5),
    "alpha=1.0": Split("dirichlet", 1.0),
    "alpha=0.1": Split("dirichlet", 0.1),
}
#: By name of the curve, its algorithm and what it sets in `mrtf_args`.
REFINERIES: dict[str, tuple[str, dict[str, Any]]] = {
    "paper": ("MrTF", {"preset": "paper"}),
    "paper/aggregated": ("MrTF", {"preset": "paper", "broadcast": "aggregated"}),
    "released": (RELEASED_ALGORITHM, {}),
    "tuned": ("MrTF", {"preset": "tuned"}),
}
ALGORITHMS = ("FedAvg", "FedProx", "FedMMD", "FedOpt", "Scaffold", "FedDF")


def main() -> None:
    options = read_options()
    if options.draw:
        draw(json.loads(options.data.read_text()), options.out)
        return
    folder = options.out / f"{options.panel.replace('=', '')}_{options.rate:g}"
    folder.mkdir(parents=True, exist_ok=True)
    for curve in options.curves or [*ALGORITHMS, *REFINERIES]:
        run = folder / curve.replace("/", "_")
        if not (run / "summary.json").is_file():
            run_curve(configuration(curve, options.data.resolve(), options.panel, options.rate, run), run)
        write_results(folder, options.panel, options.rate)


def read_options(arguments: list[str] | None = None) -> argparse.Namespace:
    """The options of the command line; the curves may follow them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="MNIST as .npz, or with --draw the results' file")
    parser.add_argument("out", type=Path, help="folder of the runs, or with --draw the figure")
    parser.add_argument("curves", nargs="*", choices=[*ALGORITHMS, *REFINERIES, []], help="by default all")
    parser.add_argument("--panel", choices=PANELS, default="C=3")
    parser.add_argument("--rate", type=float, default=0.05, help="learning rate (0.05)")
    parser.add_argument("--draw", action="store_true", help="draw the curves of a results' file")
    return parser.parse_intermixed_args(arguments)


def configuration(curve: str, data: Path, panel: str, rate: float, run: Path) -> dict[str, dict[str, Any]]:
    """The settings of Fig. compare, without a budget."""
    algorithm, refinery = REFINERIES.get(curve, (curve, {}))
    mnist = DataFolder(data.parent, [f"mnist={data}"]).data("mnist")
    config = experiment.configuration(Parameters("mnist", PANELS[panel]), Budget(), mnist, rate=rate)
    config["common_args"] |= {"run_dir": str(run.resolve())}
    config["train_args"]["federated_optimizer"] = algorithm
    config["device_args"]["threads"] = 1
    config["mrtf_args"] |= refinery
    return config


def run_curve(config: dict[str, dict[str, Any]], run: Path) -> None:
    """Run it, or go on where it was stopped."""
    if (run / "state").is_dir():
        arguments = ["--resume", str(run)]
    else:
        file = run.with_suffix(".yaml")
        file.write_text(yaml.safe_dump(config, sort_keys=False))
        arguments = ["--cf", str(file)]
    search = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": search, "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-m", "mrtf_fedml.cli", "run", *arguments], env=environment, check=True)


def write_results(folder: Path, panel: str, rate: float) -> None:
    """mnist_PANEL_full_size.json: the accuracy after each round of the runs in the folder."""
    curves = {}
    for file in sorted(folder.glob("*/metrics.jsonl")):
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        curves[file.parent.name.replace("_", "/")] = [round(line["acc"], 4) for line in lines]
    content = {"panel": f"MNIST, {panel}", "learning_rate": rate, "seed": 0, "accuracy": curves}
    (folder / f"mnist_{panel.replace('=', '')}_full_size.json").write_text(json.dumps(content) + "\n")


def draw(results: dict[str, Any], figure: Path) -> None:
    """All curves, each a mean over windows of five rounds."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    axes = pyplot.figure(figsize=(8, 4.5), layout="constrained").add_subplot()
    for name, accuracy in results["accuracy"].items():
        windows = [sum(accuracy[end - 5 : end]) / 5 for end in range(5, len(accuracy) + 1)]
        axes.plot(range(5, len(accuracy) + 1), windows, label=name, linewidth=2 if name in REFINERIES else 1)
    axes.set(xlabel="round", ylabel="accuracy, mean of five rounds", title=f"{results['panel']}, full size, one seed")
    axes.legend(ncols=2)
    axes.grid(alpha=0.3)
    axes.figure.savefig(figure, dpi=110)


if __name__ == "__main__":
    main()
