"""The figures of compared runs, from numbers; and the verdicts on them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mrtf_fedml.experiments.plan import ABLATION
from mrtf_fedml.experiments.reproduce import judging, panels
from mrtf_fedml.experiments.reproduce.comparison import Done, Panel, learnt_from
from mrtf_fedml.experiments.reproduce.drawing import save
from mrtf_fedml.experiments.reproduce.parameters import Parameters, Split
from mrtf_fedml.experiments.scores import Row, Spread


def row(label: str, *accuracies: float) -> Row:
    spreads = [Spread(value, 0.01) for value in accuracies]
    mean = Spread(sum(accuracies) / len(accuracies), None)
    curve = list(enumerate(spreads, start=1))
    paths = [list(accuracies)] * 2
    return Row(label, "", 2, spreads[-1], Spread(max(accuracies), None), mean, mean, None, 0, curve, paths)


def done(title: str, **accuracies: tuple[float, ...]) -> Done:
    rows = {label: row(label, *values) for label, values in accuracies.items()}
    panel = Panel("MNIST", title, Parameters("mnist", Split("label", 3)))
    metrics = [
        {"round": 0, "acc": 0.5, "acc_aggregated": 0.6, "acc_ensemble": 0.4, "acc_refined": 0.5},
        {"round": 1, "acc": 0.2, "acc_aggregated": 0.7, "acc_ensemble": 0.4, "acc_refined": None},
    ]
    return Done(panel, "MNIST", title, rows, {"FedDF": [metrics]})


TWO = [
    done("C̄=5", **{"FedAvg": (0.3, 0.5), "FedDF": (0.2, 0.4), "MrTF:tuned": (0.4, 0.6)}),
    done("C̄=3", **{"FedAvg": (0.5, 0.5), "FedDF": (0.2, 0.4), "MrTF:tuned": (0.4, 0.4)}),
]
BARS = [done("C̄=5", **{label: (0.1, 0.1 * place) for place, label in enumerate(ABLATION, start=3)})]


def test_each_figure_is_written_in_three_formats_the_same_each_time(tmp_path: Path) -> None:
    figures = {
        "curves": panels.draw_curves, "stages": panels.draw_stages, "table": lambda two: panels.draw_table("dp", two)
    }  # fmt: skip
    for name, draw in figures.items():
        first = [file.read_bytes() for file in save(draw(TWO), tmp_path / name, ["STAND-IN DATA: digits for MNIST"])]
        again = [file.read_bytes() for file in save(draw(TWO), tmp_path / name, ["STAND-IN DATA: digits for MNIST"])]
        assert first == again
        assert [content[:4] for content in first] == [b"%PDF", b"\x89PNG", b"<?xm"]
        assert b"STAND-IN DATA" in first[2], "the foot is text"
        assert b"Test accuracy" in first[2]
    drawn = save(panels.draw_bars(BARS), tmp_path / "bars", [])
    assert b"ST" in drawn[2].read_bytes()


@pytest.mark.parametrize("number", [1, 2])
def test_nothing_is_cut_off_at_the_edge_of_a_page(tmp_path: Path, number: int) -> None:
    foot = ["Numbers are accuracies after the last round in percent, of one seed: small differences may be chance"]
    labels = [*ABLATION, "MrTF:tuned", "MrTF:released"]
    bars = [done(f"C̄={place}", **dict.fromkeys(labels, (0.1, 0.5))) for place in range(number)]
    curves = [done(f"C̄={place}", **dict.fromkeys(panels._LOOKS, (0.1, 0.5))) for place in range(number)]
    for figure in (panels.draw_bars(bars), panels.draw_curves(curves), panels.draw_table("dp", curves)):
        save(figure, tmp_path, foot)
        page = figure.get_window_extent()
        for text in (*figure.legends, *figure.texts):
            box = text.get_window_extent()
            assert page.x0 <= box.x0
            assert box.x1 <= page.x1
            assert page.y0 <= box.y0
            assert box.y1 <= page.y1


def test_where_the_server_has_few_samples_or_one_frequent_class_luck_is_not_knowledge(tmp_path: Path) -> None:
    for counts, least in (([50] * 10, 0.2), ([9, 91] + [0] * 78, 1.1375), ([1] * 40 + [0] * 22, 0.0759)):
        confusion = [[count] + [0] * (len(counts) - 1) for count in counts]
        (tmp_path / "examination.json").write_text(json.dumps({"confusion": confusion}))
        assert learnt_from(tmp_path) == pytest.approx(least, abs=1e-4)


def test_a_claim_holds_where_it_holds_everywhere() -> None:
    (verdict,) = judging.mrtf_is_best(TWO, ["tuned"])
    assert (verdict.held, verdict.variant) == (False, "tuned")
    assert "in 1 of 2 panels" in verdict.evidence
    assert judging.mrtf_is_best(TWO[:1], ["tuned"])[0].held
    assert not judging.mrtf_ends_highest(TWO, ["tuned"])[0].held
    _, noise = judging.noise_costs_mrtf_less(TWO, ["tuned"])
    assert not noise.held
    assert "FedAvg loses 0.0 points from the least noise to the most, MrTF 20.0" in noise.evidence
    assert [verdict.held for verdict in judging.modules_add_up(BARS, ["paper"])] == [True, True]
    nothing = [done("C̄=5", **{"FedAvg": (0.1,), "FedDF": (0.1,), "MrTF:tuned": (0.12,)})]
    assert judging.mrtf_is_best(nothing, ["tuned"])[0].held is None, "among those that know nothing none is best"
    mixed = judging.mrtf_is_best([TWO[0], *nothing], ["tuned"])[0]
    assert mixed.held, "who knows nothing tells nothing against the others"
    assert "1 more has learnt nothing and cannot tell" in mixed.evidence
    assert judging.mrtf_is_best([*TWO, TWO[0]], ["tuned"], most=True)[0].held
    assert not judging.mrtf_is_best(TWO, ["tuned"], most=True)[0].held
    falling = done("Shakespeare", **{"Scaffold": (0.6, 0.2), "MrTF:paper": (0.5, 0.6), "MrTF:tuned": (0.3, 0.55)})
    assert [one.held for one in judging.mrtf_is_steadier([falling], ["paper", "tuned"])] == [True, False]
    (drawback,) = judging.distilling_does_not_help(TWO, [])
    assert drawback.held
    assert "30.0 points" in drawback.evidence


def test_the_distilled_model_is_the_answer_where_no_other_score_is_kept() -> None:
    assert panels.stage(TWO[0].metrics["FedDF"], "acc_refined") == [(1, 0.5), (2, 0.2)]
    assert panels.stage(TWO[0].metrics["FedDF"], "acc_ensemble") == [(1, 0.4), (2, 0.4)]
    other = [{"round": 0, "acc": 0.1, "acc_refined": 0.25}, {"round": 1, "acc": None}]
    assert panels.stage([*TWO[0].metrics["FedDF"], other], "acc_refined") == [(1, 0.375)], "the mean over seeds"


@pytest.mark.parametrize("label", ["FedAvg", "MrTF:paper", "MrTF:tuned", "MrTF:released"])
def test_no_two_algorithms_look_alike(label: str) -> None:
    others = [name for name in panels._LOOKS if name != label]
    look = panels._look(label)
    for other in others:
        assert look["color"] != panels._look(other)["color"]
        assert look["marker"] != panels._look(other)["marker"]
        # Presets are drawn thick, so that in grey their dashes alone must tell them apart.
        if label.startswith("MrTF") and other.startswith("MrTF"):
            assert look["linestyle"] != panels._look(other)["linestyle"]
