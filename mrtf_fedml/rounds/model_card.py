"""model_card.md: what a model was trained for and by whom, how it was scored, and what it is not good for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .judgement_signs import estimate_told


def model_card(facts: Mapping[str, Any], summary: Mapping[str, Any], clients: int, per_round: int) -> str:
    """The card, in Markdown.

    Args:
        facts: what the model's file tells.
        summary: summary.json.
        clients: K.
        per_round: how many of them took part in each round.
    """
    scale = "standardised by the numbers in the file's header" if facts["preprocessing"]["mean"] else "as they are"
    kind = {"pixels": "uint8 images, brought to [-1, 1]", "numbers": f"numbers, {scale}", "tokens": "indices"}
    lines = [
        "# The model of this run",
        "",
        f"- **Answers:** one of {len(facts['class_names'])} classes: {', '.join(facts['class_names'])}",
        f"- **Reads:** samples of the shape {' x '.join(map(str, facts['input_shape']))}; "
        f"{kind[facts['preprocessing']['kind']]}",
        f"- **Model:** `{facts['model']['model']}`, by mrtf_fedml {facts['version']}",
        f"- **Trained by:** {summary['algorithm']}{_preset(summary)}, {summary['rounds']} of "
        f"{summary['rounds_asked_for']} rounds, {per_round} of {clients} clients in each",
        f"- **Score:** {_score(summary)}",
        "",
        *_warnings(summary.get("warnings") or []),
        "## Limits",
        "",
        f"- Where the algorithm refines (MrTF, FedDF), the server's {summary['samples_labelled']} unlabelled samples "
        "had a part in training: a score on them says less about samples of another kind.",
        "- The confidences are the plain softmax of the model. They are not calibrated.",
        "- A class that no client holds cannot be learnt.",
        "",
        "`mrtf predict RUN_DIR INPUT` labels more samples of the same kind.",
        "",
    ]
    return "\n".join(lines)


def _preset(summary: Mapping[str, Any]) -> str:
    return f" (preset {summary['preset']})" if summary["preset"] else ""


def _score(summary: Mapping[str, Any]) -> str:
    if summary["accuracy"] is None:
        estimated = estimate_told(summary)
        unknown = "not known: the server's set came without labels"
        return unknown if estimated is None else f"{unknown}; estimated {estimated}"
    return (
        f"accuracy {summary['accuracy']:.4f}, macro F1 {summary['macro_f1']:.4f}, on the server's set, whose labels "
        "were used for nothing else"
    )


def _warnings(sentences: Sequence[str]) -> list[str]:
    return ["## Warnings", "", *(f"- {sentence}" for sentence in sentences), ""] if sentences else []
