"""What `preset: tuned` takes with many clients, whose control variates the server keeps: memory, disk and seconds.

    python benchmarks/variate_memory.py mnist.npz OUT [--clients 1000] [--single-file]

Three runs of fedml_configs/mnist.yaml with 10 clients per round, in processes of one thread. `full`: three rounds of
full size. `in turn`: each client takes part once, with little refining, and 10 clients a second time. `resumed`: five
more rounds of it. OUT, which must not exist, holds the runs; remove it afterwards. `--single-file` keeps the variates
in memory and writes all of them in every round, for comparison; it takes three times their size in memory.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from checkouts import format_spread
from speed.measure import run_in_process

CONFIG = Path(__file__).resolve().parents[1] / "fedml_configs" / "mnist.yaml"
PER_ROUND, RESUMED_ROUNDS = 10, 5
#: Refining costs the same with any number of clients.
LITTLE_REFINING = ("server_samples=500", "refine_steps=1")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--single-file", action="store_true")
    given = parser.parse_args()
    rounds = given.clients // PER_ROUND + 1
    runs = {
        "full": (3, (), False),
        "in turn": (rounds, LITTLE_REFINING, False),
        "resumed": (rounds + RESUMED_ROUNDS, LITTLE_REFINING, True),
    }
    for name, (until, changes, resumes) in runs.items():
        folder = given.out / ("full" if name == "full" else "in_turn")
        words = [
            *("dataset=npz", f"data_file={given.data.resolve()}", f"client_num_in_total={given.clients}"),
            *(f"client_num_per_round={PER_ROUND}", "preset=tuned", f"comm_round={until}", "threads=1", *changes),
        ]
        figures = run_in_process(measure_run, words, str(folder), resumes, given.single_file)
        print(f"{name}: " + ", ".join(f"{key} {value}" for key, value in figures.items()), flush=True)


def measure_run(words: Sequence[str], folder: str, resumes: bool, single_file: bool) -> dict[str, Any]:
    """Run in this process. Memory in MB: the peak, and the peak without pages of files, which the system can drop."""
    from mrtf_fedml.config import RunSettings
    from mrtf_fedml.config.loader import apply_overrides, read_config
    from mrtf_fedml.fedml_bridge.runner import RunOptions, run_configuration
    from mrtf_fedml.training import checkpoints, round
    from mrtf_fedml.training.run_directory import RunDirectory

    load, save, ends, seconds = RunDirectory.load_state, RunDirectory.save_state, list[float](), list[float]()
    loading = 0.0

    def load_timed(directory: RunDirectory) -> Any:
        nonlocal loading
        began = time.perf_counter()
        state = load(directory)
        loading = time.perf_counter() - began
        return state

    def save_timed(directory: RunDirectory, state: Any) -> Any:
        began = time.perf_counter()
        saved = save(directory, state)
        ends.append(time.perf_counter())
        seconds.append(ends[-1] - began)
        return saved

    def select_in_turn(settings: RunSettings, index: int, available: Sequence[int], tried: Sequence[int] = ()) -> Any:
        return [available[(index * PER_ROUND + number) % len(available)] for number in range(PER_ROUND)]

    RunDirectory.load_state, RunDirectory.save_state = load_timed, save_timed  # type: ignore[method-assign]
    round.select_clients = select_in_turn
    if single_file:
        checkpoints._MAX_SINGLE_FILE_MEMORY = sys.maxsize
    settings = RunSettings.from_config(apply_overrides(read_config(CONFIG), [*words, f"run_dir={folder}"]))
    peak, ended = [0], threading.Event()

    def watch() -> None:
        while not ended.wait(0.05):
            peak[0] = max(peak[0], memory_mb("RssAnon"))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        run_configuration(settings, RunOptions(resume=folder if resumes else None, progress=False))
    finally:
        ended.set()
        watcher.join()
    files = [file for file in (Path(folder) / "state").rglob("*") if file.is_file()]
    last = [after - before for before, after in itertools.pairwise(ends)][-RESUMED_ROUNDS:]
    return {
        "peak MB": memory_mb("VmHWM"),
        "without pages of files": peak[0],
        "state/ MB": sum(file.stat().st_size for file in files) // 10**6,
        "files": len(files),
        "seconds per round": f"{statistics.median(last):.2f}",
        "of which writing": format_spread(seconds[-RESUMED_ROUNDS:]),
        "seconds to load": f"{loading:.1f}",
    }


def memory_mb(name: str) -> int:
    """A line of /proc/self/status, in megabytes (10^6 bytes)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 // 10**6 for line in lines if line.startswith(f"{name}:"))


if __name__ == "__main__":
    main()
