"""What goes by on a terminal: the answer's own accuracy first, and never more than a line holds."""

from __future__ import annotations

from mrtf_fedml.rounds.progress import shown, told


def test_a_line_fits_and_begins_with_what_matters() -> None:
    line = {f"acc_{name}": 0.5 for name in ("aggregated", "ensemble", "targets", "refined")}
    words = shown({**line, "local_loss": 12.5, **{f"a_long_measure_{n}": 1.0 for n in range(9)}})
    assert list(words)[:4] == ["refined", "aggregated", "ensemble", "loss"]
    text = told(4, 1500, words)
    assert text.startswith("round    5/1500  refined 0.500  aggregated 0.500")
    assert len(text) <= 80
