"""Finished models of any kind as teachers: PyTorch, ONNX, scikit-learn, functions, and arrays of probabilities.

A teacher predicts with its own class list. Files are never unpickled: scikit-learn's models are read by skops, which
builds only types that it knows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from ..errors import UserError
from .inference import predict_logits

Floats = npt.NDArray[np.floating[Any]]

#: Samples that an ONNX model reads at once.
_BATCH = 256
#: The smallest probability whose logarithm is a logit: trees give zeros.
_LEAST_PROBABILITY = 1e-4
#: How far the sum of a row of probabilities may be from 1.
_ROUNDING = 1e-3
#: The entry of an ONNX file's metadata that lists the classes, as JSON.
ONNX_CLASSES = "class_names"
#: Types of scikit-learn that skops builds only on request: plain Python values, and trees, which are checked then.
_CHECKED_TYPES = {
    "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
    "sklearn.neural_network._stochastic_optimizers.SGDOptimizer",
    "sklearn.tree._tree.Tree",
    "sklearn.utils._bunch.Bunch",
}
SUPPORTED = "an .onnx file, a .skops file, an .npy file of probabilities"


@dataclass(frozen=True)
class Teacher:
    """A finished model that labels samples.

    Attributes:
        model: a module, a scikit-learn estimator, a function of the samples, an array of probabilities [M, C], or the
            path of an .onnx, .skops or .npy file.
        classes: the label of each output; None where the model lists them itself (scikit-learn's `classes_`, the
            metadata `class_names` of an .onnx file).
        name: for messages and the report; by default the file's or the type's.
    """

    model: Any
    classes: Sequence[Any] | None = None
    name: str | None = None


@dataclass(frozen=True)
class LoadedTeacher:
    """A teacher that has been read.

    Attributes:
        name: for messages.
        classes: the label of each output.
        outputs: from samples, as the caller has them, to rows of logits or probabilities [M, C], or to M labels.
    """

    name: str
    classes: list[Any] | None
    outputs: Callable[[Any], Any]

    def logits(self, samples: Any, count: int) -> tuple[Floats, list[Any]]:
        """The logits [M, C] of the samples, doubles, and the label of each column."""
        try:
            outputs = self.outputs(samples)
        except UserError:
            raise
        # Whatever a foreign model raises on samples that it does not take.
        except Exception as error:
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise UserError(
                f"the teacher {self.name} cannot read these samples ({reason}); give it samples as it was trained on"
            ) from error
        array = outputs.detach().cpu().numpy() if isinstance(outputs, torch.Tensor) else np.asarray(outputs)
        if array.ndim == 0 or len(array) != count:
            raise UserError(
                f"the teacher {self.name} gives {0 if array.ndim == 0 else len(array)} rows for {count} samples; it "
                "must give one per sample"
            )
        return self._from_labels(array) if array.ndim == 1 else self._from_rows(array)

    def _from_rows(self, array: npt.NDArray[Any]) -> tuple[Floats, list[Any]]:
        if array.ndim != 2 or array.dtype.kind not in "fiu":
            raise UserError(
                f"the teacher {self.name} gives an array of shape {array.shape}; it must be [samples, classes]"
            )
        if self.classes is None:
            raise UserError(
                f"the teacher {self.name} has no class list; give one, as Teacher(model, classes=[...]) or on the "
                "command line FILE=CLASS,CLASS"
            )
        rows = array.astype(np.float64)
        if rows.shape[1] == 1 and len(self.classes) == 2:
            is_share = bool(((rows >= 0) & (rows <= 1)).all())
            rows = (
                np.concatenate([1 - rows, rows], axis=1) if is_share else np.concatenate([-rows / 2, rows / 2], axis=1)
            )
        if rows.shape[1] != len(self.classes):
            raise UserError(
                f"the teacher {self.name} has {rows.shape[1]} outputs but its class list has {len(self.classes)}; give "
                "one class per output"
            )
        if not np.isfinite(rows).all():
            raise UserError(
                f"the teacher {self.name} gives NaN or infinity for sample {_first_bad(rows)}; repair or remove it"
            )
        is_distribution = bool((rows >= -1e-9).all()) and bool((np.abs(rows.sum(axis=1) - 1) < _ROUNDING).all())
        return np.log(rows.clip(_LEAST_PROBABILITY)) if is_distribution else rows, self.classes

    def _from_labels(self, labels: npt.NDArray[Any]) -> tuple[Floats, list[Any]]:
        values = labels.tolist()
        classes = (
            self.classes
            if self.classes is not None
            else sorted(set(values), key=lambda value: (str(type(value)), value))
        )
        index = {str(value): column for column, value in enumerate(classes)}
        unknown = next((value for value in values if str(value) not in index), None)
        if unknown is not None:
            raise UserError(f"the teacher {self.name} predicts {unknown!r}, which is not in its class list; add it")
        chosen = np.eye(len(classes))[[index[str(value)] for value in values]]
        return np.log(chosen.clip(_LEAST_PROBABILITY)), list(classes)


def load_teacher(teacher: Any, index: int, to_inputs: Callable[[Any], torch.Tensor]) -> LoadedTeacher:
    """A teacher that can predict.

    Args:
        teacher: a `Teacher`, or its model alone, or a pair (model, classes).
        index: its place in the list, for messages.
        to_inputs: the tensor of the samples that modules and ONNX files read.
    """
    if isinstance(teacher, tuple) and len(teacher) == 2:
        teacher = Teacher(*teacher)
    elif not isinstance(teacher, Teacher):
        teacher = Teacher(teacher)
    model = teacher.model
    path = Path(model).expanduser() if isinstance(model, str | Path) else None
    name = repr(teacher.name or (path.name if path is not None else f"{type(model).__name__} (number {index})"))
    if path is not None:
        if not path.is_file():
            raise UserError(f"the teacher {str(path)!r} is no file; use {SUPPORTED}")
        model, classes = _read_file(path, name, to_inputs)
    else:
        model, classes = _from_object(model, name, to_inputs)
    if teacher.classes is not None:
        classes = [value.item() if isinstance(value, np.generic) else value for value in teacher.classes]
    if classes is not None and len({str(value) for value in classes}) < max(2, len(classes)):
        raise UserError(
            f"the class list of the teacher {name} has fewer than two classes, or one of them twice; correct it"
        )
    return LoadedTeacher(name, classes, model)


def _from_object(model: Any, name: str, to_inputs: Callable[[Any], torch.Tensor]) -> tuple[Callable[[Any], Any], Any]:
    classes = getattr(model, "classes_", getattr(model, "classes", None))
    own = None if classes is None or callable(classes) else np.asarray(classes).tolist()
    for method in ("predict_proba", "decision_function", "predict"):
        if not isinstance(model, type) and callable(getattr(model, method, None)):
            return partial(_read_estimator, model, method), own
    if isinstance(model, nn.Module):
        return (lambda samples: predict_logits(model.eval(), to_inputs(samples)).double()), own
    if isinstance(model, np.ndarray | torch.Tensor | list) or hasattr(model, "columns"):
        if own is None and hasattr(model, "columns"):
            own = [str(column) for column in model.columns]
        return (lambda samples: model), own
    if callable(model) and not isinstance(model, type):
        return model, own
    raise UserError(
        f"the teacher {name} is a {type(model).__name__}; give a module, a scikit-learn estimator, a function, an "
        f"array of probabilities, or the path of {SUPPORTED}"
    )


def _read_file(path: Path, name: str, to_inputs: Callable[[Any], torch.Tensor]) -> tuple[Callable[[Any], Any], Any]:
    if path.suffix == ".onnx":
        return _read_onnx(path, name, to_inputs)
    if path.suffix == ".skops":
        return _from_object(_read_skops(path, name), name, to_inputs)
    if path.suffix == ".npy":
        try:
            return _from_object(np.load(path, allow_pickle=False), name, to_inputs)
        except (OSError, ValueError) as error:
            raise UserError(
                f"the teacher {name} cannot be read ({error}); save probabilities with numpy.save"
            ) from None
    raise UserError(f"the teacher {name} has an unknown file type; use {SUPPORTED}")


def _read_skops(path: Path, name: str) -> Any:
    try:
        from skops.io import get_untrusted_types, load
    except ImportError:
        raise UserError(
            f"the teacher {name} needs skops; install it with: pip install 'mrtf_fedml[teachers]'"
        ) from None
    try:
        untrusted = set(get_untrusted_types(file=path)) - _CHECKED_TYPES
        if untrusted:
            raise UserError(
                f"the teacher {name} contains {', '.join(sorted(untrusted)[:3])}, which skops does not know to be "
                "safe; load it yourself and give the estimator to mrtf_fedml.label"
            )
        model = load(path, trusted=sorted(_CHECKED_TYPES & set(get_untrusted_types(file=path))))
        _check_trees(model, name, set())
        return model
    except UserError:
        raise
    # A damaged archive raises errors of zipfile, json and skops.
    except Exception as error:
        raise UserError(f"the teacher {name} is no file of skops ({error}); write it with skops.io.dump") from None


def _check_trees(part: Any, name: str, seen: set[int]) -> None:
    """Refuse decision trees whose nodes point outside the tree: scikit-learn follows them without looking."""
    if id(part) in seen:
        return
    seen.add(id(part))
    if type(part).__name__ == "Tree" and hasattr(part, "children_left"):
        nodes = int(part.node_count)
        # The number of nodes comes from the file: no array may be read before it is known to fit.
        is_sound = 0 < nodes <= int(part.capacity)
        if is_sound:
            own = np.arange(nodes)
            left, right, feature = part.children_left, part.children_right, part.feature
            is_leaf = left == -1
            inner = ~is_leaf
            is_sound = bool(
                (right[is_leaf] == -1).all()
                and ((left > own) & (left < nodes) & (right > own) & (right < nodes))[inner].all()
                and ((feature >= 0) & (feature < part.n_features))[inner].all()
            )
        if not is_sound:
            raise UserError(f"the teacher {name} has a damaged decision tree; write it again with skops.io.dump")
    elif isinstance(part, dict):
        for value in part.values():
            _check_trees(value, name, seen)
    elif isinstance(part, list | tuple) or (isinstance(part, np.ndarray) and part.dtype == object):
        for value in part if not isinstance(part, np.ndarray) else part.ravel():
            _check_trees(value, name, seen)
    elif hasattr(part, "__dict__") and not isinstance(part, type):
        _check_trees(vars(part), name, seen)


def _read_onnx(path: Path, name: str, to_inputs: Callable[[Any], torch.Tensor]) -> tuple[Callable[[Any], Any], Any]:
    try:
        import onnxruntime
    except ImportError:
        raise UserError(
            f"the teacher {name} needs onnxruntime; install it with: pip install 'mrtf_fedml[teachers]'"
        ) from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        stored = session.get_modelmeta().custom_metadata_map.get(ONNX_CLASSES)
        classes = None if stored is None else list(json.loads(stored))
    # onnxruntime has a class of exceptions for each kind of damage.
    except Exception as error:
        raise UserError(
            f"the teacher {name} is no ONNX model ({str(error).splitlines()[0]}); export it again"
        ) from None
    inputs = session.get_inputs()
    if len(inputs) != 1:
        raise UserError(f"the teacher {name} has {len(inputs)} inputs; export a model with one, the batch of samples")
    dtype = np.float64 if inputs[0].type == "tensor(double)" else np.int64 if "int" in inputs[0].type else np.float32

    def outputs(samples: Any) -> Any:
        tensor = to_inputs(samples).numpy().astype(dtype)
        batches = [tensor[start : start + _BATCH] for start in range(0, len(tensor), _BATCH)]
        return np.concatenate([_scores(session.run(None, {inputs[0].name: batch}), classes) for batch in batches])

    return outputs, classes


def _scores(outputs: Sequence[Any], classes: Sequence[Any] | None) -> Any:
    """The probabilities or logits among the outputs: exported scikit-learn models give the labels first."""
    for output in outputs:
        if isinstance(output, list) and output and isinstance(output[0], dict):
            keys: Iterable[Any] = output[0] if classes is None else classes
            return np.array([[row[key] for key in keys] for row in output])
        array = np.asarray(output)
        if array.ndim == 2 and array.dtype.kind == "f":
            return array
    return outputs[0]


def _read_estimator(model: Any, method: str, samples: Any) -> Any:
    outputs = np.asarray(getattr(model, method)(_estimator_inputs(model, samples)))
    # A margin of two classes, [M], becomes two logits; labels stay as they are.
    is_margin = outputs.ndim == 1 and method == "decision_function"
    return np.stack([-outputs / 2, outputs / 2], axis=1) if is_margin else outputs


def _estimator_inputs(model: Any, samples: Any) -> Any:
    """The columns that an estimator was trained on, in its order, where it and the table name them."""
    names = getattr(model, "feature_names_in_", None)
    if not hasattr(samples, "columns"):
        return samples.numpy() if isinstance(samples, torch.Tensor) else samples
    if names is None:
        return samples.to_numpy()
    missing = [str(column) for column in names if column not in samples.columns]
    if missing:
        raise UserError(f"the samples lack the column {missing[0]!r} of the teacher {type(model).__name__}; add it")
    return samples[list(names)]


def _first_bad(rows: Floats) -> int:
    return int(np.flatnonzero(~np.isfinite(rows).all(axis=1))[0])
