"""Writes docs/settings.md from the settings' own source: `python docs/write_settings.py > docs/settings.md`."""

from __future__ import annotations

from mrtf_fedml.algorithms import algorithm_named, algorithm_names
from mrtf_fedml.settings.reference import settings_reference

INTRODUCTION = """\
# Settings

Every key of ours, by the section of FedML's YAML that holds it. Each has one home; a key that you write in another of
FedML's sections is read all the same. `--set key=value` changes it on the command line. FedML's own keys may stand
beside ours. A key in a section of an algorithm's own that does not exist is an error that names the nearest one.

Keys under an algorithm's name are read by that algorithm alone, and by MrTF or FedDF where it is their `base`. An
algorithm of your own brings its own keys: see [extending.md](extending.md).

This page is written by `python docs/write_settings.py > docs/settings.md` from the comments in the source.
"""

if __name__ == "__main__":
    algorithms = [algorithm_named(name) for name in algorithm_names()]
    print(INTRODUCTION)
    print(settings_reference({algorithm.Settings: algorithm.name for algorithm in algorithms}), end="")
