"""A round's metrics, for those who asked to track the run: Weights & Biases, TensorBoard, FedML's platform."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedml import mlops

from ..errors import UserError
from ..rounds.callbacks import Callback
from ..rounds.loop import Run
from .offline import wants_platform


def trackers(args: Any) -> list[Callback]:
    """What watches the rounds beside the run's folder, as `tracking_args` ask for; none where tracking is off."""
    found: list[Callback] = []
    if _is_on(args, "enable_wandb"):
        found.append(WandbTracker())
    if _is_on(args, "enable_tensorboard"):
        found.append(TensorBoardTracker())
    if wants_platform(args):
        found.append(PlatformTracker())
    return found


class WandbTracker(Callback):
    """`enable_wandb: true`; `fedml.init` has begun the run there."""

    def on_round(self, run: Run, line: dict[str, Any]) -> None:
        """The round's numbers."""
        import wandb  # only here: it starts threads of its own

        wandb.log(_numbers(line))


class TensorBoardTracker(Callback):
    """`enable_tensorboard: true`: event files in the run's folder, under `tensorboard/`."""

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
        """A resumed run goes on with its curves."""
        self._writer = self._open(str(Path(run.store.path) / "tensorboard"), purge_step=run.state.round)

    def on_round(self, run: Run, line: dict[str, Any]) -> None:
        """The round's numbers."""
        for name, value in _numbers(line).items():
            self._writer.add_scalar(name, value, line["round"])

    def on_end(self, run: Run, summary: dict[str, Any]) -> None:
        """All is on disk."""
        self._writer.close()


class PlatformTracker(Callback):
    """`enable_tracking: true` or `using_mlops: true`: FedML's own platform."""

    def on_round(self, run: Run, line: dict[str, Any]) -> None:
        """The round's numbers."""
        mlops.log(_numbers(line))
        mlops.log_round_info(run.rounds, line["round"])


def _is_on(args: Any, key: str) -> bool:
    return str(getattr(args, key, False)).lower() == "true"


def _numbers(line: dict[str, Any]) -> dict[str, float]:
    return {key: value for key, value in line.items() if isinstance(value, int | float)}
