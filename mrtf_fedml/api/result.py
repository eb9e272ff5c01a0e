"""The result of a run, as objects."""

from __future__ import annotations

import html
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn

from ..data.in_memory import to_array
from ..data.preprocessing import Preprocessing, to_samples
from ..data.sources.source import is_text
from ..diagnostics.new_samples import NewSampleTrust
from ..errors import UserError
from ..models import predict_logits
from ..models.outputs import row_ids
from ..training.evaluation import format_estimate
from ..training.run_directory import RunDirectory

if TYPE_CHECKING:
    import pandas


class Classifier(nn.Module):
    """A trained network together with the preprocessing of its run: it accepts raw samples.

    Attributes:
        net: the network alone; it expects preprocessed samples: standardised, images channels first.
        classes: the label of each output.
    """

    def __init__(
        self,
        net: nn.Module,
        preprocessing: Preprocessing,
        input_shape: Sequence[int],
        classes: Sequence[Any],
        kept: NewSampleTrust | None = None,
    ) -> None:
        super().__init__()
        self.net = net.cpu().eval()
        self.classes = np.array(classes)
        self._preprocessing = preprocessing
        self._input_shape = tuple(input_shape)
        self._kept = kept or NewSampleTrust()

    def preprocess(self, x: Any) -> Tensor:
        """The network's inputs for these samples [N, ...]."""
        columns = self._preprocessing.columns
        names = self._preprocessing.features if columns is None else columns.names
        array = to_array(x, "x", names, columns)
        if is_text(array) != (self._preprocessing.kind == "text"):
            expected = "a list of strings" if self._preprocessing.kind == "text" else "numbers"
            raise UserError(f"x has another kind of samples than the training data; give {expected}")
        is_pixels = array.dtype == np.uint8 and array.ndim >= 3
        if is_pixels != (self._preprocessing.kind == "pixels"):
            expected = "uint8 images" if self._preprocessing.kind == "pixels" else "values other than uint8 images"
            raise UserError(f"x has another kind of samples than the training data; give {expected}")
        samples = to_samples(array, self._preprocessing.kind == "tokens")
        shape = self._input_shape if self._preprocessing.encoder is None else self._preprocessing.sample_shape
        if tuple(samples.shape[1:]) != shape:
            raise UserError(
                f"a sample of x has shape {tuple(samples.shape[1:])} but the model was trained on {shape}; give "
                "samples of the same kind"
            )
        return self._preprocessing.apply(samples)

    def forward(self, x: Any) -> Tensor:
        """Logits [N, C]."""
        logits: Tensor = self.net(self.preprocess(x))
        return logits

    def predict_proba(self, x: Any) -> npt.NDArray[np.float32]:
        """Class probabilities, [N, C]."""
        return predict_logits(self.net, self.preprocess(x)).float().softmax(dim=1).numpy()

    def predict(self, x: Any) -> npt.NDArray[Any]:
        """The label of each sample, [N], in the values of the caller's labels.

        A Python warning is issued for each sentence that `check` returns.
        """
        _, logits, found = self._predict_and_check(x)
        for sentence in found or []:
            warnings.warn(sentence, UserWarning, stacklevel=2)
        return self.classes[logits.argmax(dim=1).numpy()]

    def predict_table(self, x: Any) -> pandas.DataFrame:
        """One row per sample: label, confidence, and how far the label can be trusted, as in predictions.csv.

        The latter where the run has calibrated its confidences and `check` finds no difference to the run's samples;
        a Python warning is issued for each difference. Samples that look like those that were of no client's class in
        the run have the decision `unknown`.
        """
        import pandas

        inputs, logits, found = self._predict_and_check(x)
        for sentence in found or []:
            warnings.warn(sentence, UserWarning, stacklevel=2)
        probabilities = logits.float().softmax(dim=1)
        trust = self._kept.assess(inputs, probabilities, found)
        labels = self.classes[logits.argmax(dim=1).numpy()]
        return pandas.DataFrame(
            {
                "label": labels,
                "confidence": probabilities.max(dim=1).values.numpy(),
                "probability_correct": trust.probability_correct.numpy(),
                "prediction_set": trust.format_sets([str(name) for name in self.classes]),
                "decision": trust.decisions([str(label) for label in labels]),
            }
        )

    def check(self, x: Any) -> list[str]:
        """One sentence per difference between these samples and those that the run has labelled; empty if none."""
        return self._predict_and_check(x)[2] or []

    def _predict_and_check(self, x: Any) -> tuple[Tensor, Tensor, list[str] | None]:
        """Preprocessed samples, logits [N, C], and differences to the run's samples; None if nothing is compared."""
        inputs = self.preprocess(x)
        logits = predict_logits(self.net, inputs).cpu()
        names = [str(name) for name in self.classes]
        return inputs, logits, self._kept.find_differences(inputs, logits.argmax(dim=1), names, self._preprocessing)


#: The columns of predictions.csv that say how far a label can be trusted, with their types.
_TRUST_COLUMNS = {"probability_correct": float, "prediction_set": str, "decision": str}
#: Height of the report in a notebook, in pixels.
_HEIGHT = 720


class Report:
    """The HTML report of a run: a notebook shows it, `save` writes it, `html` is its source."""

    def __init__(self, page: str) -> None:
        self.html = page

    def save(self, file: str | Path) -> Path:
        """Write the page, which is self-contained, and return its path."""
        path = Path(file)
        path.write_text(self.html, encoding="utf-8")
        return path

    def _repr_html_(self) -> str:
        # In a frame: the page's style must not change the notebook's.
        framed = html.escape(self.html, quote=True)
        return f'<iframe srcdoc="{framed}" width="100%" height="{_HEIGHT}" style="border: 0"></iframe>'

    def __repr__(self) -> str:
        return f"Report({len(self.html)} characters of HTML; .save(FILE) writes it)"


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """The predictions for the server's M samples in C classes, and the run that gave them.

    Attributes:
        labels: [M], in the values of the caller's labels, or class names.
        probabilities: [M, C], the softmax of the final model's logits.
        classes: the label of each column of `probabilities`.
        ids: the name of each sample.
        model: the final model; it accepts raw samples. None where teachers predict, without a student.
        metrics: one row per round.
        summary: the content of summary.json.
        warnings: one sentence per suspicious finding; an empty list is no proof of correctness.
        report: the HTML report of the run.
        run_dir: the run directory; None where it was temporary.
        trust: per sample `probability_correct`, `prediction_set` and `decision`, as in predictions.csv.
    """

    labels: npt.NDArray[Any]
    probabilities: npt.NDArray[np.float32]
    classes: npt.NDArray[Any]
    ids: list[str]
    model: Classifier | None
    metrics: pandas.DataFrame
    summary: dict[str, Any]
    warnings: list[str] = field(default_factory=list)
    report: Report = field(default_factory=lambda: Report(""))
    run_dir: Path | None = None
    trust: pandas.DataFrame | None = None

    @property
    def accuracy(self) -> float | None:
        """Accuracy of `labels` where true labels were given, else None."""
        return self.summary["accuracy"]

    @property
    def notes(self) -> list[str]:
        """One sentence per remark that is no warning."""
        return list(self.summary.get("notes") or [])

    def predict(self, x: Any) -> npt.NDArray[Any]:
        """Labels of more samples of the same kind; a Python warning if they differ from those of the run."""
        return self._require_model().predict(x)

    def predict_table(self, x: Any) -> pandas.DataFrame:
        """Labels of more samples of the same kind, and how far each can be trusted (`Classifier.predict_table`)."""
        return self._require_model().predict_table(x)

    def _require_model(self) -> Classifier:
        if self.model is None:
            raise UserError("there is no model, as the teachers predict; give label() a student, such as student='mlp'")
        return self.model

    def table(self) -> pandas.DataFrame:
        """One row per sample: id, label, confidence, and how far the label can be trusted, as in predictions.csv."""
        import pandas

        confidence = self.probabilities.max(axis=1)
        table = pandas.DataFrame({"id": self.ids, "label": self.labels, "confidence": confidence})
        return table if self.trust is None else table.join(self.trust)

    def __repr__(self) -> str:
        summary = self.summary
        lines = [
            f"{len(self.labels)} samples labelled in {len(self.classes)} classes by {summary['algorithm']}, "
            f"{summary['rounds']} of {summary['rounds_requested']} rounds"
        ]
        if self.accuracy is not None:
            lines.append(f"accuracy {self.accuracy:.4f}")
        elif (estimated := format_estimate(summary)) is not None:
            lines.append(f"estimated accuracy {estimated}")
        lines += [f"note: {sentence}" for sentence in self.notes]
        lines += [f"warning: {sentence}" for sentence in self.warnings]
        return "\n".join(lines)


def read_result(
    directory: RunDirectory, model: Classifier | None, classes: Sequence[Any], ids: list[str], keep: bool
) -> Result:
    """Read the result from the directory of a finished run; `keep` says whether the directory persists."""
    import pandas

    probabilities = np.load(directory.path / "probabilities.npy")
    positions = len(probabilities) // len(ids)
    names, summary = np.array(classes), directory.read_json("summary.json")
    rounds = pandas.DataFrame(directory.read_metrics())
    return Result(
        labels=names[probabilities.argmax(axis=1)],
        probabilities=probabilities,
        classes=names,
        ids=row_ids(ids, None if positions == 1 else positions),
        model=model,
        metrics=rounds.set_index("round") if len(rounds) else rounds,
        summary=summary,
        warnings=list(summary.get("warnings") or []),
        report=Report((directory.path / "report.html").read_text(encoding="utf-8")),
        run_dir=directory.path if keep else None,
        trust=pandas.read_csv(
            directory.path / "predictions.csv",
            usecols=_TRUST_COLUMNS,
            dtype=_TRUST_COLUMNS,
            keep_default_na=False,
            na_values={"probability_correct": [""]},
        ),
    )
