"""`mrtf export`: the model of a finished run as an ONNX file, for programs without PyTorch."""

from __future__ import annotations

import argparse
import io
import json
import os
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..config import RunSettings
from ..data.inference_inputs import read_preprocessing
from ..data.preprocessing import Preprocessing, Standardizer
from ..encoders.images import ImagePreprocessing
from ..encoders.registry import OnnxFunction
from ..errors import UserError
from ..models import predict_logits
from ..models.existing import ONNX_CLASSES
from ..training.files import atomic_write
from ..training.outputs import restore_model
from ..training.run_directory import RunDirectory
from .configuration import apply_changes
from .predict import build_other_model

#: The largest difference between a probability by ONNX and by PyTorch.
TOLERANCE = 1e-5
_OPSET = 17
_INPUT, _OUTPUT = "samples", "probabilities"
#: Samples of the check; another number than that of the exported example, since the batch size is free.
_CHECKED = 7


class Pipeline(nn.Module):
    """From samples, before encoding and standardization, to probabilities [N, C]."""

    mean: Tensor
    factor: Tensor

    def __init__(self, encoder: nn.Module | None, standardizer: Standardizer | None, net: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder
        self.net = net
        self._has_scale = standardizer is not None
        if standardizer is not None:
            # Zeros for constant features, as the standardizer gives.
            varies = standardizer.deviation > 0
            factor = torch.where(varies, 1 / torch.where(varies, standardizer.deviation, 1.0), 0.0).double()
            self.register_buffer("mean", standardizer.mean)
            self.register_buffer("factor", factor)

    def forward(self, samples: Tensor) -> Tensor:
        """The probabilities."""
        inputs = samples if self.encoder is None else self.encoder(samples)
        if self._has_scale:
            # In float64, as the standardizer computes: a mean may be far larger than its deviation.
            inputs = ((inputs.double() - self.mean) * self.factor).float()
        return torch.softmax(self.net(inputs), dim=1)


def main(options: argparse.Namespace) -> int:
    """Write the file."""
    print(export_onnx(options.run_dir, options.out))
    return 0


def export_onnx(run_dir: str, out: str | None = None) -> str:
    """Write the ONNX file and check it; return a sentence about it.

    The input is what `mrtf_fedml.data.to_tensor` makes of samples: images [N, channels, H, W] in [-1, 1], rows of
    numbers before standardization, indices. The output is the probability of each class; the metadata `class_names`
    has their names as a JSON list.
    """
    directory = RunDirectory.open(run_dir)
    directory.extend_import_path()
    weights, facts = directory.read_model()
    settings = RunSettings.from_config(apply_changes(directory.read_config(), []))
    preprocessing = read_preprocessing(facts, settings, directory.path)
    net = restore_model(weights, facts, build_other_model)
    encoder = preprocessing.encoder
    module = None if encoder is None else encoder.module
    graph = None if encoder is None or module is not None else _read_encoder_graph(encoder.function)
    has_encoder = encoder is None or module is not None or graph is not None
    shape = tuple(facts["input_shape"])
    if encoder is not None and has_encoder:
        shape = _encodable_shape(module or encoder.function, preprocessing)
    example = _example(shape, preprocessing, facts, encoder is not None and has_encoder)
    pipeline = Pipeline(module, preprocessing.standardizer, net).eval()
    if encoder is not None and graph is not None:
        head = _to_onnx(nn.Sequential(nn.Flatten(1), pipeline), encoder(example[:2]), "features", _OUTPUT)
        model = _join(encoder.function, example[:2], graph, head)
    else:
        model = _to_onnx(pipeline, example[:2], _INPUT, _OUTPUT)
    entry = model.metadata_props.add()
    entry.key, entry.value = ONNX_CLASSES, json.dumps(facts["class_names"])
    content: bytes = model.SerializeToString()
    file = Path(os.path.expanduser(out)) if out else directory.path / "model.onnx"
    inputs = preprocessing.apply(example) if has_encoder else replace(preprocessing, encoder=None).apply(example)
    difference = _largest_difference(content, example, predict_logits(net, inputs).softmax(dim=1))
    if not difference <= TOLERANCE:
        raise UserError(
            f"the ONNX model of {run_dir!r} differs from PyTorch's by {difference:.2g} in a probability, so it is not "
            "written; use `mrtf predict`"
        )
    try:
        atomic_write(file, content)
    except OSError as error:
        raise UserError(f"{str(file)!r} cannot be written ({error.strerror}); name another with --out") from None
    sizes = " x ".join(map(str, shape))
    note = "" if has_encoder else f"; its inputs are the features of {facts['preprocessing']['encoder']['name']}"
    return f"{file}: input N x {sizes}{note}; probabilities as PyTorch's up to {difference:.1g}"


def _encodable_shape(encoder: Any, preprocessing: Preprocessing) -> tuple[int, ...]:
    """The shape of the file's input: that of a sample, or the encoder's if it would shrink the sample.

    ONNX has no resizing that equals PyTorch's antialiased one.
    """
    resizing = getattr(encoder, "preprocessing", None)
    if isinstance(resizing, ImagePreprocessing):
        channels, *sides = preprocessing.sample_shape
        if any(side > size for side, size in zip(sides, resizing.size, strict=True)):
            return channels, *resizing.size
    return preprocessing.sample_shape


def _example(shape: tuple[int, ...], preprocessing: Preprocessing, facts: Any, encoded: bool) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    if preprocessing.kind == "tokens":
        vocabulary = facts["model"]["vocabulary"] or len(facts["class_names"])
        return torch.randint(vocabulary, (_CHECKED, *shape), generator=generator)
    if preprocessing.kind == "pixels" and (encoded or preprocessing.encoder is None):
        return torch.rand(_CHECKED, *shape, generator=generator) * 2 - 1
    noise = torch.randn(_CHECKED, *shape, generator=generator)
    scale = None if encoded else preprocessing.standardizer
    return noise if scale is None else (noise * scale.deviation + scale.mean).float()


def _to_onnx(module: nn.Module, example: Tensor, input_name: str, output_name: str) -> Any:
    try:
        import onnx
    except ImportError:
        raise UserError("ONNX files are written by onnx; pip install 'mrtf_fedml[export]'") from None
    stream = io.BytesIO()
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            # The exporter by tracing needs no further package.
            torch.onnx.export(
                module.eval(),
                (example,),
                stream,  # type: ignore[arg-type]
                dynamo=False,
                opset_version=_OPSET,
                input_names=[input_name],
                output_names=[output_name],
                dynamic_axes={input_name: {0: "N"}, output_name: {0: "N"}},
            )
    except Exception as error:
        reason = (" ".join(str(error).split()) or type(error).__name__)[:200]
        raise UserError(f"the model cannot be written as ONNX ({reason}); use `mrtf predict`") from error
    return onnx.load_from_string(stream.getvalue())


def _read_encoder_graph(function: Any) -> Any:
    """The model in an `onnx:` encoder's file, in our version of the operators; None where it cannot be included."""
    is_image = isinstance(function, OnnxFunction) and function.preprocessing is not None
    if not is_image or function.fixed_batch_size is not None:
        return None
    try:
        import onnx
        import onnx.version_converter

        model = onnx.load(str(function.file))
        versions = {entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")}
        return model if versions == {_OPSET} else onnx.version_converter.convert_version(model, _OPSET)
    # The converter has no adapter for some operators, and reads no weights outside the file.
    except Exception:
        return None


def _join(function: Any, example: Tensor, encoder: Any, head: Any) -> Any:
    """Preprocessing, encoder and head as one model."""
    from onnx.compose import add_prefix, merge_models

    first = _to_onnx(function.preprocessing, example, _INPUT, "prepared")
    encoder, head = add_prefix(encoder, "encoder/"), add_prefix(head, "head/")
    for model in (encoder, head):
        model.ir_version = first.ir_version
        del model.metadata_props[:]
    features = encoder.graph.output[0].name
    joined = merge_models(first, encoder, [("prepared", encoder.graph.input[0].name)], outputs=[features])
    joined = merge_models(joined, head, [(features, "head/features")])
    joined.graph.output[0].name = _OUTPUT
    for node in joined.graph.node:
        node.output[:] = [_OUTPUT if name == f"head/{_OUTPUT}" else name for name in node.output]
    return joined


def _largest_difference(content: bytes, samples: Tensor, expected: Tensor) -> float:
    try:
        import onnxruntime
    except ImportError:
        raise UserError("the check of the ONNX file needs onnxruntime; pip install 'mrtf_fedml[export]'") from None
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    (computed,) = session.run(None, {"samples": samples.numpy()})
    # Of a model with a prediction per position, [N, C, T], PyTorch's are [N * T, C].
    rows = computed if computed.ndim == 2 else np.moveaxis(computed, 1, 2).reshape(-1, computed.shape[1])
    return float(np.abs(rows - expected.numpy()).max())
