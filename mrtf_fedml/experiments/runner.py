"""Doing the runs: each in a process of its own, several at once, none of them twice."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import yaml

from ..errors import UserError
from ..rounds.store import RunStore
from ..settings import RunSettings
from ..settings.secrets import without_secrets
from .nursery import RunProcess
from .plan import Trial
from .progress import ComparisonProgress

#: Seconds between two looks at the processes; a run takes many of them.
_LOOK = 0.2
#: Seconds that a run gets to write down what it has finished.
_GRACE = 60.0


@dataclass
class _Running:
    trial: Trial
    process: RunProcess
    lock: IO[str]


class Runner:
    """The runs of a comparison, under `folder`/runs.

    Args:
        folder: of the comparison.
        jobs: runs at once.
        progress: where the bar and the lines go.
        places: of a trial's key, where it belongs, such as a panel; named before the run.
    """

    def __init__(
        self, folder: Path, jobs: int, progress: ComparisonProgress, places: Mapping[str, str] | None = None
    ) -> None:
        if jobs < 1:
            raise UserError(f"--jobs is {jobs}; at least one run must be at work")
        self.folder = folder / "runs"
        self.jobs = jobs
        self.progress = progress
        self.places = places or {}
        self._waited_for: set[str] = set()

    def run_dir(self, trial: Trial) -> Path:
        """Where the trial's run is."""
        return self.folder / trial.key

    def is_done(self, trial: Trial) -> bool:
        """Whether the run has come to its end."""
        file = self.run_dir(trial) / "summary.json"
        if not file.exists():
            return False
        summary = json.loads(file.read_text())
        stopped = summary.get("stopped") is not None
        return not summary["interrupted"] and (stopped or summary["rounds"] >= summary["rounds_asked_for"])

    def do(self, trials: Sequence[Trial]) -> int:
        """Do all that are not done; returns how many were. An interruption ends those at work, which keep their rounds.

        Raises:
            UserError: a run failed; those beside it are brought to their end first.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        todo = list({trial.key: trial for trial in trials if not self.is_done(trial)}.values())
        mine, done, at_work, failed = list(todo), 0, list[_Running](), ""
        asked_for = [RunSettings.from_config(trial.config).train.comm_round for trial in mine]
        self.progress.start(sum(asked_for), self._rounds_of(mine))
        try:
            while at_work or (todo and not failed):
                for running in [one for one in at_work if one.process.is_over]:
                    at_work.remove(running)
                    running.lock.close()
                    if self.is_done(running.trial):
                        done += 1
                        self.progress.tell(f"{done}/{len(mine)}  {self._name(running.trial)}")
                    else:
                        failed = failed or self._why(running.trial)
                if not failed:
                    at_work += self._start(todo, self.jobs - len(at_work))
                self.progress.show(lambda: self._rounds_of(mine))
                time.sleep(_LOOK)
        finally:
            self.progress.close()
            _end(at_work)
        if failed:
            raise UserError(failed)
        return done

    def _start(self, todo: list[Trial], places: int) -> list[_Running]:
        """Start as many as there are places for; one that another comparison is at work on waits."""
        started: list[_Running] = []
        for trial in list(todo):
            if len(started) >= places:
                break
            # The run inherits the lock: it is held as long as the run lives, even if this process is killed.
            lock = (self.folder / f"{trial.key}.lock").open("w")
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.close()
                if trial.key not in self._waited_for:
                    self._waited_for.add(trial.key)
                    self.progress.tell(f"{self._name(trial)}: another process is at work on it, and is waited for")
                continue
            todo.remove(trial)
            if self.is_done(trial):
                lock.close()
                continue
            started.append(_Running(trial, self._process(trial, lock), lock))
        return started

    def _process(self, trial: Trial, lock: IO[str]) -> RunProcess:
        run_dir = self.run_dir(trial)
        words = ["--resume", str(run_dir)]
        if not self._can_go_on(trial):
            shutil.rmtree(run_dir, ignore_errors=True)
            file = self.folder / f"{trial.key}.yaml"
            # One process needs no broker, no bucket and no account, and the file stays.
            config = without_secrets(trial.config)
            common = config.setdefault("common_args", {})
            common["run_dir"] = str(run_dir)
            # Many runs would wait for a picture each; `mrtf run` draws it.
            common.setdefault("keep_features", False)
            threads = config.setdefault("device_args", {}).get("threads") or self._threads()
            config["device_args"]["threads"] = threads
            file.write_text(yaml.safe_dump(config, sort_keys=False))
            words = ["--cf", str(file)]
        # What an earlier try said is no reason of this one.
        self._log(trial).unlink(missing_ok=True)
        return RunProcess(["run", *words], self._log(trial), lock.fileno())

    def _can_go_on(self, trial: Trial) -> bool:
        run_dir = self.run_dir(trial)
        return (run_dir / "config.yaml").exists() and RunStore(run_dir).has_state

    def _rounds_of(self, trials: Sequence[Trial]) -> int:
        """How many rounds the trials' runs have done."""
        files = [self.run_dir(trial) / "metrics.jsonl" for trial in trials]
        return sum(file.read_bytes().count(b"\n") for file in files if file.exists())

    def _threads(self) -> int:
        return max(1, len(os.sched_getaffinity(0)) // self.jobs)

    def _log(self, trial: Trial) -> Path:
        return self.folder / f"{trial.key}.log"

    def _why(self, trial: Trial) -> str:
        name, log = self._name(trial), self._log(trial)
        if not log.exists():
            return f"the run {name} failed: it ended before it could say why; start the comparison again"
        lines = log.read_text(errors="replace").split("\n")
        last = next((line for line in reversed(lines) if line.strip()), "it said nothing").removeprefix("mrtf: ")
        return f"the run {name} failed: {last} (all it said is in {log})"

    def _name(self, trial: Trial) -> str:
        place = f"{self.places[trial.key]}: " if trial.key in self.places else ""
        return f"{place}{trial.label}, seed {trial.seed}" + (f", {trial.point}" if trial.point else "")


def _end(at_work: Sequence[_Running]) -> None:
    """Let the runs write down what they have finished, and wait for it."""
    for running in at_work:
        running.process.ask_to_end()
    for running in at_work:
        running.process.end(_GRACE)
        running.lock.close()
