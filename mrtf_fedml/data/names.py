r"""Texts that others chose (file names, ids, classes, users), made fit to be written, shown and read back.

A file's name may be any bytes, and a text in an array any characters. What cannot stand in a line of UTF-8 is
written as a sign, and only that: `\x0a` is a control character, `\xe9` a byte that is no UTF-8, `\u2028` another
character that ends a line or has no encoding. `original` reads it back.
"""

from __future__ import annotations

import re

#: Control characters, the line ends of Unicode, and the halves of characters that UTF-8 cannot write. A
#: backslash is written as a sign only where it would be read as the beginning of one.
_UNWRITABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]|\\(?=x[0-9a-f]{2}|u[0-9a-f]{4})")
_SIGN = re.compile(r"\\x([0-9a-f]{2})|\\u([0-9a-f]{4})")

#: Where Python's texts keep the byte 0 of a file's name that is no UTF-8; such bytes begin at 0x80.
_BYTES = 0xDC00

#: The most letters of another's text that a message shows.
SHOWN = 60


def printable(text: str) -> str:
    r"""The text without what ends a line or cannot be encoded.

    >>> printable("caf\udce9 1\n.png")
    'caf\\xe9 1\\x0a.png'
    >>> printable("C:\\scans\\1.png")
    'C:\\scans\\1.png'
    """
    return _UNWRITABLE.sub(lambda found: _sign(ord(found[0])), text)


def original(text: str) -> str:
    r"""What `printable` made this of.

    >>> original("caf\\xe9 1\\x0a.png") == "caf\udce9 1\n.png"
    True
    """
    return _SIGN.sub(lambda found: chr(int(found[2], 16)) if found[2] else chr(_character(int(found[1], 16))), text)


def shown(thing: object) -> str:
    """A thing in quotes for a message: on one line, and no longer than a line bears.

    >>> shown("ab" * 50)
    "'abababababababababababababababababababababababababababababab...'"
    """
    text = str(thing)
    return repr(text if len(text) <= SHOWN else text[:SHOWN] + "...")


def _sign(code: int) -> str:
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\x{code - _BYTES:02x}" if _BYTES + 0x80 <= code <= _BYTES + 0xFF else f"\\u{code:04x}"


def _character(byte: int) -> int:
    return byte if byte < 0x80 else _BYTES + byte
