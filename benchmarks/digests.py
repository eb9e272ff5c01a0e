"""Record SHA-256 digests of the results of many small runs, and compare them with those of another version.

    python benchmarks/digests.py --out new.json --compare old.json           # all runs, then the comparison
    python benchmarks/digests.py --out new.json --only 'tuned/*/one' --jobs 2
    python benchmarks/digests.py --out new.json --compare old.json --jobs 0  # compare only, run nothing

The package under test is the one that this Python imports. A key is `<setting>/<model>/<backend>`. The backends are
`one` (one process), `mpi` (3 ranks), `grpc` (a server and 2 silos on loopback) and `resumed` (one process, killed with
SIGKILL when the state of the first round is on disk and the next state is about to replace it, then resumed). The data
are small and are made here; every process has one thread. Only the command line, the YAML and the run directory are
used, so the program works with versions whose internals differ. `tensors` is the digest of model.safetensors without
its metadata: it tells a renamed entry of the header from other weights.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import fnmatch
import functools
import hashlib
import importlib.util
import json
import multiprocessing
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

Config = dict[str, dict[str, Any]]
Digests = dict[str, str]

FILES = {"predictions": "predictions.csv", "model": "model.safetensors", "probabilities": "probabilities.npy"}
BACKENDS = ("one", "mpi", "grpc", "resumed")
RANKS, SILOS, ROUNDS = 3, 2, 3
#: Seconds after which a run is killed and counts as failed.
TIMEOUT = 900.0

#: By model: the data file, how samples are divided among clients, and the clients' learning rate.
MODELS: dict[str, tuple[str, dict[str, Any], float]] = {
    "mlp": ("digits", {"partition_method": "label", "classes_per_client": 5}, 0.05),
    "lenet": ("digits", {"partition_method": "label", "classes_per_client": 5}, 0.05),
    "resnet8": ("digits", {"partition_method": "label", "classes_per_client": 5}, 0.05),
    "charlstm": ("text", {"partition_method": "iid"}, 0.5),
}

_REFINE: Config = {"mrtf_args": {"refine_steps": 10}}
_DP: Config = {"dp_args": {"clip": 1.0, "sigma": 0.001}}


def _algorithm(name: str, *more: Config) -> Config:
    config: Config = {"train_args": {"federated_optimizer": name}}
    for sections in more:
        for section, values in sections.items():
            config[section] = {**config.get(section, {}), **values}
    return config


def _preset(name: str, *more: Config) -> Config:
    return _algorithm("MrTF", _REFINE, {"mrtf_args": {"preset": name}}, *more)


def _released() -> Config:
    """The authors' program: a class beside the package under test where there is one, else a preset."""
    folder = _released_folder()
    return _preset("released") if folder is None else _algorithm("released:ReleasedMrTF", _REFINE)


#: By setting: the sections that differ from `base_config`. Clustering starts in the second of the rounds.
SETTINGS: dict[str, Config] = {
    "paper": _preset("paper", {"mrtf_args": {"cluster_warmup": 1}}),
    "tuned": _preset("tuned", {"mrtf_args": {"cluster_warmup": 1}}),
    "released": {},  # `_released()`, which has to look for the package
    **{name: _algorithm(name) for name in ("FedAvg", "FedProx", "FedMMD", "FedOpt", "Scaffold", "MeasuredScaffold")},
    **{name: _algorithm(name, _REFINE) for name in ("FedDF", "FedBE", "FedAUX", "UWA")},
    **{name: _algorithm(name) for name in ("SHOT", "LAME")},
    "FedAvg-dp": _algorithm("FedAvg", _DP),
    "paper-dp": _preset("paper", {"mrtf_args": {"cluster_warmup": 1}}, _DP),
}


def keys(full: bool) -> list[str]:
    """All runs, one process first; without `full`, algorithms other than MrTF leave one process with the MLP only."""
    found = []
    for setting in SETTINGS:
        if setting.endswith("-dp"):
            found.append(f"{setting}/mlp/one")
            continue
        for model in MODELS:
            everywhere = full or setting in ("paper", "tuned", "released") or model == "mlp"
            found += [f"{setting}/{model}/{backend}" for backend in (BACKENDS if everywhere else ("one",))]
    return sorted(found, key=lambda key: ("one", "resumed", "grpc", "mpi").index(key.split("/")[2]))


@functools.cache
def _released_folder() -> Path | None:
    package = importlib.util.find_spec("mrtf_fedml")
    if package is None or package.origin is None:
        sys.exit("digests: this Python has no mrtf_fedml; install the version to be tested")
    folder = Path(package.origin).parents[1] / "benchmarks" / "paper"
    return folder if (folder / "released.py").exists() else None


def write_data(folder: Path) -> None:
    """digits.npz, a part of scikit-learn's digits; text.npz, windows of 10 characters and the one that follows."""
    import numpy as np
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    images = np.round(images.reshape(-1, 8, 8) * 255 / 16).astype(np.uint8)
    train, test = slice(0, 360), slice(360, 480)
    np.savez(
        folder / "digits.npz",
        x_train=images[train],
        y_train=labels[train],
        x_test=images[test],
        y_test=labels[test],
    )
    # A character depends on the one before it: follows it in the alphabet, or is drawn.
    generator, alphabet = np.random.default_rng(0), "abcdefghij"
    letters = [0]
    for _ in range(490):
        drawn = generator.random() < 0.4
        letters.append(int(generator.integers(10)) if drawn else (letters[-1] + 1) % 10)
    windows = np.array([letters[start : start + 10] for start in range(480)], dtype=np.int64)
    following = np.array([letters[start + 10] for start in range(480)], dtype=np.int64)
    np.savez(
        folder / "text.npz",
        x_train=windows[train],
        y_train=following[train],
        x_test=windows[test],
        y_test=following[test],
        alphabet=np.array(list(alphabet)),
    )


def write_config(key: str, data: Path, folder: Path) -> Path:
    """The YAML of a run; JSON is YAML."""
    setting, model, backend = key.split("/")
    file, partition, learning_rate = MODELS[model]
    silos = backend == "grpc"
    config: Config = {
        "common_args": {
            "training_type": "cross_silo" if silos else "simulation",
            "random_seed": 7,
            "run_dir": str(folder / "run"),
        },
        "data_args": {"dataset": "npz", "data_file": str(data / f"{file}.npz"), **partition},
        "model_args": {"model": model},
        "train_args": {
            "client_num_in_total": SILOS if silos else 6,
            "client_num_per_round": SILOS if silos else 3,
            "comm_round": ROUNDS,
            "epochs": 1,
            "batch_size": 16,
            "client_optimizer": "sgd",
            "learning_rate": learning_rate,
        },
        "device_args": {"using_gpu": False},
        "comm_args": {"backend": {"mpi": "MPI", "grpc": "GRPC"}.get(backend, "sp")},
    }
    for section, values in (_released() if setting == "released" else SETTINGS[setting]).items():
        config[section] = {**config.get(section, {}), **values}
    if silos:
        table = folder / "grpc.csv"
        lines = [f"{rank},{rank},127.0.0.1,{port}" for rank, port in enumerate(free_ports(1 + SILOS))]
        table.write_text("\n".join(["eid,rank,grpc_server_ip,grpc_server_port", *lines]) + "\n")
        config["comm_args"]["grpc_ipconfig_path"] = str(table)
    path = folder / "config.yaml"
    path.write_text(json.dumps(config, indent=1))
    return path


def free_ports(number: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]


def digests_of(run_dir: Path) -> Digests:
    found = {name: hashlib.sha256((run_dir / file).read_bytes()).hexdigest() for name, file in FILES.items()}
    stored = (run_dir / FILES["model"]).read_bytes()
    start = 8 + int.from_bytes(stored[:8], "little")
    header = json.loads(stored[8:start])
    header.pop("__metadata__", None)
    tensors = hashlib.sha256(json.dumps(header, sort_keys=True).encode() + stored[start:])
    return {**found, "tensors": tensors.hexdigest()}


# Processes are forked from one that has imported FedML, which takes several seconds. Modules that a version does not
# have are skipped.
_forks = multiprocessing.get_context("forkserver")
_PRELOAD = [
    *("mrtf_fedml.cli", "fedml", "grpc", "sklearn.datasets", "matplotlib.pyplot"),
    *("mrtf_fedml.commands.run", "mrtf_fedml.fedml_bridge.launcher", "mrtf_fedml.fedml_bridge.participants"),
]


def run_processes(folder: Path, *commands: list[str], kill: bool = False) -> None:
    """Run `mrtf` with these commands at the same time; with `kill`, each must die when it writes its second state."""
    started = [_forks.Process(target=_run_command, args=(words, str(folder), kill)) for words in commands]
    deadline = time.monotonic() + TIMEOUT
    try:
        for process in started:
            process.start()
        for process in started:
            process.join(max(0.0, deadline - time.monotonic()))
            if process.exitcode != (-signal.SIGKILL if kill else 0):
                raise RuntimeError(f"exit code {process.exitcode}: {last_line(folder / f'{process.pid}.log')}")
    finally:
        for process in started:
            if process.is_alive():
                process.kill()
                process.join()


def last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").split("\n") if log.exists() else []
    return next((line.strip() for line in reversed(lines) if line.strip()), "nothing printed")


def _run_command(words: list[str], folder: str, kill: bool) -> None:
    os.chdir(folder)
    os.setsid()
    _redirect(Path(folder) / f"{os.getpid()}.log")
    if kill:
        sys.addaudithook(_kill_at_second_state(Path(folder) / "run" / "state"))
    from mrtf_fedml.cli import main

    sys.exit(main(words))


def _kill_at_second_state(states: Path) -> Any:
    """An audit hook. States are renamed into place, and the event comes before the rename."""
    seen = 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal seen
        if event == "os.rename" and Path(os.fsdecode(arguments[1])).absolute().parent == states:
            seen += str(arguments[1]).endswith(".safetensors")
            if seen == 2:
                os.kill(os.getpid(), signal.SIGKILL)

    return hook


def _redirect(log: Path) -> None:
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)


def run_one(key: str, data: Path, folder: Path) -> Digests:
    """A run on any backend but MPI."""
    folder.mkdir(parents=True)
    backend, config = key.split("/")[2], str(write_config(key, data, folder))
    if backend == "grpc":
        parties = [["--role", "server"], *(["--role", "client", "--rank", str(1 + silo)] for silo in range(SILOS))]
        run_processes(folder, *(["run", "--cf", config, *party] for party in parties))
    else:
        run_processes(folder, ["run", "--cf", config], kill=backend == "resumed")
    if backend == "resumed":
        run_processes(folder, ["run", "--resume", str(folder / "run")])
    return digests_of(folder / "run")


def run_ranks(names: list[str], data: Path, folder: Path) -> Iterator[tuple[str, Digests | Exception]]:
    """Runs over MPI, one after another in the same ranks; after one that ends its ranks, the rest in new ones."""
    while names:
        folders = {name: folder / name.replace("/", "_") for name in names}
        for name, place in folders.items():
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir(parents=True)
            write_config(name, data, place)
        worker = [sys.executable, "-W", "ignore", __file__, "--rank-of", *map(str, folders.values())]
        mpirun = str(Path(sys.executable).parent / "mpirun")
        options = ["--oversubscribe", "--bind-to", "none", "--allow-run-as-root", "-n", str(RANKS)]
        with (folder / "mpirun.log").open("wb") as log:
            process = subprocess.Popen([mpirun, *options, *worker], stdout=log, stderr=log)
        deadline = time.monotonic() + TIMEOUT
        while names:
            ended = process.poll() is not None or time.monotonic() > deadline
            name, code = names[0], folders[names[0]] / "code"
            if code.exists():
                deadline = time.monotonic() + TIMEOUT
                if code.read_text() == "0":
                    yield name, digests_of(folders[name] / "run")
                else:
                    yield name, RuntimeError(f"exit code {code.read_text()}: {last_line(folders[name] / '0.log')}")
                names = names[1:]
            elif ended:
                yield name, RuntimeError(f"mpirun ended: {last_line(folder / 'mpirun.log')}")
                names = names[1:]
                break
            else:
                time.sleep(0.2)
        if process.poll() is None:
            # Nothing is left to run, or the ranks hang.
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(60 if not names else 0)
            process.kill()
            process.wait()


def work_as_rank(folders: list[str]) -> int:
    """All runs of one rank."""
    from mrtf_fedml.cli import main

    rank = os.environ["OMPI_COMM_WORLD_RANK"]
    for folder in folders:
        os.chdir(folder)
        _redirect(Path(folder) / f"{rank}.log")
        code = main(["run", "--cf", str(Path(folder) / "config.yaml")])
        if rank == "0":
            Path(folder, "code.part").write_text(str(code))
            Path(folder, "code.part").rename(Path(folder, "code"))
    return 0


class Results:
    """The JSON file: written whole after each run. Failed runs are {"error": reason}, and run again next time."""

    def __init__(self, path: Path, total: int) -> None:
        self.path, self.total, self.done = path, total, 0
        self.entries: dict[str, Digests] = json.loads(path.read_text()) if path.exists() else {}
        self._lock = threading.Lock()

    def add(self, key: str, result: Digests | Exception, seconds: float) -> None:
        """Store one run's outcome and print it."""
        entry = {"error": str(result)} if isinstance(result, Exception) else result
        with self._lock:
            self.entries[key] = entry
            self.done += 1
            part = self.path.with_name(self.path.name + ".part")
            part.write_text(json.dumps(dict(sorted(self.entries.items())), indent=1) + "\n")
            part.replace(self.path)
            outcome = f"FAILED: {result}" if isinstance(result, Exception) else entry["predictions"][:12]
            print(f"[{self.done}/{self.total}] {key:<32}{seconds:6.1f} s  {outcome}", flush=True)


def run_all(wanted: list[str], results: Results, jobs: int, folder: Path) -> None:
    """Run the keys and add their digests."""
    write_data(folder)

    def run(key: str) -> None:
        began, place = time.monotonic(), folder / key.replace("/", "_")
        outcome: Digests | Exception
        try:
            outcome = run_one(key, folder, place)
        except Exception as error:  # a failed run is a result
            outcome = error
        results.add(key, outcome, time.monotonic() - began)
        shutil.rmtree(place, ignore_errors=True)

    over_mpi = [key for key in wanted if key.endswith("/mpi")]
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        list(pool.map(run, [key for key in wanted if key not in over_mpi]))
    began = time.monotonic()
    for key, outcome in run_ranks(over_mpi, folder, folder / "mpi"):
        results.add(key, outcome, time.monotonic() - began)
        began = time.monotonic()


def compare(wanted: list[str], new: Mapping[str, Digests], old: Mapping[str, Digests]) -> bool:
    """Print the table; whether nothing differs. What either side lacks is no difference."""
    counts: dict[str, int] = {}
    for key in wanted:
        status = _status(new.get(key), old.get(key))
        counts[status.split(":")[0]] = counts.get(status.split(":")[0], 0) + 1
        print(f"{key:<32}{status}")
    print(", ".join(f"{number} {status}" for status, number in sorted(counts.items())))
    return "DIFFERENT" not in counts


def _status(new: Digests | None, old: Digests | None) -> str:
    if new is None or old is None:
        return "missing"
    if "error" in new and "error" in old:
        return "fails in both"
    if "error" in new or "error" in old:
        return f"DIFFERENT: {'new' if 'error' in new else 'old'} fails: {new.get('error', old.get('error'))}"
    differing = [name for name in FILES if new[name] != old[name]]
    if differing == ["model"] and new["tensors"] == old["tensors"]:
        return "DIFFERENT: model (metadata of the header only)"
    return f"DIFFERENT: {', '.join(differing)}" if differing else "equal"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="JSON file of the digests; runs that it has are not repeated")
    parser.add_argument("--only", action="append", metavar="PATTERN", help="keys to run and compare, as 'FedAvg/*/one'")
    parser.add_argument("--full", action="store_true", help="every algorithm with every model on every backend")
    parser.add_argument("--again", action="store_true", help="repeat runs that --out has")
    parser.add_argument("--jobs", type=int, default=1, help="runs at the same time; 0 runs nothing")
    parser.add_argument(
        "--compare", type=Path, metavar="FILE", help="digests to compare with; a difference exits with 1"
    )
    parser.add_argument("--list", action="store_true", help="print the keys and end")
    parser.add_argument("--rank-of", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank_of:
        return work_as_rank(options.rank_of)
    patterns = options.only or ["*"]
    # A pattern may name any run; without one, the default selection holds.
    chosen = keys(options.full or bool(options.only))
    wanted = [key for key in chosen if any(fnmatch.fnmatchcase(key, pattern) for pattern in patterns)]
    if options.list or not wanted:
        print("\n".join(wanted) or f"no key matches {patterns}; --list prints all keys")
        return 0 if wanted else 2
    if options.out is None:
        parser.error("--out is required")
    results = Results(options.out, 0)
    todo = [key for key in wanted if options.again or "predictions" not in results.entries.get(key, {})]
    results.total = len(todo) if options.jobs else 0
    if results.total:
        with tempfile.TemporaryDirectory(prefix="digests-") as folder:
            # FedML writes to the home directory.
            os.environ.update(HOME=folder, OMP_NUM_THREADS="1")
            if (released := _released_folder()) is not None:
                os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(released), os.environ.get("PYTHONPATH")]))
                sys.path.insert(0, str(released))
            _forks.set_forkserver_preload(_PRELOAD)
            run_all(todo, results, options.jobs, Path(folder))
    failed = [key for key in wanted if "error" in results.entries.get(key, {})]
    if failed:
        print(f"{len(failed)} runs failed: {', '.join(failed)}")
    if options.compare is None:
        return 1 if failed else 0
    return 0 if compare(wanted, results.entries, json.loads(options.compare.read_text())) else 1


if __name__ == "__main__":
    sys.exit(main())
