"""Checkpoints of the server's state: each has a checksum, and the last few are kept in case one is damaged.

A checkpoint is one file, unless the algorithm's memory is large, as with one control variate per client. Then each
group of the memory (the entries whose names have the same part before `/`) has a file of its own in `state/memory`. A
round writes the groups that it changed, and the running server reads all of them from their files, through the page
cache of the operating system, so that they need no memory of their own.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from torch import Tensor

from ..algorithms.types import Memory, ServerState
from ..errors import UserError
from ..models.state_dict import size_in_bytes
from .files import atomic_write, report_write_errors, sync_folder, write_temporary

_log = logging.getLogger(__name__)

#: One metadata entry holds all: safetensors writes several in an order that differs from file to file.
_HEADER = "state"
_CHECKSUM = "checksum"
_DAMAGED_PREFIX = "damaged-"
_GROUPS = "groups"
#: Bytes of the algorithm's memory up to which a checkpoint is one file.
_MAX_SINGLE_FILE_MEMORY = 64 << 20
_READ_ERRORS = (OSError, SafetensorError, ValueError, KeyError, TypeError, AttributeError, RecursionError)


@dataclass(frozen=True)
class _Group:
    """A group of the algorithm's memory that has a file of its own."""

    file: str
    checksum: str
    tensors: Mapping[str, Tensor]


class Checkpoints:
    """The checkpoints in a folder: server.safetensors of the last round, server-1.safetensors of the one before."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        #: The groups of the last checkpoint that was saved or loaded.
        self._groups: dict[str, _Group] = {}

    @property
    def paths(self) -> list[Path]:
        """The files that exist, newest first."""
        older = sorted(self.folder.glob("server-*.safetensors"), key=lambda path: (len(path.name), path.name))
        return [path for path in (self._path(0), *older) if path.exists()]

    def save(self, state: ServerState, keep: int) -> ServerState:
        """Write a checkpoint and keep the last `keep` of them. Older ones are removed when the new one is on disk.

        Returns:
            the state to continue with: the same, or an equal one whose large memory is read from its files.
        """
        self._groups = self._save_groups(state)
        temporary = write_temporary(self._path(0), _encode(state, self._groups))
        with report_write_errors(self._path(0)):
            for age in range(keep - 1, 0, -1):
                if self._path(age - 1).exists():
                    self._path(age - 1).replace(self._path(age))
            temporary.replace(self._path(0))
            sync_folder(self.folder)
            self.remove_older(keep)
        if not self._groups:
            return state
        mapped = {name: tensor for group in self._groups.values() for name, tensor in group.tensors.items()}
        return replace(state, memory={name: mapped.get(name, value) for name, value in state.memory.items()})

    def remove_older(self, keep: int) -> None:
        """Remove all checkpoints but the newest `keep`."""
        for path in self.paths[keep:]:
            path.unlink(missing_ok=True)
        self._remove_unused_groups()

    def load(self) -> ServerState | None:
        """The newest intact state; None before the first. Damaged files are renamed and named in the log."""
        faults = []
        for path in self.paths:
            try:
                state, groups = _decode(path)
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
            self._groups = groups
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

    def _save_groups(self, state: ServerState) -> dict[str, _Group]:
        """Write the groups that have changed since the last checkpoint, where the memory is large."""
        tensors = {name: value for name, value in state.memory.items() if isinstance(value, Tensor)}
        if size_in_bytes(tensors) <= _MAX_SINGLE_FILE_MEMORY:
            return {}
        members: dict[str, dict[str, Tensor]] = {}
        for name, tensor in tensors.items():
            members.setdefault(name.partition("/")[0], {})[name] = tensor
        folder, groups = _group_folder(self._path(0)), {}
        with report_write_errors(folder):
            folder.mkdir(exist_ok=True)
        for group, entries in members.items():
            known = self._groups.get(group)
            # Algorithms replace tensors and do not write into them: an unchanged group has the same objects.
            if known is not None and _has_same_objects(known.tensors, entries):
                groups[group] = known
                continue
            file = f"{hashlib.sha256(group.encode()).hexdigest()[:16]}-{state.round}.safetensors"
            normalized = normalize_tensors(entries)
            atomic_write(folder / file, save(normalized))
            groups[group] = _Group(file, _checksum({}, normalized), load_file(folder / file))
        with report_write_errors(folder):
            sync_folder(folder)
        return groups

    def _remove_unused_groups(self) -> None:
        """Remove the files of groups that no checkpoint has."""
        folder = _group_folder(self._path(0))
        if not folder.is_dir():
            return
        used: set[str] = set()
        for path in self.paths:
            try:
                used |= {file for file, _ in _read_header(path).get(_GROUPS, {}).values()}
            except _READ_ERRORS:
                # A damaged checkpoint is never loaded.
                continue
        for path in folder.iterdir():
            if path.name not in used:
                path.unlink()


def _has_same_objects(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(one[name] is tensor for name, tensor in other.items())


def _group_folder(checkpoint: Path) -> Path:
    return checkpoint.parent / "memory"


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


def _encode(state: ServerState, groups: Mapping[str, _Group]) -> bytes:
    parts: dict[str, Mapping[str, Any]] = {"weights": state.weights, "memory": state.memory}
    if state.prediction_weights is not state.weights:
        parts["prediction_weights"] = state.prediction_weights
    memory_tensors, memory_values = _split_memory(state.memory)
    separate = {name for group in groups.values() for name in group.tensors}
    memory_tensors = {name: value for name, value in memory_tensors.items() if name not in separate}
    tensors = normalize_tensors(
        {
            f"{part}/{name}": value
            for part, values in {**parts, "memory": memory_tensors}.items()
            for name, value in values.items()
        }
    )
    # The order of names is saved too: sums and draws may follow it.
    order = {part: list(values) for part, values in parts.items()}
    header: dict[str, Any] = {"round": state.round, "order": order, "memory": memory_values}
    if groups:
        header[_GROUPS] = {name: [group.file, group.checksum] for name, group in groups.items()}
    return save(tensors, metadata={_HEADER: json.dumps({**header, _CHECKSUM: _checksum(header, tensors)})})


def _read_header(path: Path) -> dict[str, Any]:
    with safe_open(path, framework="pt") as opened:
        text = (opened.metadata() or {}).get(_HEADER)
    if text is None:
        raise ValueError("it is not a checkpoint")
    return dict(json.loads(text))


def _decode(path: Path) -> tuple[ServerState, dict[str, _Group]]:
    header = _read_header(path)
    checksum, tensors = header.pop(_CHECKSUM, None), load_file(path)
    if checksum is None:
        raise ValueError("it has no checksum")
    if checksum != _checksum(header, tensors):
        raise ValueError("its checksum differs: it was changed after it was written")
    groups = {
        name: _read_group(_group_folder(path) / file, group_checksum)
        for name, (file, group_checksum) in header.get(_GROUPS, {}).items()
    }
    separate = {name: tensor for group in groups.values() for name, tensor in group.tensors.items()}
    memory = {**header["memory"], **separate}
    parts = {
        part: {
            name: memory[name] if part == "memory" and name in memory else tensors[f"{part}/{name}"] for name in names
        }
        for part, names in header["order"].items()
    }
    prediction_weights = parts.get("prediction_weights", parts["weights"])
    return ServerState(header["round"], parts["weights"], prediction_weights, parts["memory"]), groups


def _read_group(path: Path, checksum: str) -> _Group:
    tensors = load_file(path)
    if _checksum({}, tensors) != checksum:
        raise ValueError(f"the checksum of {path.name} differs: it was changed after it was written")
    return _Group(path.name, checksum, tensors)


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
