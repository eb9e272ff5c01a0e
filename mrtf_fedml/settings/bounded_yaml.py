"""YAML from anybody: nothing in it runs, and it takes neither memory nor time that a configuration would not."""

from __future__ import annotations

from typing import Any

import yaml

from ..errors import UserError, shown

#: No configuration of a person's has so many bytes, nor so many letters when its anchors are written out.
LARGEST = 50_000
DEEPEST = 50
_LONGEST_NUMBER = 1000


def load_yaml(text: str, largest: int = LARGEST) -> Any:
    """What the text says.

    >>> load_yaml("epochs: 3")
    {'epochs': 3}

    Raises:
        UserError: the end of a sentence that begins with where the text is from.
    """
    if len(text) > largest:
        raise UserError(f"has more than {largest} letters, too many for a configuration")
    try:
        return _loaded(text, largest)
    # Beside its own errors YAML lets those of Python through: a date in month 13, a number of 5000 digits.
    except (yaml.YAMLError, ValueError, TypeError, AttributeError, KeyError, OverflowError, RecursionError) as error:
        if isinstance(error, UserError):
            raise
        place = getattr(error, "problem_mark", None)
        where = f" at line {place.line + 1}" if place else ""
        raise UserError(f"is not valid YAML{where}") from None


def _loaded(text: str, largest: int) -> Any:
    _check_depth(text)
    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        # Before anything is made of it: a few lines of anchors may stand for more than any memory holds.
        if _size(node, {}) > largest:
            raise UserError(f"grows to more than {largest} letters by its anchors, too many for a configuration")
        _check_keys(node, set())
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _check_depth(text: str) -> None:
    # By its events, which come one after another: to make a node, YAML calls itself for each level.
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise UserError(f"nests deeper than {DEEPEST} levels, too deep for a configuration")


def _check_keys(node: yaml.Node, seen: set[int]) -> None:
    """Refuse a key that stands twice: YAML would take the last one and say nothing of the others."""
    if id(node) in seen or not isinstance(node, yaml.CollectionNode):
        return
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for value in node.value:
            _check_keys(value, seen)
        return
    keys: set[str] = set()
    for key, value in node.value:
        if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
            if key.value in keys:
                raise UserError(f"has the key {shown(key.value)} twice, again at line {key.start_mark.line + 1}")
            keys.add(key.value)
        _check_keys(value, seen)


def _size(node: yaml.Node, sizes: dict[int, int]) -> int:
    """The letters and entries of a node with all that its aliases stand for; `sizes` are those known already."""
    known = sizes.get(id(node))
    if known == 0:
        raise UserError("refers to itself by an anchor")
    if known is None:
        # Zero says that it is being counted: whoever meets it now is inside of it.
        sizes[id(node)] = 0
        if isinstance(node, yaml.MappingNode):
            known = 1 + sum(_size(key, sizes) + _size(value, sizes) for key, value in node.value)
        elif isinstance(node, yaml.SequenceNode):
            known = 1 + sum(_size(value, sizes) for value in node.value)
        else:
            known = 1 + len(node.value)
            if node.tag == "tag:yaml.org,2002:int" and known > _LONGEST_NUMBER:
                # In base 16 Python reads any length, and can write none of it.
                raise UserError(f"holds a number of {len(node.value)} digits, too many for a configuration")
        sizes[id(node)] = known
    return known
