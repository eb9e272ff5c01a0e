r"""Strings from outside (file names, ids, class names, users), made safe to write, show and read back.

A file name may be any bytes, and a string in an array any characters. Characters that cannot be written in one line of
UTF-8 are escaped: `\x0a` is a control character, `\xe9` a byte that is not UTF-8, `\u2028` another character that ends
a line or has no encoding. `unescape` restores the original string.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import islice

#: Control characters, Unicode line ends and surrogates, which UTF-8 cannot encode. A backslash is escaped only where
#: it would be read as the start of an escape.
_UNWRITABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]|\\(?=x[0-9a-f]{2}|u[0-9a-f]{4})")
_ESCAPE = re.compile(r"\\x([0-9a-f]{2})|\\u([0-9a-f]{4})")

#: What a spreadsheet executes, with the apostrophes that `escape_formula` has added; a number is not executed.
_FORMULA = re.compile(r"'*[=+\-@]")
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?")
#: Characters with a meaning in Markdown; `://` and `www.` become links.
_MARKDOWN = re.compile(r"[\\`*_\[\]<>&~|#$]|:(?=//)|(?<=www)\.")

#: Python represents a byte b >= 0x80 of a file name that is not UTF-8 as the character _SURROGATE + b.
_SURROGATE = 0xDC00

#: Numbers of clients in a sentence.
_CLIENTS = re.compile(r"\b((?:client|Client)s? )([0-9]+(?:(?:, | and )[0-9]+(?! more))*)\b")

#: Messages show at most this many characters of a foreign string.
MAX_SHOWN = 60


def escape(string: str) -> str:
    r"""The string without characters that end a line or cannot be encoded.

    >>> escape("caf\udce9 1\n.png")
    'caf\\xe9 1\\x0a.png'
    >>> escape("C:\\scans\\1.png")
    'C:\\scans\\1.png'
    """
    return _UNWRITABLE.sub(lambda match: _escape_code(ord(match[0])), string)


def unescape(string: str) -> str:
    r"""The inverse of `escape`.

    >>> unescape("caf\\xe9 1\\x0a.png") == "caf\udce9 1\n.png"
    True
    """
    return _ESCAPE.sub(lambda match: chr(int(match[2], 16) if match[2] else _code_point(int(match[1], 16))), string)


def escape_formula(string: str) -> str:
    """The string as a cell of a CSV file: one that a spreadsheet would execute gets an apostrophe in front.

    >>> [escape_formula(string) for string in ("=1+1", "@a", "-1.5", "-a", "'=1", "a=1")]
    ["'=1+1", "'@a", '-1.5', "'-a", "''=1", 'a=1']
    """
    return "'" + string if _FORMULA.match(string) and not _NUMBER.fullmatch(string) else string


def unescape_formula(cell: str) -> str:
    """The inverse of `escape_formula`.

    >>> [unescape_formula(escape_formula(string)) for string in ("=1+1", "''-a", "-1", "'a")]
    ['=1+1', "''-a", '-1', "'a"]
    """
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell


def escape_markdown(string: str) -> str:
    r"""The string as plain text of a Markdown page: no HTML, no link, no image, no emphasis.

    >>> print(escape_markdown("<b>cat_1</b> [x](http://a.b)"))
    \<b\>cat\_1\</b\> \[x\](http\://a.b)
    """
    return _MARKDOWN.sub(r"\\\g<0>", string)


def quote(value: object) -> str:
    """The value in quotes for a message: on one line, cut after `MAX_SHOWN` characters.

    >>> quote("ab" * 50)
    "'abababababababababababababababababababababababababababababab...'"
    """
    return repr(_cut(str(value)))


def format_list(values: Iterable[object], limit: int = 10) -> str:
    """The first `limit` values separated by commas, and the number of the others.

    >>> format_list([3, 5])
    '3, 5'
    >>> format_list(range(12), limit=2)
    '0, 1 and 10 more'
    """
    iterator = iter(values)
    names = [escape(_cut(str(value))) for value in islice(iterator, limit)]
    others = sum(1 for _ in iterator)
    return ", ".join(names) + (f" and {others} more" if others else "")


def name_clients(sentence: str, names: Sequence[str] | None) -> str:
    """The sentence with the owner after the number of each client that it mentions, unless that is a number too.

    >>> name_clients("Client 1 differs, clients 0, 2 do not", ["North", "East", "South"])
    'Client 1 (East) differs, clients 0 (North), 2 (South) do not'
    >>> name_clients("client 1 differs", ["0", "1"])
    'client 1 differs'
    """
    if names is None:
        return sentence

    def with_name(number: re.Match[str]) -> str:
        index = int(number[0])
        has_name = index < len(names) and names[index] != number[0]
        return f"{index} ({escape(_cut(names[index]))})" if has_name else number[0]

    return _CLIENTS.sub(lambda mention: mention[1] + re.sub("[0-9]+", with_name, mention[2]), sentence)


def _cut(string: str) -> str:
    return string if len(string) <= MAX_SHOWN else string[:MAX_SHOWN] + "..."


def _escape_code(code: int) -> str:
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\x{code - _SURROGATE:02x}" if _SURROGATE + 0x80 <= code <= _SURROGATE + 0xFF else f"\\u{code:04x}"


def _code_point(byte: int) -> int:
    return byte if byte < 0x80 else _SURROGATE + byte
