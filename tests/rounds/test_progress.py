"""What goes by on a terminal: the answer's accuracy first, in lines that fit, and all that an algorithm measures."""

from __future__ import annotations

from mrtf_fedml.rounds.progress import every_runs_numbers, round_text

EVERY_RUNS = {f"acc_{name}": 0.5 for name in ("aggregated", "ensemble", "targets", "refined")}
OWN = {f"a_long_measure_{number}": 1.0 for number in range(9)}


def test_lines_fit_and_begin_with_what_matters() -> None:
    line = {"round": 4, **EVERY_RUNS, "local_loss": 12.5, **OWN}
    assert list(every_runs_numbers(line)) == ["refined", "aggregated", "ensemble", "loss"]
    lines = round_text(line, 1500).splitlines()
    assert lines[0].startswith("round    5/1500  refined 0.500  aggregated 0.500")
    assert max(len(text) for text in lines) <= 80
    assert all(text.startswith(" " * len("round    5/1500  ")) for text in lines[1:])


def test_an_answer_that_is_not_the_refined_model_comes_first() -> None:
    line = {"round": 4, "acc": 0.75, **EVERY_RUNS, "refined_share": 0.5}
    assert list(every_runs_numbers(line).items())[:2] == [("answer", "0.750"), ("refined", "0.500")]
    assert "answer" not in every_runs_numbers({**line, "refined_share": 1.0})


def test_what_an_algorithm_measures_is_never_left_out() -> None:
    line = {"round": 0, **EVERY_RUNS, "estimated_accuracy": 0.4, "local_loss": 1.0, "acc_votes": 0.25, **OWN}
    shown = round_text({**line, "w" * 90: 2}, 10)
    for word in ("votes 0.250", *(f"{name} 1.000" for name in OWN), "w" * 90 + " 2"):
        assert word in shown


def test_how_an_estimate_came_about_is_for_the_files() -> None:
    told = {"estimated_accuracy": 0.9, "estimated_error": 0.02, "estimated_flattery": 0.05, "estimated_unweighed": 0.91}
    line = {"round": 0, **EVERY_RUNS, **told, "estimated_unweighed_error": 0.01}
    shown = round_text(line, 10)
    assert "estimated 0.90 ± 0.02" in shown
    assert "flattery" not in shown
    assert "unweighed" not in shown
