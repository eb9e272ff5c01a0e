"""What must not be written down or shown of a configuration: FedML's YAML can hold keys to a user's accounts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from ..errors import UserError
from .bounded_yaml import load_yaml

#: What stands on a page for a secret.
HIDDEN = "(not shown)"

#: Whatever stands under such a name is secret, a number too. AKI and SAK are FedML's words for the keys to a bucket.
_SECRET = re.compile(r"secret|passw|passphrase|pwd|credential|(^|_)(aki|sak)$", re.IGNORECASE)
#: Under such a name a text is secret; `max_tokens: 128` and `tokenizer: words` are not.
_SECRET_TEXT = re.compile(r"(^|_|api|access)key(_?id)?s?$|token(?!i[sz])", re.IGNORECASE)
#: A path to a key's file is not the key; and the name of an entry in FedML's table of GPUs unlocks nothing.
_HARMLESS = ("tls_key", "gpu_mapping_key")


def without_secrets(config: Mapping[str, Any], shown_as: str | None = None) -> dict[str, Any]:
    """The configuration, a copy, without the secrets in it, however deep they lie.

    >>> without_secrets({"comm_args": {"MQTT_USER": "me", "MQTT_PWD": "1234", "tls_key": "mine.key"}})
    {'comm_args': {'MQTT_USER': 'me', 'tls_key': 'mine.key'}}

    Args:
        config: FedML's sections, or a part of them.
        shown_as: what stands in a secret's stead, on a page. None leaves name and value out, in a file that is read
            again: there a mask would be taken for the password.
    """
    shown = {}
    for name, value in config.items():
        if not _is_secret(str(name), value):
            shown[name] = _inside(value, shown_as)
        elif shown_as is not None:
            shown[name] = shown_as
    return shown


def words_without_secrets(words: Iterable[str]) -> list[str]:
    """The words of a command, with secrets hidden in those that set a key.

    >>> words_without_secrets(["run", "--set", "tracking_args.wandb_key=1a2b", "--set", "epochs=3"])
    ['run', '--set', 'tracking_args.wandb_key=(not shown)', '--set', 'epochs=3']
    """
    return [_shown_word(word) for word in words]


def _shown_word(word: str) -> str:
    option = word[: len("--set=")] if word.startswith("--set=") else ""
    name, equals, text = word[len(option) :].partition("=")
    if not equals:
        return word
    try:
        given = {name.rpartition(".")[2]: load_yaml(text)}
    except UserError:
        given = {name.rpartition(".")[2]: text}
    return word if without_secrets(given) == given else f"{option}{name}={HIDDEN}"


def _inside(value: Any, shown_as: str | None) -> Any:
    if isinstance(value, Mapping):
        return without_secrets(value, shown_as)
    if isinstance(value, list | tuple):
        return [_inside(item, shown_as) for item in value]
    return value


def _is_secret(name: str, value: Any) -> bool:
    # An empty password is none, and a run that is resumed needs to know that.
    if name in _HARMLESS or value in (None, "") or isinstance(value, bool):
        return False
    if _SECRET.search(name):
        return True
    texts = value if isinstance(value, list | tuple) else [value]
    return bool(_SECRET_TEXT.search(name)) and any(isinstance(text, str) for text in texts)
