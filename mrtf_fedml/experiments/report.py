"""The table of a comparison with its notes, as text, CSV, Markdown and as one HTML page."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from ..config.schema import Config
from ..report.elements import card, command_block, config_details, heading, html_document, paragraph, table
from ..version import __version__
from .scores import WINDOW_ROUNDS, AlgorithmScore, MeanStd, WindowCount, count_windows_below

Cells = list[list[str]]


def table_cells(rows: Sequence[AlgorithmScore], target: float | None) -> Cells:
    """Header and rows as strings, with mean and standard deviation over the seeds."""
    header = ["algorithm", "final accuracy", "best", "mean over rounds", "last ten"]
    baseline = _baseline(rows)
    if baseline:
        header.append(f"below {baseline.label}")
    if target is not None:
        header.append(f"rounds to {target:g}")
    if any(row.point for row in rows):
        header.append("chosen by labels")
    table = [header]
    for row in rows:
        line = [row.label, *(_format_accuracy(value) for value in (row.final, row.best, row.mean, row.last))]
        if baseline:
            line.append("" if row is baseline else _format_windows(count_windows_below(row, baseline)))
        if target is not None:
            line.append(_format_rounds(row))
        if any(other.point for other in rows):
            line.append(row.point)
        table.append(line)
    return table


def table_notes(rows: Sequence[AlgorithmScore], target: float | None) -> list[str]:
    """Sentences that explain the columns."""
    seeds = rows[0].seeds
    lines = [
        f"Mean ± standard deviation over {seeds} seeds."
        if seeds > 1
        else "One seed: no standard deviation; differences may be chance."
    ]
    lines.append("Within a seed all algorithms have the same split, initial weights and clients in each round.")
    lines.append("Last ten: the mean over the last ten scored rounds.")
    baseline = _baseline(rows)
    if baseline:
        lines.append(
            f"Below {baseline.label}: the number of windows of {WINDOW_ROUNDS} scored rounds in which the curve, a "
            "mean over the seeds, is below it"
            + ("; beyond noise: by more than two standard errors of the seeds' differences." if seeds > 1 else ".")
        )
    if any(row.point for row in rows):
        lines.append(
            "Of the grid each algorithm's best point by final accuracy is shown, as in the paper: the labels of the "
            "server's set chose it, which a server without labels could not do."
        )
    if target is not None:
        lines.append(
            f"Rounds to {target:g}: over the seeds that reached it; their number is in brackets if not all did."
        )
    return lines


def format_text(table: Cells) -> str:
    """The table for a terminal."""
    widths = [max(len(line[column]) for line in table) for column in range(len(table[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in table]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def format_markdown(table: Cells) -> str:
    """The table in Markdown."""
    lines = ["| " + " | ".join(line) + " |" for line in table]
    return "\n".join([lines[0], "|" + "---|" * len(table[0]), *lines[1:]]) + "\n"


def format_csv(rows: Sequence[AlgorithmScore], target: float | None) -> str:
    """The scores as CSV with all digits, mean and standard deviation in separate columns."""
    output = io.StringIO()
    writer = csv.writer(output, lineterminator="\n")
    names = ("final", "best", "mean_over_rounds", "last_ten", "rounds_to_target")
    columns = [f"{name}_{part}" for name in names for part in ("mean", "std")]
    writer.writerow(["algorithm", "grid", "seeds", *columns, "seeds_that_reached", "target"])
    for row in rows:
        numbers = [
            value
            for spread in (row.final, row.best, row.mean, row.last, row.rounds_to_target)
            for value in ((spread.mean, spread.std) if spread else (None, None))
        ]
        writer.writerow(
            [row.label, row.point, row.seeds, *numbers, row.seeds_reached if target is not None else None, target]
        )
    return output.getvalue()


def _baseline(rows: Sequence[AlgorithmScore]) -> AlgorithmScore | None:
    """FedAvg, or its name in the ablation; None where there is nothing to compare."""
    if len(rows) < 2:
        return None
    return next((row for row in rows if row.label in ("FedAvg", "PA")), None)


def _format_accuracy(value: MeanStd) -> str:
    return f"{value.mean:.4f}" + ("" if value.std is None else f" ± {value.std:.4f}")


def _format_windows(count: WindowCount) -> str:
    beyond = f", {count.beyond_noise} beyond noise" if count.beyond_noise is not None and count.below else ""
    return f"{count.below} of {count.windows}{beyond}"


def _format_rounds(row: AlgorithmScore) -> str:
    if row.rounds_to_target is None:
        return "never"
    spread = "" if row.rounds_to_target.std is None else f" ± {row.rounds_to_target.std:.1f}"
    part = "" if row.seeds_reached == row.seeds else f" ({row.seeds_reached} of {row.seeds})"
    return f"{row.rounds_to_target.mean:.1f}{spread}{part}"


#: Area under the ROC curve of a classifier between the two sets: below the first they are alike, above the second not.
_SIMILAR_AUC, _DIFFERENT_AUC = 0.65, 0.85
#: A class whose share differs by this much is named.
_NOTABLE_DIFFERENCE = 0.1


def holdout_notes(runs: Sequence[Mapping[str, Any]], fraction: float) -> list[str]:
    """Sentences on the holdout, from the holdout.json of the best algorithm's runs, one per seed."""
    first = runs[0]
    notes = [
        f"Holdout: {fraction:.0%} of each client's labelled samples ({first['held_out']} of "
        f"{first['held_out'] + first['training']}, of {first['clients']} clients) replace the server's "
        f"{first['server']} samples, which have no labels; the clients train on the rest. The accuracies are those on "
        "the holdout."
    ]
    areas = [run["separability_auc"] for run in runs if run["separability_auc"] is not None]
    if areas:
        notes.append(_similarity_note(statistics.fmean(areas), first["shifted_features"]))
    shifted = [
        line
        for line in class_share_table(runs)[1:]
        if abs(_parse_percent(line[1]) - _parse_percent(line[2])) >= 100 * _NOTABLE_DIFFERENCE
    ]
    if shifted:
        examples = "; ".join(f"{name!r} {holdout} against {server}" for name, holdout, server in shifted[:3])
        notes.append(
            f"The best algorithm's model predicts other class shares in the two sets ({examples}): its accuracy on the "
            "server's set may differ."
        )
    return notes


def class_share_table(runs: Sequence[Mapping[str, Any]]) -> Cells:
    """Header and rows: the share of each class in the model's predictions on the holdout and on the server's set."""
    rows = [["class", "in the holdout", "in the server's set"]]
    for index, name in enumerate(runs[0]["class_names"]):
        means = [
            statistics.fmean(run[key][index] for run in runs)
            for key in ("class_frequencies_holdout", "class_frequencies_server")
        ]
        rows.append([name, *(f"{100 * mean:.1f} %" for mean in means)])
    return rows


def _similarity_note(area: float, features: Sequence[Sequence[Any]]) -> str:
    conclusion = (
        "the two sets are alike, and the accuracies apply to the server's set"
        if area < _SIMILAR_AUC
        else "the two sets differ, and the accuracy on the server's set may be lower"
        if area < _DIFFERENT_AUC
        else "the two sets are different kinds of data, and the accuracies say little about the server's set"
    )
    shifts = ", ".join(f"{name} by {distance:.1f} standard deviations" for name, distance in features)
    largest = f"; largest shifts: {shifts}" if shifts else ""
    return (
        f"A classifier separates the holdout from the server's set with an area under the curve of {area:.2f} "
        f"(0.5 is guessing, 1 is perfect): {conclusion}{largest}."
    )


def _parse_percent(percent: str) -> float:
    return float(percent.removesuffix(" %"))


def comparison_page(
    title: str, cells: Cells, notes: Sequence[str], charts: Mapping[str, str], command: str, config: Config
) -> str:
    """The page: the table, its notes, the charts by title, the command and the configuration."""
    sections = [
        f'<p class="eyebrow">mrtf {escape(__version__)} · comparison</p>\n<h1>{escape(title)}</h1>',
        card(table(cells[1:], cells[0], title)),
        f'<div class="notes">{"".join(paragraph(note) for note in notes)}</div>',
    ]
    for number, (name, chart) in enumerate(charts.items()):
        sections.append(f"{heading(name, f'chart{number}')}\n{card(chart)}")
    sections.append(f"{heading('How it was made', 'made')}\n{card(command_block(command))}")
    sections.append(config_details("The configuration", dict(config)))
    return html_document(title, sections)
