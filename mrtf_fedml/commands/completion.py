"""`mrtf completion`: shell completion of the commands, their options, the keys of --set and the names of examples."""

from __future__ import annotations

import argparse

from ..config.schema import section_keys
from .example import list_examples

_BASH = """_mrtf() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" words=""
    if [ "${{COMP_WORDS[COMP_CWORD-1]}}" = "--set" ]; then
        COMPREPLY=($(compgen -S = -W "{keys}" -- "$word"))
        compopt -o nospace 2>/dev/null
        return
    fi
    if [ "$COMP_CWORD" -eq 1 ]; then
        words="{commands}"
    else
        case "${{COMP_WORDS[1]}}" in
{cases}
        esac
    fi
    COMPREPLY=($(compgen -W "$words" -- "$word"))
    # Anything else is a file or a folder.
    [ ${{#COMPREPLY[@]}} -gt 0 ] || COMPREPLY=($(compgen -f -- "$word"))
}}
complete -o filenames -F _mrtf mrtf"""


def completion_script(parser: argparse.ArgumentParser, shell: str) -> str:
    """The script for `bash`, `zsh` or `fish`, generated from the parser."""
    words = _words(parser)
    if shell == "fish":
        return "\n".join(_fish(words))
    cases = "\n".join(f'            {name}) words="{" ".join(choices)}" ;;' for name, choices in words.items())
    script = _BASH.format(commands=" ".join(words), cases=cases, keys=" ".join(_setting_keys()))
    how = "~/.bashrc" if shell == "bash" else "~/.zshrc"
    head = f'# Put this line into {how}:  eval "$(mrtf completion {shell})"'
    return "\n".join([head, *(["autoload -U bashcompinit && bashcompinit"] if shell == "zsh" else []), script])


def _fish(words: dict[str, list[str]]) -> list[str]:
    lines = ["# Put this line into ~/.config/fish/config.fish:  mrtf completion fish | source"]
    lines.append(f"complete -c mrtf -n __fish_use_subcommand -f -a '{' '.join(words)}'")
    for name, choices in words.items():
        for word in choices:
            if word == "--set":
                keys = " ".join(f"{key}=" for key in _setting_keys())
                lines.append(f"complete -c mrtf -n '__fish_seen_subcommand_from {name}' -l set -x -a '{keys}'")
                continue
            kind = f"-l {word.removeprefix('--')}" if word.startswith("--") else f"-a {word}"
            lines.append(f"complete -c mrtf -n '__fish_seen_subcommand_from {name}' {kind}")
    return lines


def _setting_keys() -> list[str]:
    """Every key that --set takes without its section."""
    return sorted({key for keys in section_keys().values() for key in keys})


def _words(parser: argparse.ArgumentParser) -> dict[str, list[str]]:
    """The options and choices of each command."""
    (commands,) = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    words = {}
    for name, command in commands.choices.items():
        choices = [option for action in command._actions for option in action.option_strings if option.startswith("--")]
        choices += [
            str(choice) for action in command._actions if not action.option_strings for choice in action.choices or ()
        ]
        words[name] = [*choices, *(list_examples() if name == "example" else [])]
    return words
