"""Silos with an encoder: the bytes of one process, and a party whose encoder file differs by one byte."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path

import pytest
import torch

from mrtf_fedml.config import ModelSettings
from mrtf_fedml.models import create_model
from tests.backends.cross_silo.federation import Federation
from tests.conftest import output_bytes
from tests.encoders.tiny import write_onnx

pytest.importorskip("onnxruntime")


@pytest.mark.slow
def test_encoder_and_initial_weights_of_the_server_give_the_bytes_of_one_process(
    tmp_path: Path, one_process: Callable[..., Path]
) -> None:
    encoder, weights = write_onnx(tmp_path / "encoder.onnx"), tmp_path / "start.pt"
    torch.save(create_model(ModelSettings(model="linear"), (5,), 10, seed=11).state_dict(), weights)
    changes = {"encoder": f"onnx:{encoder}", "model": "linear", "comm_round": 2}
    with Federation(tmp_path, 2, **changes) as federation:
        server = deepcopy(federation.config)
        server["model_args"]["initial_weights"] = str(weights)
        federation.start(0, config=server)
        federation.start(1)
        federation.start(2)
        assert [party.wait() for party in federation.parties] == [0, 0, 0], federation.parties[0].output
    reference = one_process(2, **changes, initial_weights=str(weights))
    assert output_bytes(federation.run_dir) == output_bytes(reference)
    assert output_bytes(reference) != output_bytes(one_process(2, **changes))


@pytest.mark.slow
def test_silo_whose_encoder_differs_by_one_byte_is_refused_with_one_sentence(tmp_path: Path) -> None:
    encoder, other = write_onnx(tmp_path / "encoder.onnx"), tmp_path / "other" / "encoder.onnx"
    other.parent.mkdir()
    # The lowest byte of a number of the matrix, whose numbers follow its name.
    content = bytearray(encoder.read_bytes())
    numbers = torch.randn(48, 5, generator=torch.Generator().manual_seed(0)).numpy().tobytes()
    content[content.index(numbers) + 40] ^= 1
    other.write_bytes(content)
    changes = {"encoder": f"onnx:{encoder}", "model": "linear", "comm_round": 1, "min_clients": 2}
    with Federation(tmp_path, 2, **changes) as federation:
        changed = deepcopy(federation.config)
        changed["model_args"]["encoder"] = f"onnx:{other}"
        federation.start(0)
        federation.start(1)
        silo = federation.start(2, config=changed)
        assert silo.wait() == 2
        assert "encoder of silo 2" in silo.output
        assert "encoder of silo 2" in federation.parties[0].output
        assert "Traceback" not in silo.output
