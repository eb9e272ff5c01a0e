"""A run's folder: what is written, when, and how a run resumes.

Every file but the log of metrics is written beside its place and then moved into it, so that a reader, or a run
that is killed at any moment, finds the old file or the new one and never half of one.
"""

from __future__ import annotations

import csv
import io
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import yaml
from safetensors import safe_open
from safetensors.torch import load_file, save
from torch import Tensor

from ..algorithms.exchange import Memory, ServerState, Weights
from ..errors import UserError
from .changes import changes_between

_STATE = Path("state") / "server.safetensors"
_METRICS = "metrics.jsonl"
_ANSWERED = "state/answered.json"
#: The section of config.yaml that tells what resumes have changed; no setting is read from it.
RESUMES = "resumes"
#: The one entry of the state's metadata: safetensors writes several in an order that differs from file to file.
_FACTS = "state"
_MODEL = "model.safetensors"
#: And the one of the model's.
_MODEL_FACTS = "mrtf"


class RunStore:
    """The folder of one run."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @classmethod
    def create(cls, path: str | Path | None, name: str) -> RunStore:
        """A new folder at `path`, or at `runs/<name>-<time>`; one that holds a run already is refused."""
        if path is None:
            stem = Path("runs") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
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
        return yaml.safe_load((self.path / "config.yaml").read_text())

    def append_metrics(self, line: Mapping[str, Any]) -> None:
        """One line of metrics.jsonl per round."""
        for name, value in line.items():
            if not isinstance(value, str | int | float | list | dict | None):
                raise UserError(
                    f"a callback has put {name!r}, a {type(value).__name__}, into the round's line; put plain numbers "
                    "there, as float(...) makes them"
                )
        with (self.path / _METRICS).open("a") as file:
            file.write(json.dumps(line) + "\n")
            # As safe as the state that follows it: an account of what was done must not end before it.
            file.flush()
            os.fsync(file.fileno())

    def read_metrics(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl; a last line that a kill has cut short is left out."""
        file = self.path / _METRICS
        lines = file.read_text().splitlines(keepends=True) if file.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def save_state(self, state: ServerState) -> None:
        """All that the next round needs; the order of names too, since sums and draws may follow it."""
        parts: dict[str, Mapping[str, Any]] = {"weights": state.weights, "memory": state.memory}
        if state.answer is not state.weights:
            parts["answer"] = state.answer
        kept, noted = _by_kind(state.memory)
        tensors = {
            f"{part}/{name}": value
            for part, values in {**parts, "memory": kept}.items()
            for name, value in values.items()
        }
        order = {part: list(values) for part, values in parts.items()}
        facts = {"round": state.round, "order": order, "noted": noted}
        self._replace(_STATE, save(_plain(tensors), metadata={_FACTS: json.dumps(facts)}))

    def load_state(self) -> ServerState | None:
        """The state after the last finished round, with the metrics cut to the same; None before the first."""
        file = self.path / _STATE
        if not file.exists():
            # A kill between a round's line and its state leaves the line alone.
            self._cut_metrics(rounds=0)
            return None
        with safe_open(file, framework="pt") as opened:
            facts = json.loads(opened.metadata()[_FACTS])
        tensors, noted = load_file(file), facts["noted"]
        parts = {
            part: {
                name: noted[name] if part == "memory" and name in noted else tensors[f"{part}/{name}"] for name in names
            }
            for part, names in facts["order"].items()
        }
        round_index = facts["round"]
        self._cut_metrics(round_index)
        return ServerState(round_index, parts["weights"], parts.get("answer", parts["weights"]), parts["memory"])

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
        try:
            return int(json.loads((self.path / _ANSWERED).read_bytes())["rounds"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write_predictions(self, logits: Tensor, ids: list[str], class_names: list[str]) -> None:
        """predictions.csv and probabilities.npy: the plain softmax of the model that answers."""
        probabilities = torch.softmax(logits.detach().cpu().float(), dim=1)
        self._replace("predictions.csv", predictions_table(probabilities, ids, class_names).encode())
        self.write_array("probabilities.npy", probabilities.numpy())

    def write_model(self, weights: Weights, facts: Mapping[str, Any]) -> None:
        """model.safetensors: the weights, and in its header what is needed to use them; no time, path or score."""
        metadata = {_MODEL_FACTS: json.dumps(facts, sort_keys=True)}
        self._replace(_MODEL, save(_plain(weights), metadata=metadata))

    def read_model(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The weights of the model that answered, and what its file tells of it."""
        file = self.path / _MODEL
        if not file.is_file():
            raise UserError(f"{str(self.path)!r} has no {_MODEL}: no round of the run was finished; resume it first")
        with safe_open(file, framework="pt") as opened:
            facts = (opened.metadata() or {}).get(_MODEL_FACTS)
        if facts is None:
            raise UserError(f"{str(file)!r} does not tell how to use it; run its configuration again")
        return load_file(file), json.loads(facts)

    def write_array(self, name: str, array: npt.NDArray[Any]) -> None:
        """An array in NumPy's own format, such as probabilities.npy."""
        content = io.BytesIO()
        np.save(content, array)
        self._replace(name, content.getvalue())

    def write_json(self, name: str, content: Mapping[str, Any]) -> None:
        """A JSON file of the folder, such as summary.json."""
        self._replace(name, (json.dumps(content, indent=2) + "\n").encode())

    def write_text(self, name: str, content: str) -> None:
        """A text file of the folder, such as report.html."""
        self._replace(name, content.encode())

    def _replace(self, name: str | Path, content: bytes) -> None:
        place = self.path / name
        beside = place.with_name(f".{place.name}.part")
        with beside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(place)


def predictions_table(probabilities: Tensor, ids: list[str], class_names: list[str]) -> str:
    """predictions.csv: a row per sample, with the class of the highest probability and that probability."""
    confidences, labels = probabilities.max(dim=1)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["index", "id", "label", "class_name", "confidence"])
    rows = zip(ids, labels.tolist(), confidences.tolist(), strict=True)
    writer.writerows(
        (index, name, label, class_names[label], f"{confidence:.6f}")
        for index, (name, label, confidence) in enumerate(rows)
    )
    return text.getvalue()


def _plain(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """On the CPU, contiguous, and in the order of their names, so that equal tensors make equal files.

    Those that share memory are copied, since safetensors refuses them: an algorithm may remember a part of its model.
    """
    plain, seen = dict[str, Tensor](), set[int]()
    for key in sorted(tensors):
        tensor = tensors[key].detach().cpu().contiguous()
        storage = tensor.untyped_storage().data_ptr()
        plain[key] = tensor.clone() if storage in seen else tensor
        seen.add(storage)
    return plain


def _by_kind(memory: Memory) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What an algorithm keeps: the tensors, and what JSON can say; anything else is refused by its name."""
    kept = {name: value for name, value in memory.items() if isinstance(value, Tensor)}
    noted = {name: value for name, value in memory.items() if name not in kept}
    for name, value in noted.items():
        try:
            same = json.loads(json.dumps(value)) == value
        except (TypeError, ValueError):
            same = False
        if not same:
            raise UserError(
                f"the algorithm's memory {name!r} is a {type(value).__name__} that cannot be saved and read back; keep "
                "tensors, numbers, texts, and lists or dicts (with texts as keys) of these"
            )
    return kept, noted
