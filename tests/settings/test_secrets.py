"""Keys to a user's accounts are found by their names, wherever they lie; the rest of a configuration stays."""

from __future__ import annotations

from mrtf_fedml.settings import section_keys
from mrtf_fedml.settings.secrets import HIDDEN, without_secrets, words_without_secrets

SECRETS = {
    "tracking_args": {"wandb_key": "s3cret", "mlops_api_key": "s3cret", "apiKey": "s3cret"},
    "comm_args": {
        "customized_training_mqtt_config": {"MQTT_PWD": 1234, "redis_password": "s3cret"},
        "customized_training_s3_config": {"CN_S3_AKI": "s3cret", "CN_S3_SAK": "s3cret", "aws_access_key_id": "s3cret"},
        "brokers": [{"access_token": "s3cret"}, [{"client_secret": "s3cret"}]],
        "auth_tokens": ["s3cret", "s3cret"],
        "credentials": {"user": "s3cret"},
    },
}
HARMLESS = {
    "comm_args": {"tls_key": "mine.key", "MQTT_PWD": "", "MQTT_USER": "me", "BROKER_PORT": 1883},
    "device_args": {"gpu_mapping_key": "mapping_default", "using_gpu": False},
    "data_args": {
        "max_tokens": 128,
        "tokenizer": "words",
        "keyword": "digit",
        "monkey": "ape",
        "images": [1, "two", None],
    },
}


def test_secrets_are_left_out_of_what_is_read_again() -> None:
    kept = without_secrets(SECRETS)
    assert kept["tracking_args"] == {}
    assert kept["comm_args"] == {
        "customized_training_mqtt_config": {},
        "customized_training_s3_config": {},
        "brokers": [{}, [{}]],
    }


def test_secrets_are_masked_in_what_is_shown() -> None:
    shown = without_secrets(SECRETS, HIDDEN)
    assert "s3cret" not in str(shown)
    assert "1234" not in str(shown)
    assert shown["tracking_args"] == dict.fromkeys(SECRETS["tracking_args"], HIDDEN)
    assert shown["comm_args"]["brokers"] == [{"access_token": HIDDEN}, [{"client_secret": HIDDEN}]]


def test_what_is_no_secret_stays_as_it_is() -> None:
    assert without_secrets(HARMLESS) == HARMLESS
    ours = {section: dict.fromkeys(keys, "a text") for section, keys in section_keys().items()}
    assert without_secrets(ours) == ours, "a run without one of its settings is another run"


def test_the_given_configuration_is_not_changed() -> None:
    before = str(SECRETS)
    without_secrets(SECRETS, HIDDEN)["comm_args"]["brokers"].clear()
    assert str(SECRETS) == before


def test_a_command_is_shown_without_the_secrets_it_sets() -> None:
    words = ["compare", "--set", "s3={CN_S3_SAK: s3cret}", "--set=wandb_key=s3cret", "--set", "wandb_key={s3cret"]
    shown = words_without_secrets([*words, "--seeds", "3", "--set", "threads=1"])
    assert shown[:3] == ["compare", "--set", f"s3={HIDDEN}"]
    assert shown[3:6] == [f"--set=wandb_key={HIDDEN}", "--set", f"wandb_key={HIDDEN}"]
    assert shown[6:] == ["--seeds", "3", "--set", "threads=1"]
