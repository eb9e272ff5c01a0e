"""`mrtf example own_csv --from CLIENTS.csv SERVER.csv`: a configuration for two CSV files, from their columns."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from ..config import DataSettings
from ..data.formatting import format_list, quote
from ..data.sources.csv_columns import identifies_samples, is_missing, parse_number
from ..data.sources.csv_files import ID_COLUMN, ROW_NUMBERS, load_csv, read_rows
from ..errors import UserError

#: Names of the column of classes, the most likely first.
_LABEL_NAMES = ("label", "class", "target", "diagnosis", "outcome", "category", "species", "y", "type", "status")
#: Names of the column of owners.
_USER_NAMES = (
    "hospital",
    "client",
    "site",
    "user",
    "owner",
    "party",
    "institution",
    "centre",
    "center",
    "silo",
    "clinic",
)
#: At most this many distinct values are counted per column, and at most this many classes or owners are proposed.
_MAX_VALUES, _MAX_CLASSES = 100_000, 200
_SAMPLES_PER_CLIENT, _MAX_CLIENTS, _MAX_CLIENTS_PER_ROUND = 20, 10, 5


@dataclass
class _Column:
    """What one file has in one column."""

    rows: int = 0
    numbers: int = 0
    missing: int = 0
    values: set[str] = field(default_factory=set)
    #: The first value that is neither a number nor missing, and its line.
    first_string: tuple[int, str] | None = None

    @property
    def is_number(self) -> bool:
        return self.numbers > 0 and self.first_string is None

    @property
    def is_distinct(self) -> bool:
        return self.rows > 1 and not self.missing and len(self.values) == self.rows

    @property
    def is_text(self) -> bool:
        """Whether its strings identify samples instead of being categories."""
        return not self.numbers and identifies_samples(len(self.values), self.rows)


@dataclass(frozen=True)
class Proposal:
    """The data settings for two files, and the reason for each."""

    data: dict[str, Any]
    reasons: dict[str, str]
    clients: int | None


def propose_settings(clients: Path, server: Path, label: str | None = None) -> Proposal:
    """Propose the settings of `dataset: csv` for the clients' and the server's file.

    Args:
        clients: the clients' file.
        server: the server's file.
        label: the column of classes; None to find it.
    """
    own, other = _survey(clients, "data_file"), _survey(server, "server_file")
    label = _find_label(clients, own, other, label)
    data: dict[str, Any] = {"dataset": "csv", "data_file": str(clients), "server_file": str(server)}
    reasons: dict[str, str] = {}
    data["label_column"] = label
    reasons["label_column"] = f"{len(own[label].values)} classes: {format_list(sorted(own[label].values))}"
    id_column = _find_id(other, label)
    if id_column is not None:
        data["id_column"] = id_column
        reasons["id_column"] = "a different value in each of the server's rows; in predictions.csv"
    user = next((name for name in own if _is_owner(name, own[name]) and name not in (label, id_column)), None)
    if user is not None:
        data["user_column"] = user
        data["partition_method"] = "user"
        reasons["user_column"] = f"{len(own[user].values)} clients: {format_list(sorted(own[user].values))}"
    ignored = {
        name: reason
        for name in dict.fromkeys([*own, *other])
        if name not in (label, id_column, user) and (reason := _reason_to_ignore(name, own.get(name), other.get(name)))
    }
    if ignored:
        data["ignore_columns"] = list(ignored)
        reasons["ignore_columns"] = "; ".join(f"{name}: {reason}" for name, reason in ignored.items())
    features = [name for name in own if name in other and name not in (label, id_column, user, *ignored)]
    gaps = [name for name in features if own[name].missing or other[name].missing]
    if gaps:
        data["fill_missing"] = True
        reasons["fill_missing"] = f"values are missing in {format_list(gaps)}"
    rows = own[label].rows
    count = None if user is not None else max(2, min(_MAX_CLIENTS, rows // _SAMPLES_PER_CLIENT))
    return Proposal(data, reasons, count)


def fill_template(template: str, proposal: Proposal) -> str:
    """The packaged configuration with the proposed data settings, each with its reason as a comment."""
    lines = ["data_args:"]
    for key, value in proposal.data.items():
        reason = proposal.reasons.get(key)
        if reason is not None:
            lines += [f"  # {part}" for part in _wrap(reason)]
        lines.append(f"  {key}: {_format(value)}")
    if proposal.clients is not None:
        lines += ["  # the rows are divided among simulated clients; user_column names their owner where one is known"]
        lines += ["  partition_method: dirichlet", "  partition_alpha: 0.5", "  min_samples: 5"]
    text = re.sub(r"^data_args:\n(?:  .*\n)+", lambda _: "\n".join(lines) + "\n", template, flags=re.MULTILINE)
    text = re.sub(
        r"\A(?:#.*\n)+", "# Written by mrtf example own_csv --from. Check the columns; then: mrtf run --cf FILE\n", text
    )
    if proposal.clients is None:
        text = re.sub(r"^  client_num_in_total: .*\n", "", text, flags=re.MULTILINE)
        chosen = min(_MAX_CLIENTS_PER_ROUND, int(proposal.reasons["user_column"].split()[0]))
    else:
        text = re.sub(r"^(  client_num_in_total: ).*", rf"\g<1>{proposal.clients}", text, flags=re.MULTILINE)
        chosen = min(_MAX_CLIENTS_PER_ROUND, proposal.clients)
    return re.sub(r"^(  client_num_per_round: ).*", rf"\g<1>{chosen}", text, flags=re.MULTILINE)


def check_proposal(proposal: Proposal) -> str:
    """Read both files with the proposed settings; return the numbers of samples, features and classes."""
    source = load_csv(DataSettings(**proposal.data))
    return (
        f"{len(source.y_train)} labelled and {len(source.x_test)} unlabelled samples, {source.x_train.shape[1]} "
        f"features, {source.class_num} classes"
    )


def _survey(path: Path, key: str) -> dict[str, _Column]:
    """What each column of a file holds."""
    columns: dict[str, _Column] = {}
    for line, decimal_comma, row in read_rows(path, DataSettings(), key):
        for name, value in row:
            column = columns.setdefault(name, _Column())
            column.rows += 1
            string = value.strip()
            if is_missing(string, number=True):
                column.missing += 1
                continue
            if parse_number(string, decimal_comma) == parse_number(string, decimal_comma):
                column.numbers += 1
            elif column.first_string is None:
                column.first_string = line, string
            if len(column.values) < _MAX_VALUES:
                column.values.add(string)
    if not columns:
        raise UserError(f"data file {str(path)!r} has a header and no row; provide at least one sample")
    return columns


def _find_label(path: Path, own: dict[str, _Column], other: dict[str, _Column], label: str | None) -> str:
    if label is not None:
        if label not in own:
            raise UserError(f"data file {str(path)!r} has no column {quote(label)}; correct --label")
        return label
    possible = [name for name, column in own.items() if _may_be_label(column)]
    # The server does not know the classes: it lacks the column, or its column is empty.
    unlabelled = [name for name in possible if name not in other or not other[name].values]
    for names in (unlabelled, possible):
        named = [
            name for word in _LABEL_NAMES for name in names if name.lower() == word and not _is_owner(name, own[name])
        ]
        if named:
            return named[0]
    others = [name for name in unlabelled if not _is_owner(name, own[name])]
    if len(others) != 1:
        raise UserError(
            f"data file {str(path)!r}: the column of the classes cannot be determined "
            f"({format_list(others or list(own))}); name it with --label COLUMN"
        )
    return others[0]


def _may_be_label(column: _Column) -> bool:
    return not column.missing and 2 <= len(column.values) <= min(_MAX_CLASSES, max(2, column.rows // 2))


def _is_owner(name: str, column: _Column) -> bool:
    words = re.split(r"[_ .-]", name.lower())
    is_named = any(word in _USER_NAMES for word in words)
    return is_named and not column.missing and 2 <= len(column.values) <= min(_MAX_CLASSES, column.rows // 2)


def _find_id(other: dict[str, _Column], label: str) -> str | None:
    names = [name for name, column in other.items() if name != label and column.is_distinct]
    named = [name for name in names if ID_COLUMN.fullmatch(name)]
    texts = [name for name in names if other[name].is_text]
    return next(iter([*named, *texts]), None)


def _reason_to_ignore(name: str, own: _Column | None, other: _Column | None) -> str | None:
    """Why a column cannot be a feature; None if it can."""
    if own is None or other is None:
        return "only in the server's file" if own is None else "only in the clients' file"
    if ROW_NUMBERS.fullmatch(name) and own.is_distinct and own.is_number:
        return "the numbers of the rows"
    if ID_COLUMN.fullmatch(name) and own.is_distinct:
        return "it identifies rows"
    for column, owner in ((own, "clients'"), (other, "server's")):
        if not column.values:
            return f"empty in the {owner} file"
        if column.numbers and column.first_string is not None:
            line, string = column.first_string
            return f"numbers and also {quote(string)} (line {line} of the {owner} file)"
    if own.is_text:
        return "free text, or a different value in most rows"
    if own.is_number != other.is_number:
        return "numbers in one file and text in the other"
    return None


def _wrap(reason: str, width: int = 112) -> Iterator[str]:
    line = ""
    for word in reason.split():
        if line and len(line) + 1 + len(word) > width:
            yield line
            line = word
        else:
            line = f"{line} {word}" if line else word
    yield line


def _format(value: Any) -> str:
    """A value as YAML in one line."""
    return (
        yaml.safe_dump(value, default_flow_style=True, width=10_000, allow_unicode=True).removesuffix("...\n").strip()
    )
