"""The callback that writes a run's folder: a line and a state per round, and the answer at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .callbacks import Callback

if TYPE_CHECKING:
    from .loop import Run


class Recorder(Callback):
    """Without it nothing of a run is kept, and none can be resumed."""

    def __init__(self, ids: list[str], class_names: list[str]) -> None:
        self.ids = ids
        self.class_names = class_names

    def on_round(self, run: Run, line: dict[str, Any]) -> None:
        """The line first: a state without its line would be taken for a finished round."""
        run.store.append_metrics(line)
        run.store.save_state(run.state, run.settings.common.keep_states)

    def on_end(self, run: Run, summary: dict[str, Any]) -> None:
        """Predictions, model and summary."""
        run.store.write_predictions(run.answer_logits(), self.ids, self.class_names)
        run.store.write_model(run.state.answer)
        run.store.write_json("summary.json", summary)
