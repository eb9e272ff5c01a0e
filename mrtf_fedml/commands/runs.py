"""`mrtf runs`: list the run directories of a folder, or compare two runs."""

from __future__ import annotations

import argparse
import csv
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..data.formatting import unescape_formula
from ..errors import UserError
from ..training.evaluation import CONFIDENCE
from ..training.run_directory import RunDirectory, diff_configs

_HEAD = ("folder", "started", "data", "algorithm", "rounds", "accuracy", "state")


def main(options: argparse.Namespace) -> int:
    """Print the list, or the comparison of two runs."""
    print(compare_runs(*options.compare) if options.compare else list_runs(options.folder))
    return 0


def list_runs(folder: str) -> str:
    """A table of the runs in a folder and its subfolders, the oldest first."""
    place = Path(folder)
    if not place.is_dir():
        raise UserError(f"{folder!r} is no folder; name one that holds runs (mrtf run writes to ./runs)")
    configs = sorted(place.glob("*/config.yaml"), key=lambda file: (file.stat().st_mtime, file))
    if (place / "config.yaml").is_file():
        configs.insert(0, place / "config.yaml")
    rows = [_row(file.parent) for file in configs]
    if not rows:
        return f"no run in {folder}"
    has_estimate = any(row[_HEAD.index("accuracy")].startswith("~") for row in rows)
    note = f"\n~ estimated by the clients, with its {CONFIDENCE:.0%} interval" if has_estimate else ""
    return _table([_HEAD, *rows]) + note


def compare_runs(first: str, second: str) -> str:
    """Two runs in columns: their results, how often their labels agree, and which settings differ."""
    folders = [RunDirectory.open(first).path, RunDirectory.open(second).path]
    rows = [_row(folder) for folder in folders]
    table = [(head, *cells) for head, *cells in zip(_HEAD, *rows, strict=True)]
    labels = [_labels(folder) for folder in folders]
    shared = [name for name in labels[0] if name in labels[1]]
    if shared:
        same = sum(labels[0][name] == labels[1][name] for name in shared) / len(shared)
        table.append(("same label", f"{same:.1%} of {len(shared)} samples", ""))
    before, after = (RunDirectory(folder).read_config() for folder in folders)
    changes = diff_configs(before, after)
    table += [(key, _format_setting(change["from"]), _format_setting(change["to"])) for key, change in changes.items()]
    more = "no setting differs" if not changes else ""
    page = f"`mrtf report {first} {second}` draws their curves on one page"
    return "\n".join(line for line in (_table(table), more, page) if line)


def _table(rows: Sequence[tuple[str, ...]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def _labels(run_dir: Path) -> dict[str, str]:
    """The predicted class name by sample id; empty where the run has no predictions."""
    file = run_dir / "predictions.csv"
    if not file.is_file():
        return {}
    try:
        with file.open(newline="", encoding="utf-8") as lines:
            return {row["id"]: unescape_formula(row["class_name"]) for row in csv.DictReader(lines)}
    except (OSError, ValueError, KeyError, csv.Error):
        raise UserError(f"{str(file)!r} cannot be read; resume the run to write its predictions again") from None


def _format_setting(value: Any) -> str:
    return "not set" if value is None else str(value)


def _row(run_dir: Path) -> tuple[str, ...]:
    started = time.strftime("%Y-%m-%d %H:%M", time.localtime((run_dir / "config.yaml").stat().st_mtime))
    try:
        config = RunDirectory(run_dir).read_config()
        data, train = config["data_args"], config["train_args"]
        summary = _summary(run_dir)
        metrics = run_dir / "metrics.jsonl"
        done = metrics.read_bytes().count(b"\n") if metrics.exists() else 0
        requested = train["comm_round"]
        dataset = str(data.get("loader") or (summary or {}).get("dataset") or data["dataset"])
        algorithm = str((summary or {}).get("algorithm") or train["federated_optimizer"])
        return (
            run_dir.name,
            started,
            dataset,
            algorithm,
            f"{done}/{requested}",
            _accuracy(summary),
            _state(summary, done),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError):
        return (run_dir.name, started, "-", "-", "-", "-", "its files cannot be read")


def _summary(run_dir: Path) -> dict[str, Any] | None:
    file = run_dir / "summary.json"
    return json.loads(file.read_text()) if file.is_file() else None


def _accuracy(summary: dict[str, Any] | None) -> str:
    if summary is None:
        return "-"
    if summary["accuracy"] is not None:
        return f"{summary['accuracy']:.4f}"
    if summary.get("estimated_accuracy") is None:
        return "unknown"
    low, high = summary["estimated_accuracy_interval"]
    return f"~{summary['estimated_accuracy']:.2f} ({low:.2f} to {high:.2f})"


def _state(summary: dict[str, Any] | None, done: int) -> str:
    """The state of the run; it is unknown whether a process still runs an unfinished one."""
    if summary is None:
        return "not ended" if done else "no round finished"
    warned = len(summary.get("warnings") or [])
    state = "interrupted" if summary["interrupted"] else "stopped" if summary.get("stop_reason") else "finished"
    return f"{state}, {warned} warning{'s' if warned > 1 else ''}" if warned else state
