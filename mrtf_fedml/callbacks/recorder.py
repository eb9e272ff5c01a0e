"""The callback that writes the run directory: metrics and a checkpoint per round, and the results at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..data.formatting import escape_markdown
from ..data.known_labels import GIVEN_LABELS
from ..data.preprocessing import Preprocessing
from ..diagnostics.reference import REFERENCE_FILE, ReferenceStatistics
from ..training.evaluation import format_estimate
from ..training.outputs import model_header
from .base import Callback

if TYPE_CHECKING:
    from ..training.loop import Run


class Recorder(Callback):
    """Without it nothing of a run is saved, and it cannot be resumed."""

    def __init__(self, ids: list[str], class_names: list[str], preprocessing: Preprocessing) -> None:
        self.ids = ids
        self.class_names = class_names
        self.preprocessing = preprocessing

    def on_round_end(self, run: Run, line: dict[str, Any]) -> None:
        """Write the metrics, then the checkpoint: a checkpoint marks its round as finished."""
        run.directory.append_metrics(line)
        if run.is_last_round and run.record is not None:
            clients = [update.client for update in run.record.replies.updates]
            run.directory.save_last_round(run.state.round, clients, run.record.report)
        run.server.state = run.directory.save_state(run.state)

    def on_end(self, run: Run, summary: dict[str, Any]) -> None:
        """Write predictions, model, model card and summary."""
        context, train = run.context, run.settings.train
        run.directory.write_predictions(run.final_logits(), self.ids, self.class_names, run.label_trust)
        if run.known_labels is not None:
            run.directory.write_text(GIVEN_LABELS, run.known_labels.to_csv(self.ids, self.class_names))
        header = model_header(
            context.model, run.settings.model, context.inputs.shape[1:], self.class_names, self.preprocessing
        )
        run.directory.write_model(run.state.prediction_weights, header)
        predicted = run.prediction_logits().argmax(dim=1)
        reference = ReferenceStatistics.fit(context.inputs, predicted, classes=len(self.class_names))
        if reference is not None:
            run.directory.write_tensors(REFERENCE_FILE, reference.to_tensors())
        card = format_model_card(header, summary, train.client_num_in_total, train.client_num_per_round)
        run.directory.write_text("model_card.md", card)
        run.directory.write_json("summary.json", summary)


def format_model_card(header: Mapping[str, Any], summary: Mapping[str, Any], clients: int, per_round: int) -> str:
    """model_card.md: what the model was trained for, by which parties, its score and its limits.

    Args:
        header: of the model file.
        summary: summary.json.
        clients: K.
        per_round: how many of them took part in each round.
    """
    scale = "standardised by the numbers in the file's header" if header["preprocessing"]["mean"] else "as they are"
    encoder = header["preprocessing"].get("encoder")
    kinds = {
        "pixels": "uint8 images, scaled to [-1, 1]",
        "numbers": "numbers" if encoder else f"numbers, {scale}",
        "tokens": "indices",
        "text": "strings",
    }
    shape = encoder["sample_shape"] if encoder else header["input_shape"]
    samples = f"samples of the shape {' x '.join(map(str, shape))}" if shape else "texts"
    preset = f" (preset {summary['preset']})" if summary["preset"] else ""
    lines = [
        "# Model card",
        "",
        f"- **Output:** one of {len(header['class_names'])} classes: "
        + escape_markdown(", ".join(header["class_names"])),
        f"- **Input:** {samples}; {kinds[header['preprocessing']['kind']]}",
        *_format_encoder(encoder, header["input_shape"][0], scale),
        f"- **Model:** `{header['model']['model']}`, by mrtf_fedml {header['version']}",
        f"- **Training:** {summary['algorithm']}{preset}, {summary['rounds']} of {summary['rounds_requested']} rounds, "
        f"{per_round} of {clients} clients in each",
        f"- **Score:** {_format_score(summary)}",
        "",
        *_format_warnings(summary.get("warnings") or []),
        "## Limits",
        "",
        f"- If the algorithm refines (MrTF, FedDF), the server's {summary['samples_labelled']} unlabelled samples were "
        "used in training: a score on them says less about other samples.",
        "- The confidences are the softmax of the model. They are not calibrated; `probability_correct` is, where "
        "it is known.",
        "- A class that no client has cannot be learnt.",
        "",
        "`mrtf predict RUN_DIR INPUT` labels more samples of the same kind.",
        "",
    ]
    return "\n".join(lines)


def _format_encoder(encoder: Mapping[str, Any] | None, features: int, scale: str) -> list[str]:
    if encoder is None:
        return []
    return [
        f"- **Encoder:** `{encoder['name']}`, {features} features, {scale}; not in the model file. Its files and "
        f"preprocessing have the digest `{encoder['digest']}`; config.yaml names the files"
    ]


def _format_score(summary: Mapping[str, Any]) -> str:
    if summary["accuracy"] is None:
        estimate, unknown = format_estimate(summary), "unknown: the server's set has no labels"
        return unknown if estimate is None else f"{unknown}; estimated {estimate}"
    return (
        f"accuracy {summary['accuracy']:.4f}, macro F1 {summary['macro_f1']:.4f}, on the server's set; its labels were "
        "used for nothing else"
    )


def _format_warnings(warnings: Sequence[str]) -> list[str]:
    return ["## Warnings", "", *(f"- {escape_markdown(warning)}" for warning in warnings), ""] if warnings else []
