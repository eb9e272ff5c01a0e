"""`mrtf run`: one run from a configuration to predictions and a report."""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path
from typing import Any

from ..configuration import Config, read_config, warn_of_near_misses, with_changes
from ..errors import UserError
from ..fedml_bridge.mpi_failure import one_for_all
from ..fedml_bridge.mpi_logs import hold_log
from ..fedml_bridge.mpi_start import agreement, check_start, started_rank, started_ranks
from ..run_store import RunStore
from ..settings import RunSettings


def run(options: argparse.Namespace) -> int:
    """Run what the options ask for, and print how it ended; under mpirun, as one rank of it."""
    with one_for_all():
        return _run(options)


def _run(options: argparse.Namespace) -> int:
    if started_rank() > 0:
        hold_log()
    with agreement():
        config = _configuration(options)
        warn_of_near_misses(config)
        settings = RunSettings.from_config(config)
        check_start(settings.common.training_type, settings.common.backend, settings.mrtf.refine_on, started_ranks())
        # Everything that can be wrong with settings and data is found before the seconds that FedML's import takes.
        from ..algorithms import algorithm_named
        from ..data import load

        algorithm_named(settings.train.federated_optimizer)
        dataset = load(settings)
        # Where clients are users, or come from a loader, the data say how many there are.
        settings = settings.with_clients(dataset.client_num)
    with warnings.catch_warnings():
        # FedML's imports warn of their own dependencies at length; --verbose shows that too.
        warnings.simplefilter("default" if options.verbose else "ignore")
        from ..fedml_bridge.launcher import launch

    run_dir = launch(config, settings, dataset, resume=options.resume, verbose=options.verbose)
    if started_rank() == 0:
        print(_ending(RunStore.open(run_dir)))
    return 0


def _configuration(options: argparse.Namespace) -> Config:
    if options.resume is not None:
        if options.cf is not None:
            raise UserError("--resume goes on with a run's own configuration; leave --cf out")
        return with_changes(RunStore.open(options.resume).read_config(), options.set)
    if options.cf is None:
        raise UserError("mrtf run needs --cf FILE.yaml; `mrtf example quickstart` writes one to start from")
    return with_changes(read_config(options.cf), options.set)


def _ending(store: RunStore) -> str:
    summary: dict[str, Any] = json.loads((store.path / "summary.json").read_text())
    rows = [
        ("algorithm", summary["algorithm"] + (f" ({summary['preset']})" if summary["preset"] else "")),
        ("rounds", f"{summary['rounds']} of {summary['rounds_asked_for']} in {summary['seconds']:.1f} s"),
        ("samples labelled", f"{summary['samples_labelled']} in {summary['classes']} classes"),
    ]
    if summary["accuracy"] is not None:
        rows += [("accuracy", f"{summary['accuracy']:.4f}"), ("macro F1", f"{summary['macro_f1']:.4f}")]
        last = store.read_metrics()[-1]
        if last["acc_refined"] is not None and last["acc_aggregated"] is not None:
            rows.append(("before refining", f"{last['acc_aggregated']:.4f} (the last round's plain average)"))
    else:
        rows.append(("accuracy", "not known: the server's set came without labels"))
    if "epsilon_server" in summary:
        rows.append(("privacy", _privacy(summary)))
    rows += [(word, str(Path(store.path) / name)) for word, name in _RESULTS]
    width = max(len(word) for word, _ in rows)
    return "\n".join(["", *(f"  {word:<{width}}  {value}" for word, value in rows)])


def _privacy(summary: dict[str, Any]) -> str:
    server, release = summary["epsilon_server"], summary["epsilon_release"]
    if isinstance(server, str):
        return "epsilon none: without both clip and sigma (dp_args) nothing is guaranteed"
    delta = summary["privacy_delta"]
    return f"epsilon {server:.3g} towards the server, {release:.3g} of what is released (delta {delta:g})"


_RESULTS = (("predictions", "predictions.csv"), ("model", "model.safetensors"), ("report", "report.html"))
