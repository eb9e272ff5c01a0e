"""A run's folder: what is written, when, and how a run resumes.

Every file but the log of metrics is written beside its place and then moved into it, so that a reader, or a run
that is killed at any moment, finds the old file or the new one and never half of one.
"""

from __future__ import annotations

import io
import json
import logging
import os
import re
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import yaml
from torch import Tensor

from ..algorithms.exchange import ServerState, Weights
from ..errors import UserError, shown
from ..settings.bounded_yaml import load_yaml
from .answer_files import model_file, predictions_table, read_model_file
from .changes import changes_between
from .lines import is_line
from .state_files import StateFiles
from .whole_file import append_line, replace_file

_log = logging.getLogger(__name__)

_METRICS = "metrics.jsonl"
_ANSWERED = "state/answered.json"
_PLACE = "state/place.json"
#: The section of config.yaml that tells what resumes have changed; no setting is read from it.
RESUMES = "resumes"
_MODEL = "model.safetensors"
#: A run's own configuration has every key, and what each resume has changed.
_LARGEST_CONFIG = 1_000_000


class RunStore:
    """The folder of one run."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._states = StateFiles(self.path / "state")

    @classmethod
    def create(cls, path: str | Path | None, name: str) -> RunStore:
        """A new folder at `path`, or at `runs/<name>-<time>`; one that holds a run already is refused."""
        if path is None:
            # The name may be a user's file or function: what a path takes amiss is left out of it.
            fit = re.sub(r"[^\w.+-]+", "_", name)
            stem = Path("runs") / f"{fit}-{time.strftime('%Y%m%d-%H%M%S')}"
            path, attempt = stem, 1
            while path.exists():
                attempt += 1
                path = stem.with_name(f"{stem.name}-{attempt}")
        store = cls(path)
        if (store.path / "config.yaml").exists():
            raise UserError(
                f"run_dir {str(path)!r} already holds a run; go on with it by `mrtf run --resume {path}` or name "
                "another folder"
            )
        if store.has_state or (store.path / _METRICS).exists():
            raise UserError(
                f"run_dir {str(path)!r} holds rounds of a run whose config.yaml is gone; restore it, remove the folder "
                "or name another"
            )
        try:
            (store.path / "state").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"run_dir {str(path)!r} cannot be made ({error.strerror}); name another") from None
        return store

    @classmethod
    def open(cls, path: str | Path) -> RunStore:
        """The folder of a run that exists."""
        store = cls(path)
        if not (store.path / "config.yaml").is_file():
            raise UserError(f"{str(path)!r} is not the folder of a run: it has no config.yaml")
        return store

    def note_where_it_began(self) -> None:
        """Keep the current folder: modules that the configuration names may lie there."""
        self.write_json(_PLACE, {"folder": os.getcwd()})

    def search_where_it_began(self) -> None:
        """Let modules be found in that folder too, last of all, whichever folder is the current one."""
        folder = self.read_json(_PLACE).get("folder")
        if isinstance(folder, str) and folder not in sys.path and Path(folder).is_dir():
            sys.path.append(folder)

    def write_config(self, config: Mapping[str, Any]) -> None:
        """The resolved configuration."""
        self._replace("config.yaml", yaml.safe_dump(dict(config), sort_keys=False).encode())

    def read_config(self) -> dict[str, Any]:
        """The resolved configuration, as it holds since the last resume."""
        return {section: values for section, values in self._config_file().items() if section != RESUMES}

    def read_resumes(self) -> dict[str, dict[str, dict[str, Any]]]:
        """What resumes have changed: by the round from which it holds, each key with its value before and after."""
        return self._config_file().get(RESUMES) or {}

    def write_resumed_config(self, config: Mapping[str, Mapping[str, Any]], round_index: int) -> None:
        """The configuration from this round on; what it changes is written down beside it."""
        before, resumes = self.read_config(), self.read_resumes()
        changes = changes_between(before, config)
        if changes:
            resumes[str(round_index)] = {**resumes.get(str(round_index), {}), **changes}
            self.write_config({**config, RESUMES: resumes})

    def _config_file(self) -> dict[str, Any]:
        try:
            config = load_yaml((self.path / "config.yaml").read_text(encoding="utf-8"), _LARGEST_CONFIG)
        except UserError as error:
            raise UserError(f"{str(self.path / 'config.yaml')!r} {error}; restore it") from None
        except (OSError, ValueError) as error:
            raise UserError(f"{str(self.path / 'config.yaml')!r} cannot be read ({error}); restore it") from None
        if not isinstance(config, dict) or not config:
            raise UserError(f"{str(self.path / 'config.yaml')!r} holds no configuration; restore it")
        for section, values in config.items():
            if not isinstance(section, str) or not isinstance(values, dict | None):
                raise UserError(f"{str(self.path / 'config.yaml')!r}: {shown(section)} is no section; restore it")
        return {section: values or {} for section, values in config.items()}

    def append_metrics(self, line: Mapping[str, Any]) -> None:
        """One line of metrics.jsonl per round."""
        for name, value in line.items():
            if not isinstance(value, str | int | float | list | dict | None):
                raise UserError(
                    f"a callback has put {name!r}, a {type(value).__name__}, into the round's line; put plain numbers "
                    "there, as float(...) makes them"
                )
        # As safe as the state that follows it: an account of what was done must not end before it.
        append_line(self.path / _METRICS, json.dumps(line))

    def read_metrics(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl; a last line that a kill has cut short, and one that is broken, are left out."""
        file = self.path / _METRICS
        try:
            lines, read = file.read_bytes().splitlines(keepends=True) if file.exists() else [], []
        except OSError as error:
            raise UserError(f"{str(file)!r} cannot be read ({error.strerror}); restore it") from None
        for number, line in enumerate(lines, start=1):
            if not line.endswith(b"\n"):
                continue
            try:
                parsed = json.loads(line)
            except (ValueError, RecursionError):
                parsed = None
            if is_line(parsed):
                read.append(parsed)
            else:
                _log.warning("line %d of %s cannot be read and is left out", number, file)
        return read

    @property
    def has_state(self) -> bool:
        """Whether there is something to go on with."""
        return bool(self._states.kept)

    def save_state(self, state: ServerState, keep: int = 2) -> None:
        """All that the next round needs; the last `keep` of them stay."""
        self._states.save(state, keep)

    def load_state(self) -> ServerState | None:
        """The state after the last finished round, with the metrics cut to the same; None before the first."""
        state = self._states.load()
        # A kill between a round's line and its state leaves the line alone.
        self._cut_metrics(rounds=0 if state is None else state.round)
        return state

    def _cut_metrics(self, rounds: int) -> None:
        lines = self.read_metrics()
        kept = [line for line in lines if line["round"] < rounds]
        if (self.path / _METRICS).exists():
            self._replace(_METRICS, "".join(json.dumps(line) + "\n" for line in kept).encode())

    def note_answered(self, rounds: int) -> None:
        """All files of the answer after so many rounds are written."""
        self.write_json(_ANSWERED, {"rounds": rounds})

    def answered_rounds(self) -> int | None:
        """After how many rounds the answer was written last; None where a kill came before."""
        rounds = self.read_json(_ANSWERED).get("rounds")
        return rounds if isinstance(rounds, int) else None

    def write_predictions(self, logits: Tensor, ids: list[str], class_names: list[str]) -> None:
        """predictions.csv and probabilities.npy: the plain softmax of the model that answers."""
        probabilities = torch.softmax(logits.detach().cpu().float(), dim=1)
        self._replace("predictions.csv", predictions_table(probabilities, ids, class_names).encode())
        self.write_array("probabilities.npy", probabilities.numpy())

    def write_model(self, weights: Weights, facts: Mapping[str, Any]) -> None:
        """model.safetensors: the weights, and in its header what is needed to use them; no time, path or score."""
        self._replace(_MODEL, model_file(weights, facts))

    def read_model(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The weights of the model that answered, and what its file tells of it."""
        file = self.path / _MODEL
        if not file.is_file():
            raise UserError(f"{str(self.path)!r} has no {_MODEL}: no round of the run was finished; resume it first")
        return read_model_file(file)

    def write_array(self, name: str, array: npt.NDArray[Any]) -> None:
        """An array in NumPy's own format, such as probabilities.npy."""
        content = io.BytesIO()
        np.save(content, array)
        self._replace(name, content.getvalue())

    def write_json(self, name: str, content: Mapping[str, Any]) -> None:
        """A JSON file of the folder, such as summary.json."""
        self._replace(name, (json.dumps(content, indent=2) + "\n").encode())

    def read_json(self, name: str) -> dict[str, Any]:
        """What `write_json` wrote; nothing where it is not there, or broken."""
        try:
            return dict(json.loads((self.path / name).read_bytes()))
        except (OSError, ValueError, TypeError, RecursionError):
            return {}

    def write_text(self, name: str, content: str) -> None:
        """A text file of the folder, such as report.html."""
        self._replace(name, content.encode())

    def _replace(self, name: str, content: bytes) -> None:
        replace_file(self.path / name, content)
