"""The scenes of docs/evidence.md by one command: their tables, and the picture of all.

    python benchmarks/evidence.py DATA OUT              # all scenes, one after the other: some hours on one core
    python benchmarks/evidence.py DATA OUT street cifar  # these
    python benchmarks/evidence.py DATA OUT --show       # nothing is run: the tables of what is there, and the picture

DATA has the .npz files (evidence_scenes.py names them, and says what makes those that are not at hand). A scene's runs
are those of `mrtf compare`, in OUT/SCENE, so what was done is not done again. Labels mark the answers; no run reads
one.
"""

from __future__ import annotations

import csv
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
from evidence_scenes import BESIDE, MAIN, OURS, SCENES, Scene

ROOT = Path(__file__).resolve().parent.parent
GREY = "#9aa3ad"
#: Who has a column in the overview, and a dot of this colour in the picture; the others are grey marks.
SHOWN = {"FedAvg": GREY, "Scaffold": "#4878a8", OURS: "#d1603d"}


@dataclass(frozen=True)
class Line:
    """What one algorithm reached in a scene, over its seeds."""

    algorithm: str
    seeds: int
    mean: float
    last: float


def main(data: str, out: str, *asked: str) -> None:
    """Run the scenes that are asked for, then print what is there."""
    names = [word for word in asked if not word.startswith("--")]
    folder = Path(out).resolve()
    unknown = [name for name in names if name not in SCENES]
    if unknown:
        sys.exit(f"there is no scene {', '.join(unknown)}; there are {', '.join(SCENES)}")
    scenes = {name: SCENES[name] for name in names or SCENES}
    if "--show" not in asked:
        for name, scene in scenes.items():
            _run(name, scene, Path(data), folder)
    there = {name: scene for name, scene in scenes.items() if _table(folder, name, MAIN, "csv").exists()}
    for name, scene in there.items():
        print(f"\n## {scene.title}\n\n    {shlex.join(['mrtf', *_words(scene, MAIN, Path(), name)])}\n")
        for part in (MAIN, BESIDE):
            if _table(folder, name, part, "md").exists():
                print(_table(folder, name, part, "md").read_text())
    lines = {name: _lines(folder, name, MAIN) for name in there}
    print(_overview(there, lines, folder))
    _picture(there, lines, folder)


def _words(scene: Scene, part: str, root: Path, out: Path | str) -> list[str]:
    """Those of the command line."""
    algorithms, seeds = scene.parts[part]
    changes = [word for change in (*scene.changes, "threads=1") for word in ("--set", change)]
    config = root / "fedml_configs" / f"{scene.config}.yaml"
    compared = ["--algorithms", algorithms, "--seeds", str(seeds), "--out", str(out)]
    return ["compare", "--cf", str(config), *changes, *compared]


def _run(name: str, scene: Scene, data: Path, folder: Path) -> None:
    """Both parts share a folder, so that a run which both name is made once; the tables are kept apart."""
    folder.mkdir(parents=True, exist_ok=True)
    for part in scene.parts:
        words = _words(scene, part, ROOT, folder / name)
        print(shlex.join(["mrtf", *words]), flush=True)
        subprocess.run([sys.executable, "-m", "mrtf_fedml.cli", *words, "--jobs", "1"], check=True, cwd=data)
        for ending in ("md", "csv"):
            _table(folder, name, part, ending).write_text((folder / name / f"table.{ending}").read_text())


def _table(folder: Path, name: str, part: str, ending: str) -> Path:
    """Where a part's table is kept: the next part's would overwrite it in the comparison's own folder."""
    return folder / (f"{name}.{ending}" if part == MAIN else f"{name}.{part}.{ending}")


def _lines(folder: Path, name: str, part: str) -> list[Line]:
    """What a part's table says; nothing where there is none."""
    file = _table(folder, name, part, "csv")
    rows = csv.DictReader(file.read_text().splitlines()) if file.exists() else ()
    return [
        Line(row["algorithm"], int(row["seeds"]), float(row["mean_over_rounds_mean"]), float(row["last_ten_mean"]))
        for row in rows
    ]


def _below(folder: Path, name: str) -> str:
    """The windows in which `tuned` is below FedAvg, as the comparison counts them."""
    rows = [line.split(" | ") for line in (folder / f"{name}.md").read_text().splitlines() if line.startswith("| ")]
    return next((row[5].strip(" |") for row in rows if row[0] == f"| {OURS}" and len(row) > 5), "")


def _overview(scenes: dict[str, Scene], lines: dict[str, list[Line]], folder: Path) -> str:
    """A line per scene: mean over the rounds / last ten, the best of the three in bold."""
    text = [
        "| scene | seeds | FedAvg | Scaffold | `tuned` | windows of five below FedAvg |",
        "|---|---|---|---|---|---|",
    ]
    for name, scene in scenes.items():
        told = {line.algorithm: (f"{line.mean:.3f}", f"{line.last:.3f}") for line in lines[name]}
        shown = [told.get(algorithm) for algorithm in SHOWN]
        # Of one length, so that the largest number is the last word in their order.
        best = [max(column) for column in zip(*filter(None, shown), strict=True)]
        figures = [
            " / ".join(f"**{one}**" if one == most else one for one, most in zip(pair, best, strict=True))
            if pair
            else ""
            for pair in shown
        ]
        cells = [scene.title, str(scene.parts[MAIN][1]), *figures, _below(folder, name)]
        text.append(f"| {' | '.join(cells)} |")
    return "\n".join(text)


def _picture(scenes: dict[str, Scene], lines: dict[str, list[Line]], folder: Path) -> None:
    """Each scene's accuracies side by side: over the rounds, and in the last ten."""
    places = range(len(scenes), 0, -1)
    height = 0.3 * len(scenes) + 1.2
    figure, axes = plt.subplots(1, 2, figsize=(10, height), sharey=True)
    for place, name in zip(places, scenes, strict=True):
        dots = [(line, SHOWN[line.algorithm]) for line in lines[name] if line.algorithm in SHOWN]
        marks = [line for line in (*lines[name], *_lines(folder, name, BESIDE)) if line.algorithm not in SHOWN]
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
    axes[0].set_yticks(list(places), [scene.title for scene in scenes.values()], fontsize=8)
    for algorithm, colour in SHOWN.items():
        axes[0].plot([], [], "o", color=colour, label=algorithm)
    axes[0].plot([], [], "|", color=GREY, markersize=9, label="other baselines, and the paper's preset")
    figure.legend(loc="lower center", ncols=4, frameon=False, fontsize=9)
    figure.tight_layout(rect=(0, 0.27 / height, 1, 1))
    file = folder / "evidence_scenes.png"
    figure.savefig(file, dpi=130)
    print(f"The picture is {file}")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
