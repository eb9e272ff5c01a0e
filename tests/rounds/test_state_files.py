"""States on the disk: the last few of them, and none that is not what was written."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from mrtf_fedml.algorithms import ServerState
from mrtf_fedml.errors import UserError
from mrtf_fedml.rounds.state_files import StateFiles


def saved(folder: Path, rounds: int, keep: int = 2) -> StateFiles:
    folder.mkdir(parents=True)
    files = StateFiles(folder)
    for index in range(1, rounds + 1):
        weights = {"w": torch.full((4,), float(index)), "steps": torch.tensor(index), "half": torch.ones(2).bfloat16()}
        files.save(ServerState(index, weights, weights, {"note": ["a", 0.1], "seen": torch.tensor([True])}), keep)
    return files


def test_the_last_states_are_kept_and_no_others(tmp_path: Path) -> None:
    for keep in (1, 2, 3):
        files = saved(tmp_path / str(keep), rounds=5, keep=keep)
        assert [StateFiles(path.parent).kept.index(path) for path in files.kept] == list(range(keep))
        rounds = []
        for path in files.kept:
            alone = tmp_path / f"{keep}-{path.name}"
            alone.mkdir()
            (alone / "server.safetensors").write_bytes(path.read_bytes())
            state = StateFiles(alone).load()
            assert state is not None
            rounds.append(state.round)
        assert rounds == list(range(5, 5 - keep, -1))


def test_any_flipped_bit_is_noticed_and_the_state_before_is_taken(tmp_path: Path) -> None:
    whole = (saved(tmp_path / "whole", 3).folder / "server.safetensors").read_bytes()
    for position in range(0, len(whole), 23):
        files = saved(tmp_path / str(position), 3)
        newest = files.folder / "server.safetensors"
        newest.write_bytes(whole[:position] + bytes([whole[position] ^ 4]) + whole[position + 1 :])
        state = files.load()
        assert state is not None
        if state.round == 3:
            # A flip in what nobody reads, such as padding: what is read must still be what was written.
            assert torch.equal(state.weights["w"], torch.full((4,), 3.0))
            assert (list(state.memory), state.memory["note"]) == (["note", "seen"], ["a", 0.1])
        else:
            assert (state.round, state.weights["steps"].item()) == (2, 2)
            assert (files.folder / "broken-server.safetensors").exists()


def test_what_is_no_state_of_ours_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("empty", "cut", "foreign", "text"):
        files = saved(tmp_path / name, 2)
        newest = files.folder / "server.safetensors"
        if name == "foreign":
            save_file({"w": torch.ones(4)}, newest)
        else:
            newest.write_bytes({"empty": b"", "cut": newest.read_bytes()[:-5], "text": b"no state" * 99}[name])
        state = files.load()
        assert state is not None
        assert state.round == 1
        assert str(newest) in caplog.text
        # The next state pushes no good one out for the broken one.
        files.save(ServerState(2, state.weights, state.weights), 2)
        assert [path.name for path in files.kept] == ["server.safetensors", "server-1.safetensors"]
        files.kept[0].write_bytes(b"")
        assert files.load().round == 1  # type: ignore[union-attr]


def test_without_any_good_state_a_sentence_names_them_all(tmp_path: Path) -> None:
    files = saved(tmp_path / "state", 2)
    for path in files.kept:
        path.write_bytes(b"")
    with pytest.raises(UserError, match=r"no state in .* can be used \(server\.safetensors: .*; server-1\.safetensors"):
        files.load()


def test_a_kill_between_two_renames_loses_one_round_at_most(tmp_path: Path) -> None:
    files = saved(tmp_path / "state", 2)
    files.kept[0].replace(files.folder / "server-1.safetensors")
    state = files.load()
    assert state is not None
    assert state.round == 2
