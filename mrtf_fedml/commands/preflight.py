"""`mrtf preflight`: check one party of a federation before anything trains, and say how to repair what fails."""

from __future__ import annotations

import argparse
import datetime
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..config import RunSettings
from ..data import SiloDataset, TransductiveDataset, load_for_rank
from ..errors import RunStopped, UserError
from ..report.text import format_bytes
from ..training.run_directory import KEPT_CHECKPOINTS
from .configuration import load_configuration
from .doctor import Check, format_check
from .run import party_rank

if TYPE_CHECKING:
    from torch import Tensor

    from ..fedml_bridge.backends.cross_silo.handshake import Handshake

#: A certificate that expires sooner is reported: long federations take days.
_MIN_CERTIFICATE_DAYS = 14
#: Seconds that the server has to reply; it may be refining.
_REPLY_SECONDS = 30.0
#: Copies of the weights that are in memory at the same time, besides one per client of a round on the server: model,
#: gradients, momentum, received and sent messages.
_COPIES = 6
_MAX_GRPC_BYTES = 2**31


def main(options: argparse.Namespace) -> int:
    """Print a table of checks; the exit code is 1 if one fails."""
    config = load_configuration(options.cf, options.set)
    # A check opens no run at Weights & Biases.
    config["tracking_args"] = {**config.get("tracking_args", {}), "enable_wandb": False}
    settings = RunSettings.from_config(config)
    rank = party_rank(options, settings)
    if rank is None or settings.common.training_type != "cross_silo":
        raise UserError("mrtf preflight checks a party of a federation: training_type: cross_silo (common_args)")
    failed = []
    for check in _checks(settings, rank):
        # Printed one by one: data and network take seconds.
        print(format_check(check), flush=True)
        if not check.passed and check.required:
            failed.append(check.name)
    name = "the server" if rank == 0 else f"silo {rank}"
    print()
    print(f"{name} is not ready: see {', '.join(failed)}" if failed else f"{name} is ready")
    return 1 if failed else 0


def _checks(settings: RunSettings, rank: int) -> Iterator[Check]:
    yield from _check_certificate(settings, rank)
    dataset: Any = None
    try:
        dataset = load_for_rank(settings, rank)
        samples = len(dataset.server_inputs) if isinstance(dataset, TransductiveDataset) else dataset[0]
        yield Check("data", True, f"{samples} samples, {dataset.class_num} classes")
    except UserError as error:
        yield _failed_check("data", error)
    if dataset is not None:
        yield from _check_party(settings, rank, dataset)


def _check_certificate(settings: RunSettings, rank: int) -> Iterator[Check]:
    silo = settings.silo
    if settings.common.backend != "GRPC":
        return
    if not (silo.tls_certificate or silo.tls_key or silo.tls_authority):
        remedy = "anybody who reaches the port can take part: `mrtf invite` makes certificates"
        yield Check("certificate", False, "none", remedy, required=False)
        return
    from ..fedml_bridge.backends.cross_silo.transports.tls import check_own_certificate, read_own_certificate

    key = Path(str(silo.tls_key)).expanduser()
    if key.is_file():
        is_private = not key.stat().st_mode & 0o077
        found = f"{silo.tls_key} can be read by {'its owner only' if is_private else 'other users of this machine'}"
        yield Check("key", is_private, found, f"chmod 600 {silo.tls_key}", required=False)
    try:
        check_own_certificate(silo, rank)
        expires = read_own_certificate(silo).expires
    except UserError as error:
        yield _failed_check("certificate", error)
        return
    days = (expires - datetime.datetime.now(datetime.timezone.utc)).total_seconds() / 86400
    yield Check(
        "certificate",
        days >= _MIN_CERTIFICATE_DAYS,
        f"{silo.tls_certificate}, expires on {expires:%Y-%m-%d} (in {days:.0f} days)",
        "ask the server's operator for a new one (mrtf invite --rotate NAME)",
    )


def _check_party(settings: RunSettings, rank: int, dataset: TransductiveDataset | SiloDataset) -> Iterator[Check]:
    from ..fedml_bridge.backends.cross_silo.handshake import Handshake
    from ..fedml_bridge.backends.cross_silo.preflight import try_to_listen
    from ..fedml_bridge.runner import RunOptions, prepare_run

    try:
        _, args, _, model = prepare_run(settings, RunOptions(rank=rank), dataset)
    except UserError as error:
        yield _failed_check("model", error)
        return
    assert model is not None
    weights: dict[str, Tensor] = dict(model.state_dict())
    handshake = Handshake.create(weights, dataset, settings.privacy)
    encoder = "" if handshake.encoder is None else f", encoder {handshake.encoder[:12]}"
    yield Check("model", True, f"{settings.model.model}, {handshake.model}{encoder}")
    yield Check("version", True, f"mrtf_fedml {handshake.version}, PyTorch {handshake.torch}")
    if rank == 0:
        yield _attempt("port", lambda: try_to_listen(args, settings, weights), "can be opened")
    else:
        yield from _compare_with_server(args, settings, weights, handshake)
    yield from _check_resources(settings, rank, sum(one.numel() * one.element_size() for one in weights.values()))


def _compare_with_server(
    args: Any, settings: RunSettings, weights: dict[str, Tensor], handshake: Handshake
) -> Iterator[Check]:
    from ..fedml_bridge.backends.cross_silo.handshake import ASPECTS, MAX_CLOCK_DIFFERENCE
    from ..fedml_bridge.backends.cross_silo.preflight import ask_server, reach_server

    if settings.common.backend == "GRPC" and settings.silo.connection == "outbound":
        try:
            yield Check("port", True, reach_server(args, settings))
        except (UserError, RunStopped) as error:
            remedy = "start the server (mrtf run --role server), correct comm_args.server_address, or open the firewall"
            yield Check("port", False, str(error), remedy)
            return
    try:
        report = ask_server(args, settings, weights, handshake, min(_REPLY_SECONDS, settings.silo.start_timeout))
    except (UserError, RunStopped) as error:
        yield Check(
            "server",
            False,
            str(error),
            "start the server (mrtf run --role server), or correct comm_args; certificates must be of one authority "
            "and the server's must name its host (mrtf invite)",
        )
        return
    yield Check("server", True, f"replies within {report.round_trip:.1f} s")
    seconds = report.clock_difference
    yield Check(
        "clock",
        abs(seconds) <= MAX_CLOCK_DIFFERENCE + report.round_trip / 2,
        f"{abs(seconds):.1f} s {'behind' if seconds > 0 else 'ahead of'} the server's",
        "set this machine's clock, or the server's (NTP)",
    )
    for field, name in ASPECTS.items():
        difference = report.differences.get(field)
        yield Check(name, True, "as on the server") if difference is None else _failed_check(name, difference)


def _check_resources(settings: RunSettings, rank: int, model_bytes: int) -> Iterator[Check]:
    import psutil

    train, common = settings.train, settings.common
    folder = Path(common.run_dir or ".").expanduser().absolute()
    while not folder.exists():
        folder = folder.parent
    clients = train.client_num_per_round if rank == 0 else 0
    # A checkpoint has the weights that are broadcast and those that predict; one more is being written.
    needed = model_bytes * 2 * (KEPT_CHECKPOINTS + 1) + 10**8 if rank == 0 else 10**8
    free = shutil.disk_usage(folder).free
    yield Check("disk", free >= needed, f"{format_bytes(free)} free, {format_bytes(needed)} needed", "free some space")
    needed = model_bytes * (_COPIES + clients)
    free = psutil.virtual_memory().available
    yield Check(
        "memory",
        free >= needed,
        f"{format_bytes(free)} free, about {format_bytes(needed)} needed in addition to the samples",
        "end other programs, choose a smaller model, or lower client_num_per_round",
    )
    each = format_bytes(model_bytes)
    of_round = f"{each} to and {each} from each of {clients} silos" if rank == 0 else f"{each} down and {each} up"
    total = format_bytes(2 * model_bytes * max(1, clients) * train.comm_round)
    yield Check(
        "traffic",
        settings.common.backend != "GRPC" or model_bytes < _MAX_GRPC_BYTES,
        f"about {of_round} per round, {total} in {train.comm_round} rounds; more with client validation or Scaffold",
        "GRPC carries models below 2 GB; choose a smaller model",
    )


def _attempt(name: str, action: Callable[[], None], found: str) -> Check:
    try:
        action()
    except (UserError, RunStopped) as error:
        return _failed_check(name, error)
    return Check(name, True, found)


def _failed_check(name: str, error: Exception | str) -> Check:
    """A sentence of ours ends with its remedy, after a semicolon."""
    found, _, remedy = str(error).rpartition("; ")
    return Check(name, False, found or str(error), remedy if found else "")
