"""Every table of docs/evidence.md by one command, and its picture.

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
from evidence_scenes import MAIN, OURS, SCENES, Scene

ROOT = Path(__file__).resolve().parent.parent
GREY, BLUE, ORANGE = "#9aa3ad", "#4878a8", "#d1603d"


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
    there = {name: scene for name, scene in scenes.items() if (folder / f"{name}.csv").exists()}
    for name, scene in there.items():
        print(f"\n## {scene.title}\n\n    {shlex.join(_command(name, scene, MAIN))}\n")
        for part in _parts(folder, name):
            print((folder / f"{part}.md").read_text())
    print(_overview(there, folder))
    _picture(there, folder, folder / "evidence_scenes.png")


def _command(name: str, scene: Scene, part: str) -> list[str]:
    algorithms, seeds = scene.parts[part]
    changes = [word for change in (*scene.changes, "threads=1") for word in ("--set", change)]
    config = f"fedml_configs/{scene.config}.yaml"
    return [
        "mrtf", "compare", "--cf", config, *changes, "--algorithms", algorithms, "--seeds", str(seeds), "--out", name,
    ]  # fmt: skip


def _run(name: str, scene: Scene, data: Path, folder: Path) -> None:
    """Both parts share a folder, so that a run which both name is made once; the tables are kept apart."""
    folder.mkdir(parents=True, exist_ok=True)
    for part in scene.parts:
        command = _command(name, scene, part)
        command[3] = str(ROOT / command[3])
        command[-1] = str(folder / name)
        print(shlex.join(command), flush=True)
        subprocess.run([sys.executable, "-m", "mrtf_fedml.cli", *command[1:], "--jobs", "1"], check=True, cwd=data)
        for ending in ("md", "csv"):
            kept = f"{name}.{ending}" if part == MAIN else f"{name}.{part}.{ending}"
            (folder / kept).write_text((folder / name / f"table.{ending}").read_text())


def _parts(folder: Path, name: str) -> list[str]:
    return [part for part in (name, f"{name}.others") if (folder / f"{part}.csv").exists()]


def _lines(folder: Path, part: str) -> list[Line]:
    rows = csv.DictReader((folder / f"{part}.csv").read_text().splitlines())
    return [
        Line(row["algorithm"], int(row["seeds"]), float(row["mean_over_rounds_mean"]), float(row["last_ten_mean"]))
        for row in rows
    ]


def _below(folder: Path, name: str) -> str:
    """The windows in which `tuned` is below FedAvg, as the comparison counts them."""
    rows = [line.split(" | ") for line in (folder / f"{name}.md").read_text().splitlines() if line.startswith("| ")]
    return next((row[5].strip(" |") for row in rows if row[0] == f"| {OURS}" and len(row) > 5), "")


def _overview(scenes: dict[str, Scene], folder: Path) -> str:
    """A line per scene: mean over the rounds / last ten, the best of the three in bold."""
    text = [
        "| scene | seeds | FedAvg | Scaffold | `tuned` | windows of five below FedAvg |",
        "|---|---|---|---|---|---|",
    ]
    for name, scene in scenes.items():
        known = {line.algorithm: line for line in _lines(folder, name) if line.algorithm in _SHOWN}
        best = {part: max(round(getattr(line, part), 3) for line in known.values()) for part in ("mean", "last")}
        figures = {
            line.algorithm: " / ".join(
                f"**{getattr(line, part):.3f}**"
                if round(getattr(line, part), 3) == most
                else f"{getattr(line, part):.3f}"
                for part, most in best.items()
            )
            for line in known.values()
        }
        cells = [scene.title, str(known[OURS].seeds), *(figures.get(one, "") for one in _SHOWN), _below(folder, name)]
        text.append(f"| {' | '.join(cells)} |")
    return "\n".join(text)


_SHOWN = ("FedAvg", "Scaffold", OURS)


def _picture(scenes: dict[str, Scene], folder: Path, file: Path) -> None:
    """Each scene's accuracies side by side: over the rounds, and in the last ten."""
    places = range(len(scenes), 0, -1)
    known = {name: scene.parts[MAIN][1] for name, scene in scenes.items()}
    figure, axes = plt.subplots(1, 2, figsize=(10, 0.3 * len(scenes) + 1.2), sharey=True)
    for axis, part, title in zip(axes, ("mean", "last"), ("mean over all rounds", "last ten rounds"), strict=True):
        for place, name in zip(places, scenes, strict=True):
            axis.axhline(place, color="#eceff2", linewidth=1, zorder=0)
            for line in (line for part_of in _parts(folder, name) for line in _lines(folder, part_of)):
                colour = {"FedAvg": GREY, "Scaffold": BLUE, OURS: ORANGE}.get(line.algorithm)
                if colour is None:
                    axis.plot(getattr(line, part), place, "|", color=GREY, markersize=9, zorder=2)
                elif line.seeds == known[name]:
                    axis.plot(getattr(line, part), place, "o", color=colour, markersize=7, zorder=3)
        axis.set_xlim(0, 1)
        axis.set_title(title, fontsize=10)
        axis.spines[["top", "right", "left"]].set_visible(False)
        axis.tick_params(axis="y", length=0)
    axes[0].set_yticks(list(places), [scene.title for scene in scenes.values()], fontsize=8)
    for colour, label in ((GREY, "FedAvg"), (BLUE, "Scaffold"), (ORANGE, "MrTF:tuned")):
        axes[0].plot([], [], "o", color=colour, label=label)
    axes[0].plot([], [], "|", color=GREY, markersize=9, label="other baselines, and the paper's preset")
    figure.legend(loc="lower center", ncols=4, frameon=False, fontsize=9)
    figure.tight_layout(rect=(0, 0.9 / (0.3 * len(scenes) + 1.2) * 0.3, 1, 1))
    figure.savefig(file, dpi=130)
    print(f"The picture is {file}")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
