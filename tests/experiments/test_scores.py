"""The numbers of a comparison, computed by hand, and their tables."""

from __future__ import annotations

import csv
import io
import math
import re
from typing import Any

import pytest

from mrtf_fedml.errors import UserError
from mrtf_fedml.experiments import figures, report
from mrtf_fedml.experiments.plan import Trial
from mrtf_fedml.experiments.report import comparison_page
from mrtf_fedml.experiments.scores import AlgorithmScore, WindowCount, count_windows_below, score_trials

RUNS: dict[tuple[str, int, str], list[float | None]] = {
    ("A", 0, ""): [0.2, 0.8, 0.6],
    ("A", 1, ""): [0.4, 0.6, 0.8],
    ("B", 0, ""): [0.1, None, 0.3],
    ("B", 1, ""): [0.1, None, 0.9],
}


def rows(runs: Any = None, target: float | None = 0.7) -> list[AlgorithmScore]:
    runs = runs or RUNS
    trials = [Trial(label, seed, point, {}, f"{label}{seed}{point}") for label, seed, point in runs]

    def read(trial: Trial) -> list[dict[str, Any]]:
        path = runs[trial.label, trial.seed, trial.point]
        return [{"round": number, "acc": accuracy} for number, accuracy in enumerate(path)]

    return score_trials(trials, read, target)


def test_scores_equal_values_by_hand() -> None:
    first, second = rows()
    assert (first.final.mean, first.best.mean, first.mean.mean) == pytest.approx((0.7, 0.8, (1.6 / 3 + 0.6) / 2))
    assert first.final.std == pytest.approx(0.02**0.5), "the sample's: (0.1^2 + 0.1^2) / 1"
    assert first.rounds_to_target is not None
    assert (first.rounds_to_target.mean, first.seeds_reached) == (2.5, 2)
    assert second.rounds_to_target is not None
    assert (second.rounds_to_target.mean, second.seeds_reached) == (3.0, 1)
    assert [number for number, _ in second.curve] == [1, 3], "rounds without a score are excluded"


def test_run_that_ended_early_keeps_its_last_accuracy() -> None:
    long, short = rows({("A", 0, ""): [0.1, 0.2, 0.3, 0.4], ("B", 0, ""): [0.2, 0.3]})
    assert short.accuracies == [[0.2, 0.3, 0.3, 0.3]]
    assert [number for number, _ in short.curve] == [1, 2, 3, 4]
    assert count_windows_below(short, long) == WindowCount(1, 0, None)


def test_grid_shows_the_point_with_the_best_mean_final_accuracy() -> None:
    runs = {("A", seed, f"lr={lr}"): [0.9, lr + seed / 10] for seed in (0, 1) for lr in (0.3, 0.5, 0.4)}
    (row,) = rows(runs)
    assert row.point == "lr=0.5"
    table = report.table_cells([row], None)
    assert table[0][-1] == "chosen by labels"
    assert any("labels of the server's set chose it" in note for note in report.table_notes([row], None))


def test_score_trials_without_accuracies_is_refused() -> None:
    with pytest.raises(UserError, match="has no labels"):
        rows({("A", 0, ""): [None, None]})


def test_text_csv_and_markdown_tables_have_the_same_values() -> None:
    both = rows()
    table = report.table_cells(both, 0.7)
    assert table[1] == ["A", "0.7000 ± 0.1414", "0.8000 ± 0.0000", "0.5667 ± 0.0471", "0.5667 ± 0.0471", "2.5 ± 0.7"]
    assert table[2][-1] == "3.0 (1 of 2)"
    assert report.format_markdown(table).splitlines()[2].startswith("| A | 0.7000 ± 0.1414 |")
    assert report.format_text(table).splitlines()[2].split()[0] == "A"
    (line, _) = csv.DictReader(io.StringIO(report.format_csv(both, 0.7)))
    assert float(line["final_mean"]) == pytest.approx(0.7)
    assert float(line["rounds_to_target_mean"]) == 2.5
    assert report.table_cells(rows(target=0.99), 0.99)[1][-1] == "never"
    alone = rows({("A", 0, ""): [0.5]}, None)
    assert report.table_cells(alone, None)[1] == ["A", "0.5000", "0.5000", "0.5000", "0.5000"]
    assert "One seed" in report.table_notes(alone, None)[0]


def test_last_ten_and_windows_below_equal_values_by_hand() -> None:
    falls, rises = [0.9] * 5 + [0.3] * 10, [0.4] * 15
    runs = {("FedAvg", 0, ""): falls, ("MrTF", 0, ""): rises, ("FedDF", 0, ""): falls}
    average, refined, same = rows(runs, None)
    assert (average.last.mean, refined.last.mean) == pytest.approx((0.3, 0.4))
    # The first five windows hold 5, 4, 3, 2 and 1 rounds of 0.9 and otherwise 0.3: means 0.9, 0.78, 0.66, 0.54, 0.42.
    assert count_windows_below(refined, average) == WindowCount(11, 5, None), "one seed knows no noise"
    table = report.table_cells([average, refined, same], None)
    assert [line[-1] for line in table] == ["below FedAvg", "", "5 of 11", "0 of 11"]
    assert any("windows of 5" in note for note in report.table_notes([average, refined], None))


def test_windows_below_of_a_short_run_is_one_window() -> None:
    worse, better = rows({("A", 0, ""): [0.1, 0.2], ("B", 0, ""): [0.15, 0.16]}, None)
    assert count_windows_below(worse, better) == WindowCount(1, 1, None)
    assert count_windows_below(better, worse) == WindowCount(1, 0, None)


def test_windows_beyond_noise_equal_values_by_hand() -> None:
    # Differences in the first window of five rounds -0.4, -0.3, -0.2: mean -0.3, sd 0.1, error 0.1 / sqrt(3) = 0.058,
    # and 0.3 is more than two of them. In the second -0.7, 0.1, 0.0: mean -0.2, sd 0.436, error 0.252: noise.
    first, second = [-0.4, -0.3, -0.2], [-0.7, 0.1, 0.0]
    runs: dict[tuple[str, int, str], list[float]] = {}
    for seed in range(3):
        # The last round's difference moves the window's mean from the first to the second.
        last = first[seed] + 5 * (second[seed] - first[seed])
        runs["FedAvg", seed, ""] = [0.5] * 6
        runs["MrTF", seed, ""] = [*([0.5 + first[seed]] * 5), 0.5 + last]
    average, refined = rows(runs, None)
    assert count_windows_below(refined, average) == WindowCount(2, 2, 1)
    assert count_windows_below(average, refined) == WindowCount(2, 0, 0)
    table = report.table_cells([average, refined], None)
    assert table[2][-1] == "2 of 2, 1 beyond noise"
    assert any("two standard errors" in note for note in report.table_notes([average, refined], None))


def test_windows_below_with_equal_differences_are_all_beyond_noise() -> None:
    runs = {(name, seed, ""): [0.5 + seed / 4 - gap] for seed in (0, 1) for name, gap in (("A", 0.0), ("B", 0.25))}
    better, worse = rows(runs, None)
    assert count_windows_below(worse, better) == WindowCount(1, 1, 1)


def test_windows_below_ignores_rounding() -> None:
    # The same accuracies in another order of the rounds: their differences' sum is some 1e-17 in place of 0.
    first, second = [0.2, 0.4, 0.1], [0.1, 0.2, 0.4]
    one, other = rows({("A", 0, ""): first, ("B", 0, ""): second}, None)
    assert math.fsum(a - b for a, b in zip(first, second, strict=True)) < 0, "or there is nothing to forgive"
    assert count_windows_below(one, other).below == count_windows_below(other, one).below == 0


def test_figures_are_png_and_reproducible() -> None:
    for draw in (figures.draw_curves, figures.draw_bars):
        assert draw(rows(), "t").startswith(b"\x89PNG")
        assert draw(rows(), "t") == draw(rows(), "t")


def test_comparison_page_is_self_contained() -> None:
    drawn = {"curves": figures.curves_chart(rows()), "bars": figures.bars_chart(rows())}
    page = comparison_page("<A>", report.table_cells(rows(), None), ["note"], drawn, "mrtf compare", {"a": {"b": 1}})
    assert "&lt;A&gt;" in page
    assert "<img" not in page
    assert not re.search("https?:|url\\(", page)
    assert page.count('class="band') == 2, "one standard deviation around each curve"
    assert "0.700 ± 0.141" in page
    alone = figures.curves_chart(rows({("A", 0, ""): [0.5, 0.6]}))
    assert 'class="band' not in alone
