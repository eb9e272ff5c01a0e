"""The page of one run, section by section."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np
from torch import Tensor

from ..version import __version__
from . import charts
from .artifacts import MAX_SAMPLES, UNCERTAIN, Floats
from .charts import class_bars, client_counts_chart, confusion_table, drawn_clients
from .elements import (
    card,
    collapsible_section,
    config_details,
    definition_table,
    heading,
    html_document,
    number_tiles,
    paragraph,
    prose,
    table,
    table_of_contents,
    warning_box,
)
from .feature_map import feature_map
from .run_data import Calibration, ClientCounts, Evaluation, Indices, Predictions, RunData
from .samples import Sample, least_confident_samples
from .text import (
    describe_resumes,
    key_numbers,
    list_warnings,
    pluralize,
    result_sentences,
    short_title,
    summary_rows,
)

#: The names of at most this many clients are listed.
_MAX_NAMED_CLIENTS = 40
#: A table of clients and classes has at most this many classes.
_MAX_COLUMNS = 20
#: Samples on the first screen.
_FIRST_SAMPLES = 6
_NO_WARNING_NOTE = (
    "Looks fine: no check found a problem. The checks cannot see every error: label a few samples by hand and "
    "compare them."
)
_NO_ESTIMATE_NOTE = (
    "No check found a problem in the labels, but their accuracy is not known, nor how many can be accepted. Label 40 "
    "samples drawn at random to estimate it: `mrtf ask RUN_DIR --n 40 --random`."
)
_SETTING_NOTE = (
    "The server has these samples without labels. The clients have labelled data that they do not share. In each "
    "round some clients train the model on their own data, and the server averages their models. A transductive "
    "algorithm then refines the average on the server's samples."
)
_ACCURACY_NOTE = "Accuracy on the server's samples. The aggregated model is the average of the clients' models."
_ACCURACY_NOTE_REFINED = (
    f"{_ACCURACY_NOTE} The ensemble combines the predictions of these models (the teachers). The targets are computed "
    "from the ensemble, and the refined model is trained on them. The refined model gives the predictions, unless "
    "the final model has a curve of its own: the aggregated model or an interpolation of the two, as the clients' "
    "validation selects."
)
_NOT_SCORED_NOTE = "No round was scored: the true labels of the server's samples are not known."
_METRICS_NOTE = "Metrics that the algorithm records in each round."
_CONFIDENCE_NOTE = "The probability of the predicted class. It ranks the predictions and is not their accuracy."
_AGREEMENT_NOTE = "The fraction of the last round's teachers that predict the sample's label."
_EVALUATION_NOTE = "Neither the server nor any model has seen the true labels. They are used only for these scores."
_FIRST_NOTE = "The samples of lowest confidence. `mrtf ask RUN_DIR` writes them to a file, to label them by hand."
_UNCERTAIN_NOTE = (
    "The samples of lowest confidence, to check first. predictions.csv has all samples, and probabilities.npy the "
    "probability of every class."
)


def page(data: RunData, inputs: Tensor | None) -> str:
    """The report of a run as one HTML file."""
    sections, first_samples = [], ""
    if data.predictions is not None:
        samples = least_confident_samples(data.predictions, inputs, UNCERTAIN, data.agreement)
        first_samples = _first_samples_card(samples)
        sections.append(_predictions_section(data.predictions, data.agreement))
        if data.evaluation is not None:
            sections.append(_evaluation_section(data.predictions, data.evaluation))
        sections.append(_uncertain_section(samples))
        sections.append(_feature_section(data.predictions, data.features, data.features_index))
    training = [
        paragraph(_SETTING_NOTE),
        _rounds_section(data),
        _metrics_section(data),
        _client_counts_section(data.client_counts),
        _summary_section(data),
    ]
    # A run that has not ended has nothing but its rounds to show.
    details = (
        collapsible_section("Training details", "\n".join(training))
        if data.predictions is not None
        else "".join(training)
    )
    end = config_details("All settings", data.config)
    title = f"{data.algorithm} on {data.dataset}"
    return html_document(title, [_opening_section(data, [*sections, details], first_samples), *sections, details, end])


def _opening_section(data: RunData, sections: Sequence[str], first_samples: str) -> str:
    """The first screen: what was labelled, how accurate it is, warnings, predicted classes, samples to check."""
    summary = data.summary or {}
    words = [
        data.algorithm + (f" (preset {summary['preset']})" if summary.get("preset") else ""),
        f"clients' data: {data.dataset}",
        *([str(summary["device"])] if summary.get("device") else []),
        f"mrtf {__version__}",
    ]
    warnings = list_warnings(data)
    cards = "" if data.predictions is None else _class_counts_card(data.predictions) + first_samples
    return "\n".join(
        [
            f'<p class="eyebrow">{escape(" · ".join(words))}</p>',
            f"<h1>{escape(short_title(data))}</h1>",
            f"<p>{prose(result_sentences(data))}</p>",
            warning_box([_with_capital(sentence) for sentence in warnings]),
            "" if warnings or data.predictions is None else f"<p>{prose(_describe_checks(summary))}</p>",
            *(f"<p>{prose(_with_capital(sentence))}.</p>" for sentence in summary.get("notes") or []),
            number_tiles(key_numbers(data)),
            f'<div class="pair">{cards}</div>' if cards else "",
            table_of_contents(sections),
        ]
    )


def _describe_checks(summary: Mapping[str, Any]) -> str:
    return _NO_WARNING_NOTE if summary.get("no_estimate_because") is None else _NO_ESTIMATE_NOTE


def _with_capital(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]


def _class_counts_card(predictions: Predictions) -> str:
    counts = np.bincount(predictions.labels, minlength=len(predictions.class_names)).tolist()
    bars = class_bars(
        "Samples per predicted class",
        predictions.class_names,
        counts,
        [f"{count:,}" for count in counts],
        float(max(counts)),
    )
    return card(bars, "Predicted classes", "Number of samples per predicted class.")


def _first_samples_card(samples: Sequence[Sample]) -> str:
    first = samples[:_FIRST_SAMPLES]
    if first and all(sample.image for sample in first):
        content = f'<div class="samples">{"".join(_sample_figure(sample) for sample in first)}</div>'
    else:
        rows = [
            [sample.id, sample.class_name, f"{sample.confidence:.2f}", sample.second_class or "none"]
            for sample in first
        ]
        content = table(rows, ["id", "class", "confidence", "second class"], "Samples to check first")
    return card(content, "Check these first", _FIRST_NOTE)


def _rounds_section(data: RunData) -> str:
    metrics = data.metrics
    classes = data.predictions.probabilities.shape[1] if data.predictions is not None else None
    accuracy = charts.accuracy_chart(metrics, classes, data.resumes)
    is_refined = any(line.get("acc_refined") is not None for line in metrics)
    pair = (
        (charts.loss_chart(metrics), "Training loss of the clients", "Mean loss of local training."),
        (charts.seconds_chart(metrics), "Time per round", "Seconds of each round."),
    )
    cards = "".join(card(chart, title, text) for chart, title, text in pair if chart)
    return "\n".join(
        [
            heading("Round by round", "rounds"),
            paragraph(_ACCURACY_NOTE_REFINED if is_refined else _ACCURACY_NOTE if accuracy else _NOT_SCORED_NOTE),
            *(paragraph(sentence) for sentence in describe_resumes(data)),
            card(accuracy) if accuracy else "",
            f'<div class="pair">{cards}</div>' if cards else "",
        ]
    )


def _metrics_section(data: RunData) -> str:
    metrics = charts.metric_charts(data.metrics, data.metric_labels)
    cards = "".join(card(chart, name, text) for name, text, chart in metrics)
    if not cards:
        return ""
    title = heading("Metrics of the algorithm", "metrics")
    return f'{title}\n{paragraph(_METRICS_NOTE)}\n<div class="three">{cards}</div>'


def _predictions_section(predictions: Predictions, agreement: Floats | None) -> str:
    cards = [card(charts.confidence_chart(predictions), "Confidence", _CONFIDENCE_NOTE)]
    if agreement is not None:
        chart = charts.fraction_histogram("Agreement of the teachers", np.asarray(agreement), "agreement")
        text = f"{_AGREEMENT_NOTE} Mean: {np.mean(agreement):.2f}."
        cards.append(card(chart, "Agreement of the teachers", text))
    return f'{heading("Predictions", "predictions")}\n<div class="pair">{"".join(cards)}</div>'


def _evaluation_section(predictions: Predictions, evaluation: Evaluation) -> str:
    recall = evaluation.recall
    texts = ["none" if np.isnan(fraction) else f"{fraction:.2f}" for fraction in recall]
    bars = class_bars("Recall of each class", predictions.class_names, recall.tolist(), texts, 1.0)
    cards = card(bars, "Recall", "The fraction of each true class that is predicted correctly.")
    if evaluation.calibration is not None:
        cards += _calibration_card(evaluation.calibration)
    confusion = evaluation.confusion
    confusion_card = card(confusion_table(predictions.class_names, confusion)) if confusion is not None else ""
    return (
        f'{heading("Evaluation", "evaluation")}\n{paragraph(_EVALUATION_NOTE)}\n<div class="pair">{cards}</div>'
        f"{confusion_card}"
    )


def _calibration_card(calibration: Calibration) -> str:
    confidence = "overconfident" if calibration.is_overconfident else "underconfident"
    text = (
        "Accuracy of the predictions by confidence. On the dotted line both are equal. Expected calibration error: "
        f"{calibration.expected_error:.3f}; the model is {confidence}."
    )
    return card(charts.calibration_chart(calibration), "Calibration", text)


def _feature_section(predictions: Predictions, features: Floats | None, features_index: Indices | None) -> str:
    chart = feature_map(predictions, features, features_index) if features is not None else None
    if chart is None:
        return ""
    part = (
        f" {MAX_SAMPLES:,} of {len(predictions.ids):,} samples are drawn, evenly spaced."
        if (len(predictions.ids) > MAX_SAMPLES)
        else ""
    )
    text = (
        "Features of the final model in two dimensions (t-SNE): samples with similar features are near each other. "
        "Colours are predicted classes. A class name is at the class's prototype, the mean of the features weighted "
        f"by the class's probability. The {min(UNCERTAIN, len(predictions.ids))} samples of lowest confidence have a "
        f"ring.{part}"
    )
    return f"{heading('Feature map', 'features')}\n{paragraph(text)}\n{card(chart)}"


def _uncertain_section(samples: Sequence[Sample]) -> str:
    if all(sample.image for sample in samples):
        content = f'<div class="samples">{"".join(_sample_figure(sample) for sample in samples)}</div>'
    else:
        has_agreement = any(sample.agreement is not None for sample in samples)
        head = ["id", "label", "class", "confidence", "second class", "its confidence"]
        head += ["agreement"] if has_agreement else []
        rows = [
            [
                sample.id,
                str(sample.label),
                sample.class_name,
                f"{sample.confidence:.3f}",
                sample.second_class or "none",
                f"{sample.second_confidence:.3f}",
                *([] if sample.agreement is None else [f"{sample.agreement:.2f}"]),
            ]
            for sample in samples
        ]
        content = card(table(rows, head, "Least certain samples"))
    return f"{heading('Least certain', 'uncertain')}\n{paragraph(_UNCERTAIN_NOTE)}\n{content}"


def _sample_figure(sample: Sample) -> str:
    second = f"or {sample.second_class} {sample.second_confidence:.2f}" if sample.second_class else ""
    number = "" if sample.class_name == str(sample.label) else f" ({sample.label})"
    agreement = "" if sample.agreement is None else f"agreement {sample.agreement:.2f}<br>"
    return (
        f'<figure class="card sample"><img src="{sample.image}" alt="sample {escape(sample.id)}">'
        f"<b>{escape(sample.class_name)}</b>{number} {sample.confidence:.2f}<br>"
        f'<span class="faint">{escape(second)}<br>{agreement}id {escape(sample.id)}</span></figure>'
    )


def _client_counts_section(client_counts: ClientCounts | None) -> str:
    if client_counts is None:
        return ""
    clients, drawn = len(client_counts.counts), len(drawn_clients(client_counts))
    is_small = clients <= _MAX_NAMED_CLIENTS and len(client_counts.class_names) <= _MAX_COLUMNS
    if client_counts.names is not None and is_small:
        return _named_clients_section(client_counts, client_counts.names)
    part = f" {drawn} of {clients:,} clients are drawn, evenly spaced." if drawn < clients else ""
    text = (
        f"{pluralize(clients, 'client')} with {pluralize(int(client_counts.counts.sum()), 'sample')}. One column per "
        "client, one row per class; the size and the shade of a bubble show the number of samples, up to "
        f"{int(client_counts.counts.max()):,}.{part}"
    )
    if client_counts.names is not None and clients <= _MAX_NAMED_CLIENTS:
        text += " Clients: " + ", ".join(f"{index} {name}" for index, name in enumerate(client_counts.names)) + "."
    return f"{heading('Data of the clients', 'clients')}\n{paragraph(text)}\n{card(client_counts_chart(client_counts))}"


def _summary_section(data: RunData) -> str:
    rows = summary_rows(data)
    return f"{heading('Summary', 'summary')}\n{card(definition_table(rows))}" if rows else ""


def _named_clients_section(client_counts: ClientCounts, names: Sequence[str]) -> str:
    rows = [
        [name if name == str(index) else f"{name} ({index})", *(f"{count:,}" for count in counts), f"{sum(counts):,}"]
        for index, (name, counts) in enumerate(zip(names, client_counts.counts.tolist(), strict=True))
    ]
    text = "Samples per client and class, with the number of the client in metrics.jsonl and in messages."
    content = card(table(rows, ["client", *client_counts.class_names, "all"], "Samples per client and class"))
    return f"{heading('Data of the clients', 'clients')}\n{paragraph(text)}\n{content}"
