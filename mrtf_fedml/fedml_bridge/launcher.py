"""`mrtf run`, through FedMLRunner like every other FedML project."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import yaml
from fedml.runner import FedMLRunner

from ..algorithms import OUR_PREFIX, algorithm_named
from ..data import SiloDataset, TransductiveDataset
from ..models.text_shape import vocabulary_of
from ..process.start import (
    Place,
    agreement,
    place_in,
    world,
)
from ..process.threads import divided_threads, set_threads
from ..settings import RunSettings
from ..settings.yaml_file import Config
from .arguments import arguments_from
from .devices import device_of_run
from .offline import initialise
from .registry import OUR_WORDS, register
from .zoo import build_model


def launch(
    config: Config,
    settings: RunSettings,
    dataset: TransductiveDataset | SiloDataset,
    resume: str | None = None,
    verbose: bool = False,
    rank: int = 0,
) -> Path | None:
    """Run to the end and return the run's folder; None for a silo, which has none.

    Args:
        config: the user's sections, FedML's own keys included.
        settings: the same, validated.
        dataset: what `settings.data` describes.
        resume: the folder of a run to go on with.
        verbose: let FedML's log through.
        rank: this party's place in a run across silos; 0 is the server.
    """
    comm = world()
    place = Place() if comm is None else place_in(comm)
    threads = set_threads(settings.device.threads, None if comm is None else divided_threads(comm, place.local_ranks))
    # FedML reads its arguments from a file, and we read that file again to see the sections it forgets.
    with TemporaryDirectory() as folder:
        file = Path(folder) / "config.yaml"
        file.write_text(yaml.safe_dump(_for_fedml(config, settings, threads), sort_keys=False))
        args = arguments_from(file, rank)
        args.mrtf_resume = resume
        if settings.common.training_type == "cross_silo":
            # FedML counts those chosen in a round; here every silo is a party of its own.
            args.worker_num = settings.train.client_num_in_total
        args = initialise(args, verbose)
        with agreement():
            device = device_of_run(args, place)
            model = build_model(
                settings.model,
                dataset.input_shape,
                dataset.class_num,
                settings.common.random_seed,
                example=dataset.example_inputs,
                vocabulary=vocabulary_of(dataset.example_inputs, getattr(dataset[2], "inputs", None)),
            )
        if place.rank > 0 and isinstance(dataset, TransductiveDataset) and settings.mrtf.refine_on == "server":
            dataset.forget_server_set()
        register()
        FedMLRunner(args, device, dataset, model).run()
    return Path(args.mrtf_run_dir) if hasattr(args, "mrtf_run_dir") else None


def _for_fedml(config: Config, settings: RunSettings, threads: int) -> Config:
    """The user's keys, and ours over them with their defaults."""
    merged = {section: dict(values) for section, values in config.items()}
    for section, values in settings.to_config().items():
        merged.setdefault(section, {}).update(values)
    merged["device_args"]["threads"] = threads
    # On the command line an algorithm's name always means ours.
    name = algorithm_named(settings.train.federated_optimizer).name
    merged["train_args"]["federated_optimizer"] = name if name in OUR_WORDS else OUR_PREFIX + name
    return merged
