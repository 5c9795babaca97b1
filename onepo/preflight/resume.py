"""Whether the run can go on from the checkpoint that ``RESUME`` names."""

from collections.abc import Iterator
from pathlib import Path

from omegaconf import DictConfig

from onepo.settings import Settings
from onepo.trainers.training_state import differences, find_checkpoint, missing_parts, run_facts, step_of


def resume_problems(config: DictConfig, settings: Settings) -> Iterator[str]:
    if settings.resume is None:
        return
    checkpoint = find_checkpoint(Path(settings.resume))
    if checkpoint is None:
        yield f"RESUME={settings.resume}: there is no checkpoint (a global_step_N directory, or a run that has one)"
        return
    learners = config.trainer.n_gpus_per_node * config.trainer.nnodes
    missing = missing_parts(checkpoint, learners)
    if "training_state.json" in missing:
        yield f"RESUME={checkpoint} has weights only: the run that saved it had not set SAVE_TRAINING_STATE=True"
        return
    if different := differences(checkpoint, run_facts(config)):
        yield f"RESUME={checkpoint} is of a run with another {', another '.join(different)}: set it as it was"
    elif missing:
        yield f"RESUME={checkpoint} is not whole, it has no {', '.join(missing[:3])}"


def is_finished(config: DictConfig, checked) -> bool:
    """Whether the checkpoint that ``RESUME`` names is already at the final step of this run."""
    if checked.settings.resume is None:
        return False
    by_epochs = checked.train_prompts // config.data.train_batch_size * config.trainer.total_epochs
    final_step = min(by_epochs, config.trainer.total_training_steps or by_epochs)
    return step_of(find_checkpoint(Path(checked.settings.resume))) >= final_step
