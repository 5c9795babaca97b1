"""Whether the run can go on from the checkpoint that ``RESUME`` names."""

from collections.abc import Iterator
from pathlib import Path

from omegaconf import DictConfig

from onepo.settings import Settings
from onepo.trainers.checkpoints import step_of
from onepo.trainers.training_state import broken_parts, differences, has_state, run_facts, saved_step


def resume_problems(config: DictConfig, settings: Settings, checkpoint: Path | None) -> Iterator[str]:
    """Problems of the checkpoint that was found for ``RESUME``."""
    if settings.resume is None:
        return
    if checkpoint is None:
        yield f"RESUME={settings.resume}: there is no checkpoint (a global_step_N directory, or a run that has one)"
        return
    if not has_state(checkpoint):
        yield f"RESUME={checkpoint} has weights only: the run that saved it had not set SAVE_TRAINING_STATE=True"
        return
    broken = broken_parts(checkpoint, config.trainer.n_gpus_per_node * config.trainer.nnodes)
    if "training_state.json" not in broken and (different := differences(checkpoint, run_facts(config))):
        yield f"RESUME={checkpoint} is of a run with another {', another '.join(different)}: set it as it was"
    elif "training_state.json" not in broken and saved_step(checkpoint) != step_of(checkpoint):
        yield f"RESUME={checkpoint} was renamed: it is the checkpoint of step {saved_step(checkpoint)}"
    elif broken:
        yield f"RESUME={checkpoint} is not whole: missing or damaged are {', '.join(broken[:3])}"


def is_finished(checkpoint: Path | None, *, final_step: int) -> bool:
    """Whether the checkpoint to go on from is already at the final step of this run."""
    return checkpoint is not None and step_of(checkpoint) >= final_step
