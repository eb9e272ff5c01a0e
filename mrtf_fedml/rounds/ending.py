"""How a run ended, in the lines that a terminal shows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .judgement_signs import estimate_told
from .store import RunStore

_RESULTS = (("predictions", "predictions.csv"), ("model", "model.safetensors"), ("report", "report.html"))


def ending(store: RunStore) -> str:
    """What was run, how it was scored, and where the answer is; read from the run's folder."""
    summary: dict[str, Any] = json.loads((store.path / "summary.json").read_text())
    rows = [
        ("algorithm", summary["algorithm"] + _variant(summary)),
        ("rounds", f"{summary['rounds']} of {summary['rounds_asked_for']} in {summary['seconds']:.1f} s"),
        ("samples labelled", f"{summary['samples_labelled']} in {summary['classes']} classes"),
    ]
    if summary["accuracy"] is not None:
        rows += [("accuracy", f"{summary['accuracy']:.4f}"), ("macro F1", f"{summary['macro_f1']:.4f}")]
        last = (store.read_metrics() or [{}])[-1]
        if last.get("acc_refined") is not None and last.get("acc_aggregated") is not None:
            rows.append(("before refining", f"{last['acc_aggregated']:.4f} (the last round's plain average)"))
    else:
        rows.append(("accuracy", "not known: the server's set came without labels"))
    estimated = estimate_told(summary)
    if estimated is not None:
        rows.append(("estimated", estimated))
    rows += [("note", sentence) for sentence in summary.get("notes") or []]
    if "epsilon_server" in summary:
        rows.append(("privacy", _privacy(summary)))
    rows += [(word, str(Path(store.path) / name)) for word, name in _RESULTS]
    width = max(len(word) for word, _ in rows)
    return "\n".join(["", *(f"  {word:<{width}}  {value}" for word, value in rows)])


def _variant(summary: dict[str, Any]) -> str:
    """Which MrTF it was: its preset, and its base where that is not FedAvg."""
    words = [summary["preset"], f"on {summary['base']}" if summary["base"] not in (None, "FedAvg") else None]
    variant = ", ".join(word for word in words if word)
    return f" ({variant})" if variant else ""


def _privacy(summary: dict[str, Any]) -> str:
    server, release = summary["epsilon_server"], summary["epsilon_release"]
    if isinstance(server, str):
        return "epsilon none: nothing is guaranteed unless every round had both clip and sigma (dp_args)"
    delta = summary["privacy_delta"]
    return f"epsilon {server:.3g} towards the server, {release:.3g} of what is released (delta {delta:g})"
