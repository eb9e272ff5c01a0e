"""The page of one run: its sections, each with what is known of it."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np
from torch import Tensor

from ..version import __version__
from . import charts, document
from .classes import class_bars
from .confusion import confusion_table
from .document import card, faint, heading
from .events import counted, resumed, warnings_of
from .facts import Answer, Calibration, Examination, Facts, Floats, Indices, Split
from .landscape import MOST_SAMPLES, UNCERTAIN, landscape
from .samples import Sample, least_certain
from .split import shown_clients, split_picture
from .story import headline, summary_rows, tiles

_SCENE = (
    "The server owns these samples and has no labels for them; the clients own labelled data and share none "
    "of it. In each round some clients train the model on their own data, the server averages what they send "
    "back, and, if the algorithm is transductive, refines the average on its own samples."
)
_ACCURACY = "Share of the server's samples that are right. The plain average is the mean of the clients' models."
_ACCURACIES = (
    f"{_ACCURACY} The ensemble of teachers is what these models say together; the targets are what the "
    "server makes of it for its model to learn; the refined model has learnt them. It gives the predictions, unless "
    "the model that answers has a curve of its own: the average, or one between the two, as the clients found best."
)
_NOT_SCORED = "No round was scored: the true labels of the server's samples are not known."
_LOCAL_WEIGHT = " The lower it is, the less weight (u_t) the clients' models have as teachers beside the global ones."
_MEASURED = "Numbers that the algorithm wrote down by itself, round by round."
_CONFIDENCE = "The probability the model gives its answer: it ranks them, and is not the share that is right."
_AGREEMENT = "The share of the last round's teachers that name the class that the sample was given."
_EXAMINED = "True labels were kept from the server and from every model; they only mark the answer here."
_UNCERTAIN = (
    "The samples to look at first, were a person to check some. All are in predictions.csv, with the "
    "probability of every class in probabilities.npy."
)


def page(facts: Facts, inputs: Tensor | None) -> str:
    """The report of a run as one HTML file."""
    sections = [_rounds(facts), _measured(facts)]
    if facts.answer is not None:
        sections.append(_predicted(facts.answer, facts.agreement))
        if facts.examination is not None:
            sections.append(_examined(facts.answer, facts.examination))
        sections.append(_features(facts.answer, facts.features, facts.features_index))
        sections.append(_uncertain(least_certain(facts.answer, inputs, UNCERTAIN, facts.agreement)))
    sections += [_split(facts.split), _summary(facts)]
    end = document.settings("All settings", facts.config)
    return document.document(f"{facts.algorithm} on {facts.dataset}", [_opening(facts, sections), *sections, end])


def _opening(facts: Facts, sections: Sequence[str]) -> str:
    summary = facts.summary or {}
    words = [
        facts.algorithm + (f" (preset {summary['preset']})" if summary.get("preset") else ""),
        facts.dataset,
        *([str(summary["device"])] if summary.get("device") else []),
        f"mrtf {__version__}",
    ]
    return "\n".join(
        [
            f'<p class="eyebrow">{escape(" · ".join(words))}</p>',
            f"<h1>{escape(headline(facts))}</h1>",
            document.warned(warnings_of(facts)),
            *(f"<p>{escape(note)}.</p>" for note in summary.get("notes") or []),
            faint(_SCENE),
            document.tiles(tiles(facts)),
            document.contents(sections),
        ]
    )


def _rounds(facts: Facts) -> str:
    metrics = facts.metrics
    classes = facts.answer.probabilities.shape[1] if facts.answer is not None else None
    accuracy = charts.accuracy_chart(metrics, classes, facts.resumes)
    refines = any(line.get("acc_refined") is not None for line in metrics)
    weighs = any(line.get("local_weight") is not None for line in metrics)
    pair = (
        (
            charts.loss_chart(metrics),
            "How well the clients fit their own data",
            "Mean loss of local training." + (_LOCAL_WEIGHT if weighs else ""),
        ),
        (charts.seconds_chart(metrics), "Where the time went", "Seconds of each round."),
    )
    cards = "".join(card(chart, title, note) for chart, title, note in pair if chart)
    return "\n".join(
        [
            heading("Round by round", "rounds"),
            faint(_ACCURACIES if refines else _ACCURACY if accuracy else _NOT_SCORED),
            *(faint(sentence) for sentence in resumed(facts)),
            card(accuracy) if accuracy else "",
            f'<div class="pair">{cards}</div>' if cards else "",
        ]
    )


def _measured(facts: Facts) -> str:
    cards = "".join(card(chart, name) for name, chart in charts.measured_charts(facts.metrics))
    if not cards:
        return ""
    of_what = (facts.summary or {}).get("estimated_on")
    told = f"{_MEASURED} What the clients estimate is of {of_what}." if of_what else _MEASURED
    return f'{heading("What the algorithm measured", "measured")}\n{faint(told)}\n<div class="three">{cards}</div>'


def _predicted(answer: Answer, agreement: Floats | None) -> str:
    counts = np.bincount(answer.labels, minlength=len(answer.class_names)).tolist()
    bars = class_bars(
        "Samples predicted in each class",
        answer.class_names,
        counts,
        [f"{count:,}" for count in counts],
        float(max(counts)),
    )
    cards = [card(bars, "Predicted classes", "How many samples each class was given.")]
    cards.append(card(charts.confidence_chart(answer), "Confidence", _CONFIDENCE))
    if agreement is not None:
        chart = charts.share_chart("Agreement of the teachers", np.asarray(agreement), "agreement")
        cards.append(card(chart, "Agreement of the teachers", f"{_AGREEMENT} On average {np.mean(agreement):.2f}."))
    several = "pair" if len(cards) == 2 else "three"
    return f'{heading("The predictions", "predictions")}\n<div class="{several}">{"".join(cards)}</div>'


def _examined(answer: Answer, examination: Examination) -> str:
    recall = examination.recall
    texts = ["none" if np.isnan(share) else f"{share:.2f}" for share in recall]
    bars = class_bars("Recall of each class", answer.class_names, recall.tolist(), texts, 1.0)
    cards = card(bars, "Recall", "The share of each true class that was found.")
    if examination.calibration is not None:
        cards += _calibrated(examination.calibration)
    confusion = examination.confusion
    whole = card(confusion_table(answer.class_names, confusion)) if confusion is not None else ""
    return f'{heading("Right and wrong", "marks")}\n{faint(_EXAMINED)}\n<div class="pair">{cards}</div>{whole}'


def _calibrated(calibration: Calibration) -> str:
    error = calibration.expected_error
    lean = "surer than it is right" if calibration.is_overconfident else "less sure than it is right"
    note = (
        "The share that is right of the answers of each confidence. On the dotted line the two are equal; the expected "
        f"calibration error, their mean distance, is {error:.3f}: the model is {lean}."
    )
    return card(charts.calibration_chart(calibration), "Calibration", note)


def _features(answer: Answer, features: Floats | None, known: Indices | None) -> str:
    picture = landscape(answer, features, known) if features is not None else None
    if picture is None:
        return ""
    part = (
        f" Of {len(answer.ids):,} samples {MOST_SAMPLES:,} are drawn, evenly spaced."
        if (len(answer.ids) > MOST_SAMPLES)
        else ""
    )
    note = (
        "Features of the model that answers, in two dimensions by t-SNE: samples that lie together look alike to it. "
        "Colours are predicted classes; a name stands at the class's prototype, the mean of the features weighted by "
        f"the class's probability; ringed are the {min(UNCERTAIN, len(answer.ids))} samples of least confidence.{part}"
    )
    return f"{heading('As the model sees them', 'features')}\n{faint(note)}\n{card(picture)}"


def _uncertain(samples: Sequence[Sample]) -> str:
    if all(sample.picture for sample in samples):
        shown = f'<div class="samples">{"".join(_picture(sample) for sample in samples)}</div>'
    else:
        agreed = any(sample.agreement is not None for sample in samples)
        head = ["id", "label", "class", "confidence", "runner-up", "its confidence", *(["agreement"] if agreed else [])]
        rows = [
            [
                sample.id,
                str(sample.label),
                sample.class_name,
                f"{sample.confidence:.3f}",
                sample.runner_up or "none",
                f"{sample.runner_up_confidence:.3f}",
                *([] if sample.agreement is None else [f"{sample.agreement:.2f}"]),
            ]
            for sample in samples
        ]
        shown = card(document.table(rows, head, "Least certain samples"))
    return f"{heading('Least certain', 'uncertain')}\n{faint(_UNCERTAIN)}\n{shown}"


def _picture(sample: Sample) -> str:
    runner_up = f"or {sample.runner_up} {sample.runner_up_confidence:.2f}" if sample.runner_up else ""
    number = "" if sample.class_name == str(sample.label) else f" ({sample.label})"
    agreed = "" if sample.agreement is None else f"agreement {sample.agreement:.2f}<br>"
    return (
        f'<figure class="card sample"><img src="{sample.picture}" alt="sample {escape(sample.id)}">'
        f"<b>{escape(sample.class_name)}</b>{number} {sample.confidence:.2f}<br>"
        f'<span class="faint">{escape(runner_up)}<br>{agreed}id {escape(sample.id)}</span></figure>'
    )


def _split(split: Split | None) -> str:
    if split is None:
        return ""
    clients, shown = len(split.counts), len(shown_clients(split))
    part = f" {shown} of {clients:,} clients are drawn, evenly spaced." if shown < clients else ""
    note = (
        f"{counted(clients, 'client')} hold {counted(int(split.counts.sum()), 'sample')}. A column is a client, a row "
        f"a class; the larger and darker the bubble, the more samples, up to {int(split.counts.max()):,}.{part}"
    )
    return f"{heading('Who holds what', 'split')}\n{faint(note)}\n{card(split_picture(split))}"


def _summary(facts: Facts) -> str:
    rows = summary_rows(facts)
    return f"{heading('Summary', 'summary')}\n{card(document.pairs(rows))}" if rows else ""
