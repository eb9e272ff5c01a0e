"""The base class of callbacks: everything optional in a run is one, and the training loop knows none by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..config.user_code import import_object
from ..errors import UserError

if TYPE_CHECKING:
    from ..training.loop import Run


class Callback:
    """Called at the start of a run, around every round and at the end; override what you need.

    A callback may end the run with `run.stop(reason)`: it then ends after the current round (after the first one, if
    none is finished), with predictions, report and exit code 0. `run` has `settings`, `algorithm`, `state`, `context`,
    `directory` and `rounds`, and no true labels. Only the server's process has callbacks.

    >>> class StopAtLowLoss(Callback):
    ...     def on_round_end(self, run, line):
    ...         if line["train_loss"] is not None and line["train_loss"] < 0.01:
    ...             run.stop("the training loss is below 0.01")
    """

    def on_start(self, run: Run) -> None:
        """Before the first round; `run.state.round` is above 0 in a resumed run."""

    def on_round_begin(self, run: Run, clients: Sequence[int]) -> None:
        """Before tasks of the round `run.state.round` are sent to these clients.

        Called again in the same round for a client that has restarted, and for other clients that are tried because
        too few updates were usable.
        """

    def on_round_end(self, run: Run, line: dict[str, Any]) -> None:
        """After a round, with its line of metrics.jsonl before it is written; numbers added to it are saved."""

    def on_end(self, run: Run, summary: dict[str, Any]) -> None:
        """After the last round or an interruption, with summary.json before it is written."""


def load_callbacks(names: Sequence[str]) -> list[Callback]:
    """The callbacks that `common_args.callbacks` names as `package.module:Class`, made without arguments."""
    callbacks = []
    for name in names:
        callback_class = import_object(name, "common_args.callbacks")
        if not (isinstance(callback_class, type) and issubclass(callback_class, Callback)):
            raise UserError(f"common_args.callbacks: {name!r} is not a callback; derive it from mrtf_fedml.Callback")
        try:
            callbacks.append(callback_class())
        except TypeError as error:
            raise UserError(
                f"common_args.callbacks: {name!r} cannot be made without arguments ({error}); give them defaults"
            ) from error
    return callbacks
