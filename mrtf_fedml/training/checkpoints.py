"""Checkpoints of the server's state: each has a checksum, and the last few are kept in case one is damaged."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from torch import Tensor

from ..algorithms.types import Memory, ServerState
from ..errors import UserError
from .files import report_write_errors, sync_folder, write_temporary

_log = logging.getLogger(__name__)

#: One metadata entry holds all: safetensors writes several in an order that differs from file to file.
_HEADER = "state"
_CHECKSUM = "checksum"
_DAMAGED_PREFIX = "damaged-"
_READ_ERRORS = (OSError, SafetensorError, ValueError, KeyError, TypeError, AttributeError, RecursionError)


class Checkpoints:
    """The checkpoints in a folder: server.safetensors of the last round, server-1.safetensors of the one before."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def paths(self) -> list[Path]:
        """The files that exist, newest first."""
        older = sorted(self.folder.glob("server-*.safetensors"), key=lambda path: (len(path.name), path.name))
        return [path for path in (self._path(0), *older) if path.exists()]

    def save(self, state: ServerState, keep: int) -> None:
        """Write a checkpoint and keep the last `keep` of them. Older ones are removed when the new one is on disk."""
        temporary = write_temporary(self._path(0), _encode(state))
        with report_write_errors(self._path(0)):
            for age in range(keep - 1, 0, -1):
                if self._path(age - 1).exists():
                    self._path(age - 1).replace(self._path(age))
            temporary.replace(self._path(0))
            sync_folder(self.folder)
            for path in self.paths[keep:]:
                path.unlink()

    def load(self) -> ServerState | None:
        """The newest intact state; None before the first. Damaged files are renamed and named in the log."""
        faults = []
        for path in self.paths:
            try:
                state = _decode(path)
            except _READ_ERRORS as error:
                faults.append((path, str(error) or type(error).__name__))
                continue
            for damaged, fault in faults:
                # Renamed, so that the next checkpoint does not push out an intact one.
                renamed = damaged.replace(damaged.with_name(_DAMAGED_PREFIX + damaged.name))
                _log.warning(
                    "the checkpoint %s is damaged (%s) and is renamed to %s; the run continues from the previous one, "
                    "after %d rounds",
                    damaged,
                    fault,
                    renamed.name,
                    state.round,
                )
            return state
        if faults:
            reasons = "; ".join(f"{path.name}: {fault}" for path, fault in faults)
            raise UserError(
                f"no checkpoint in {str(self.folder)!r} is intact ({reasons}); restore the folder from a copy, or "
                "start a new run in another"
            )
        return None

    def _path(self, age: int) -> Path:
        return self.folder / (f"server-{age}.safetensors" if age else "server.safetensors")


def normalize_tensors(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors on the CPU, contiguous and sorted by name, so that equal tensors make equal files.

    Tensors that share memory are cloned, since safetensors refuses them: an algorithm may keep a part of its model.
    """
    normalized, storages = dict[str, Tensor](), set[int]()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        storage = tensor.untyped_storage().data_ptr()
        normalized[name] = tensor.clone() if storage in storages else tensor
        storages.add(storage)
    return normalized


def _encode(state: ServerState) -> bytes:
    parts: dict[str, Mapping[str, Any]] = {"weights": state.weights, "memory": state.memory}
    if state.prediction_weights is not state.weights:
        parts["prediction_weights"] = state.prediction_weights
    memory_tensors, memory_values = _split_memory(state.memory)
    tensors = normalize_tensors(
        {
            f"{part}/{name}": value
            for part, values in {**parts, "memory": memory_tensors}.items()
            for name, value in values.items()
        }
    )
    # The order of names is saved too: sums and draws may follow it.
    order = {part: list(values) for part, values in parts.items()}
    header = {"round": state.round, "order": order, "memory": memory_values}
    return save(tensors, metadata={_HEADER: json.dumps({**header, _CHECKSUM: _checksum(header, tensors)})})


def _decode(path: Path) -> ServerState:
    with safe_open(path, framework="pt") as opened:
        text = (opened.metadata() or {}).get(_HEADER)
    if text is None:
        raise ValueError("it is not a checkpoint")
    header = json.loads(text)
    checksum, tensors = header.pop(_CHECKSUM, None), load_file(path)
    if checksum is None:
        raise ValueError("it has no checksum")
    if checksum != _checksum(header, tensors):
        raise ValueError("its checksum differs: it was changed after it was written")
    values = header["memory"]
    parts = {
        part: {
            name: values[name] if part == "memory" and name in values else tensors[f"{part}/{name}"] for name in names
        }
        for part, names in header["order"].items()
    }
    prediction_weights = parts.get("prediction_weights", parts["weights"])
    return ServerState(header["round"], parts["weights"], prediction_weights, parts["memory"])


def _checksum(header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256(json.dumps(header).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"\n{name}:{tensor.dtype}:{tuple(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _split_memory(memory: Memory) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """An algorithm's memory as tensors and JSON values; any other value is refused by its name."""
    tensors = {name: value for name, value in memory.items() if isinstance(value, Tensor)}
    values = {name: value for name, value in memory.items() if name not in tensors}
    for name, value in values.items():
        try:
            is_json = json.loads(json.dumps(value)) == value
        except (TypeError, ValueError):
            is_json = False
        if not is_json:
            raise UserError(
                f"the algorithm's memory {name!r} is a {type(value).__name__} that cannot be saved and read back; keep "
                "tensors, numbers, strings, and lists or dicts (with strings as keys) of these"
            )
    return tensors, values
