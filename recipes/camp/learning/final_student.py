"""The student that a run leaves, where no retention of checkpoints reaches it."""

import shutil
from pathlib import Path

from onepo.errors import UserError, last_line
from onepo.trainers.checkpoints import model_folder

FINAL_STUDENT = "final_student"


def write_final_student(checkpoint: Path, output: str) -> Path:
    """Copy the model of the last checkpoint; it appears whole. Returns where.

    Raises:
        UserError: the disk does not take it.
    """
    target = Path(output, FINAL_STUDENT)
    fresh = target.with_name(f".{FINAL_STUDENT}")
    shutil.rmtree(fresh, ignore_errors=True)
    try:
        shutil.copytree(model_folder(checkpoint), fresh)
        shutil.rmtree(target, ignore_errors=True)
        fresh.rename(target)
    except OSError as error:  # shutil's own lists each file
        raise UserError(f"{target}: the weights of {checkpoint} cannot be copied there ({last_line(error)})") from None
    return target
