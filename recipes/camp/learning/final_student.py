"""The student that a run leaves, where no retention of checkpoints reaches it."""

import shutil
from pathlib import Path

from onepo.trainers.checkpoints import model_folder

FINAL_STUDENT = "final_student"


def write_final_student(checkpoint: Path, output: str) -> Path:
    """Copy the model of the last checkpoint; it appears whole. Returns where."""
    target = Path(output, FINAL_STUDENT)
    fresh = target.with_name(f".{FINAL_STUDENT}")
    shutil.rmtree(fresh, ignore_errors=True)
    shutil.copytree(model_folder(checkpoint), fresh)
    shutil.rmtree(target, ignore_errors=True)
    fresh.rename(target)
    return target
