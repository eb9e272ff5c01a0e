"""The table of a comparison: for a terminal, as CSV, as Markdown."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from .scores import (
    WINDOW,
    Below,
    Row,
    Spread,
    windows_below,
)

Cells = list[list[str]]


def cells(rows: Sequence[Row], target: float | None) -> Cells:
    """Head and rows, as text, with mean and standard deviation over the seeds."""
    head = ["algorithm", "final accuracy", "best", "mean over rounds", "last ten"]
    baseline = _baseline(rows)
    if baseline:
        head.append(f"below {baseline.label}")
    if target is not None:
        head.append(f"rounds to {target:g}")
    if any(row.point for row in rows):
        head.append("chosen by labels")
    table = [head]
    for row in rows:
        line = [row.label, *(_accuracy(value) for value in (row.final, row.best, row.mean, row.last))]
        if baseline:
            line.append("" if row is baseline else _below(windows_below(row, baseline)))
        if target is not None:
            line.append(_rounds(row))
        if any(other.point for other in rows):
            line.append(row.point)
        table.append(line)
    return table


def notes(rows: Sequence[Row], target: float | None) -> list[str]:
    """What a reader must know of the numbers."""
    seeds = rows[0].seeds
    lines = [
        f"Mean ± standard deviation over {seeds} seeds."
        if seeds > 1
        else "One seed: no standard deviation, and differences may be chance."
    ]
    lines.append("Within a seed all had the same split, the same initial weights and the same clients in each round.")
    lines.append("Last ten: the mean over the last ten rounds that were scored.")
    baseline = _baseline(rows)
    if baseline:
        lines.append(
            f"Below {baseline.label}: in how many windows of {WINDOW} scored rounds the curve, a mean over the seeds, "
            "lies below it"
            + ("; beyond noise: by more than two standard errors of the seeds' differences." if seeds > 1 else ".")
        )
    if any(row.point for row in rows):
        lines.append(
            "Of the grid each algorithm's best point by final accuracy is shown, as in the paper: the labels of the "
            "server's set chose it, which a server without labels could not do."
        )
    if target is not None:
        lines.append(f"Rounds to {target:g}: over the seeds that reached it; how many did stands beside it if not all.")
    return lines


def as_text(table: Cells) -> str:
    """Columns for a terminal."""
    widths = [max(len(line[column]) for line in table) for column in range(len(table[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in table]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def as_markdown(table: Cells) -> str:
    """A table of Markdown."""
    lines = ["| " + " | ".join(line) + " |" for line in table]
    return "\n".join([lines[0], "|" + "---|" * len(table[0]), *lines[1:]]) + "\n"


def as_csv(rows: Sequence[Row], target: float | None) -> str:
    """Numbers with all their digits, mean and standard deviation in columns of their own."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = ("final", "best", "mean_over_rounds", "last_ten", "rounds_to_target")
    columns = [f"{name}_{part}" for name in names for part in ("mean", "std")]
    writer.writerow(["algorithm", "grid", "seeds", *columns, "seeds_that_reached", "target"])
    for row in rows:
        numbers = [
            value
            for spread in (row.final, row.best, row.mean, row.last, row.rounds)
            for value in ((spread.mean, spread.deviation) if spread else (None, None))
        ]
        writer.writerow(
            [row.label, row.point, row.seeds, *numbers, row.reached if target is not None else None, target]
        )
    return text.getvalue()


def _baseline(rows: Sequence[Row]) -> Row | None:
    """FedAvg, or its name in the ablation, where others stand beside it."""
    if len(rows) < 2:
        return None
    return next((row for row in rows if row.label in ("FedAvg", "PA")), None)


def _accuracy(value: Spread) -> str:
    return f"{value.mean:.4f}" + ("" if value.deviation is None else f" ± {value.deviation:.4f}")


def _below(found: Below) -> str:
    beyond = f", {found.beyond_noise} beyond noise" if found.beyond_noise is not None and found.below else ""
    return f"{found.below} of {found.windows}{beyond}"


def _rounds(row: Row) -> str:
    if row.rounds is None:
        return "never"
    spread = "" if row.rounds.deviation is None else f" ± {row.rounds.deviation:.1f}"
    part = "" if row.reached == row.seeds else f" ({row.reached} of {row.seeds})"
    return f"{row.rounds.mean:.1f}{spread}{part}"
