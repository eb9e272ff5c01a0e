"""The callback that writes a run's folder: a line and a state per round, and the answer at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..data.preprocessing import Preprocessing
from .callbacks import Callback
from .model_card import model_card
from .model_facts import model_facts

if TYPE_CHECKING:
    from .loop import Run


class Recorder(Callback):
    """Without it nothing of a run is kept, and none can be resumed."""

    def __init__(self, ids: list[str], class_names: list[str], preprocessing: Preprocessing) -> None:
        self.ids = ids
        self.class_names = class_names
        self.preprocessing = preprocessing

    def on_round(self, run: Run, line: dict[str, Any]) -> None:
        """The line first: a state without its line would be taken for a finished round."""
        run.store.append_metrics(line)
        run.store.save_state(run.state, run.settings.common.keep_states)

    def on_end(self, run: Run, summary: dict[str, Any]) -> None:
        """Predictions, model and summary."""
        run.store.write_predictions(run.answer_logits(), self.ids, self.class_names)
        facts, train = self._facts(run), run.settings.train
        run.store.write_model(run.state.answer, facts)
        card = model_card(facts, summary, train.client_num_in_total, train.client_num_per_round)
        run.store.write_text("model_card.md", card)
        run.store.write_json("summary.json", summary)

    def _facts(self, run: Run) -> dict[str, Any]:
        bench = run.bench
        return model_facts(
            bench.model, run.settings.model, bench.inputs.shape[1:], self.class_names, self.preprocessing
        )
