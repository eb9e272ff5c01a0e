"""Redaction of secrets: FedML's YAML can contain the keys to a user's accounts, which must not be stored or shown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from ..errors import UserError
from .loader import load_yaml

#: Shown in place of a secret.
REDACTED = "(not shown)"

#: Every value of such a key is secret, also a number. AKI and SAK are FedML's names for the keys to an S3 bucket.
_SECRET = re.compile(r"secret|passw|passphrase|pwd|credential|(^|_)(aki|sak)$", re.IGNORECASE)
#: A string value of such a key is secret; those of `max_tokens: 128` and `tokenizer: words` are not.
_SECRET_STRING = re.compile(r"(^|_|api|access)key(_?id)?s?$|token(?!i[sz])", re.IGNORECASE)
#: The path of a key file, and the name of an entry in FedML's GPU mapping.
_NOT_SECRET = ("tls_key", "gpu_mapping_key")


def redact_secrets(config: Mapping[str, Any], replacement: str | None = None) -> dict[str, Any]:
    """A copy of the configuration without its secrets, at any depth.

    >>> redact_secrets({"comm_args": {"MQTT_USER": "me", "MQTT_PWD": "1234", "tls_key": "mine.key"}})
    {'comm_args': {'MQTT_USER': 'me', 'tls_key': 'mine.key'}}

    Args:
        config: FedML's sections, or a part of them.
        replacement: shown in place of a secret. None removes key and value, for a file that is read again: there a
            replacement would be used as the password.
    """
    redacted = {}
    for name, value in config.items():
        if not _is_secret(str(name), value):
            redacted[name] = _redact_value(value, replacement)
        elif replacement is not None:
            redacted[name] = replacement
    return redacted


def redact_arguments(arguments: Iterable[str]) -> list[str]:
    """The arguments of a command, with the secrets hidden in those that set a key.

    >>> redact_arguments(["run", "--set", "tracking_args.wandb_key=1a2b", "--set", "epochs=3"])
    ['run', '--set', 'tracking_args.wandb_key=(not shown)', '--set', 'epochs=3']
    """
    return [_redact_argument(argument) for argument in arguments]


def _redact_argument(argument: str) -> str:
    option = argument[: len("--set=")] if argument.startswith("--set=") else ""
    name, equals, text = argument[len(option) :].partition("=")
    if not equals:
        return argument
    try:
        setting = {name.rpartition(".")[2]: load_yaml(text)}
    except UserError:
        setting = {name.rpartition(".")[2]: text}
    return argument if redact_secrets(setting) == setting else f"{option}{name}={REDACTED}"


def _redact_value(value: Any, replacement: str | None) -> Any:
    if isinstance(value, Mapping):
        return redact_secrets(value, replacement)
    if isinstance(value, list | tuple):
        return [_redact_value(item, replacement) for item in value]
    return value


def _is_secret(name: str, value: Any) -> bool:
    # An empty password is not secret, and a resumed run needs it.
    if name in _NOT_SECRET or value in (None, "") or isinstance(value, bool):
        return False
    if _SECRET.search(name):
        return True
    items = value if isinstance(value, list | tuple) else [value]
    return bool(_SECRET_STRING.search(name)) and any(isinstance(item, str) for item in items)
