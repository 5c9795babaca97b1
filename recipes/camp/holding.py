"""One run at a time in an output directory: two would remove each other's files."""

import fcntl
from pathlib import Path
from typing import BinaryIO

from onepo.errors import UserError

_FILE = ".lock"


def hold(output: Path) -> BinaryIO:
    """Keep others out for as long as the file that is returned is open: the kernel lets go when this process ends.

    Raises:
        UserError: somebody else is in there.
    """
    file = (output / _FILE).open("ab")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise UserError(f"--output {output}: another run is writing there: wait for its end, or name another") from None
    except OSError:
        pass  # the file system has no locks
    return file
