"""`run_configuration`: the one path of `mrtf run`, the Python API and FedML's FedMLRunner."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import mrtf_fedml
from mrtf_fedml.algorithms import MrTF
from mrtf_fedml.config import RunSettings
from mrtf_fedml.errors import UserError
from mrtf_fedml.fedml_bridge import participants
from mrtf_fedml.fedml_bridge.runner import RunOptions, run_configuration
from tests.conftest import small_config


class CountRounds(mrtf_fedml.Callback):
    """Counts the rounds that it sees."""

    def __init__(self) -> None:
        self.rounds = 0

    def on_round_end(self, run: Any, line: dict[str, Any]) -> None:
        self.rounds += 1


def settings_in(folder: Path, **changes: Any) -> RunSettings:
    changes = {"model": "mlp", "hidden_size": 8, "comm_round": 2, "refine_steps": 1, **changes}
    return RunSettings.from_config(small_config(run_dir=str(folder / "run"), **changes))


def test_run_configuration_makes_one_algorithm_and_leaves_only_settings_on_args(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, seen = [], []
    init, make_participant = MrTF.__init__, participants.make_participant

    def counting_init(self: MrTF, settings: RunSettings) -> None:
        made.append(self)
        init(self, settings)

    def recording_participant(args: Any, *others: Any) -> Any:
        seen.append({name for name in vars(args) if name.startswith("mrtf_")})
        return make_participant(args, *others)

    monkeypatch.setattr(MrTF, "__init__", counting_init)
    monkeypatch.setattr(participants, "make_participant", recording_participant)
    run_configuration(settings_in(tmp_path), RunOptions(progress=False))
    assert len(made) == 1
    assert seen == [{"mrtf_settings"}]


def test_run_configuration_calls_callbacks_and_returns_run_dir_and_model(tmp_path: Path) -> None:
    callback = CountRounds()
    result = run_configuration(settings_in(tmp_path), RunOptions(progress=False, callbacks=[callback]))
    assert callback.rounds == 2
    assert result.run_dir == tmp_path / "run"
    saved = load_file(tmp_path / "run" / "model.safetensors")
    assert result.model is not None
    assert all(torch.equal(value, saved[key]) for key, value in result.model.state_dict().items())


def test_run_configuration_with_unknown_base_is_refused_before_the_run_directory_exists(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="base"):
        run_configuration(settings_in(tmp_path, base="Nope"))
    assert not (tmp_path / "run").exists()
