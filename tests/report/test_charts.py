"""The charts and tables of a run."""

from __future__ import annotations

import re

import numpy as np
import pytest

from mrtf_fedml.report import charts
from mrtf_fedml.report.charts import (
    BLOCK,
    MAX_BARS,
    MAX_CLIENTS,
    MAX_MATRIX_CLASSES,
    MAX_MISTAKES,
    class_bars,
    client_counts_chart,
    confusion_table,
    drawn_clients,
    shorten_names,
)
from mrtf_fedml.report.run_data import Calibration, ClientCounts

from .runs import NOT_SCORED, line


def legend(chart: str | None) -> dict[str, str]:
    """The curves' names and their last values."""
    assert chart is not None
    found = re.findall(r"<i[^>]*></i>([^<]*?) ?(?:<b>([^<]*)</b>)?</span>", chart)
    return dict(found)


def test_accuracy_chart_has_only_measured_curves() -> None:
    metrics = [line(number, acc_ensemble=None, acc_targets=None) for number in range(3)]
    shown = legend(charts.accuracy_chart(metrics, 10))
    assert shown == {"aggregated model": "0.46", "refined model": "0.71", "guessing": ""}
    assert charts.accuracy_chart([line(0, **NOT_SCORED)], 10) is None


def test_accuracy_chart_has_other_accuracies_of_the_algorithm() -> None:
    metrics = [line(number, acc_my_own=0.5 + number / 10) for number in range(3)]
    chart = charts.accuracy_chart(metrics, None)
    assert legend(chart)["my own"] == "0.70"
    assert chart is not None
    assert "line c3" in chart
    assert charts.metric_charts(metrics, {}) == []


def test_accuracy_chart_has_final_model_if_no_curve_is_equal() -> None:
    bare = {"round": 0, "clients": [0], "excluded_clients": {}, "train_loss": 1.0, "acc": 0.4}
    assert legend(charts.accuracy_chart([bare], 4)) == {"final model": "0.40", "guessing": ""}
    assert "final model" not in legend(charts.accuracy_chart([line(0)], None))


def test_metric_charts_has_one_chart_per_metric() -> None:
    metrics = [line(number, mine_norm=2.0 * number, steps=number, note="text", flag=True) for number in range(3)]
    metrics.append(line(3, mine_norm=float("nan"), late=1))
    names = [name for name, _, _ in charts.metric_charts(metrics, {"steps": "server steps"})]
    assert names == ["Mine norm", "Server steps", "Late"]
    assert charts.metric_points(metrics, "mine_norm") == [(1, 0.0), (2, 2.0), (3, 4.0)]


def test_metric_charts_draws_the_standard_error_as_a_band() -> None:
    errors = {"estimate": 0.9, "estimate_stderr": 0.05, "alone_stderr": 0.1}
    metrics = [line(number, **errors) for number in range(3)]
    (name, text, chart), (other, _, plain) = charts.metric_charts(metrics, {})
    assert (name, other) == ("Estimate", "Alone stderr"), "a standard error without its metric has a chart"
    assert "standard error" in text
    assert 'class="band c0"' in chart
    assert "band" not in plain


def test_accuracy_curve_continues_over_unscored_rounds() -> None:
    metrics = [line(number, **({} if number % 2 == 0 else NOT_SCORED)) for number in range(9)]
    chart = charts.accuracy_chart(metrics, None)
    assert chart is not None
    (curve,) = re.findall(r'<path class="line c0" d="([^"]*)"', chart)
    assert (curve.count("M"), curve.count("L")) == (1, 4), "five scored rounds are one curve of five points"


def test_long_curve_is_thinned_and_keeps_its_peaks() -> None:
    metrics = [line(number, mine=1.0 if number == 4321 else 0.5) for number in range(10_000)]
    ((_, _, chart),) = charts.metric_charts(metrics, {})
    (curve,) = re.findall(r'<path class="line c0" d="([^"]*)"', chart)
    assert curve.count("L") <= 402
    tops = [int(place.split()[1]) for place in re.split("[ML]", curve)[1:]]
    assert min(tops) == 0, "the one high point is at the very top"


def test_seconds_chart_is_stacked() -> None:
    chart = charts.seconds_chart([line(0, client_seconds=1.0, server_seconds=3.0)])
    assert chart is not None
    lower, upper = re.findall(r'class="fill[^"]*" d="([^"]*)"', chart)
    assert lower == "M0 1000V750H2000V1000z", "one of four seconds, from the bottom"
    assert upper == "M0 750V0H2000V750z"


def test_loss_chart_without_losses_is_none() -> None:
    assert charts.loss_chart([line(0, train_loss=None)]) is None
    assert charts.seconds_chart([]) is None


def test_charts_use_style_sheet_colours_and_have_labels() -> None:
    chart = charts.seconds_chart([line(0), line(1)])
    assert chart is not None
    assert not re.search(r"#[0-9a-f]{3,6}|rgb", chart)
    assert 'role="img" aria-label="Seconds per round"' in chart


def test_calibration_equals_hand_computed_values() -> None:
    """Two of four predictions at 0.9 are right, one of one at 0.3: ECE = 4/5 * 0.4 + 1/5 * 0.7."""
    calibration = Calibration(np.array([1, 0, 4]), np.array([0.3, np.nan, 0.9]), np.array([1.0, np.nan, 0.5]))
    assert calibration.expected_error == pytest.approx(0.8 * 0.4 + 0.2 * 0.7)
    assert calibration.is_overconfident
    chart = charts.calibration_chart(calibration)
    (columns,) = re.findall(r'class="fill[^"]*" d="([^"]*)"', chart)
    assert columns == "M0 1000V0H667V1000zM1333 1000V500H2000V1000z"


def test_labels_of_vertical_lines_do_not_overlap() -> None:
    metrics = [line(number) for number in range(100)]
    chart = charts.accuracy_chart(metrics, None, resumes=[2, 10, 60, 80])
    assert chart is not None
    notes = re.findall(r'<span class="note( after)?" style="left:([\d.]+)%">resumed</span>', chart)
    assert notes == [(" after", "2.0"), ("", "60.0")]
    assert chart.count('class="mark"') == 4


def test_class_bars_have_names_and_numbers() -> None:
    bars = class_bars("recall", ["cat", "<dog>"], [0.5, float("nan")], ["0.50", "none"], 1.0)
    assert re.findall(r"width:([\d.]+)%", bars) == ["50.0", "0.0"]
    assert "&lt;dog&gt;" in bars
    assert ">none<" in bars


def test_many_classes_are_drawn_as_columns_with_collapsed_names() -> None:
    names = [f"kind {number}" for number in range(MAX_BARS + 1)]
    bars = class_bars("samples", names, [3.0] * len(names), ["3"] * len(names), 3.0)
    assert bars.index("<svg") < bars.index("<details>") < bars.index("kind 7")


def test_shortened_names_stay_different() -> None:
    names = ["a class of some name, 3", "a class of some name, 14", "bird", "a very long name of its own"]
    short = shorten_names(names, 12)
    assert short == ["a clas…me, 3", "a clas…e, 14", "bird", "a very long…"]


def test_small_confusion_matrix_is_shown_completely() -> None:
    table = confusion_table(["cat", "<dog>"], np.array([[3, 1], [0, 0]]))
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", table)
    assert cells == ["3", "1", "", ""]
    assert "&lt;dog&gt;" in table
    assert "0.56" in table


def test_large_confusion_matrix_shows_most_frequent_mistakes() -> None:
    classes = MAX_MATRIX_CLASSES + 1
    confusion = np.eye(classes, dtype=np.int64) * 50
    confusion[4, 7] = 30
    confusion[2, 3] = 20
    table = confusion_table([f"c{number}" for number in range(classes)], confusion)
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", table)
    assert cells == ["c4", "c7", "30", "0.375", "c2", "c3", "20", "0.286"]


def test_number_of_mistakes_is_limited() -> None:
    confusion = np.ones((100, 100), dtype=np.int64)
    table = confusion_table([str(number) for number in range(100)], confusion)
    assert table.count("<tr>") == MAX_MISTAKES + 1


def test_client_counts_chart_has_larger_bubbles_for_more_samples() -> None:
    picture = client_counts_chart(ClientCounts(np.array([[64, 0], [1, 16]]), ["<cat>", "dog"]))
    bubbles = re.findall(r'd="([^"]*)" stroke-width="([\d.]+)"', picture)
    assert [path.count("h0") for path, _ in bubbles] == [1, 1, 1]
    small, middle, large = (float(width) for _, width in bubbles)
    assert [large / middle, large / small] == pytest.approx([2, 8], rel=0.02), "areas as 64, 16 and 1 samples"
    assert "&lt;cat&gt;" in picture


def test_client_counts_chart_has_blocks_and_limits_clients() -> None:
    picture = client_counts_chart(ClientCounts(np.ones((BLOCK + 1, 3), dtype=np.int64), ["a", "b", "c"]))
    assert picture.count("<svg") == 2
    many = ClientCounts(np.ones((MAX_CLIENTS * 5, 2), dtype=np.int64), ["a", "b"])
    shown = drawn_clients(many)
    assert (len(shown), shown[0], shown[-1]) == (MAX_CLIENTS, 0, MAX_CLIENTS * 5 - 1)


def test_client_counts_chart_without_samples() -> None:
    assert "h0" not in client_counts_chart(ClientCounts(np.zeros((2, 2), dtype=np.int64), ["a", "b"]))
