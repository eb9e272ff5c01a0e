"""What a run gives back to the program that called it."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..models.positions import ids_of_rows
from ..rounds.judgement_signs import estimate_told
from ..rounds.store import RunStore
from .labeller import Labeller

if TYPE_CHECKING:
    import pandas

#: Rows of a notebook's page that the report takes before it scrolls.
_HEIGHT = 720


class Report:
    """The run told to a person: a notebook shows it, `save` writes it, `html` is its text."""

    def __init__(self, page: str) -> None:
        self.html = page

    def save(self, file: str | Path) -> Path:
        """Write the page; it needs no other file beside it."""
        place = Path(file)
        place.write_text(self.html, encoding="utf-8")
        return place

    def _repr_html_(self) -> str:
        # In a frame of its own: the page's style is not the notebook's.
        framed = html.escape(self.html, quote=True)
        return f'<iframe srcdoc="{framed}" width="100%" height="{_HEIGHT}" style="border: 0"></iframe>'

    def __repr__(self) -> str:
        return f"Report({len(self.html)} letters of HTML; .save(FILE) writes it)"


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """The answer for the server's samples, M of them in C classes, and how it came about.

    Attributes:
        labels: [M], in the caller's own values, or the classes' names.
        probabilities: [M, C], by the plain softmax of the final model.
        classes: the label of each column of `probabilities`.
        ids: the name of each sample.
        model: the final model; it takes samples as they were given.
        metrics: a row per round.
        summary: how the run ended, as summary.json has it.
        warnings: what looks wrong, a sentence each; empty where nothing does, which proves nothing.
        report: the page on the run.
        run_dir: the run's folder; None where none was asked for.
    """

    labels: npt.NDArray[Any]
    probabilities: npt.NDArray[np.float32]
    classes: npt.NDArray[Any]
    ids: list[str]
    model: Labeller
    metrics: pandas.DataFrame
    summary: dict[str, Any]
    warnings: list[str] = field(default_factory=list)
    report: Report = field(default_factory=lambda: Report(""))
    run_dir: Path | None = None

    @property
    def accuracy(self) -> float | None:
        """Of the answer, where true labels were given; else None."""
        return self.summary["accuracy"]

    @property
    def notes(self) -> list[str]:
        """What is worth knowing and nothing wrong, a sentence each."""
        return list(self.summary.get("notes") or [])

    def predict(self, x: Any) -> npt.NDArray[Any]:
        """Labels of more samples of the same kind, by the final model."""
        return self.model.predict(x)

    def table(self) -> pandas.DataFrame:
        """A row per sample: its id, its label and the confidence in it."""
        import pandas

        confidence = self.probabilities.max(axis=1)
        return pandas.DataFrame({"id": self.ids, "label": self.labels, "confidence": confidence})

    def __repr__(self) -> str:
        summary = self.summary
        lines = [
            f"{len(self.labels)} samples labelled in {len(self.classes)} classes by {summary['algorithm']}, "
            f"{summary['rounds']} of {summary['rounds_asked_for']} rounds"
        ]
        if self.accuracy is not None:
            lines.append(f"accuracy {self.accuracy:.4f}")
        elif (estimated := estimate_told(summary)) is not None:
            lines.append(f"estimated accuracy {estimated}")
        lines += [f"note: {sentence}" for sentence in self.notes]
        lines += [f"warning: {sentence}" for sentence in self.warnings]
        return "\n".join(lines)


def result_of(store: RunStore, model: Labeller, classes: Sequence[Any], ids: list[str], keep: bool) -> Result:
    """What the folder of a finished run holds, as objects; `keep` says whether the folder stays."""
    import pandas

    probabilities = np.load(store.path / "probabilities.npy")
    positions = len(probabilities) // len(ids)
    named, summary = np.array(classes), store.read_json("summary.json")
    rounds = pandas.DataFrame(store.read_metrics())
    return Result(
        labels=named[probabilities.argmax(axis=1)],
        probabilities=probabilities,
        classes=named,
        ids=ids_of_rows(ids, None if positions == 1 else positions),
        model=model,
        metrics=rounds.set_index("round") if len(rounds) else rounds,
        summary=summary,
        warnings=list(summary.get("warnings") or []),
        report=Report((store.path / "report.html").read_text(encoding="utf-8")),
        run_dir=store.path if keep else None,
    )
