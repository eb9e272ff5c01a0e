from __future__ import annotations

import re

import numpy as np

from mrtf_fedml.report.confusion import MOST_CLASSES, MOST_MISTAKES, confusion_table


def test_a_small_matrix_is_shown_whole() -> None:
    table = confusion_table(["cat", "<dog>"], np.array([[3, 1], [0, 0]]))
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", table)
    assert cells == ["3", "1", "", ""]
    assert "&lt;dog&gt;" in table
    assert "0.56" in table


def test_of_a_large_matrix_the_worst_mistakes_are_shown() -> None:
    classes = MOST_CLASSES + 1
    confusion = np.eye(classes, dtype=np.int64) * 50
    confusion[4, 7] = 30
    confusion[2, 3] = 20
    table = confusion_table([f"c{number}" for number in range(classes)], confusion)
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", table)
    assert cells == ["c4", "c7", "30", "0.375", "c2", "c3", "20", "0.286"]


def test_not_more_mistakes_than_fit() -> None:
    confusion = np.ones((100, 100), dtype=np.int64)
    table = confusion_table([str(number) for number in range(100)], confusion)
    assert table.count("<tr>") == MOST_MISTAKES + 1
