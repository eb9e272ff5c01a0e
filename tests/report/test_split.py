from __future__ import annotations

import re

import numpy as np
import pytest

from mrtf_fedml.report.facts import Split
from mrtf_fedml.report.split import BLOCK, MOST_CLIENTS, shown_clients, split_picture


def test_a_bubble_for_each_client_and_class_larger_for_more() -> None:
    picture = split_picture(Split(np.array([[64, 0], [1, 16]]), ["<cat>", "dog"]))
    bubbles = re.findall(r'd="([^"]*)" stroke-width="([\d.]+)"', picture)
    assert [path.count("h0") for path, _ in bubbles] == [1, 1, 1]
    small, middle, large = (float(width) for _, width in bubbles)
    assert [large / middle, large / small] == pytest.approx([2, 8], rel=0.02), "areas as 64, 16 and 1 samples"
    assert "&lt;cat&gt;" in picture


def test_clients_come_in_blocks_and_of_many_some_are_drawn() -> None:
    picture = split_picture(Split(np.ones((BLOCK + 1, 3), dtype=np.int64), ["a", "b", "c"]))
    assert picture.count("<svg") == 2
    many = Split(np.ones((MOST_CLIENTS * 5, 2), dtype=np.int64), ["a", "b"])
    shown = shown_clients(many)
    assert (len(shown), shown[0], shown[-1]) == (MOST_CLIENTS, 0, MOST_CLIENTS * 5 - 1)


def test_a_client_without_samples_and_a_split_without_any_are_drawn() -> None:
    assert "h0" not in split_picture(Split(np.zeros((2, 2), dtype=np.int64), ["a", "b"]))
