"""Tracking of a round's metrics by FedML's means: Weights & Biases, TensorBoard, FedML's platform."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedml import mlops

from ..callbacks.base import Callback
from ..callbacks.tracking import numbers
from ..callbacks.tracking import trackers as own_trackers
from ..config.sections import TrackingSettings
from ..errors import UserError
from ..training.loop import Run
from .args import is_enabled
from .fedml_init import uses_platform


def trackers(args: Any, settings: TrackingSettings) -> list[Callback]:
    """The callbacks that `tracking_args` enable."""
    callbacks = own_trackers(settings)
    if is_enabled(args, "enable_wandb"):
        callbacks.append(WandbTracker())
    if is_enabled(args, "enable_tensorboard"):
        callbacks.append(TensorBoardTracker())
    if uses_platform(args):
        callbacks.append(PlatformTracker())
    return callbacks


class WandbTracker(Callback):
    """`enable_wandb: true`; `fedml.init` has started the run there."""

    def on_round_end(self, run: Run, line: dict[str, Any]) -> None:
        """Log the round's numbers."""
        import wandb  # only here: it starts threads of its own

        wandb.log(numbers(line))


class TensorBoardTracker(Callback):
    """`enable_tensorboard: true`: event files in the run directory, under `tensorboard/`."""

    def __init__(self) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise UserError(
                f"enable_tensorboard needs TensorBoard ({error}); install it with: pip install 'tensorboard<2.20'"
            ) from None
        self._open = SummaryWriter
        self._writer: Any = None

    def on_start(self, run: Run) -> None:
        """Open the files; a resumed run continues its curves."""
        self._writer = self._open(str(Path(run.directory.path) / "tensorboard"), purge_step=run.state.round)

    def on_round_end(self, run: Run, line: dict[str, Any]) -> None:
        """Log the round's numbers."""
        for name, value in numbers(line).items():
            self._writer.add_scalar(name, value, line["round"])

    def on_end(self, run: Run, summary: dict[str, Any]) -> None:
        """Close the files."""
        self._writer.close()


class PlatformTracker(Callback):
    """`enable_tracking: true` or `using_mlops: true`: FedML's own platform."""

    def on_round_end(self, run: Run, line: dict[str, Any]) -> None:
        """Log the round's numbers."""
        mlops.log(numbers(line))
        mlops.log_round_info(run.rounds, line["round"])
