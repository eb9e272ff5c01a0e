from __future__ import annotations

import re

import numpy as np
import pytest

from mrtf_fedml.report import charts
from mrtf_fedml.report.facts import Calibration

from .runs import NOT_SCORED, line


def legend(chart: str | None) -> dict[str, str]:
    """The curves' names and their last values."""
    assert chart is not None
    found = re.findall(r"<i[^>]*></i>([^<]*?) ?(?:<b>([^<]*)</b>)?</span>", chart)
    return dict(found)


def test_accuracy_draws_what_was_measured_and_nothing_else() -> None:
    metrics = [line(number, acc_ensemble=None, acc_targets=None) for number in range(3)]
    shown = legend(charts.accuracy_chart(metrics, 10))
    assert shown == {"plain average": "0.46", "refined model": "0.71", "guessing": ""}
    assert charts.accuracy_chart([line(0, **NOT_SCORED)], 10) is None


def test_accuracies_that_an_algorithm_names_itself_are_drawn_beside_the_known() -> None:
    metrics = [line(number, acc_my_own=0.5 + number / 10) for number in range(3)]
    chart = charts.accuracy_chart(metrics, None)
    assert legend(chart)["my own"] == "0.70"
    assert chart is not None
    assert "line c3" in chart
    assert charts.measured_charts(metrics) == []


def test_the_answers_own_accuracy_is_drawn_where_it_is_no_other() -> None:
    bare = {"round": 0, "clients": [0], "left_out": {}, "local_loss": 1.0, "acc": 0.4}
    assert legend(charts.accuracy_chart([bare], 4)) == {"the model that answers": "0.40", "guessing": ""}
    assert "the model that answers" not in legend(charts.accuracy_chart([line(0)], None))


def test_other_numbers_have_a_chart_each() -> None:
    metrics = [line(number, mine_norm=2.0 * number, steps=number, note="text", flag=True) for number in range(3)]
    metrics.append(line(3, mine_norm=float("nan"), late=1))
    names = [name for name, _ in charts.measured_charts(metrics)]
    assert names == ["mine norm", "steps", "late"]
    assert charts.points_of(metrics, "mine_norm") == [(1, 0.0), (2, 2.0), (3, 4.0)]


def test_lines_go_on_over_rounds_that_were_not_scored() -> None:
    metrics = [line(number, **({} if number % 2 == 0 else NOT_SCORED)) for number in range(9)]
    chart = charts.accuracy_chart(metrics, None)
    assert chart is not None
    (curve,) = re.findall(r'<path class="line c0" d="([^"]*)"', chart)
    assert (curve.count("M"), curve.count("L")) == (1, 4), "five scored rounds are one curve of five points"


def test_a_long_run_is_drawn_with_few_points_and_keeps_its_peaks() -> None:
    metrics = [line(number, mine=1.0 if number == 4321 else 0.5) for number in range(10_000)]
    ((_, chart),) = charts.measured_charts(metrics)
    (curve,) = re.findall(r'<path class="line c0" d="([^"]*)"', chart)
    assert curve.count("L") <= 402
    tops = [int(place.split()[1]) for place in re.split("[ML]", curve)[1:]]
    assert min(tops) == 0, "the one high point is at the very top"


def test_seconds_are_stacked() -> None:
    chart = charts.seconds_chart([line(0, seconds_local=1.0, seconds_refine=3.0)])
    assert chart is not None
    lower, upper = re.findall(r'class="fill[^"]*" d="([^"]*)"', chart)
    assert lower == "M0 1000V750H2000V1000z", "one of four seconds, from the bottom"
    assert upper == "M0 750V0H2000V750z"


def test_no_losses_no_chart() -> None:
    assert charts.loss_chart([line(0, local_loss=None)]) is None
    assert charts.seconds_chart([]) is None
    without = {key: value for key, value in line(0).items() if key != "local_weight"}
    assert "u_t" not in str(charts.loss_chart([without]))


def test_colours_are_the_pages_own_and_the_chart_is_described() -> None:
    chart = charts.seconds_chart([line(0), line(1)])
    assert chart is not None
    assert not re.search(r"#[0-9a-f]{3,6}|rgb", chart)
    assert 'role="img" aria-label="Seconds per round"' in chart


def test_calibration_by_hand() -> None:
    """Two of four answers at 0.9 right, one of one at 0.3: ECE = 4/5 * 0.4 + 1/5 * 0.7."""
    calibration = Calibration(np.array([1, 0, 4]), np.array([0.3, np.nan, 0.9]), np.array([1.0, np.nan, 0.5]))
    assert calibration.expected_error == pytest.approx(0.8 * 0.4 + 0.2 * 0.7)
    assert calibration.is_overconfident
    chart = charts.calibration_chart(calibration)
    (columns,) = re.findall(r'class="fill[^"]*" d="([^"]*)"', chart)
    assert columns == "M0 1000V0H667V1000zM1333 1000V500H2000V1000z"


def test_the_name_of_an_upright_line_stays_in_the_frame_and_off_its_neighbours() -> None:
    metrics = [line(number) for number in range(100)]
    chart = charts.accuracy_chart(metrics, None, resumed=[2, 10, 60, 80])
    assert chart is not None
    notes = re.findall(r'<span class="note( after)?" style="left:([\d.]+)%">resumed</span>', chart)
    assert notes == [(" after", "2.0"), ("", "60.0")]
    assert chart.count('class="mark"') == 4
