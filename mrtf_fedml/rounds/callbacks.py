"""What is optional in a run is a callback. The loop knows none of them by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..errors import UserError
from ..settings.named_object import named_object

if TYPE_CHECKING:
    from .loop import Run


class Callback:
    """Sees a run begin, go on and end; override what you need.

    Each may ask the run to stop, by `run.stop(reason)`: it then ends after the round at hand (the first one, where
    none was done), with its answer, its report and exit code 0. `run` has `settings`, `algorithm`, `state`, `bench`,
    `store` and `rounds`. True labels are not among them. Only the server's process has callbacks.

    >>> class Patience(Callback):
    ...     def on_round(self, run, line):
    ...         if line["local_loss"] is not None and line["local_loss"] < 0.01:
    ...             run.stop("the clients have learnt enough")
    """

    def on_start(self, run: Run) -> None:
        """Before the first round; `run.state.round` is more than 0 in a run that is resumed."""

    def on_asking(self, run: Run, clients: Sequence[int]) -> None:
        """Before the round `run.state.round` is handed out to these clients.

        In one round it may come again: for one client alone that starts anew, and for others that are asked since too
        few could be used. Under mpirun the clients may be at work already, since the server was finishing the round
        before (docs/mpi.md).
        """

    def on_round(self, run: Run, line: dict[str, Any]) -> None:
        """After a round, with its line of metrics.jsonl before it is written: numbers put into it are kept."""

    def on_end(self, run: Run, summary: dict[str, Any]) -> None:
        """After the last round, or after an interruption, with summary.json before it is written."""


def named_callbacks(names: Sequence[str]) -> list[Callback]:
    """The user's callbacks, as `common_args.callbacks` names them: `package.module:Class`, made without arguments."""
    made = []
    for name in names:
        found = named_object(name, "common_args.callbacks")
        if not (isinstance(found, type) and issubclass(found, Callback)):
            raise UserError(f"common_args.callbacks: {name!r} is no callback; derive it from mrtf_fedml.Callback")
        try:
            made.append(found())
        except TypeError as error:
            raise UserError(
                f"common_args.callbacks: {name!r} cannot be made without arguments ({error}); give them defaults"
            ) from error
    return made
