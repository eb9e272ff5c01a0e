"""`mrtf runs`: the run folders there are, one line each."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..rounds.store import RunStore

_HEAD = ("folder", "started", "data", "algorithm", "rounds", "accuracy", "state")


def list_runs(folder: str) -> str:
    """A table of the runs in a folder and in those right below it, the oldest first; it reads what they wrote."""
    place = Path(folder)
    if not place.is_dir():
        raise UserError(f"{folder!r} is no folder; name one that holds runs (mrtf run writes to ./runs)")
    found = sorted(place.glob("*/config.yaml"), key=lambda file: (file.stat().st_mtime, file))
    if (place / "config.yaml").is_file():
        found.insert(0, place / "config.yaml")
    rows = [_row(file.parent) for file in found]
    if not rows:
        return f"no run in {folder}"
    widths = [max(len(row[column]) for row in (_HEAD, *rows)) for column in range(len(_HEAD))]
    return "\n".join(
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (_HEAD, *rows)
    )


def _row(run_dir: Path) -> tuple[str, ...]:
    started = time.strftime("%Y-%m-%d %H:%M", time.localtime((run_dir / "config.yaml").stat().st_mtime))
    try:
        config = RunStore(run_dir).read_config()
        data, train = config["data_args"], config["train_args"]
        summary = _summary(run_dir)
        metrics = run_dir / "metrics.jsonl"
        done = metrics.read_bytes().count(b"\n") if metrics.exists() else 0
        asked = train["comm_round"]
        named = str(data.get("loader") or data["dataset"])
        algorithm = str((summary or {}).get("algorithm") or train["federated_optimizer"])
        return (run_dir.name, started, named, algorithm, f"{done}/{asked}", _accuracy(summary), _state(summary, done))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return (run_dir.name, started, "-", "-", "-", "-", "its files cannot be read")


def _summary(run_dir: Path) -> dict[str, Any] | None:
    file = run_dir / "summary.json"
    return json.loads(file.read_text()) if file.is_file() else None


def _accuracy(summary: dict[str, Any] | None) -> str:
    if summary is None:
        return "-"
    return "no labels" if summary["accuracy"] is None else f"{summary['accuracy']:.4f}"


def _state(summary: dict[str, Any] | None, done: int) -> str:
    """Of a run that has not ended it cannot be said whether a process still works at it."""
    if summary is None:
        return "not ended" if done else "no round finished"
    warned = len(summary.get("warnings") or [])
    state = "interrupted" if summary["interrupted"] else "stopped" if summary["stopped"] else "finished"
    return f"{state}, {warned} warning{'s' if warned > 1 else ''}" if warned else state
