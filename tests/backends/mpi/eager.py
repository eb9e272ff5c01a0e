"""MrTF that writes down which clients were trained when, by files in the run's folder: no clock is asked."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from torch import nn

import mrtf_fedml
from mrtf_fedml.algorithms import ClientTask, ClientUpdate, MrTF, ServerState
from mrtf_fedml.process.start import started_ranks

#: A file of the run's name with this ending, beside the run's folder, holds the second round until it is killed.
STALL = ".stall"
_LONGEST_WAIT = 240.0


class Noted(MrTF):
    """Each trained client is a file; each round's finish writes down how many of the next round it finds."""

    name: ClassVar[str] = "Noted"

    def train_client(self, model: nn.Module, task: ClientTask) -> ClientUpdate:
        update = super().train_client(model, task)
        self.trained(task.round, task.client).touch()
        return update

    def finish_round(self, state: ServerState, *given: Any) -> Any:
        after = super().finish_round(state, *given)
        self.meanwhile(state.round)
        (self.events / f"ahead-of-{state.round + 1}").write_text(str(self.trained_of(state.round + 1)))
        return after

    def meanwhile(self, round_index: int) -> None:
        """What the server does at the end of finishing a round."""

    @property
    def events(self) -> Path:
        """Where they are."""
        folder = Path(str(self.settings.common.run_dir)) / "events"
        folder.mkdir(exist_ok=True)
        return folder

    def trained(self, round_index: int, client: int) -> Path:
        """The file of one client."""
        return self.events / f"trained-{round_index}-{client}"

    def trained_of(self, round_index: int) -> int:
        """How many of the round's clients were trained by now."""
        return len(list(self.events.glob(f"trained-{round_index}-*")))


class Patient(Noted):
    """The server does not finish a round before all clients of the next one were trained."""

    name: ClassVar[str] = "Patient"

    def meanwhile(self, round_index: int) -> None:
        train = self.settings.train
        if started_ranks() < 2 or round_index + 1 >= train.comm_round:
            return
        deadline = time.monotonic() + _LONGEST_WAIT
        while self.trained_of(round_index + 1) < train.client_num_per_round:
            assert time.monotonic() < deadline, f"nobody trains for round {round_index + 1}"
            time.sleep(0.01)
        if round_index == 1 and self.events.parent.with_suffix(STALL).exists():
            (self.events / "stalled").touch()
            time.sleep(_LONGEST_WAIT)


class Unkept(Patient):
    """What it sends in the end is not what its early word said."""

    name: ClassVar[str] = "Unkept"

    def finish_round(self, state: ServerState, *given: Any) -> Any:
        after, report = super().finish_round(state, *given)
        for file in self.events.glob(f"trained-{state.round + 1}-*"):
            os.remove(file)
        return replace(after, weights={key: value * 0.5 for key, value in after.weights.items()}), report


class EnoughAfterTwo(mrtf_fedml.Callback):
    """Stops the run when clients of the third round have been trained already."""

    def on_round(self, run: Any, line: dict[str, Any]) -> None:
        if line["round"] == 1:
            run.stop("enough")
