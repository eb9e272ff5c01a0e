"""Precision bfloat16: master weights stay float32, and a run records its precision."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from mrtf_fedml.algorithms import ServerContext
from mrtf_fedml.algorithms.local_training import train_locally
from mrtf_fedml.config import ModelSettings, MrTFSettings, RunSettings, TrainSettings
from mrtf_fedml.config.sections import Precision
from mrtf_fedml.data import TensorShard, load
from mrtf_fedml.errors import UserError
from mrtf_fedml.fedml_bridge.runner import run_configuration
from mrtf_fedml.models import FeatureExtractor, create_model
from mrtf_fedml.models.precision import autocast
from mrtf_fedml.models.state_dict import snapshot
from mrtf_fedml.process.tuning import has_fast_bf16
from tests.conftest import small_config

CPU = torch.device("cpu")


def test_bf16_teachers_distillation_and_training_keep_float32_weights() -> None:
    model = create_model(ModelSettings(model="mlp", hidden_size=32), (16,), 4, seed=0)
    start, inputs = snapshot(model), torch.randn(40, 16)
    plain = ServerContext(model, inputs, FeatureExtractor(model, None, inputs[:2]), 4)
    half = ServerContext(model, inputs, plain.extractor, 4, precision=Precision("bf16", "bf16"))
    exact, rounded = plain.logits(start), half.logits(start)
    assert rounded.dtype == torch.float32
    assert not torch.equal(rounded, exact)
    torch.testing.assert_close(rounded, exact, rtol=0.05, atol=0.02)
    # What a bfloat16 can say has eight bits of mantissa: the last layer's outputs are such numbers.
    assert torch.equal(rounded, rounded.bfloat16().float())

    targets, settings = torch.full((40, 4), 0.25), MrTFSettings(refine_steps=5, refine_batch_size=8)
    refined = []
    for context in (plain, half):
        model.load_state_dict(start)
        assert context.distill(model, inputs, targets, settings, torch.Generator().manual_seed(0)) > 0
        refined.append(snapshot(model))
    shard = TensorShard(inputs, torch.randint(4, (40,)), np.arange(40), batch_size=8)
    trained = []
    for precision in ("float32", "bf16"):
        with autocast(precision, CPU):
            weights, _ = train_locally(model, start, shard, TrainSettings(), seed=0, client=0, round_index=0)
        trained.append(weights)
    for exactly, roughly in (refined, trained):
        for key, value in exactly.items():
            assert roughly[key].dtype == torch.float32
            assert not torch.equal(roughly[key], value)
            torch.testing.assert_close(roughly[key], value, rtol=0.1, atol=0.02)


def test_run_records_the_resolved_precision(tmp_path: Path) -> None:
    config = small_config(model="mlp", comm_round=1, refine_steps=2, precision={"teachers": "bf16", "local": "auto"})
    config["model_args"]["hidden_size"] = 16
    config["common_args"]["run_dir"] = str(tmp_path / "run")
    settings = RunSettings.from_config(config)
    run_configuration(settings, dataset=load(settings))
    here = {"teachers": "bf16", "local": "bf16" if has_fast_bf16() else "float32"}
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["precision"] == here
    assert yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())["device_args"]["precision"] == here


def test_unknown_precision_is_refused() -> None:
    for wrong in ("fp16", {"teacher": "bf16"}, {"teachers": "half"}):
        with pytest.raises(UserError, match=r"device_args\.precision"):
            RunSettings.from_config({"device_args": {"precision": wrong}})
