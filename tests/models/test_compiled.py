"""`compile: true`: whole batches are read by compiled code, others as the model is written; it needs a compiler."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch._dynamo.utils import counters

from mrtf_fedml.algorithms import ServerBench
from mrtf_fedml.cli import main
from mrtf_fedml.models import FeatureTap, create_model, predict_logits
from mrtf_fedml.models.compiled import compile_reading, is_compiled
from mrtf_fedml.models.layout import in_layout, lay_out
from mrtf_fedml.models.weights import snapshot
from mrtf_fedml.settings import ModelSettings
from mrtf_fedml.settings.precision import Precision
from tests.backends.mpi.conftest import launched
from tests.conftest import answer, small_config, write_yaml


def compilations() -> int:
    return int(counters["stats"]["unique_graphs"])


@pytest.mark.parametrize("net", ["mlp", pytest.param("lenet", marks=pytest.mark.slow)])
def test_whole_batches_are_read_by_compiled_code(net: str) -> None:
    shape = (6,) if net == "mlp" else (1, 28, 28)
    written, compiled = (create_model(ModelSettings(model=net, hidden_size=8), shape, 3, seed=0) for _ in range(2))
    compile_reading(compiled)
    assert (is_compiled(written), is_compiled(compiled)) == (False, True)
    start, inputs = snapshot(written), in_layout(compiled, torch.randn(20, *shape))
    lay_out(written)
    tap = FeatureTap(written, None, inputs[:2])
    plain, fast = (ServerBench(model, inputs, tap, 3) for model in (written, compiled))
    before = compilations()
    exactly = plain.logits(start)
    torch.testing.assert_close(fast.logits(start), exactly)
    assert compilations() == before + 1
    logits, features = fast.read(compiled, features=True)
    assert torch.equal(logits, exactly), "the tap runs the model as it is written"
    assert torch.equal(features, plain.read(written, features=True)[1])
    by_eights = predict_logits(compiled, inputs, batch_size=8)
    assert compilations() == before + 2, "batches of 8"
    assert torch.equal(by_eights[16:], predict_logits(written, inputs, batch_size=8)[16:]), "the last 4 as written"
    half = ServerBench(compiled, inputs, tap, 3, precision=Precision(teachers="bf16")).logits(start)
    assert torch.equal(half, half.bfloat16().float()), "autocast holds within compiled code"


def test_without_a_compiler_it_is_refused_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_yaml(tmp_path / "c.yaml", small_config(run_dir=str(tmp_path / "run"), compile=True))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["run", "--cf", str(file)]) == 2
    told = capsys.readouterr().err
    assert "mrtf: device_args.compile is true, but there is no C++ compiler: 'g++' cannot be run; install one" in told
    assert "Traceback" not in told
    monkeypatch.setenv("CXX", "clang-of-my-own")
    assert main(["run", "--cf", str(file)]) == 2
    assert "'clang-of-my-own' cannot be run" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_compiled_runs_give_the_same_bytes_on_every_backend(tmp_path: Path, precision: str) -> None:
    scene = {"model": "lenet", "comm_round": 2, "client_num_per_round": 4, "compile": True, "precision": precision}
    for name, changes in {"alone": {"backend": "sp"}, "ranks": {"backend": "MPI", "refine_on": "teachers"}}.items():
        write_yaml(tmp_path / f"{name}.yaml", small_config(run_dir=str(tmp_path / name), **scene, **changes))
    assert main(["run", "--cf", str(tmp_path / "alone.yaml")]) == 0
    told = launched(3, tmp_path / "ranks.yaml", seconds=1800)
    assert told.returncode == 0, told.stderr
    assert answer(tmp_path / "ranks") == answer(tmp_path / "alone")
    for name in ("alone", "ranks"):
        assert json.loads((tmp_path / name / "summary.json").read_text())["compiled"] is True
