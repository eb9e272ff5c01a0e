"""`mrtf invite`: what is in the folders, and what is refused."""

from __future__ import annotations

import json
import ssl
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509

from mrtf_fedml.cli import main
from mrtf_fedml.config import RunSettings
from mrtf_fedml.fedml_bridge.backends.cross_silo.transports.revocation import RevocationList, certificate_digest
from tests.conftest import small_config, write_yaml

NAMES = ("north", "south")


def configuration(folder: Path, **changes: Any) -> Path:
    config = small_config(client_num_in_total=2, client_num_per_round=2, **changes)
    config["tracking_args"] = {"enable_wandb": True, "wandb_key": "secret-of-the-server"}
    return write_yaml(folder / "shared.yaml", config)


def invite(folder: Path, *words: str, server: str = "127.0.0.1:9000", **changes: Any) -> int:
    file = configuration(folder, **changes)
    return main(["invite", "--cf", str(file), "--server", server, "--out", str(folder / "made"), *(words or NAMES)])


@pytest.fixture
def made(tmp_path: Path) -> Path:
    assert invite(tmp_path) == 0
    return tmp_path / "made"


def certificate_of(folder: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate((folder / "certificate.pem").read_bytes())


def common_name(certificate: x509.Certificate) -> Any:
    return certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)[0].value


def test_each_party_has_a_folder_with_its_own_certificate(made: Path) -> None:
    assert {path.name for path in made.iterdir()} == {"server", *NAMES}
    for name, party in (("server", "server"), ("north", "silo1"), ("south", "silo2")):
        assert common_name(certificate_of(made / name)) == party
        names = {path.name for path in (made / name).iterdir()} - {"authority"}
        assert names == {"authority.pem", "certificate.pem", "key.pem", "config.yaml", "README", "start.sh"}
        assert len((made / name / "README").read_text().splitlines()) == 2
        context = ssl.create_default_context(cafile=str(made / name / "authority.pem"))
        # Raises if key and certificate do not belong together.
        context.load_cert_chain(str(made / name / "certificate.pem"), str(made / name / "key.pem"))


def test_private_keys_are_readable_by_their_owner_only_and_written_once(made: Path) -> None:
    keys = [path for path in made.rglob("*") if path.is_file() and b"PRIVATE KEY" in path.read_bytes()]
    assert len(keys) == 4, "server, two silos and the authority"
    assert len({path.read_bytes() for path in keys}) == 4
    assert {stat.S_IMODE(path.stat().st_mode) for path in keys} == {0o600}
    assert {stat.S_IMODE((made / name).stat().st_mode) for name in ("server", *NAMES)} == {0o700}


def test_configurations_are_valid_and_a_silo_has_no_secret_of_the_server(made: Path) -> None:
    for name in ("server", *NAMES):
        settings = RunSettings.from_config(yaml.safe_load((made / name / "config.yaml").read_text()))
        assert (settings.common.training_type, settings.common.backend) == ("cross_silo", "GRPC")
        assert settings.silo.server_address == "127.0.0.1:9000"
        assert settings.train.client_num_in_total == 2
    assert "secret-of-the-server" in (made / "server" / "config.yaml").read_text()
    for path in (made / "north").iterdir():
        assert b"secret-of-the-server" not in path.read_bytes()
    assert "--role client --rank 2" in (made / "south" / "start.sh").read_text()


def test_own_data_file_is_in_the_silo_folder_and_absolute_on_the_server(tmp_path: Path) -> None:
    assert invite(tmp_path, own_data_file="tables/{rank}.npz") == 0
    files = [
        yaml.safe_load((tmp_path / "made" / name / "config.yaml").read_text())["data_args"]["own_data_file"]
        for name in ("server", *NAMES)
    ]
    assert files == [str(Path("tables/0.npz").absolute()), "1.npz", "2.npz"]
    assert "1.npz" in (tmp_path / "made" / "north" / "README").read_text()


@pytest.mark.parametrize(
    "words",
    [
        ["north"],
        ["north", "North"],
        ["north", "../south"],
        ["north", "server"],
        ["--server", "no host", *NAMES],
        ["--server", "host:99999", *NAMES],
        ["--revoke", "north"],
        ["--set", "backend=MQTT_S3", *NAMES],
        ["--set", "dataset=csv", *NAMES],
    ],
)
def test_unusable_words_are_refused_and_nothing_is_written(tmp_path: Path, words: list[str]) -> None:
    assert invite(tmp_path, *words) == 2
    assert not (tmp_path / "made").exists()


def test_existing_federation_is_not_overwritten(tmp_path: Path, made: Path) -> None:
    before = (made / "north" / "key.pem").read_bytes()
    assert invite(tmp_path) == 2
    assert (made / "north" / "key.pem").read_bytes() == before


def test_rotate_issues_a_new_key_and_revoke_lists_only_the_earlier_ones(made: Path) -> None:
    old = (made / "north" / "certificate.pem").read_bytes()
    assert main(["invite", "--revoke", "north", "--out", str(made)]) == 0
    assert main(["invite", "--rotate", "north", "--out", str(made)]) == 0
    new = (made / "north" / "certificate.pem").read_bytes()
    assert new != old
    assert common_name(certificate_of(made / "north")) == "silo1"
    assert stat.S_IMODE((made / "north" / "key.pem").stat().st_mode) == 0o600
    revoked = (made / "server" / "authority" / "revoked.txt").read_text()
    assert certificate_digest(old) in revoked
    assert certificate_digest(new) not in revoked
    assert main(["invite", "--revoke", "east", "--out", str(made)]) == 2
    assert main(["invite", "--rotate", "--out", str(made / "server")]) == 2


def test_rotate_without_a_name_renews_every_party(made: Path) -> None:
    before = {name: (made / name / "key.pem").read_bytes() for name in ("server", *NAMES)}
    assert main(["invite", "--rotate", "--out", str(made)]) == 0
    assert all((made / name / "key.pem").read_bytes() != key for name, key in before.items())
    issued = [json.loads(line) for line in (made / "server" / "authority" / "issued.jsonl").read_text().splitlines()]
    assert [line["name"] for line in issued] == ["server", *NAMES] * 2


def test_list_is_read_again_when_it_changes_and_kept_when_it_is_gone(made: Path) -> None:
    file = made / "server" / "authority" / "revoked.txt"
    revoked = RevocationList(str(file))
    north, south = (certificate_digest((made / name / "certificate.pem").read_bytes()) for name in NAMES)
    assert [digest in revoked for digest in (north, south, None)] == [False] * 3
    assert main(["invite", "--revoke", "south", "--out", str(made)]) == 0
    for _ in range(2):
        assert [digest in revoked for digest in (north, south, None)] == [False, True, False]
        file.unlink(missing_ok=True)
