"""`peers`: the benchmarks that FLUTE and pfl-research publish, run by us, FedML, pfl-research and Flower.

Each peer has its own environment outside the repository, with its newest release in front of this environment's
packages: all run the same PyTorch. CPU seconds of the rounds count, start-up does not.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import nn

from mrtf_fedml.data import SealedEvaluator, TensorShard, TransductiveDataset

from .measure import REPETITIONS, Row, ratio_row, run_in_process
from .whole_round import time_peer_rounds

_PROGRAMS = Path(__file__).parent / "programs"
#: By name: the package for pip, and the program to run.
_PEERS = {"pfl-research": ("pfl[pytorch]", "pfl_research.py"), "Flower": ("flwr[simulation]", "flower.py")}
_TIMEOUT_SECONDS = 3600


@dataclass(frozen=True)
class Shape:
    """The size of a published benchmark."""

    name: str
    shape: tuple[int, ...]
    clients: int
    samples_per_client: int
    chosen: int
    rounds: int
    test_every: int
    batch_size: int = 10
    learning_rate: float = 0.03
    classes: int = 10


_SHAPES = (
    Shape("FLUTE's logistic regression", (784,), 1000, 60, 10, rounds=100, test_every=20),
    Shape("pfl-research's CIFAR-10", (3, 32, 32), 1000, 50, 50, rounds=10, test_every=10),
)
_SMALL = (Shape("small", (8,), 4, 10, 2, rounds=2, test_every=2),)


def measure_peers(quick: bool) -> list[Row]:
    """Our time against that of each peer; the smoke test installs nothing and compares only FedML."""
    rows: list[Row] = []
    for shape in _SMALL if quick else _SHAPES:
        with TemporaryDirectory() as folder:
            rows += _compare_peers(shape, Path(folder), {} if quick else _PEERS, 1 if quick else REPETITIONS)
    return rows


def _compare_peers(shape: Shape, folder: Path, others: dict[str, tuple[str, str]], repetitions: int) -> list[Row]:
    commands, reasons = {}, {}
    for name, (package, program) in others.items():
        try:
            commands[name] = [_environment(name, package), str(_PROGRAMS / program)]
        except RuntimeError as error:
            reasons[name] = str(error)
    (folder / "shape.json").write_text(json.dumps(asdict(shape)))
    np.savez(folder / "data.npz", **_data(shape))
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in ("ours", "FedML", *commands)}
    for _ in range(repetitions):
        for name, seconds in run_in_process(_run_ours_and_fedml, shape).items():
            results[name].append(seconds)
        for name, command in list(commands.items()):
            try:
                results[name].append(_run_program(command, folder))
            except RuntimeError as error:
                reasons[name] = str(error)
                del commands[name], results[name]
    ours = [one["seconds"] for one in results.pop("ours")]
    rows = [
        ratio_row(
            f"{name}, {shape.name}", ours, [one["seconds"] for one in runs], f"ours / {name}", runs=runs, ours=ours
        )
        for name, runs in results.items()
    ]
    for name, reason in reasons.items():
        rows.append(Row(f"{name}, {shape.name}", 0.0, 0.0, 0.0, f"ours / {name}", None, {"not_measured": reason}))
    return rows


def _environment(name: str, package: str) -> str:
    """The Python of the peer's environment, which is created on first use."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "mrtf_fedml" / "peers" / name
    python, ready = cache / "bin" / "python", cache / "ready"
    if ready.exists():
        return str(python)
    _run([sys.executable, "-m", "venv", "--clear", str(cache)])
    site = _run([str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"])
    # All package folders: this environment may itself extend another.
    outer = [entry for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages")]
    (Path(site.strip()) / "outer.pth").write_text("".join(entry + "\n" for entry in outer))
    _run([str(python), "-m", "pip", "install", "--quiet", package])
    ready.touch()
    return str(python)


def _run_program(command: list[str], folder: Path) -> dict[str, Any]:
    printed = _run([*command, str(folder / "shape.json"), str(folder / "data.npz")])
    return dict(json.loads(printed.strip().splitlines()[-1]))


def _run(command: list[str]) -> str:
    """The stdout of the command; a RuntimeError with the last line of stderr where it fails."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    try:
        done = subprocess.run(
            command,
            env={**environment, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RuntimeError(str(error)) from error
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise RuntimeError(lines[-1] if lines else f"it ended with code {done.returncode}")
    return done.stdout


def _data(shape: Shape) -> dict[str, np.ndarray]:
    """Separated class centres plus noise."""
    generator = np.random.default_rng(0)
    centres = generator.normal(size=(shape.classes, *shape.shape))

    def draw(number: int) -> tuple[np.ndarray, np.ndarray]:
        labels = generator.integers(0, shape.classes, number)
        noise = generator.normal(size=(number, *shape.shape))
        return (0.1 * centres[labels] + noise).astype(np.float32), labels

    x, y = draw(shape.clients * shape.samples_per_client)
    x_test, y_test = draw(2000)
    return {"x": x, "y": y, "x_test": x_test, "y_test": y_test}


def _net(shape: Shape) -> nn.Module:
    """The network of the programs."""
    # The programs seed their whole process; here the caller's random state is kept.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        if len(shape.shape) == 1:
            return nn.Linear(shape.shape[0], shape.classes)
        channels, height, width = shape.shape
        return nn.Sequential(
            nn.Conv2d(channels, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(64 * (height // 4) * (width // 4), shape.classes),
        )


def _run_ours_and_fedml(shape: Shape) -> dict[str, dict[str, Any]]:
    """Our rounds and FedML's, one after the other in one process."""
    torch.set_num_threads(1)
    data = _data(shape)
    inputs, labels = torch.from_numpy(data["x"]), torch.from_numpy(data["y"])
    each, labels_of_test = shape.samples_per_client, torch.from_numpy(data["y_test"])
    shards = {
        client: TensorShard(inputs, labels, np.arange(client * each, (client + 1) * each), shape.batch_size)
        for client in range(shape.clients)
    }
    names = [str(index) for index in range(shape.classes)]
    dataset = TransductiveDataset(
        train_num=len(labels),
        train_global=None,
        train_local_num_dict=dict.fromkeys(shards, each),
        train_local_dict=shards,
        test_local_dict=shards,
        server_inputs=torch.from_numpy(data["x_test"]),
        evaluator=SealedEvaluator(labels_of_test, names),
        ids=[str(index) for index in range(len(data["y_test"]))],
        class_names=names,
        batch_size=shape.batch_size,
    )
    train = {
        "client_num_in_total": shape.clients,
        "client_num_per_round": shape.chosen,
        "comm_round": shape.rounds,
        "epochs": 1,
        "batch_size": shape.batch_size,
        "learning_rate": shape.learning_rate,
        "momentum": 0.0,
        "weight_decay": 0.0,
        "clip_grad_norm": None,
    }
    return time_peer_rounds(train, shape.test_every, dataset, lambda: _net(shape), labels_of_test)
