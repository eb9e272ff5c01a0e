"""The page: sections of HTML put together. Whatever comes from a run is escaped here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

import yaml
from torch import Tensor

from ..settings.secrets import HIDDEN, without_secrets
from ..version import __version__
from . import charts
from .confusion import confusion_table
from .facts import Answer, Examination, Facts
from .samples import Sample, least_certain
from .story import (
    headline,
    left_out,
    summary_rows,
    tiles,
)
from .style import STYLE

_SCENE = (
    "The server owns these samples and has no labels for them; the clients own labelled data and share none "
    "of it. In each round some clients train the model on their own data, the server averages what they send "
    "back, and, if the algorithm is transductive, refines the average on its own samples."
)
_ACCURACY = "Share of the server's samples that are right. The plain average is the mean of the clients' models."
_ACCURACIES = (
    f"{_ACCURACY} The ensemble of teachers is what these models say together; the targets are what the "
    "server makes of it for its model to learn; the refined model has learnt them, and gives the predictions."
)
_NOT_SCORED = "No round was scored: the true labels of the server's samples are not known."
_LOCAL_WEIGHT = " The lower it is, the less weight (u_t) the clients' models have as teachers beside the global ones."
_EXAMINED = "True labels were kept from the server and from every model; they only mark the answer here."
_UNCERTAIN = (
    "The samples to look at first, were a person to check some. All are in predictions.csv, with the "
    "probability of every class in probabilities.npy."
)


def page(facts: Facts, inputs: Tensor | None) -> str:
    """The report of a run as one HTML file."""
    sections = [_opening(facts), _rounds(facts)]
    if facts.answer is not None:
        sections.append(_predicted(facts.answer))
        if facts.examination is not None:
            sections.append(_examined(facts.answer, facts.examination))
        sections.append(_uncertain(least_certain(facts.answer, inputs)))
    sections += [_summary(facts), _settings(facts)]
    title = escape(f"{facts.algorithm} on {facts.dataset}")
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{title}</title>\n'
        f"<style>{STYLE}</style>\n</head>\n<body>\n<main>\n" + "\n".join(sections) + "\n</main>\n</body>\n</html>\n"
    )


def _opening(facts: Facts) -> str:
    preset = (facts.summary or {}).get("preset")
    words = [
        facts.algorithm + (f" (preset {preset})" if preset else ""),
        facts.dataset,
        f"mrtf {__version__}",
    ]
    numbers = "".join(
        f'<div class="tile"><b>{escape(value)}</b><span>{escape(what)}</span></div>' for value, what in tiles(facts)
    )
    warning = left_out(facts.metrics)
    return "\n".join(
        [
            f'<p class="eyebrow">{escape(" · ".join(words))}</p>',
            f"<h1>{escape(headline(facts))}</h1>",
            _faint(_SCENE),
            f'<div class="tiles">{numbers}</div>',
            f'<p class="warning">{escape(warning)}</p>' if warning else "",
        ]
    )


def _rounds(facts: Facts) -> str:
    classes = facts.answer.probabilities.shape[1] if facts.answer is not None else None
    accuracy = charts.accuracy_chart(facts.metrics, classes)
    refines = any(line["acc_refined"] is not None for line in facts.metrics)
    weighs = any(line["local_weight"] is not None for line in facts.metrics)
    pair = (
        (
            charts.loss_chart(facts.metrics),
            "How well the clients fit their own data",
            "Mean loss of local training." + (_LOCAL_WEIGHT if weighs else ""),
        ),
        (charts.seconds_chart(facts.metrics), "Where the time went", "Seconds of each round."),
    )
    cards = "".join(_card(chart, title, note) for chart, title, note in pair if chart)
    return "\n".join(
        [
            "<h2>Round by round</h2>",
            _faint(_ACCURACIES if refines else _ACCURACY if accuracy else _NOT_SCORED),
            _card(accuracy) if accuracy else "",
            f'<div class="pair">{cards}</div>',
        ]
    )


def _predicted(answer: Answer) -> str:
    predicted = _card(charts.predicted_chart(answer), "Predicted classes", "How many samples each class was given.")
    confidence = _card(
        charts.confidence_chart(answer),
        "Confidence",
        "The probability the model gives its answer: it ranks them, and is not the share that is right.",
    )
    return f'<h2>The predictions</h2>\n<div class="pair">{predicted}{confidence}</div>'


def _examined(answer: Answer, examination: Examination) -> str:
    recall = _card(charts.recall_chart(answer, examination), "Recall", "The share of each true class that was found.")
    confusion = f'<div class="card">{confusion_table(answer.class_names, examination.confusion)}</div>'
    return f"<h2>Right and wrong</h2>\n{_faint(_EXAMINED)}\n{recall}{confusion}"


def _uncertain(samples: Sequence[Sample]) -> str:
    if all(sample.picture for sample in samples):
        shown = f'<div class="samples">{"".join(_picture(sample) for sample in samples)}</div>'
    else:
        head = ("id", "label", "class", "confidence", "runner-up", "its confidence")
        rows = [
            (
                sample.id,
                str(sample.label),
                sample.class_name,
                f"{sample.confidence:.3f}",
                sample.runner_up or "none",
                f"{sample.runner_up_confidence:.3f}",
            )
            for sample in samples
        ]
        shown = f'<div class="card">{_table(rows, head)}</div>'
    return f"<h2>Least certain</h2>\n{_faint(_UNCERTAIN)}\n{shown}"


def _picture(sample: Sample) -> str:
    runner_up = f"or {sample.runner_up} {sample.runner_up_confidence:.2f}" if sample.runner_up else ""
    number = "" if sample.class_name == str(sample.label) else f" ({sample.label})"
    return (
        f'<figure class="card sample"><img src="{sample.picture}" alt="sample {escape(sample.id)}">'
        f"<b>{escape(sample.class_name)}</b>{number} {sample.confidence:.2f}<br>"
        f'<span class="faint">{escape(runner_up)}<br>id {escape(sample.id)}</span></figure>'
    )


def _summary(facts: Facts) -> str:
    rows = summary_rows(facts)
    return f'<h2>Summary</h2>\n<div class="card">{_table(rows)}</div>' if rows else ""


def _settings(facts: Facts) -> str:
    text = yaml.safe_dump(without_secrets(facts.config, HIDDEN), sort_keys=False, allow_unicode=True)
    return f"<details><summary>All settings</summary>\n<pre>{escape(text)}</pre></details>"


def _faint(text: str) -> str:
    return f'<p class="faint">{escape(text)}</p>'


def _card(chart: str, title: str = "", note: str = "") -> str:
    head = f"<h3>{escape(title)}</h3>\n{_faint(note)}" if title else ""
    return f'<div class="card">{head}{chart}</div>'


def _table(rows: Iterable[Sequence[str]], head: Sequence[str] = ()) -> str:
    """A table of text; without a head, the first cell of a row is the head of the row."""
    lines = [f"<tr>{''.join(f'<th>{escape(cell)}</th>' for cell in head)}</tr>"] if head else []
    for first, *rest in rows:
        tag = "td" if head else "th"
        lines.append(f"<tr><{tag}>{escape(first)}</{tag}>{''.join(f'<td>{escape(cell)}</td>' for cell in rest)}</tr>")
    return f"<table>{''.join(lines)}</table>"
