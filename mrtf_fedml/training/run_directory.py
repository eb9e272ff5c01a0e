"""The run directory: its files, its lock, and what a resumed run reads from it.

Every file but metrics.jsonl is written to a temporary file and renamed, so that after a kill there is the old file or
the new one, never half of one. metrics.jsonl grows by whole lines.
"""

from __future__ import annotations

import dataclasses
import errno
import fcntl
import hashlib
import io
import json
import logging
import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import torch
import yaml
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from ..algorithms.evaluation import EvaluationCounts
from ..algorithms.types import RoundReport, ServerState, Weights
from ..config import DataSettings
from ..config.loader import load_yaml
from ..errors import UserError, shorten_repr
from .checkpoints import Checkpoints, normalize_tensors
from .files import append_line, atomic_write
from .outputs import LabelTrust, encode_model, format_predictions, read_model_file

_log = logging.getLogger(__name__)

METRICS = "metrics.jsonl"
_MODEL = "model.safetensors"
_EVALUATIONS = "validation.json"
_RESULTS_WRITTEN = "state/results.json"
_LAST_ROUND = "state/last_round.safetensors"
#: Names of the tensors in it.
_ROUNDS, _CLIENTS, _TEACHER_LABELS, _PREDICTIONS = "rounds", "clients", "teacher_labels", "predictions/"
_WORKING_DIRECTORY = "state/working_directory.json"
_INPUT_FILES = "state/input_files.json"
_LOCK = Path("state") / "lock"
#: Checkpoints that are kept while a run is not finished.
KEPT_CHECKPOINTS = 2
#: The entry of input_files.json with the number of the server's samples. No file has this name.
_SAMPLES = "/"
#: The section of config.yaml that records what each resume has changed. No setting is read from it.
_RESUMES = "resumes"
#: Bytes of a run's config.yaml, which has every key and the changes of each resume.
_MAX_CONFIG_BYTES = 1_000_000
#: Keys of a metrics line whose values are numbers or null.
_NUMBER_KEYS = ("train_loss", "acc", "client_seconds", "server_seconds", "uplink_bytes", "downlink_bytes")
#: Errors of file systems that have no locks.
_NO_LOCKS = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS}


class RunDirectory:
    """The directory of one run."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._checkpoints = Checkpoints(self.path / "state")

    @classmethod
    def create(cls, path: str | Path | None, name: str) -> RunDirectory:
        """A new directory at `path`, or at `runs/<name>-<time>`. A directory that has a run is refused."""
        if path is None:
            # The name may be a user's file or function: characters that do not suit a path are replaced.
            safe_name = re.sub(r"[^\w.+-]+", "_", name)
            stem = Path("runs") / f"{safe_name}-{time.strftime('%Y%m%d-%H%M%S')}"
            path, attempt = stem, 1
            while path.exists():
                attempt += 1
                path = stem.with_name(f"{stem.name}-{attempt}")
        directory = cls(path)
        if (directory.path / "config.yaml").exists():
            raise UserError(
                f"run_dir {str(path)!r} already has a run; resume it with `mrtf run --resume {path}` or choose another "
                "directory"
            )
        if directory.has_checkpoint or (directory.path / METRICS).exists():
            raise UserError(
                f"run_dir {str(path)!r} has rounds of a run whose config.yaml is missing; restore it, remove the "
                "directory or choose another"
            )
        try:
            (directory.path / "state").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"run_dir {str(path)!r} cannot be created ({error.strerror}); choose another") from None
        return directory

    @classmethod
    def open(cls, path: str | Path) -> RunDirectory:
        """The directory of an existing run."""
        directory = cls(path)
        if not (directory.path / "config.yaml").is_file():
            raise UserError(f"{str(path)!r} is not a run directory: it has no config.yaml")
        return directory

    def record_working_directory(self) -> None:
        """Save the current directory: it may contain modules that the configuration names."""
        self.write_json(_WORKING_DIRECTORY, {"folder": os.getcwd()})

    def extend_import_path(self) -> None:
        """Append the directory in which the run was started to `sys.path`, so that its modules are found."""
        folder = self.read_json(_WORKING_DIRECTORY).get("folder")
        if isinstance(folder, str) and folder not in sys.path and Path(folder).is_dir():
            sys.path.append(folder)

    def record_inputs(self, data: DataSettings, samples: int) -> None:
        """Save fingerprints of the user's data files, and the number of the server's samples."""
        self.write_json(_INPUT_FILES, {**fingerprint_files(data), _SAMPLES: samples})

    def check_inputs(self, data: DataSettings, samples: int) -> None:
        """Warn of data files that have changed since the run started; refuse a server set of another size.

        The server's state has entries per sample, so the number of samples must not change. A file of another name is
        a changed setting, not a changed file.
        """
        recorded = self.read_json(_INPUT_FILES)
        if recorded.get(_SAMPLES, samples) != samples:
            raise UserError(
                f"the server's set has {samples} samples but had {recorded[_SAMPLES]} when the run started; restore "
                "server_samples and the server's files, or label more samples with `mrtf predict`"
            )
        # Labels are used after the last round, so that a resume may bring others.
        for name, fingerprint in fingerprint_files(dataclasses.replace(data, labels_file=None)).items():
            if name in recorded and recorded[name] != fingerprint:
                _log.warning(
                    "%s has changed since the run started (another size or time): earlier rounds used other data",
                    name,
                )

    def write_config(self, config: Mapping[str, Any]) -> None:
        """The resolved configuration."""
        self._write("config.yaml", yaml.safe_dump(dict(config), sort_keys=False).encode())

    def read_config(self) -> dict[str, Any]:
        """The resolved configuration since the last resume."""
        return {section: values for section, values in self._read_config_file().items() if section != _RESUMES}

    def read_resumes(self) -> dict[str, dict[str, dict[str, Any]]]:
        """What resumes have changed: by the first round, each key with its value before and after."""
        return self._read_config_file().get(_RESUMES) or {}

    def write_resumed_config(self, config: Mapping[str, Mapping[str, Any]], round_index: int) -> None:
        """The configuration from this round on, and what it changes."""
        before, resumes = self.read_config(), self.read_resumes()
        changes = diff_configs(before, config)
        if changes:
            resumes[str(round_index)] = {**resumes.get(str(round_index), {}), **changes}
            self.write_config({**config, _RESUMES: resumes})

    def append_metrics(self, line: Mapping[str, Any]) -> None:
        """Append one line to metrics.jsonl, synced to disk before the round's checkpoint."""
        for name, value in line.items():
            if not isinstance(value, str | int | float | list | dict | None):
                raise UserError(
                    f"a callback has put {name!r}, a {type(value).__name__}, into the round's metrics; use plain "
                    "numbers, such as float(...) returns"
                )
        append_line(self.path / METRICS, json.dumps(line))

    def read_metrics(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl without damaged ones, such as a last line that a kill has cut short."""
        file = self.path / METRICS
        try:
            lines, metrics = file.read_bytes().splitlines(keepends=True) if file.exists() else [], []
        except OSError as error:
            raise UserError(f"{str(file)!r} cannot be read ({error.strerror}); restore it") from None
        for number, line in enumerate(lines, start=1):
            if not line.endswith(b"\n"):
                continue
            try:
                parsed = json.loads(line)
            except (ValueError, RecursionError):
                parsed = None
            if is_metrics_line(parsed):
                metrics.append(parsed)
            else:
                _log.warning("line %d of %s cannot be read and is ignored", number, file)
        return metrics

    @property
    def has_checkpoint(self) -> bool:
        """Whether a run can be resumed from here."""
        return bool(self._checkpoints.paths)

    def save_state(self, state: ServerState) -> ServerState:
        """Write a checkpoint; the one before is kept too, in case the new one is damaged.

        Returns:
            the state to continue with (`Checkpoints.save`).
        """
        return self._checkpoints.save(state, KEPT_CHECKPOINTS)

    def remove_checkpoints(self, keep: int) -> None:
        """Remove all checkpoints of a finished run but the newest `keep`."""
        self._checkpoints.remove_older(keep)

    def load_state(self) -> ServerState | None:
        """The state after the last finished round, with metrics.jsonl cut to the same; None before the first."""
        state = self._checkpoints.load()
        # A kill between a round's metrics and its checkpoint leaves metrics of an unfinished round.
        rounds = 0 if state is None else state.round
        finished = [line for line in self.read_metrics() if line["round"] < rounds]
        if (self.path / METRICS).exists():
            self._write(METRICS, "".join(json.dumps(line) + "\n" for line in finished).encode())
        return state

    def mark_results_written(self, rounds: int, labels_digest: str | None = None) -> None:
        """Record that all result files of this many rounds and these known labels are written, and which there are."""
        files = sorted(path.name for path in self.path.iterdir() if path.is_file())
        self.write_json(_RESULTS_WRITTEN, {"rounds": rounds, "labels": labels_digest, "files": files})

    def results_written_after(self) -> int | None:
        """The number of rounds whose results were written last; None if a kill came before, or a file is missing."""
        written = self.read_json(_RESULTS_WRITTEN)
        rounds, files = written.get("rounds"), written.get("files")
        is_complete = isinstance(files, list) and all((self.path / str(name)).is_file() for name in files)
        return rounds if isinstance(rounds, int) and is_complete else None

    def has_results_of(self, rounds: int, labels_digest: str | None) -> bool:
        """Whether the results of this many rounds and these known labels are written."""
        return (
            self.results_written_after() == rounds and self.read_json(_RESULTS_WRITTEN).get("labels") == labels_digest
        )

    def save_last_round(self, rounds: int, clients: Sequence[int], report: RoundReport) -> None:
        """Keep what the results need of the last round: they may be written by another process, after a kill."""
        tensors = {_PREDICTIONS + name: value for name, value in report.predictions.items()}
        if report.teacher_labels is not None:
            tensors[_TEACHER_LABELS] = report.teacher_labels
        tensors |= {_ROUNDS: torch.tensor(rounds), _CLIENTS: torch.tensor(clients)}
        self._write(_LAST_ROUND, save(normalize_tensors(tensors)))

    def load_last_round(self, rounds: int) -> tuple[list[int], RoundReport] | None:
        """The clients and the report of a run that ended after `rounds`; None if they are missing or damaged."""
        try:
            tensors = load_file(self.path / _LAST_ROUND)
            clients, saved = tensors.pop(_CLIENTS).tolist(), tensors.pop(_ROUNDS).tolist()
        except (OSError, SafetensorError, KeyError):
            return None
        if saved != rounds:
            return None
        teacher_labels = tensors.pop(_TEACHER_LABELS, None)
        predictions = {name.removeprefix(_PREDICTIONS): value for name, value in tensors.items()}
        return clients, RoundReport(predictions=predictions, teacher_labels=teacher_labels)

    def write_evaluations(
        self, rounds: int, evaluations: Mapping[int, EvaluationCounts], labels_digest: str | None = None
    ) -> None:
        """validation.json: what each client reported about the model after this many rounds and these known labels."""
        clients = {str(client): counts.to_json() for client, counts in evaluations.items()}
        content = {"rounds": rounds, "labels": labels_digest, "clients": clients}
        self._write(_EVALUATIONS, (json.dumps(content) + "\n").encode())

    def read_evaluations(self, rounds: int, labels_digest: str | None = None) -> dict[int, EvaluationCounts] | None:
        """The clients' reports about that model; None if there are none."""
        content = self.read_json(_EVALUATIONS)
        if content.get("rounds") != rounds or content.get("labels") != labels_digest:
            return None
        try:
            return {int(client): EvaluationCounts.from_json(counts) for client, counts in content["clients"].items()}
        except (KeyError, IndexError, ValueError, TypeError, AttributeError, RuntimeError):
            return None

    def write_predictions(
        self, logits: Tensor, ids: list[str], class_names: list[str], trust: LabelTrust | None = None
    ) -> None:
        """predictions.csv and probabilities.npy: the softmax of the logits [M, C]."""
        probabilities = torch.softmax(logits.detach().cpu().float(), dim=1)
        self._write("predictions.csv", format_predictions(probabilities, ids, class_names, trust).encode())
        self.write_array("probabilities.npy", probabilities.numpy())

    def write_model(self, weights: Weights, header: Mapping[str, Any]) -> None:
        """model.safetensors."""
        self._write(_MODEL, encode_model(weights, header))

    def read_model(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The weights and the header of model.safetensors."""
        file = self.path / _MODEL
        if not file.is_file():
            raise UserError(f"{str(self.path)!r} has no {_MODEL}: no round of the run was finished; resume it first")
        return read_model_file(file)

    def write_tensors(self, name: str, tensors: Mapping[str, Tensor]) -> None:
        """Tensors in the format of safetensors."""
        self._write(name, save(dict(tensors)))

    def read_tensors(self, name: str) -> dict[str, Tensor] | None:
        """The tensors of a file; None if it does not exist."""
        file = self.path / name
        if not file.is_file():
            return None
        try:
            return dict(load_file(file))
        except (OSError, SafetensorError, ValueError) as error:
            raise UserError(f"{str(file)!r} cannot be read ({error}); resume the run to write it again") from None

    def write_array(self, name: str, array: npt.NDArray[Any]) -> None:
        """An array in NumPy's format."""
        content = io.BytesIO()
        np.save(content, array)
        self._write(name, content.getvalue())

    def write_json(self, name: str, content: Mapping[str, Any]) -> None:
        """A JSON file."""
        self._write(name, (json.dumps(content, indent=2) + "\n").encode())

    def read_json(self, name: str) -> dict[str, Any]:
        """The content of a JSON file; empty if it is missing or damaged."""
        try:
            return dict(json.loads((self.path / name).read_bytes()))
        except (OSError, ValueError, TypeError, RecursionError):
            return {}

    def write_text(self, name: str, content: str) -> None:
        """A text file."""
        self._write(name, content.encode())

    def _write(self, name: str, content: bytes) -> None:
        atomic_write(self.path / name, content)

    def _read_config_file(self) -> dict[str, Any]:
        file = self.path / "config.yaml"
        try:
            config = load_yaml(file.read_text(encoding="utf-8"), _MAX_CONFIG_BYTES)
        except UserError as error:
            raise UserError(f"{str(file)!r} {error}; restore it") from None
        except (OSError, ValueError) as error:
            raise UserError(f"{str(file)!r} cannot be read ({error}); restore it") from None
        if not isinstance(config, dict) or not config:
            raise UserError(f"{str(file)!r} has no configuration; restore it")
        for section, values in config.items():
            if not isinstance(section, str) or not isinstance(values, dict | None):
                raise UserError(f"{str(file)!r}: {shorten_repr(section)} is not a section; restore it")
        return {section: values or {} for section, values in config.items()}


class DirectoryLock:
    """Lets one process at a time write a run directory: held until `release`, or until the process ends."""

    def __init__(self, run_dir: Path) -> None:
        path = run_dir / _LOCK
        try:
            path.parent.mkdir(exist_ok=True)
            self._file: IO[str] = path.open("a+")
        except OSError as error:
            raise UserError(
                f"the run directory {str(run_dir)!r} cannot be written ({error.strerror}); make it writable, or copy "
                "it to a place that is"
            ) from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.seek(0)
            holder = self._file.read().strip() or "unknown"
            self._file.close()
            raise UserError(
                f"another process ({holder}) is using the run in {str(run_dir)!r}; wait until it has ended, or end it"
            ) from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            _log.warning("%s cannot be locked (%s): make sure that no other process resumes it", run_dir, error)
        # The holder's name is for other processes' messages only: on a full disk the lock is held without it.
        with suppress(OSError):
            self._file.truncate(0)
            os.write(self._file.fileno(), f"process {os.getpid()} on {os.uname().nodename}\n".encode())

    def release(self) -> None:
        """Let other processes write."""
        self._file.close()


def diff_configs(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The keys whose values differ, as `section.key`, without `run_dir`."""
    changes = {}
    for section in dict.fromkeys([*before, *after]):
        old, new = before.get(section) or {}, after.get(section) or {}
        for key in dict.fromkeys([*old, *new]):
            if old.get(key) != new.get(key) and key != "run_dir":
                changes[f"{section}.{key}"] = {"from": old.get(key), "to": new.get(key)}
    return changes


def is_metrics_line(line: Any) -> bool:
    """Whether a parsed line of metrics.jsonl has a round, and values of the right types for the standard keys.

    >>> is_metrics_line({"round": 0, "acc": None, "clients": [1]})
    True
    >>> is_metrics_line({"round": "0"}), is_metrics_line([0])
    (False, False)
    """
    if not isinstance(line, dict) or type(line.get("round")) is not int or line["round"] < 0:
        return False
    clients, excluded = line.get("clients", []), line.get("excluded_clients", {})
    if not isinstance(clients, list) or not isinstance(excluded, dict | list):
        return False
    numbers = [line.get(key) for key in _NUMBER_KEYS] + [line[key] for key in line if key.startswith("acc_")]
    return all(number is None or isinstance(number, int | float) for number in numbers)


def has_used_update(line: Mapping[str, Any]) -> bool:
    """Whether the update of at least one client was used in the round of this line of metrics.jsonl.

    >>> has_used_update({"clients": [0, 1], "excluded_clients": {"1": "late"}}), has_used_update({"clients": []})
    (True, False)
    """
    excluded = {str(client) for client in line.get("excluded_clients") or []}
    return any(str(client) not in excluded for client in line.get("clients") or [])


def fingerprint_files(data: DataSettings) -> dict[str, Any]:
    """A fingerprint of every data file or folder of the user; `{rank}` in a name is the server's rank."""
    names = (data.data_file, data.server_file, data.labels_file, data.own_data_file)
    return {name: _fingerprint(Path(os.path.expanduser(name.replace("{rank}", "0")))) for name in names if name}


def _fingerprint(path: Path) -> Any:
    """Size and time of a file, or a hash over those of all files of a folder; None if the path does not exist."""
    if path.is_dir():
        entries = sorted(entry for entry in path.rglob("*") if entry.is_file())
        lines = [f"{entry.relative_to(path)}\0{_fingerprint(entry)}" for entry in entries]
        return hashlib.sha256("\n".join(lines).encode(errors="surrogateescape")).hexdigest()[:16]
    if not path.is_file():
        return None
    status = path.stat()
    return [status.st_size, status.st_mtime_ns]
