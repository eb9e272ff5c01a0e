"""docs/tutorials/label.ipynb, its code cells run one after another in one process, as a notebook's kernel runs them."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).parents[2] / "docs" / "tutorials" / "label.ipynb"


def shown(cell: str, names: dict[str, Any]) -> Any:
    """Run a cell; what its last line is worth, if it is an expression."""
    tree = ast.parse(cell)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, str(NOTEBOOK), "exec"), names)
    return None if last is None else eval(compile(ast.Expression(last.value), str(NOTEBOOK), "eval"), names)


def test_notebook_cells_run_and_show_what_the_text_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    cells = [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]
    names: dict[str, Any] = {"__name__": "__main__"}
    outputs = [shown("".join(cell["source"]), names) for cell in cells]
    assert len(cells) == 10
    assert names["result"].warnings == []
    assert names["checked"].accuracy > 0.9
    assert set(names["result"].predict(names["x"][:5])) <= {"benign", "malignant"}
    assert "<iframe" in outputs[4]._repr_html_()
    assert "80 samples but 79 labels" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == [], "no file is written without a request"
