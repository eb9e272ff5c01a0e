"""Runs the trials of a comparison: each in its own process, several at once, none of them twice."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import yaml
from tqdm import tqdm

from ..config import RunSettings
from ..config.secrets import redact_secrets
from ..errors import UserError
from ..training.run_directory import RunDirectory
from .plan import Trial
from .worker_process import RunProcess


class ComparisonProgress:
    """A live bar over the rounds of all runs on a terminal; elsewhere only lines."""

    def __init__(self) -> None:
        self._bar: tqdm | None = None

    def start(self, rounds: int, done: int, unit: str = "round", what: str = "all runs") -> None:
        """Show a bar of `rounds` rounds, of which `done` are finished."""
        if rounds > done and sys.stderr.isatty():
            self._bar = tqdm(total=rounds, initial=done, unit=unit, desc=what, dynamic_ncols=True)

    def show(self, count: Callable[[], int]) -> None:
        """Move the bar to `count()`, which is called only where a bar is shown."""
        if self._bar is not None:
            self._bar.update(count() - self._bar.n)

    def print_line(self, text: str) -> None:
        """Print a line above the bar."""
        if self._bar is not None:
            self._bar.write(text, file=sys.stderr)
        else:
            print(text, file=sys.stderr, flush=True)

    def close(self) -> None:
        """Close the bar."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None


#: Memory of a run without its data; the imports of FedML and PyTorch take 1 GB of it.
_RUN_BYTES = 2 << 30


def default_jobs(trials: Sequence[Trial]) -> int:
    """The number of concurrent runs where `--jobs` is not given: cores / threads of a run, at least 1.

    Runs do not wait for each other, but the threads of one run do (docs/lab/speed.md). The number depends on the
    machine and on the plan, not on the current load: it determines the threads of a run, and these determine the
    last bits of its results. A GPU is not shared by default.
    """
    devices = [RunSettings.from_config(trial.config).device for trial in trials]
    if any(device.using_gpu for device in devices):
        return 1
    variable = os.environ.get("OMP_NUM_THREADS", "")
    threads = int(variable) if variable.isdigit() else max((device.threads or 1 for device in devices), default=1)
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    runs = len({trial.key for trial in trials})
    return max(1, min(runs, len(os.sched_getaffinity(0)) // max(1, threads), memory // _RUN_BYTES))


#: Seconds between two checks of the processes.
_POLL_SECONDS = 0.2
#: Seconds that a terminated run has to save its finished rounds.
_GRACE_SECONDS = 60.0


@dataclass
class _ActiveRun:
    trial: Trial
    process: RunProcess
    lock: IO[str]


class Runner:
    """The runs of a comparison, under `folder`/runs.

    Args:
        folder: the folder of the comparison.
        jobs: the number of concurrent runs.
        progress: shows the bar and the lines.
        prefixes: by trial key, a text in front of the run's name, such as a panel.
    """

    def __init__(
        self, folder: Path, jobs: int, progress: ComparisonProgress, prefixes: Mapping[str, str] | None = None
    ) -> None:
        if jobs < 1:
            raise UserError(f"--jobs is {jobs}; give at least 1")
        self.folder = folder / "runs"
        self.jobs = jobs
        self.progress = progress
        self.prefixes = prefixes or {}
        self._reported_waits: set[str] = set()

    def run_dir(self, trial: Trial) -> Path:
        """The run directory of the trial."""
        return self.folder / trial.key

    def is_done(self, trial: Trial) -> bool:
        """Whether the run has finished all its rounds, or stopped by itself."""
        file = self.run_dir(trial) / "summary.json"
        if not file.exists():
            return False
        summary = json.loads(file.read_text())
        stopped = summary.get("stop_reason") is not None
        return not summary["interrupted"] and (stopped or summary["rounds"] >= summary["rounds_requested"])

    def run_all(self, trials: Sequence[Trial]) -> int:
        """Run all trials that are not done and return their number; after an interruption finished rounds are kept.

        Raises:
            UserError: a run failed; the runs started before it are finished first.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        todo = list({trial.key: trial for trial in trials if not self.is_done(trial)}.values())
        pending, done, active, failure = list(todo), 0, list[_ActiveRun](), ""
        rounds = [RunSettings.from_config(trial.config).train.comm_round for trial in pending]
        self.progress.start(sum(rounds), self._count_rounds(pending))
        try:
            while active or (todo and not failure):
                for run in [run for run in active if run.process.has_ended]:
                    active.remove(run)
                    run.lock.close()
                    if self.is_done(run.trial):
                        done += 1
                        self.progress.print_line(f"{done}/{len(pending)}  {self._name(run.trial)}")
                    else:
                        failure = failure or self._failure_message(run.trial)
                if not failure:
                    active += self._start(todo, self.jobs - len(active))
                self.progress.show(lambda: self._count_rounds(pending))
                time.sleep(_POLL_SECONDS)
        finally:
            self.progress.close()
            _stop(active)
        if failure:
            raise UserError(failure)
        return done

    def _start(self, todo: list[Trial], free_jobs: int) -> list[_ActiveRun]:
        """Start up to `free_jobs` trials; one that another process runs at the moment is left in `todo`."""
        started: list[_ActiveRun] = []
        for trial in list(todo):
            if len(started) >= free_jobs:
                break
            # The run inherits the lock and holds it while it lives, even if this process is killed.
            lock = (self.folder / f"{trial.key}.lock").open("w")
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.close()
                if trial.key not in self._reported_waits:
                    self._reported_waits.add(trial.key)
                    self.progress.print_line(f"{self._name(trial)}: waiting for another process that runs it")
                continue
            todo.remove(trial)
            if self.is_done(trial):
                lock.close()
                continue
            started.append(_ActiveRun(trial, self._process(trial, lock), lock))
        return started

    def _process(self, trial: Trial, lock: IO[str]) -> RunProcess:
        run_dir = self.run_dir(trial)
        words = ["--resume", str(run_dir)]
        if not self._can_resume(trial):
            shutil.rmtree(run_dir, ignore_errors=True)
            file = self.folder / f"{trial.key}.yaml"
            # One process needs no broker, bucket or account, and the file is kept.
            config = redact_secrets(trial.config)
            common = config.setdefault("common_args", {})
            common["run_dir"] = str(run_dir)
            # The picture of the features takes seconds; `mrtf run` draws it.
            common.setdefault("keep_features", False)
            threads = config.setdefault("device_args", {}).get("threads") or self._threads()
            config["device_args"]["threads"] = threads
            file.write_text(yaml.safe_dump(config, sort_keys=False))
            words = ["--cf", str(file)]
        # The log of an earlier attempt does not explain a new failure.
        self._log(trial).unlink(missing_ok=True)
        return RunProcess(["run", *words], self._log(trial), lock.fileno())

    def _can_resume(self, trial: Trial) -> bool:
        run_dir = self.run_dir(trial)
        return (run_dir / "config.yaml").exists() and RunDirectory(run_dir).has_checkpoint

    def _count_rounds(self, trials: Sequence[Trial]) -> int:
        """The number of finished rounds of these trials."""
        files = [self.run_dir(trial) / "metrics.jsonl" for trial in trials]
        return sum(file.read_bytes().count(b"\n") for file in files if file.exists())

    def _threads(self) -> int:
        return max(1, len(os.sched_getaffinity(0)) // self.jobs)

    def _log(self, trial: Trial) -> Path:
        return self.folder / f"{trial.key}.log"

    def _failure_message(self, trial: Trial) -> str:
        name, log = self._name(trial), self._log(trial)
        if not log.exists():
            return f"the run {name} failed without a message; start the comparison again"
        lines = log.read_text(errors="replace").split("\n")
        last = next((line for line in reversed(lines) if line.strip()), "no message").removeprefix("mrtf: ")
        return f"the run {name} failed: {last} (log: {log})"

    def _name(self, trial: Trial) -> str:
        prefix = f"{self.prefixes[trial.key]}: " if trial.key in self.prefixes else ""
        return f"{prefix}{trial.label}, seed {trial.seed}" + (f", {trial.point}" if trial.point else "")


def _stop(active: Sequence[_ActiveRun]) -> None:
    """Terminate the runs and wait until they have saved their finished rounds."""
    for run in active:
        run.process.terminate()
    for run in active:
        run.process.wait(_GRACE_SECONDS)
        run.lock.close()
