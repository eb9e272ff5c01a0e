"""`mrtf invite`: a folder for the server and one per silo, with certificates, configuration and start script."""

from __future__ import annotations

import argparse
import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from ..config import RunSettings
from ..config.schema import Config
from ..config.secrets import redact_secrets
from ..errors import UserError, shorten_repr, suggest_name
from ..version import __version__
from .configuration import load_configuration

if TYPE_CHECKING:
    from ..fedml_bridge.backends.cross_silo.certificates import Authority

SERVER = "server"
_CONFIG, _CERTIFICATE, _KEY, _AUTHORITY = "config.yaml", "certificate.pem", "key.pem", "authority.pem"
#: The folder of the authority, in the server's folder.
_AUTHORITY_FOLDER = "authority"
_DEFAULT_PORT = 8890
_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}"
_HOST = r"[A-Za-z0-9]([A-Za-z0-9.-]{0,252})|\[[0-9a-fA-F:.]+\]"


def main(options: argparse.Namespace) -> int:
    """Write the folders, or issue or revoke certificates of a federation that exists."""
    try:
        from ..fedml_bridge.backends.cross_silo.certificates import Authority
    except ImportError:
        raise UserError("mrtf invite needs the package cryptography; pip install cryptography") from None
    folder = Path(options.out)
    if options.revoke is None and not options.rotate:
        _create(options, folder, Authority)
        return 0
    if options.cf is not None or options.server is not None or (options.revoke is not None and options.rotate):
        raise UserError("--rotate and --revoke change a federation that exists (--out): leave the other options out")
    authority = Authority(folder / SERVER / _AUTHORITY_FOLDER)
    if options.revoke is not None:
        _revoke(authority, options.revoke, folder)
    else:
        _rotate(authority, options.names, folder)
    return 0


def _create(options: argparse.Namespace, folder: Path, authorities: type[Authority]) -> None:
    if options.cf is None or options.server is None:
        raise UserError("mrtf invite needs --cf FILE.yaml and --server HOST:PORT, at which the silos reach the server")
    host, port = _parse_address(options.server)
    names, config = _check_names(options.names, load_configuration(options.cf, options.set))
    _check_config(config)
    if folder.exists():
        raise UserError(
            f"{str(folder)!r} exists; choose another folder (--out), or change its certificates (--rotate, --revoke)"
        )
    folder.mkdir(parents=True, mode=0o700)
    try:
        server = folder / SERVER
        server.mkdir(mode=0o700)
        authority = authorities.create(server / _AUTHORITY_FOLDER)
        for rank, name in enumerate([SERVER, *names]):
            _write_party(folder / name, rank, name, _party_config(config, rank, host, port))
            _issue(authority, folder, rank, name)
    except BaseException:
        # A half-written federation cannot be completed later.
        shutil.rmtree(folder, ignore_errors=True)
        raise
    print(f"{folder / SERVER}: the server, for {host}:{port}; keep this folder, it has the federation's authority")
    for name in names:
        print(
            f"{folder / name}: give this folder to {name}, over a channel that nobody else reads; then delete it here"
        )


def _parse_address(address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if not colon or address.endswith("]"):
        host, port = address, str(_DEFAULT_PORT)
    if not re.fullmatch(_HOST, host) or not port.isdigit() or not 0 < int(port) < 65536:
        raise UserError(f"--server is {shorten_repr(address)}; give HOST or HOST:PORT, such as server.example:8890")
    return host.strip("[]"), int(port)


def _check_names(names: list[str], config: Config) -> tuple[list[str], Config]:
    """The silos' names, and the configuration with their number."""
    configured = config.get("train_args", {}).get("client_num_in_total")
    if not names:
        if not isinstance(configured, int):
            raise UserError("name the silos, as in `mrtf invite --cf FILE.yaml --server HOST:PORT north south`")
        names = [f"silo{rank}" for rank in range(1, configured + 1)]
    if configured is not None and configured != len(names):
        raise UserError(
            f"train_args.client_num_in_total is {shorten_repr(configured)} and {len(names)} silos are named; make them "
            f"equal, as with --set client_num_in_total={len(names)}"
        )
    for name in names:
        if not re.fullmatch(_NAME, name) or name.lower() == SERVER:
            raise UserError(f"{shorten_repr(name)} cannot name a silo: use letters, digits, '.', '_' and '-'")
    if len({name.lower() for name in names}) < len(names):
        raise UserError("two silos have the same name; every silo needs its own")
    train = {**config.get("train_args", {}), "client_num_in_total": len(names)}
    # The default of five per round is for simulations of many clients.
    train.setdefault("client_num_per_round", len(names))
    return names, {**config, "train_args": train}


def _check_config(config: Config) -> None:
    settings = RunSettings.from_config(config)
    if settings.common.training_type == "cross_device" or settings.common.backend not in ("GRPC", "sp"):
        raise UserError(
            f"mrtf invite writes configurations for backend GRPC, and comm_args.backend is "
            f"{settings.common.backend!r}; set backend: GRPC"
        )
    data = settings.data
    if data.dataset in ("npz", "csv", "images") and data.own_data_file is None and data.loader is None:
        raise UserError(
            f"data_args.dataset {data.dataset!r} names one file for all parties; across silos each has its own: set "
            "own_data_file (data_args), such as own_data_file: data.csv"
        )


def _party_config(config: Config, rank: int, host: str, port: int) -> Config:
    """The configuration of one party; its paths are relative to the party's folder."""
    changed: dict[str, dict[str, Any]] = {section: dict(values) for section, values in config.items()}
    changed.setdefault("common_args", {}).update(training_type="cross_silo", run_dir="run")
    changed.setdefault("comm_args", {}).update(
        backend="GRPC",
        connection="outbound",
        server_address=f"[{host}]:{port}" if ":" in host else f"{host}:{port}",
        tls_certificate=_CERTIFICATE,
        tls_key=_KEY,
        tls_authority=_AUTHORITY,
    )
    data = changed.get("data_args", {})
    if rank == 0:
        changed["comm_args"] |= {"tls_revoked": f"{_AUTHORITY_FOLDER}/revoked.txt"}
        for key in ("own_data_file", "server_file", "data_file"):
            if data.get(key):
                data[key] = os.path.abspath(os.path.expanduser(str(data[key]).replace("{rank}", "0")))
        return changed
    # What belongs to the server alone: its callbacks, its passwords, its tracking.
    changed["common_args"].pop("callbacks", None)
    changed.pop("tracking_args", None)
    if data.get("own_data_file") and not os.path.isabs(os.path.expanduser(str(data["own_data_file"]))):
        data["own_data_file"] = Path(str(data["own_data_file"]).replace("{rank}", str(rank))).name
    return redact_secrets(changed)


def _write_party(folder: Path, rank: int, name: str, config: Config) -> None:
    folder.mkdir(mode=0o700, exist_ok=True)
    (folder / _CONFIG).write_text(yaml.safe_dump(config, sort_keys=False))
    words = "--role server" if rank == 0 else f"--role client --rank {rank}"
    script = folder / "start.sh"
    script.write_text(
        f"#!/usr/bin/env bash\n# Runs {_title(rank, name)}; options of `mrtf run` may follow, such as --watch.\n"
        f'cd "$(dirname "$0")" && exec mrtf run --cf {_CONFIG} {words} "$@"\n'
    )
    script.chmod(0o755)
    data = config.get("data_args", {}).get("own_data_file")
    arrays = " (x_test, class_names)" if rank == 0 else " (x_train, y_train, class_names)"
    samples = f"put your samples into {data}{arrays if str(data).endswith('.npz') else ''}, " if data else ""
    (folder / "README").write_text(
        f"This folder is {_title(rank, name)}: install mrtf_fedml {__version__}, {samples}keep {_KEY} secret.\n"
        f"Check it with `mrtf preflight --cf {_CONFIG} {words}` in this folder, then run it with `bash start.sh`.\n"
    )


def _title(rank: int, name: str) -> str:
    return "the server of a federation" if rank == 0 else f"silo {rank}, {name}, of a federation"


def _issue(authority: Authority, folder: Path, rank: int, name: str) -> None:
    """Write a new key and certificate into the party's folder."""
    from ..fedml_bridge.backends.cross_silo.certificates import CERTIFICATE, write_key

    place = folder / name
    place.mkdir(mode=0o700, exist_ok=True)
    hosts = [_server_host(folder)] if rank == 0 else []
    key, certificate = authority.issue(name, f"silo{rank}" if rank else SERVER, hosts)
    write_key(place / _KEY, key)
    (place / _CERTIFICATE).write_bytes(certificate)
    (place / _AUTHORITY).write_bytes((authority.folder / CERTIFICATE).read_bytes())


def _server_host(folder: Path) -> str:
    config = yaml.safe_load((folder / SERVER / _CONFIG).read_text())
    return _parse_address(config["comm_args"]["server_address"])[0]


def _rotate(authority: Authority, names: list[str], folder: Path) -> None:
    """New keys and certificates for these parties, or for all; the old ones are valid until they expire."""
    ranks = authority.ranks()
    for name in names or ranks:
        _check_known(name, ranks)
        _issue(authority, folder, ranks[name], name)
        print(f"{folder / name}: a new key and certificate; the old one is valid until it expires or is revoked")


def _revoke(authority: Authority, name: str, folder: Path) -> None:
    _check_known(name, authority.ranks())
    number = authority.revoke(name)
    print(
        f"{number} certificates of {name} are revoked; a running server refuses them from now on. "
        f"`mrtf invite --rotate {name} --out {folder}` issues a new one."
        if number
        else f"all certificates of {name} were revoked before"
    )


def _check_known(name: str, ranks: dict[str, int]) -> None:
    if name not in ranks:
        raise UserError(f"there is no party {name!r} in this federation; {suggest_name(name, list(ranks))}")
