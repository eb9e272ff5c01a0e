"""`mrtf example`: write a packaged configuration, for users of the installed package."""

from __future__ import annotations

import argparse
import re
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from ..data.sources.files import file_problem
from ..errors import UserError, suggest_name
from .csv_proposal import Proposal, check_proposal, fill_template, propose_settings

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

_SUFFIX = ".yaml"
#: Files that are no configurations: FedML's mapping of ranks to GPUs, which `mpi_gpu` refers to.
_OTHER_FILES = ("gpus",)


def main(options: argparse.Namespace) -> int:
    """Write the example, or list all."""
    if options.name is None:
        print(describe_examples())
        return 0
    target = Path(options.output) if options.output else None
    files = getattr(options, "from")
    if files is None:
        print(write_example(options.name, target, options.force))
        return 0
    clients, server = map(Path, files)
    path, proposal, numbers = write_csv_example(options.name, clients, server, options.label, target, options.force)
    print(f"{path}: {numbers}")
    for key, reason in proposal.reasons.items():
        print(f"  {key}: {proposal.data[key]} ({reason})")
    print(f"Check these columns in the file. Then: mrtf data --cf {path}; mrtf run --cf {path}")
    return 0


def list_examples() -> list[str]:
    """The names of the packaged configurations, sorted.

    >>> "quickstart" in list_examples()
    True
    """
    return sorted(name for name in _examples() if name not in _OTHER_FILES)


def describe_examples() -> str:
    """One line per configuration: its name and the first sentence of its file."""
    examples, names = _examples(), list_examples()
    width = max(len(name) for name in names)
    lines = [f"{name:<{width}}  {_first_sentence(examples[name].read_text(encoding='utf-8'))}" for name in names]
    return "\n".join([*lines, "", "`mrtf example NAME` writes NAME.yaml to start from."])


def _first_sentence(text: str) -> str:
    r"""The first sentence of the comment at the top of a file.

    >>> _first_sentence("# Your own table. It\n# has rows: a header. Run it.\ncommon_args:")
    'Your own table.'
    """
    comment = " ".join(line.removeprefix("#").strip() for line in text.split("\n\n")[0].split("\n") if line[:1] == "#")
    # Not after `Sect.`: the next sentence starts with a capital.
    return re.split(r"(?<=\.) (?=[A-Z])", comment, maxsplit=1)[0].partition(" Run it with:")[0]


def write_example(name: str, target: Path | None, force: bool = False) -> Path:
    """Write the packaged configuration `name`, with or without `.yaml`, and return its path.

    Args:
        name: one of `list_examples()`, or `gpus`, the mapping that `mpi_gpu` names.
        target: the file to write; None is `NAME.yaml` in the current folder. A folder gets `NAME.yaml` in it.
        force: overwrite a file that exists.
    """
    examples = _examples()
    name = name.removesuffix(_SUFFIX)
    if name not in examples:
        raise UserError(f"there is no example {name!r}; {suggest_name(name, list(examples))}")
    return _write(name, examples[name].read_bytes(), target, force)


def write_csv_example(
    name: str, clients: Path, server: Path, label: str | None, target: Path | None, force: bool = False
) -> tuple[Path, Proposal, str]:
    """Write `own_csv` with the settings that these two files need.

    Returns:
        The file's path, the settings with their reasons, and a description of the data that they give.
    """
    if name.removesuffix(_SUFFIX) != "own_csv":
        raise UserError(f"--from is for `mrtf example own_csv`, not for {name!r}; leave it out")
    for path in (clients, server):
        if not path.is_file():
            raise UserError(
                f"data file {str(path)!r} {file_problem(path)}; name the clients' and the server's csv file"
            )
    proposal = propose_settings(clients, server, label)
    numbers = check_proposal(proposal)
    text = fill_template(_examples()["own_csv"].read_text(encoding="utf-8"), proposal)
    return _write("own_csv", text.encode("utf-8", "surrogateescape"), target, force), proposal, numbers


def _write(name: str, content: bytes, target: Path | None, force: bool) -> Path:
    target = Path() if target is None else target
    if target.is_dir():
        target = target / (name + _SUFFIX)
    if target.exists() and not force:
        raise UserError(f"{str(target)!r} exists; name another file with -o, or overwrite it with --force")
    try:
        target.write_bytes(content)
    except OSError as error:
        raise UserError(f"{str(target)!r} cannot be written ({error.strerror}); name another with -o") from None
    return target


def _examples() -> dict[str, Traversable]:
    return {file.name.removesuffix(_SUFFIX): file for file in _folder().iterdir() if file.name.endswith(_SUFFIX)}


def _folder() -> Traversable:
    try:
        return files("mrtf_fedml.example_configs")
    except ModuleNotFoundError:
        # In a clone, installed editable or not at all, the folder has another name.
        return Path(__file__).parents[2] / "fedml_configs"
