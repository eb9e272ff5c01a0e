"""The server's state on the disk: with a checksum, and the last few of them, so that one that is broken is no loss."""

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

from ..algorithms.exchange import Memory, ServerState
from ..errors import UserError
from .whole_file import sync_folder, writable, written_beside

_log = logging.getLogger(__name__)

#: The one entry of the state's metadata: safetensors writes several in an order that differs from file to file.
_FACTS = "state"
_CHECKSUM = "checksum"
_BROKEN = "broken-"
_UNREADABLE = (OSError, SafetensorError, ValueError, KeyError, TypeError, AttributeError, RecursionError)


class StateFiles:
    """The states in a folder: server.safetensors after the last round, server-1.safetensors after the one before."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def kept(self) -> list[Path]:
        """The states that are there, the newest first."""
        older = sorted(self.folder.glob("server-*.safetensors"), key=lambda path: (len(path.name), path.name))
        return [path for path in (self._place(0), *older) if path.exists()]

    def save(self, state: ServerState, keep: int) -> None:
        """All that the next round needs; states older than the last `keep` go when this one is safe."""
        beside = written_beside(self._place(0), encoded(state))
        with writable(self._place(0)):
            for age in range(keep - 1, 0, -1):
                if self._place(age - 1).exists():
                    self._place(age - 1).replace(self._place(age))
            beside.replace(self._place(0))
            sync_folder(self.folder)
            for path in self.kept[keep:]:
                path.unlink()

    def load(self) -> ServerState | None:
        """The newest state that is whole; None before the first. One that is broken is put aside, and named."""
        faults = []
        for path in self.kept:
            try:
                state = _decoded(path)
            except _UNREADABLE as error:
                faults.append((path, str(error) or type(error).__name__))
                continue
            for broken, fault in faults:
                # Aside, so that the next state does not push a good one out for it.
                aside = broken.replace(broken.with_name(_BROKEN + broken.name))
                _log.warning(
                    "the state %s cannot be used (%s) and is put aside as %s; the run goes on from the one before, "
                    "after %d rounds",
                    broken,
                    fault,
                    aside.name,
                    state.round,
                )
            return state
        if faults:
            reasons = "; ".join(f"{path.name}: {fault}" for path, fault in faults)
            raise UserError(
                f"no state in {str(self.folder)!r} can be used ({reasons}); restore the folder from a copy, or start "
                "the run anew in another"
            )
        return None

    def _place(self, age: int) -> Path:
        return self.folder / (f"server-{age}.safetensors" if age else "server.safetensors")


def encoded(state: ServerState) -> bytes:
    """The state as bytes; the order of names too, since sums and draws may follow it."""
    parts: dict[str, Mapping[str, Any]] = {"weights": state.weights, "memory": state.memory}
    if state.answer is not state.weights:
        parts["answer"] = state.answer
    kept, noted = _by_kind(state.memory)
    tensors = plain(
        {
            f"{part}/{name}": value
            for part, values in {**parts, "memory": kept}.items()
            for name, value in values.items()
        }
    )
    order = {part: list(values) for part, values in parts.items()}
    facts = {"round": state.round, "order": order, "noted": noted}
    return save(tensors, metadata={_FACTS: json.dumps({**facts, _CHECKSUM: _checksum(facts, tensors)})})


def _decoded(path: Path) -> ServerState:
    with safe_open(path, framework="pt") as opened:
        text = (opened.metadata() or {}).get(_FACTS)
    if text is None:
        raise ValueError("it is no state of ours")
    facts = json.loads(text)
    checksum, tensors = facts.pop(_CHECKSUM, None), load_file(path)
    if checksum is None:
        raise ValueError("it has no checksum, as those of earlier versions")
    if checksum != _checksum(facts, tensors):
        raise ValueError("its checksum differs: it was changed after it was written")
    noted = facts["noted"]
    parts = {
        part: {name: noted[name] if part == "memory" and name in noted else tensors[f"{part}/{name}"] for name in names}
        for part, names in facts["order"].items()
    }
    return ServerState(facts["round"], parts["weights"], parts.get("answer", parts["weights"]), parts["memory"])


def _checksum(facts: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256(json.dumps(facts).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"\n{name}:{tensor.dtype}:{tuple(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def plain(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """On the CPU, contiguous, and in the order of their names, so that equal tensors make equal files.

    Those that share memory are copied, since safetensors refuses them: an algorithm may remember a part of its model.
    """
    copied, seen = dict[str, Tensor](), set[int]()
    for key in sorted(tensors):
        tensor = tensors[key].detach().cpu().contiguous()
        storage = tensor.untyped_storage().data_ptr()
        copied[key] = tensor.clone() if storage in seen else tensor
        seen.add(storage)
    return copied


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
