"""`mrtf runs`: the run folders there are, one line each."""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..rounds.changes import changes_between
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
    return _table([_HEAD, *rows]) if rows else f"no run in {folder}"


def compared_runs(one: str, other: str) -> str:
    """Two runs beside each other: how they ended, how often they agree, which settings differ."""
    folders = [RunStore.open(one).path, RunStore.open(other).path]
    rows = [_row(folder) for folder in folders]
    table = [(head, *cells) for head, *cells in zip(_HEAD, *rows, strict=True)]
    labels = [_labels(folder) for folder in folders]
    shared = [name for name in labels[0] if name in labels[1]]
    if shared:
        same = sum(labels[0][name] == labels[1][name] for name in shared) / len(shared)
        table.append(("same label", f"{same:.1%} of {len(shared)} samples", ""))
    before, after = (RunStore(folder).read_config() for folder in folders)
    changes = changes_between(before, after)
    table += [(key, _said(change["from"]), _said(change["to"])) for key, change in changes.items()]
    more = "no setting differs" if not changes else ""
    page = f"`mrtf report {one} {other}` draws their curves on one page"
    return "\n".join(line for line in (_table(table), more, page) if line)


def _table(rows: Sequence[tuple[str, ...]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def _labels(run_dir: Path) -> dict[str, str]:
    """Each sample's class by its id; none where the run gave no answer."""
    file = run_dir / "predictions.csv"
    if not file.is_file():
        return {}
    try:
        with file.open(newline="", encoding="utf-8") as lines:
            return {row["id"]: row["class_name"] for row in csv.DictReader(lines)}
    except (OSError, ValueError, KeyError, csv.Error):
        raise UserError(f"{str(file)!r} is not as a run wrote it; resume the run to write its answer anew") from None


def _said(value: Any) -> str:
    return "not set" if value is None else str(value)


def _row(run_dir: Path) -> tuple[str, ...]:
    started = time.strftime("%Y-%m-%d %H:%M", time.localtime((run_dir / "config.yaml").stat().st_mtime))
    try:
        config = RunStore(run_dir).read_config()
        data, train = config["data_args"], config["train_args"]
        summary = _summary(run_dir)
        metrics = run_dir / "metrics.jsonl"
        done = metrics.read_bytes().count(b"\n") if metrics.exists() else 0
        asked = train["comm_round"]
        named = str(data.get("loader") or (summary or {}).get("dataset") or data["dataset"])
        algorithm = str((summary or {}).get("algorithm") or train["federated_optimizer"])
        return (run_dir.name, started, named, algorithm, f"{done}/{asked}", _accuracy(summary), _state(summary, done))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError):
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
    state = "interrupted" if summary["interrupted"] else "stopped" if summary.get("stopped") else "finished"
    return f"{state}, {warned} warning{'s' if warned > 1 else ''}" if warned else state
