"""The live page. It uses the charts and the style of the report, and is made anew for every request."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from html import escape
from typing import Any

from .. import phases
from ..callbacks.status import FINISHED, RUNNING, WAITING_FOR_CLIENTS
from ..report import charts
from ..report.elements import card, heading, number_tiles, paragraph, table, warning_box
from ..report.plot import Layer, column_chart, fit_axis
from ..report.text import describe_exclusions, describe_problems, format_bytes, format_duration, pluralize
from .live_run import LiveRun

_PHASES = {
    phases.LOCAL: "the clients train",
    phases.TEACHERS: "the server evaluates the clients' models on its samples",
    phases.TARGETS: "the server computes the targets",
    phases.DISTILLING: "the server refines the model",
}
#: Most rows in the table of clients.
_MAX_CLIENTS = 200
#: Most logged warnings on the page.
_MAX_WARNINGS = 8
_LOST = "The connection to `mrtf watch` is lost. This page shows the last state that it has received."


def live_page(run: LiveRun) -> str:
    """The page as a complete HTML file; the script replaces its sections."""
    sections = {
        "now": _now(run),
        "rounds": _rounds(run.metrics),
        "clients": _clients(run),
        "metrics": _metrics(run),
    }
    title = f"{_headline(run)} {_name(run)}"
    body = "\n".join(f'<section id="{name}">{content}</section>' for name, content in sections.items())
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<link rel="icon" href="data:,">\n'
        f'<title>{escape(title)}</title>\n<link rel="stylesheet" href="style.css">\n'
        '<script src="watch.js" defer></script>\n</head>\n<body>\n<main>\n'
        f'<div id="lost" class="warnings" hidden><p>{escape(_LOST)}</p></div>\n{body}\n'
        f"{paragraph(f'This page reads the files in {run.folder.resolve()} and writes nothing.')}\n"
        "</main>\n</body>\n</html>\n"
    )


def _name(run: LiveRun) -> str:
    status = run.status
    return " · ".join(str(status[key]) for key in ("algorithm", "dataset", "role") if status.get(key))


def _now(run: LiveRun) -> str:
    content = [
        f'<p class="eyebrow">{escape(_name(run))}</p>',
        f"<h1>{escape(_headline(run))}</h1>",
        warning_box(_warnings(run)),
        number_tiles(_numbers(run)),
    ]
    if (run.folder / "report.html").is_file() and run.state != RUNNING:
        content.append('<p class="faint"><a href="report.html">The report of the run</a></p>')
    return "\n".join(content)


def _headline(run: LiveRun) -> str:
    status, done = run.status, len(run.metrics)
    if run.state == FINISHED:
        return f"Finished: {pluralize(done, 'round')}."
    if run.state != RUNNING:
        return f"Stopped after {pluralize(done, 'round')}: {run.reason.rstrip('.')}."
    phase = str(status.get("phase"))
    if phase == WAITING_FOR_CLIENTS:
        connected = status.get("connected")
        if connected is None:
            return "Starting."
        return f"Waiting for clients: {len(connected)} of {status.get('clients')} are connected."
    if "round" not in status:
        return f"{phase.capitalize()}."
    words = _PHASES.get(phase, phase)
    if str(status.get("role")).startswith("silo"):
        words = "this silo trains" if phase == phases.LOCAL else phase
    received, selected = status.get("received") or [], status.get("selected") or []
    if phase == phases.LOCAL and status.get("connected") is not None:
        words += f"; {len(received)} of {len(selected)} updates have arrived"
    return f"Round {status['round'] + 1} of {status.get('rounds')}: {words}."


def _numbers(run: LiveRun) -> list[tuple[str, str]]:
    metrics, status = run.metrics, run.status
    last: dict[str, Any] = metrics[-1] if metrics else {}
    numbers = []
    scored = next((line["acc"] for line in reversed(metrics) if line.get("acc") is not None), None)
    if scored is not None:
        numbers.append((f"{scored:.3f}", "accuracy"))
    if last.get("estimated_accuracy") is not None:
        stderr = last.get("estimated_accuracy_stderr")
        error = "" if stderr is None else f"± {stderr:.2f}, "
        numbers.append((f"{last['estimated_accuracy']:.2f}", f"{error}accuracy on the clients' validation samples"))
    numbers.append((f"{len(metrics)} / {status.get('rounds')}", "rounds"))
    left = run.seconds_left()
    if left is not None:
        numbers.append((format_duration(round(left)), "left, at the pace of the last rounds"))
    down, up = (sum(line.get(key) or 0 for line in metrics) for key in ("downlink_bytes", "uplink_bytes"))
    is_silo = str(status.get("role")).startswith("silo")
    numbers.append((format_bytes(down), "received" if is_silo else "sent to the clients"))
    numbers.append((format_bytes(up), "sent" if is_silo else "received from the clients"))
    return numbers


def _warnings(run: LiveRun) -> list[str]:
    logged = [
        f"{time.strftime('%H:%M:%S', time.localtime(record['time']))} {record['text']}"
        for record in (run.status.get("warnings") or [])[-_MAX_WARNINGS:]
    ]
    of_run = [str(sentence) for sentence in run.summary.get("warnings") or []]
    return [*of_run, *describe_exclusions(run.metrics), *describe_problems(run.metrics), *reversed(logged)]


def _rounds(metrics: Sequence[dict[str, Any]]) -> str:
    if not metrics:
        return paragraph("No round is finished yet.")
    accuracy = charts.accuracy_chart(metrics, None)
    others = (
        (charts.loss_chart(metrics), "Training loss of the clients"),
        (charts.seconds_chart(metrics), "Time per round"),
        (_traffic_chart(metrics), "Traffic per round"),
    )
    cards = "".join(card(chart, title) for chart, title in others if chart)
    return f'{heading("Round by round", "charts")}{card(accuracy) if accuracy else ""}<div class="three">{cards}</div>'


def _traffic_chart(metrics: Sequence[dict[str, Any]]) -> str | None:
    down, up = ([float(line.get(key) or 0) / 1e6 for line in metrics] for key in ("downlink_bytes", "uplink_bytes"))
    if not any(down) and not any(up):
        return None
    edges = [metrics[0]["round"] + 0.5 + number for number in range(len(metrics) + 1)]
    layers = [Layer("to clients", down, "plain"), Layer("from clients", up, "c0")]
    y = fit_axis([0.0, *map(sum, zip(down, up, strict=True))], "MB")
    return column_chart("Megabytes per round", edges, layers, charts.rounds_axis([metrics]), y)


def _metrics(run: LiveRun) -> str:
    if not run.metrics:
        return ""
    labels = run.status.get("metric_labels") or {}
    cards = "".join(card(chart, name, text) for name, text, chart in charts.metric_charts(run.metrics, labels))
    return f'{heading("Metrics of the algorithm", "own")}<div class="three">{cards}</div>' if cards else ""


def _clients(run: LiveRun) -> str:
    status = run.status
    total = status.get("clients")
    if not isinstance(total, int):
        return ""
    names = status.get("client_names") or {}
    connected, selected = status.get("connected"), status.get("selected") or []
    received = status.get("received") or []
    taken_part: Counter[int] = Counter()
    excluded: Counter[int] = Counter()
    reasons: dict[int, str] = {}
    for line in run.metrics:
        of_round = line.get("excluded_clients") or {}
        taken_part.update(client for client in line.get("clients") or [] if str(client) not in of_round)
        for client, reason in of_round.items() if isinstance(of_round, dict) else ():
            excluded[int(client)] += 1
            reasons[int(client)] = f"round {line['round'] + 1}: {reason}"
    rows = []
    for client in range(min(total, _MAX_CLIENTS)):
        is_here = connected is None or client in connected
        now = ""
        if run.state == RUNNING and client in selected:
            working = "trains" if status.get("phase") == phases.LOCAL else "has trained"
            now = "update received" if client in received else working if is_here else "lost"
        cells = [str(names.get(str(client), client)), str(taken_part[client]), str(excluded[client])]
        if connected is not None:
            cells.insert(1, "connected" if is_here else "not connected")
        rows.append([*cells, now, reasons.get(client, "")])
    head = ["client", "rounds", "excluded", "this round", "last exclusion"]
    if connected is not None:
        head.insert(1, "connection")
    rest = f" The first {_MAX_CLIENTS} of {total} are listed." if total > _MAX_CLIENTS else ""
    present = f" {len(connected)} of {total} are connected." if connected is not None else ""
    return (
        heading("Clients", "list")
        + paragraph(f"Rounds in which the update was used, and rounds in which it was excluded.{present}{rest}")
        + card(table(rows, head, "Clients"))
    )
