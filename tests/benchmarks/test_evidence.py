"""The setups of docs/lab/evidence.md are valid: running all of them takes hours."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.evidence.setups import SETUPS
from mrtf_fedml.commands.configuration import load_configuration
from mrtf_fedml.config import RunSettings
from mrtf_fedml.experiments.plan import plan_trials

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", SETUPS)
def test_evidence_setups_have_known_keys_and_algorithms(name: str) -> None:
    setup = SETUPS[name]
    config = load_configuration(str(ROOT / "fedml_configs" / f"{setup.config}.yaml"), list(setup.changes))
    for algorithms, seeds in setup.parts.values():
        runs = plan_trials(config, algorithms.split(","), seeds)
        assert len(runs) == seeds * len(algorithms.split(","))
        for trial in runs:
            RunSettings.from_config(trial.config)


def test_evidence_setups_are_distinct() -> None:
    requests = [(setup.config, *sorted(setup.changes)) for setup in SETUPS.values()]
    assert len(set(requests)) == len(SETUPS)
    assert len({setup.title for setup in SETUPS.values()}) == len(SETUPS)
