"""Checkpoints: the last few are kept, and a damaged one is never loaded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from mrtf_fedml.algorithms import ServerState
from mrtf_fedml.errors import UserError
from mrtf_fedml.training import checkpoints as module
from mrtf_fedml.training.checkpoints import Checkpoints


def save_rounds(folder: Path, rounds: int, keep: int = 2) -> Checkpoints:
    folder.mkdir(parents=True)
    checkpoints = Checkpoints(folder)
    for index in range(1, rounds + 1):
        weights = {"w": torch.full((4,), float(index)), "steps": torch.tensor(index), "half": torch.ones(2).bfloat16()}
        checkpoints.save(ServerState(index, weights, weights, {"note": ["a", 0.1], "seen": torch.tensor([True])}), keep)
    return checkpoints


def test_save_keeps_the_last_checkpoints_only(tmp_path: Path) -> None:
    for keep in (1, 2, 3):
        checkpoints = save_rounds(tmp_path / str(keep), rounds=5, keep=keep)
        assert [Checkpoints(path.parent).paths.index(path) for path in checkpoints.paths] == list(range(keep))
        rounds = []
        for path in checkpoints.paths:
            alone = tmp_path / f"{keep}-{path.name}"
            alone.mkdir()
            (alone / "server.safetensors").write_bytes(path.read_bytes())
            state = Checkpoints(alone).load()
            assert state is not None
            rounds.append(state.round)
        assert rounds == list(range(5, 5 - keep, -1))


def test_load_after_a_flipped_bit_returns_the_previous_state(tmp_path: Path) -> None:
    intact = (save_rounds(tmp_path / "intact", 3).folder / "server.safetensors").read_bytes()
    for position in range(0, len(intact), 23):
        checkpoints = save_rounds(tmp_path / str(position), 3)
        newest = checkpoints.folder / "server.safetensors"
        newest.write_bytes(intact[:position] + bytes([intact[position] ^ 4]) + intact[position + 1 :])
        state = checkpoints.load()
        assert state is not None
        if state.round == 3:
            # A flip in bytes that are not read, such as padding: the values read must equal those written.
            assert torch.equal(state.weights["w"], torch.full((4,), 3.0))
            assert (list(state.memory), state.memory["note"]) == (["note", "seen"], ["a", 0.1])
        else:
            assert (state.round, state.weights["steps"].item()) == (2, 2)
            assert (checkpoints.folder / "damaged-server.safetensors").exists()


def test_load_names_and_renames_a_damaged_checkpoint(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("empty", "cut", "foreign", "text"):
        checkpoints = save_rounds(tmp_path / name, 2)
        newest = checkpoints.folder / "server.safetensors"
        if name == "foreign":
            save_file({"w": torch.ones(4)}, newest)
        else:
            newest.write_bytes({"empty": b"", "cut": newest.read_bytes()[:-5], "text": b"no state" * 99}[name])
        state = checkpoints.load()
        assert state is not None
        assert state.round == 1
        assert str(newest) in caplog.text
        # The next checkpoint must not push out an intact one.
        checkpoints.save(ServerState(2, state.weights, state.weights), 2)
        assert [path.name for path in checkpoints.paths] == ["server.safetensors", "server-1.safetensors"]
        checkpoints.paths[0].write_bytes(b"")
        assert checkpoints.load().round == 1  # type: ignore[union-attr]


def test_load_without_an_intact_checkpoint_names_all_files(tmp_path: Path) -> None:
    checkpoints = save_rounds(tmp_path / "state", 2)
    for path in checkpoints.paths:
        path.write_bytes(b"")
    with pytest.raises(UserError, match=r"\(server\.safetensors: .*; server-1\.safetensors"):
        checkpoints.load()


def test_load_after_a_kill_between_two_renames_returns_the_last_state(tmp_path: Path) -> None:
    checkpoints = save_rounds(tmp_path / "state", 2)
    checkpoints.paths[0].replace(checkpoints.folder / "server-1.safetensors")
    state = checkpoints.load()
    assert state is not None
    assert state.round == 2


def test_large_memory_is_written_by_group_and_only_where_it_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MAX_SINGLE_FILE_MEMORY", 100)
    weights = {"w": torch.ones(4)}
    checkpoints = Checkpoints(tmp_path)
    memory: dict[str, Any] = {f"{client}/w": torch.full((16,), float(client)) for client in range(5)}
    state = ServerState(1, weights, weights, {"coefficient": 0.5, **memory})
    written = []
    for index in range(1, 5):
        before = {path.name for path in (tmp_path / "memory").glob("*")}
        state = checkpoints.save(state, keep=2)
        written.append(len({path.name for path in (tmp_path / "memory").glob("*")} - before))
        assert torch.equal(state.memory["3/w"], torch.full((16,), 3.0))
        state = replace(state, round=index + 1, memory={**state.memory, "1/w": torch.full((16,), 10.0 + index)})
    assert written == [5, 1, 1, 1]
    assert len(list((tmp_path / "memory").iterdir())) == 6, "files that no kept checkpoint has are removed"

    fresh = Checkpoints(tmp_path)
    loaded = fresh.load()
    assert loaded is not None
    assert (loaded.round, list(loaded.memory), loaded.memory["coefficient"]) == (4, list(state.memory), 0.5)
    assert torch.equal(loaded.memory["1/w"], torch.full((16,), 13.0))
    before = {path.name for path in (tmp_path / "memory").iterdir()}
    fresh.save(replace(loaded, round=5), keep=2)
    assert {path.name for path in (tmp_path / "memory").iterdir()} <= before, "a resumed run writes no unchanged group"


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs Linux's list of mapped files")
def test_large_memory_is_mapped_from_its_files_after_save_and_after_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MAX_SINGLE_FILE_MEMORY", 0)
    weights = {"w": torch.ones(4)}
    memory = {f"{client}/w": torch.full((4096,), float(client)) for client in range(3)}
    saved = Checkpoints(tmp_path).save(ServerState(1, weights, weights, memory), keep=2)
    loaded = Checkpoints(tmp_path).load()
    assert loaded is not None
    for state in (saved, loaded):
        assert all(mapped_file(tensor).startswith(str(tmp_path / "memory")) for tensor in state.memory.values())


def mapped_file(tensor: torch.Tensor) -> str:
    """The file whose mapping holds the tensor; empty for memory of the process itself."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        addresses, _, _, _, _, *name = line.split(maxsplit=5)
        first, end = (int(address, 16) for address in addresses.split("-"))
        if first <= tensor.data_ptr() < end:
            return "".join(name)
    return ""


@pytest.mark.parametrize("damage", ["flipped", "missing"])
def test_damaged_group_file_gives_the_previous_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    monkeypatch.setattr(module, "_MAX_SINGLE_FILE_MEMORY", 0)
    weights = {"w": torch.ones(4)}
    checkpoints = Checkpoints(tmp_path)
    for index in (1, 2):
        checkpoints.save(ServerState(index, weights, weights, {"0/w": torch.full((16,), float(index))}), keep=2)
    newest = next((tmp_path / "memory").glob("*-2.safetensors"))
    content = newest.read_bytes()
    newest.unlink()
    if damage == "flipped":
        newest.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    state = Checkpoints(tmp_path).load()
    assert state is not None
    assert (state.round, state.memory["0/w"][0].item()) == (1, 1.0)
