from __future__ import annotations

import re

from mrtf_fedml.report.classes import MOST_BARS, class_bars, shortened


def test_each_class_has_a_bar_with_its_name_and_number() -> None:
    bars = class_bars("recall", ["cat", "<dog>"], [0.5, float("nan")], ["0.50", "none"], 1.0)
    assert re.findall(r"width:([\d.]+)%", bars) == ["50.0", "0.0"]
    assert "&lt;dog&gt;" in bars
    assert ">none<" in bars


def test_many_classes_are_a_skyline_with_the_names_folded_away() -> None:
    names = [f"kind {number}" for number in range(MOST_BARS + 1)]
    bars = class_bars("samples", names, [3.0] * len(names), ["3"] * len(names), 3.0)
    assert bars.index("<svg") < bars.index("<details>") < bars.index("kind 7")


def test_shortened_names_can_still_be_told_apart() -> None:
    names = ["a class of some name, 3", "a class of some name, 14", "bird", "a very long name of its own"]
    short = shortened(names, 12)
    assert short == ["a clas…me, 3", "a clas…e, 14", "bird", "a very long…"]
