"""The figures of compared runs, from numbers; and the checks on them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.paper import federated, figures
from benchmarks.paper.comparison import Panel, PanelResult, learning_threshold
from benchmarks.paper.experiment import Parameters, Split
from benchmarks.paper.figures import save
from mrtf_fedml.experiments.plan import ABLATION
from mrtf_fedml.experiments.scores import AlgorithmScore, MeanStd


def row(label: str, *accuracies: float) -> AlgorithmScore:
    spreads = [MeanStd(value, 0.01) for value in accuracies]
    mean = MeanStd(sum(accuracies) / len(accuracies), None)
    curve = list(enumerate(spreads, start=1))
    paths = [list(accuracies)] * 2
    return AlgorithmScore(label, "", 2, spreads[-1], MeanStd(max(accuracies), None), mean, mean, None, 0, curve, paths)


def done(title: str, **accuracies: tuple[float, ...]) -> PanelResult:
    rows = {label: row(label, *values) for label, values in accuracies.items()}
    panel = Panel("MNIST", title, Parameters("mnist", Split("label", 3)))
    metrics = [
        {"round": 0, "acc": 0.5, "acc_aggregated": 0.6, "acc_ensemble": 0.4, "acc_refined": 0.5},
        {"round": 1, "acc": 0.2, "acc_aggregated": 0.7, "acc_ensemble": 0.4, "acc_refined": None},
    ]
    return PanelResult(panel, "MNIST", title, rows, {"FedDF": [metrics]})


TWO = [
    done("C̄=5", **{"FedAvg": (0.3, 0.5), "FedDF": (0.2, 0.4), "MrTF:tuned": (0.4, 0.6)}),
    done("C̄=3", **{"FedAvg": (0.5, 0.5), "FedDF": (0.2, 0.4), "MrTF:tuned": (0.4, 0.4)}),
]
BARS = [done("C̄=5", **{label: (0.1, 0.1 * place) for place, label in enumerate(ABLATION, start=3)})]


def test_save_writes_three_formats_reproducibly(tmp_path: Path) -> None:
    drawings = {
        "curves": figures.draw_curves, "stages": figures.draw_stages, "table": lambda two: figures.draw_table("dp", two)
    }  # fmt: skip
    for name, draw in drawings.items():
        first = [file.read_bytes() for file in save(draw(TWO), tmp_path / name, ["STAND-IN DATA: digits for MNIST"])]
        again = [file.read_bytes() for file in save(draw(TWO), tmp_path / name, ["STAND-IN DATA: digits for MNIST"])]
        assert first == again
        assert [content[:4] for content in first] == [b"%PDF", b"\x89PNG", b"<?xm"]
        assert b"STAND-IN DATA" in first[2], "the foot is text"
        assert b"Test accuracy" in first[2]
    drawn = save(figures.draw_bars(BARS), tmp_path / "bars", [])
    assert b"ST" in drawn[2].read_bytes()


@pytest.mark.parametrize("number", [1, 2])
def test_saved_figures_have_no_text_beyond_the_page(tmp_path: Path, number: int) -> None:
    foot = ["Numbers are accuracies after the last round in percent, of one seed: small differences may be chance"]
    labels = [*ABLATION, "MrTF:tuned", "MrTF:released"]
    bars = [done(f"C̄={place}", **dict.fromkeys(labels, (0.1, 0.5))) for place in range(number)]
    curves = [done(f"C̄={place}", **dict.fromkeys(figures._STYLED_ALGORITHMS, (0.1, 0.5))) for place in range(number)]
    for figure in (figures.draw_bars(bars), figures.draw_curves(curves), figures.draw_table("dp", curves)):
        save(figure, tmp_path, foot)
        page = figure.get_window_extent()
        for text in (*figure.legends, *figure.texts):
            box = text.get_window_extent()
            assert page.x0 <= box.x0
            assert box.x1 <= page.x1
            assert page.y0 <= box.y0
            assert box.y1 <= page.y1


def test_learning_threshold_accounts_for_few_samples_and_frequent_classes(tmp_path: Path) -> None:
    for counts, least in (([50] * 10, 0.2), ([9, 91] + [0] * 78, 1.1375), ([1] * 40 + [0] * 22, 0.0759)):
        confusion = [[count] + [0] * (len(counts) - 1) for count in counts]
        (tmp_path / "evaluation.json").write_text(json.dumps({"confusion": confusion}))
        assert learning_threshold(tmp_path) == pytest.approx(least, abs=1e-4)


def test_claims_hold_only_where_they_hold_in_every_panel() -> None:
    (check,) = federated.check_mrtf_best(TWO, ["tuned"])
    assert (check.holds, check.variant) == (False, "tuned")
    assert "in 1 of 2 panels" in check.evidence
    assert federated.check_mrtf_best(TWO[:1], ["tuned"])[0].holds
    assert not federated.check_mrtf_final(TWO, ["tuned"])[0].holds
    _, noise = federated.check_noise(TWO, ["tuned"])
    assert not noise.holds
    assert "FedAvg loses 0.0 points from the least noise to the most, MrTF 20.0" in noise.evidence
    assert [check.holds for check in federated.check_modules(BARS, ["paper"])] == [True, True]
    nothing = [done("C̄=5", **{"FedAvg": (0.1,), "FedDF": (0.1,), "MrTF:tuned": (0.12,)})]
    assert federated.check_mrtf_best(nothing, ["tuned"])[0].holds is None, "among those that know nothing none is best"
    mixed = federated.check_mrtf_best([TWO[0], *nothing], ["tuned"])[0]
    assert mixed.holds, "an untrained method does not contradict the others"
    assert "1 more has learnt nothing and cannot tell" in mixed.evidence
    assert federated.check_mrtf_best([*TWO, TWO[0]], ["tuned"], most=True)[0].holds
    assert not federated.check_mrtf_best(TWO, ["tuned"], most=True)[0].holds
    falling = done("Shakespeare", **{"Scaffold": (0.6, 0.2), "MrTF:paper": (0.5, 0.6), "MrTF:tuned": (0.3, 0.55)})
    assert [one.holds for one in federated.check_mrtf_steadier([falling], ["paper", "tuned"])] == [True, False]
    (drawback,) = federated.check_distillation(TWO, [])
    assert drawback.holds
    assert "30.0 points" in drawback.evidence


def test_stage_accuracies_of_the_refined_model_fall_back_to_acc() -> None:
    assert figures.stage_accuracies(TWO[0].metrics["FedDF"], "acc_refined") == [(1, 0.5), (2, 0.2)]
    assert figures.stage_accuracies(TWO[0].metrics["FedDF"], "acc_ensemble") == [(1, 0.4), (2, 0.4)]
    other = [{"round": 0, "acc": 0.1, "acc_refined": 0.25}, {"round": 1, "acc": None}]
    mean = figures.stage_accuracies([*TWO[0].metrics["FedDF"], other], "acc_refined")
    assert mean == [(1, 0.375)], "the mean over seeds"


@pytest.mark.parametrize("label", ["FedAvg", "MrTF:paper", "MrTF:tuned", "MrTF:released"])
def test_line_styles_differ_between_algorithms(label: str) -> None:
    others = [name for name in figures._STYLED_ALGORITHMS if name != label]
    look = figures._line_style(label)
    for other in others:
        assert look["color"] != figures._line_style(other)["color"]
        assert look["marker"] != figures._line_style(other)["marker"]
        # Presets are drawn thick, so in grey only their dashes distinguish them.
        if label.startswith("MrTF") and other.startswith("MrTF"):
            assert look["linestyle"] != figures._line_style(other)["linestyle"]
