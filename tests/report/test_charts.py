from __future__ import annotations

import re

import numpy as np

from mrtf_fedml.report import charts
from mrtf_fedml.report.facts import Answer

from .runs import NOT_SCORED, line


def words(svg: str | None) -> list[str]:
    assert svg is not None
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg)


def test_accuracy_draws_what_was_measured_and_nothing_else() -> None:
    metrics = [line(number, acc_ensemble=None, acc_targets=None) for number in range(3)]
    shown = words(charts.accuracy_chart(metrics, 10))
    assert {"plain average", "refined model", "guessing"} <= set(shown)
    assert "targets" not in shown
    assert charts.accuracy_chart([line(0, **NOT_SCORED)], 10) is None


def test_lines_go_on_over_rounds_that_were_not_scored() -> None:
    metrics = [line(number, **({} if number % 2 == 0 else NOT_SCORED)) for number in range(9)]
    svg = charts.accuracy_chart(metrics, None)
    assert svg is not None
    curves = re.findall(r'<path d="([^"]*)"[^>]*stroke: var\(--accent\); stroke-width: 1.8', svg)
    # Five scored rounds are one curve of five points; the other such path is the legend's.
    assert sorted(curve.count("L") for curve in curves)[-1] == 4
    assert all(curve.count("M") == 1 for curve in curves)


def test_colours_are_the_pages_own() -> None:
    svg = charts.seconds_chart([line(0), line(1)])
    assert svg is not None
    assert "var(--accent)" in svg
    assert not re.search(r"#0a0b", svg)
    assert svg.startswith('<svg role="img" aria-label="Seconds a round"')
    assert "http" not in svg


def test_a_hundred_classes_have_names_that_fit() -> None:
    names = [f"a class of number {number}" for number in range(100)]
    answer = Answer([str(index) for index in range(100)], np.eye(100), names)
    shown = [word for word in words(charts.predicted_chart(answer)) if word.startswith("a class")]
    assert 8 <= len(shown) <= 13
    assert all(len(word) <= 14 for word in shown)


def test_names_that_look_like_mathematics_are_written_as_they_are() -> None:
    answer = Answer(["a", "b"], np.eye(2), ["$x$", "\\frac"])
    assert {"$x$", "\\frac"} <= set(words(charts.predicted_chart(answer)))


def test_no_losses_no_chart() -> None:
    assert charts.loss_chart([line(0, local_loss=None)]) is None
    assert charts.seconds_chart([]) is None
