"""Writes the reference pages that are generated from the code: `python docs/write_reference.py`."""

from __future__ import annotations

import argparse
from pathlib import Path

from mrtf_fedml.algorithms import algorithm_by_name, algorithm_names
from mrtf_fedml.cli import build_parser
from mrtf_fedml.config.reference import settings_reference
from mrtf_fedml.training.evaluation import STANDARD_KEYS

FOLDER = Path(__file__).parent / "reference"
GENERATED = "This page is generated: `python docs/write_reference.py`."

SETTINGS = f"""\
# Settings

Our keys, by the section of FedML's YAML that contains them. Each key has one section; it is also read if it is
written in another of FedML's sections. `--set key=value` changes it on the command line. FedML's own keys may be
in the same file. An unknown key in an algorithm's own section is an error that names the nearest one.

Keys under an algorithm's name are read by that algorithm only, and by MrTF or FedDF if it is their `base`. An
algorithm of your own has its own keys: see [Extending](../guides/extending.md).

{GENERATED}

"""

COMMANDS = f"""\
# Command line

Exit codes: 0 success, 1 failure, 2 a wrong setting or file, 130 after Ctrl-C, 143 after SIGTERM.
`eval "$(mrtf completion bash)"` completes commands and options.

{GENERATED}
"""

METRICS = f"""\
# Metrics

`metrics.jsonl` in a run directory has one JSON object per round. `summary.json` has those of the last round.

{GENERATED}

## Every algorithm

| key | meaning |
|---|---|
"""


def settings_page() -> str:
    """docs/reference/settings.md."""
    algorithms = [algorithm_by_name(name) for name in algorithm_names()]
    return SETTINGS + settings_reference({algorithm.Settings: algorithm.name for algorithm in algorithms})


def command_line_page() -> str:
    """docs/reference/command_line.md."""
    parser = build_parser()
    commands = next(each for each in parser._actions if isinstance(each, argparse._SubParsersAction))
    descriptions = {choice.dest: choice.help for choice in commands._choices_actions}
    lines = [COMMANDS]
    for name, command in commands.choices.items():
        lines += [f"## `mrtf {name}`", "", _sentence(descriptions[name]), ""]
        options = [each for each in command._actions if not isinstance(each, argparse._HelpAction)]
        if options:
            lines += ["| argument | meaning |", "|---|---|", *map(_option_row, options), ""]
    return "\n".join(lines)


def metrics_page() -> str:
    """docs/reference/metrics.md."""
    lines = [f"| `{key}` | {_sentence(meaning)} |" for key, meaning in STANDARD_KEYS.items()]
    for name in algorithm_names():
        # A subclass that declares none has those of its parent.
        metrics = vars(algorithm_by_name(name)).get("metrics", ())
        if metrics:
            lines += ["", f"## {name}", "", "| key | meaning |", "|---|---|"]
            lines += [f"| `{metric.name}` | {_sentence(metric.label)} |" for metric in metrics]
    return METRICS + "\n".join(lines) + "\n"


def _option_row(option: argparse.Action) -> str:
    value = option.metavar if option.metavar is not None else " or ".join(option.choices or ())
    value = " ".join(value) if isinstance(value, tuple) else str(value)
    shown = " ".join(part for part in (", ".join(option.option_strings), value) if part)
    return f"| `{shown or option.dest}` | {_sentence(option.help or '')} |"


def _sentence(text: str | None) -> str:
    text = (text or "").replace("|", "\\|")
    return text[:1].upper() + text[1:] + "." if text else ""


PAGES = {"settings.md": settings_page, "command_line.md": command_line_page, "metrics.md": metrics_page}

if __name__ == "__main__":
    for file, page in PAGES.items():
        (FOLDER / file).write_text(page())
