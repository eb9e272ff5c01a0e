"""Redaction of secrets by key name; the rest of a configuration is unchanged."""

from __future__ import annotations

from mrtf_fedml.config import section_keys
from mrtf_fedml.config.secrets import REDACTED, redact_arguments, redact_secrets

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


def test_redact_secrets_removes_keys_without_replacement() -> None:
    redacted = redact_secrets(SECRETS)
    assert redacted["tracking_args"] == {}
    assert redacted["comm_args"] == {
        "customized_training_mqtt_config": {},
        "customized_training_s3_config": {},
        "brokers": [{}, [{}]],
    }


def test_redact_secrets_masks_values_with_replacement() -> None:
    redacted = redact_secrets(SECRETS, REDACTED)
    assert "s3cret" not in str(redacted)
    assert "1234" not in str(redacted)
    assert redacted["tracking_args"] == dict.fromkeys(SECRETS["tracking_args"], REDACTED)
    assert redacted["comm_args"]["brokers"] == [{"access_token": REDACTED}, [{"client_secret": REDACTED}]]


def test_redact_secrets_keeps_what_is_not_secret() -> None:
    assert redact_secrets(HARMLESS) == HARMLESS
    ours = {section: dict.fromkeys(keys, "a text") for section, keys in section_keys().items()}
    assert redact_secrets(ours) == ours, "a run without one of its settings is another run"


def test_redact_secrets_does_not_change_its_argument() -> None:
    before = str(SECRETS)
    redact_secrets(SECRETS, REDACTED)["comm_args"]["brokers"].clear()
    assert str(SECRETS) == before


def test_redact_arguments_masks_secrets_in_set_options() -> None:
    arguments = ["compare", "--set", "s3={CN_S3_SAK: s3cret}", "--set=wandb_key=s3cret", "--set", "wandb_key={s3cret"]
    redacted = redact_arguments([*arguments, "--seeds", "3", "--set", "threads=1"])
    assert redacted[:3] == ["compare", "--set", f"s3={REDACTED}"]
    assert redacted[3:6] == [f"--set=wandb_key={REDACTED}", "--set", f"wandb_key={REDACTED}"]
    assert redacted[6:] == ["--seeds", "3", "--set", "threads=1"]
