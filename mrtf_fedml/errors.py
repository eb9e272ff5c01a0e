"""The error that a user causes and can mend, and the end that nobody here caused."""

#: Letters of a value that a sentence repeats.
_LONGEST = 100


class UserError(ValueError):
    """A wrong file, setting or array: the message names it and says what to do.

    The command line prints the message alone, without a traceback, and exits with 2.
    """


class RunStopped(RuntimeError):
    """The run cannot go on for a reason outside this process: the message says which, and what to do.

    The command line prints the message alone, without a traceback, and exits with 1.
    """


class FolderUnwritable(RunStopped):
    """A file cannot be written: the disk is full, or the folder is closed to us. What was there before still is."""


class RunInterrupted(KeyboardInterrupt):
    """Ctrl-C in the midst of a run: the message says what is kept, where, and how to go on."""


def shown(value: object) -> str:
    """A value in a sentence: no longer than a reader can bear, and on one line.

    >>> shown("x" * 1000) == repr("x" * 99)[:-1] + "..."
    True
    """
    try:
        text = repr(value)
    except (RecursionError, ValueError):
        # Nested too deep, or a number of more digits than Python writes.
        return f"a {type(value).__name__}"
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "..."


def nearest(word: str, known: "list[str] | tuple[str, ...]") -> str:
    """A hint naming what the user may have meant, or every name there is.

    >>> nearest("temprature", ["temperature", "teacher"])
    "did you mean 'temperature'?"
    """
    import difflib

    close = difflib.get_close_matches(word[:_LONGEST], known, n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else "known: " + ", ".join(sorted(known))
