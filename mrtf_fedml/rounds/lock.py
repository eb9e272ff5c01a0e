"""One process at a time writes a run's folder."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import IO

from ..errors import UserError

_log = logging.getLogger(__name__)

_NAME = Path("state") / "lock"
#: What file systems say that know no locks.
_NO_LOCKS = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS}


class FolderLock:
    """Held from its making until `release`, or until the process ends in whatever way; the file itself stays."""

    def __init__(self, run_dir: Path) -> None:
        place = run_dir / _NAME
        try:
            place.parent.mkdir(exist_ok=True)
            self._file: IO[str] = place.open("a+")
        except OSError as error:
            raise UserError(
                f"the run's folder {str(run_dir)!r} cannot be written ({error.strerror}); make it writable, or copy it "
                "to where it is"
            ) from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.seek(0)
            holder = self._file.read().strip() or "unknown"
            self._file.close()
            raise UserError(
                f"another process ({holder}) is at work on the run in {str(run_dir)!r}; wait until it has ended, or "
                "end it"
            ) from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            _log.warning("%s cannot be locked (%s): take care that no other process resumes it", run_dir, error)
        # Who holds it is a courtesy to others: a full disk has no room for it, and the lock holds all the same.
        with suppress(OSError):
            self._file.truncate(0)
            os.write(self._file.fileno(), f"process {os.getpid()} on {os.uname().nodename}\n".encode())

    def release(self) -> None:
        """Let others write."""
        self._file.close()
