"""Run the setups of docs/lab/evidence.md, and print their tables and an overview figure.

    python benchmarks/evidence DATA OUT              # all setups: some hours on one core
    python benchmarks/evidence DATA OUT street cifar  # these
    python benchmarks/evidence DATA OUT --show       # run nothing: print the tables of finished setups

DATA has the .npz files; setups.py names them and the scripts that make them. The runs of a setup are those of
`mrtf compare` in OUT/SETUP, so finished runs are not repeated. Labels are used only for scoring.
"""

from __future__ import annotations

import csv
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
from setups import MAIN_PART, OTHERS_PART, OURS, SETUPS, Setup

ROOT = Path(__file__).resolve().parents[2]
GREY = "#9aa3ad"
#: Algorithms with a column in the overview and a dot of this colour in the figure; the others are grey marks.
SHOWN = {"FedAvg": GREY, "Scaffold": "#4878a8", OURS: "#d1603d"}


@dataclass(frozen=True)
class Line:
    """The accuracies of one algorithm in a setup, over its seeds."""

    algorithm: str
    seeds: int
    mean: float
    last: float


def main(data: str, out: str, *arguments: str) -> None:
    """Run the named setups, then print the results of all finished ones."""
    names = [word for word in arguments if not word.startswith("--")]
    folder = Path(out).resolve()
    unknown = [name for name in names if name not in SETUPS]
    if unknown:
        sys.exit(f"there is no setup {', '.join(unknown)}; there are {', '.join(SETUPS)}")
    setups = {name: SETUPS[name] for name in names or SETUPS}
    if "--show" not in arguments:
        for name, setup in setups.items():
            _run(name, setup, Path(data), folder)
    finished = {name: setup for name, setup in setups.items() if _table(folder, name, MAIN_PART, "csv").exists()}
    for name, setup in finished.items():
        print(f"\n## {setup.title}\n\n    {shlex.join(['mrtf', *_words(setup, MAIN_PART, Path(), name)])}\n")
        for part in (MAIN_PART, OTHERS_PART):
            if _table(folder, name, part, "md").exists():
                print(_table(folder, name, part, "md").read_text())
    lines = {name: _lines(folder, name, MAIN_PART) for name in finished}
    print(_overview(finished, lines, folder))
    _draw(finished, lines, folder)


def _words(setup: Setup, part: str, root: Path, out: Path | str) -> list[str]:
    """The arguments of `mrtf`."""
    algorithms, seeds = setup.parts[part]
    changes = [word for change in (*setup.changes, "threads=1") for word in ("--set", change)]
    config = root / "fedml_configs" / f"{setup.config}.yaml"
    compared = ["--algorithms", algorithms, "--seeds", str(seeds), "--out", str(out)]
    return ["compare", "--cf", str(config), *changes, *compared]


def _run(name: str, setup: Setup, data: Path, folder: Path) -> None:
    """Run both parts in one folder, so that common runs are done once; each part has its own tables."""
    folder.mkdir(parents=True, exist_ok=True)
    for part in setup.parts:
        words = _words(setup, part, ROOT, folder / name)
        print(shlex.join(["mrtf", *words]), flush=True)
        subprocess.run([sys.executable, "-m", "mrtf_fedml.cli", *words, "--jobs", "1"], check=True, cwd=data)
        for ending in ("md", "csv"):
            _table(folder, name, part, ending).write_text((folder / name / f"table.{ending}").read_text())


def _table(folder: Path, name: str, part: str, ending: str) -> Path:
    """The copy of a part's table; the next part overwrites the original."""
    return folder / (f"{name}.{ending}" if part == MAIN_PART else f"{name}.{part}.{ending}")


def _lines(folder: Path, name: str, part: str) -> list[Line]:
    """The lines of a part's table; empty where there is none."""
    file = _table(folder, name, part, "csv")
    rows = csv.DictReader(file.read_text().splitlines()) if file.exists() else ()
    return [
        Line(row["algorithm"], int(row["seeds"]), float(row["mean_over_rounds_mean"]), float(row["last_ten_mean"]))
        for row in rows
    ]


def _below(folder: Path, name: str) -> str:
    """The number of windows in which `tuned` is below FedAvg, from the table."""
    rows = [line.split(" | ") for line in (folder / f"{name}.md").read_text().splitlines() if line.startswith("| ")]
    return next((row[5].strip(" |") for row in rows if row[0] == f"| {OURS}" and len(row) > 5), "")


def _overview(setups: dict[str, Setup], lines: dict[str, list[Line]], folder: Path) -> str:
    """One line per setup: mean over the rounds / last ten rounds, the best of the three in bold."""
    text = [
        "| setup | seeds | FedAvg | Scaffold | `tuned` | windows of five below FedAvg |",
        "|---|---|---|---|---|---|",
    ]
    for name, setup in setups.items():
        scores = {line.algorithm: (f"{line.mean:.3f}", f"{line.last:.3f}") for line in lines[name]}
        shown = [scores.get(algorithm) for algorithm in SHOWN]
        # Strings of equal length sort like their numbers.
        best = [max(column) for column in zip(*filter(None, shown), strict=True)]
        figures = [
            " / ".join(f"**{one}**" if one == most else one for one, most in zip(pair, best, strict=True))
            if pair
            else ""
            for pair in shown
        ]
        cells = [setup.title, str(setup.parts[MAIN_PART][1]), *figures, _below(folder, name)]
        text.append(f"| {' | '.join(cells)} |")
    return "\n".join(text)


def _draw(setups: dict[str, Setup], lines: dict[str, list[Line]], folder: Path) -> None:
    """Draw the accuracies of each setup: over all rounds, and in the last ten."""
    places = range(len(setups), 0, -1)
    height = 0.3 * len(setups) + 1.2
    figure, axes = plt.subplots(1, 2, figsize=(10, height), sharey=True)
    for place, name in zip(places, setups, strict=True):
        dots = [(line, SHOWN[line.algorithm]) for line in lines[name] if line.algorithm in SHOWN]
        marks = [line for line in (*lines[name], *_lines(folder, name, OTHERS_PART)) if line.algorithm not in SHOWN]
        for axis, part in zip(axes, ("mean", "last"), strict=True):
            axis.axhline(place, color="#eceff2", linewidth=1, zorder=0)
            for line in marks:
                axis.plot(getattr(line, part), place, "|", color=GREY, markersize=9, zorder=2)
            for line, colour in dots:
                axis.plot(getattr(line, part), place, "o", color=colour, markersize=7, zorder=3)
    for axis, title in zip(axes, ("mean over all rounds", "last ten rounds"), strict=True):
        axis.set_xlim(0, 1)
        axis.set_title(title, fontsize=10)
        axis.spines[["top", "right", "left"]].set_visible(False)
        axis.tick_params(axis="y", length=0)
    axes[0].set_yticks(list(places), [setup.title for setup in setups.values()], fontsize=8)
    for algorithm, colour in SHOWN.items():
        axes[0].plot([], [], "o", color=colour, label=algorithm)
    axes[0].plot([], [], "|", color=GREY, markersize=9, label="other baselines, and the paper's preset")
    figure.legend(loc="lower center", ncols=4, frameon=False, fontsize=9)
    figure.tight_layout(rect=(0, 0.27 / height, 1, 1))
    file = folder / "evidence_scenes.png"
    figure.savefig(file, dpi=130)
    print(f"The figure is {file}")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
