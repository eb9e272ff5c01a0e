"""Exceptions with a message for the user, and helpers for their messages."""

#: Maximum number of characters of a value in a message.
_MAX_LENGTH = 100


class UserError(ValueError):
    """A wrong file, setting or array; the message names it and the remedy.

    The command line prints the message without a traceback and exits with 2.
    """


class RunStopped(RuntimeError):
    """The run cannot continue for a reason outside this process; the message names the reason and the remedy.

    The command line prints the message without a traceback and exits with 1.
    """


class WriteError(RunStopped):
    """A file cannot be written: the disk is full or the folder is not writable. Existing files are unchanged."""


class RunInterrupted(KeyboardInterrupt):
    """Ctrl-C during a run; the message names what is stored, where, and how to resume."""


def shorten_repr(value: object) -> str:
    """The value's repr on one line, shortened for a message.

    >>> shorten_repr("x" * 1000) == repr("x" * 99)[:-1] + "..."
    True
    """
    try:
        text = repr(value)
    except (RecursionError, ValueError):
        # Nested too deeply, or a number with more digits than Python prints.
        return f"a {type(value).__name__}"
    return text if len(text) <= _MAX_LENGTH else text[:_MAX_LENGTH] + "..."


def suggest_name(word: str, known: "list[str] | tuple[str, ...]") -> str:
    """A hint with the nearest known name, or with all of them if none is near.

    >>> suggest_name("temprature", ["temperature", "teacher"])
    "did you mean 'temperature'?"
    >>> suggest_name("MLP", ["mlp", "lenet"])
    "did you mean 'mlp'?"
    """
    import difflib

    by_lower = {name.lower(): name for name in known}
    matches = difflib.get_close_matches(word[:_MAX_LENGTH].lower(), list(by_lower), n=1, cutoff=0.6)
    return f"did you mean {by_lower[matches[0]]!r}?" if matches else "known: " + ", ".join(sorted(known))
