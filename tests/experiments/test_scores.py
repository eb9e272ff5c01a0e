"""The numbers of a comparison, worked by hand, and the tables that tell them."""

from __future__ import annotations

import csv
import io
import math
import re
from typing import Any

import pytest

from mrtf_fedml.errors import UserError
from mrtf_fedml.experiments import charts, figures, tables
from mrtf_fedml.experiments.page import comparison_page
from mrtf_fedml.experiments.plan import Trial
from mrtf_fedml.experiments.scores import Below, Row, rows_of, windows_below

RUNS: dict[tuple[str, int, str], list[float | None]] = {
    ("A", 0, ""): [0.2, 0.8, 0.6],
    ("A", 1, ""): [0.4, 0.6, 0.8],
    ("B", 0, ""): [0.1, None, 0.3],
    ("B", 1, ""): [0.1, None, 0.9],
}


def rows(runs: Any = None, target: float | None = 0.7) -> list[Row]:
    runs = runs or RUNS
    trials = [Trial(label, seed, point, {}, f"{label}{seed}{point}") for label, seed, point in runs]

    def read(trial: Trial) -> list[dict[str, Any]]:
        path = runs[trial.label, trial.seed, trial.point]
        return [{"round": number, "acc": accuracy} for number, accuracy in enumerate(path)]

    return rows_of(trials, read, target)


def test_final_best_mean_and_rounds_by_hand() -> None:
    first, second = rows()
    assert (first.final.mean, first.best.mean, first.mean.mean) == pytest.approx((0.7, 0.8, (1.6 / 3 + 0.6) / 2))
    assert first.final.deviation == pytest.approx(0.02**0.5), "the sample's: (0.1^2 + 0.1^2) / 1"
    assert first.rounds is not None
    assert (first.rounds.mean, first.reached) == (2.5, 2)
    assert second.rounds is not None
    assert (second.rounds.mean, second.reached) == (3.0, 1)
    assert [number for number, _ in second.curve] == [1, 3], "rounds that were not scored are left out"


def test_the_grids_best_point_is_chosen_by_the_mean_final_accuracy() -> None:
    runs = {("A", seed, f"lr={lr}"): [0.9, lr + seed / 10] for seed in (0, 1) for lr in (0.3, 0.5, 0.4)}
    (row,) = rows(runs)
    assert row.point == "lr=0.5"
    table = tables.cells([row], None)
    assert table[0][-1] == "chosen by labels"
    assert any("labels of the server's set chose it" in note for note in tables.notes([row], None))


def test_without_labels_there_is_nothing_to_compare() -> None:
    with pytest.raises(UserError, match="has no labels"):
        rows({("A", 0, ""): [None, None]})


def test_the_tables_tell_the_same() -> None:
    both = rows()
    table = tables.cells(both, 0.7)
    assert table[1] == ["A", "0.7000 ± 0.1414", "0.8000 ± 0.0000", "0.5667 ± 0.0471", "0.5667 ± 0.0471", "2.5 ± 0.7"]
    assert table[2][-1] == "3.0 (1 of 2)"
    assert tables.as_markdown(table).splitlines()[2].startswith("| A | 0.7000 ± 0.1414 |")
    assert tables.as_text(table).splitlines()[2].split()[0] == "A"
    (line, _) = csv.DictReader(io.StringIO(tables.as_csv(both, 0.7)))
    assert float(line["final_mean"]) == pytest.approx(0.7)
    assert float(line["rounds_to_target_mean"]) == 2.5
    assert tables.cells(rows(target=0.99), 0.99)[1][-1] == "never"
    alone = rows({("A", 0, ""): [0.5]}, None)
    assert tables.cells(alone, None)[1] == ["A", "0.5000", "0.5000", "0.5000", "0.5000"]
    assert "One seed" in tables.notes(alone, None)[0]


def test_the_last_ten_rounds_and_the_windows_below_fedavg_by_hand() -> None:
    falls, rises = [0.9] * 5 + [0.3] * 10, [0.4] * 15
    runs = {("FedAvg", 0, ""): falls, ("MrTF", 0, ""): rises, ("FedDF", 0, ""): falls}
    average, refined, same = rows(runs, None)
    assert (average.last.mean, refined.last.mean) == pytest.approx((0.3, 0.4))
    # The first five windows hold 5, 4, 3, 2 and 1 rounds of 0.9 beside 0.3: means 0.9, 0.78, 0.66, 0.54, 0.42.
    assert windows_below(refined, average) == Below(11, 5, None), "one seed knows no noise"
    table = tables.cells([average, refined, same], None)
    assert [line[-1] for line in table] == ["below FedAvg", "", "5 of 11", "0 of 11"]
    assert any("windows of 5" in note for note in tables.notes([average, refined], None))


def test_a_short_run_is_one_window() -> None:
    worse, better = rows({("A", 0, ""): [0.1, 0.2], ("B", 0, ""): [0.15, 0.16]}, None)
    assert windows_below(worse, better) == Below(1, 1, None)
    assert windows_below(better, worse) == Below(1, 0, None)


def test_what_is_beyond_noise_by_hand() -> None:
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
    assert windows_below(refined, average) == Below(2, 2, 1)
    assert windows_below(average, refined) == Below(2, 0, 0)
    table = tables.cells([average, refined], None)
    assert table[2][-1] == "2 of 2, 1 beyond noise"
    assert any("two standard errors" in note for note in tables.notes([average, refined], None))


def test_all_windows_are_beyond_noise_where_the_seeds_differ_alike() -> None:
    runs = {(name, seed, ""): [0.5 + seed / 4 - gap] for seed in (0, 1) for name, gap in (("A", 0.0), ("B", 0.25))}
    better, worse = rows(runs, None)
    assert windows_below(worse, better) == Below(1, 1, 1)


def test_sums_that_differ_by_rounding_alone_are_not_below() -> None:
    # The same accuracies in another order of the rounds: their differences' sum is some 1e-17 in place of 0.
    first, second = [0.2, 0.4, 0.1], [0.1, 0.2, 0.4]
    one, other = rows({("A", 0, ""): first, ("B", 0, ""): second}, None)
    assert math.fsum(a - b for a, b in zip(first, second, strict=True)) < 0, "or there is nothing to forgive"
    assert windows_below(one, other).below == windows_below(other, one).below == 0


def test_figures_are_pictures_that_come_out_the_same() -> None:
    for draw in (figures.curves, figures.bars):
        assert draw(rows(), "t").startswith(b"\x89PNG")
        assert draw(rows(), "t") == draw(rows(), "t")


def test_the_page_draws_its_charts_itself_and_needs_nothing_beside_it() -> None:
    drawn = {"curves": charts.curves(rows()), "bars": charts.bars(rows())}
    page = comparison_page("<A>", tables.cells(rows(), None), ["note"], drawn, "mrtf compare", {"a": {"b": 1}})
    assert "&lt;A&gt;" in page
    assert "<img" not in page
    assert not re.search("https?:|url\\(", page)
    assert page.count('class="band') == 2, "one standard deviation around each curve"
    assert "0.700 ± 0.141" in page
    alone = charts.curves(rows({("A", 0, ""): [0.5, 0.6]}))
    assert 'class="band' not in alone
