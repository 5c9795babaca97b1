"""The entry that the launcher starts: ``python -m onepo.train [Hydra overrides]``.

Compose and check the configuration, open the run directory, hand over to verl's ``run_ppo``, and end with an exit code
that tells what happened: 0 finished, 1 crashed, 2 wrong input (no training began), 3 stopped by a limit.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from onepo.errors import UserError
from onepo.graded_run import GRADER_KEY, TEACHER_KEY, OnePORun, set_values
from onepo.process import chosen_device, end_with_the_launcher, set_process_environment, take_secret
from onepo.report.record import point_latest, reserve_directory
from onepo.servers.grader import probe_grader

_CONFIG = Path(__file__).parent / "config"
_REQUIRED = ("onepo.run_dir", "data.train_files", "actor_rollout_ref.model.path")


def main(overrides: Sequence[str]) -> int:
    """Train; returns the exit code."""
    end_with_the_launcher()
    keys = {variable: take_secret(variable) for variable in (GRADER_KEY, TEACHER_KEY)}
    try:
        set_process_environment(_CONFIG / "onepo.yaml", device=chosen_device(overrides))
        config = compose_config(overrides)
        from onepo.preflight import check
        from onepo.preflight.resume import is_finished
        from onepo.rollout.teacher import probe_teacher

        checked = check(config)
        settings = checked.settings
        if is_finished(checked.checkpoint, final_step=checked.final_step):
            print(
                f"nothing is left to train: {checked.checkpoint.name} is not before the final step, "
                f"{checked.final_step}; raise TOTAL_TRAINING_STEPS or TOTAL_EPOCHS"
            )
            return 0
        if checked.open_ended and not settings.reward_server.start:
            found = probe_grader(settings.grader, api_key=keys[GRADER_KEY], say=print)
            set_values(config.onepo.grader, found)
        if settings.teacher.enabled:
            set_values(config.onepo.teacher, probe_teacher(settings.teacher, keys[TEACHER_KEY], say=print))
        run_dir = reserve_directory(Path(settings.run_dir))
    except OmegaConfBaseException as error:
        print(f"error: configuration: {str(error).splitlines()[0]}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except UserError as error:
        for line in str(error).splitlines():
            print(f"error: {line}", file=sys.stderr)
        return 2
    found = {"run_dir": str(run_dir), "resume": checked.checkpoint and str(checked.checkpoint)}
    set_values(config.onepo, found)
    point_latest(run_dir)
    return OnePORun(config, overrides, open_ended=checked.open_ended, custom=checked.custom, keys=keys).train()


def compose_config(overrides: Sequence[str]) -> DictConfig:
    """verl's configuration with ours and the overrides on top.

    Raises:
        UserError: an override is malformed or names a key that does not exist.
    """
    from hydra import compose, initialize_config_module
    from hydra.errors import HydraException

    try:
        with initialize_config_module("onepo.config", version_base=None):
            config = compose("onepo", overrides=list(overrides))
    except (HydraException, OmegaConfBaseException) as error:
        raise UserError(f"configuration: {str(error).splitlines()[0]}") from None
    # verl's own values would hide that one of these is missing
    unset = [key for key in _REQUIRED if OmegaConf.select(config, key) is None]
    if unset:
        raise UserError(f"configuration: no value for {', '.join(unset)}")
    return config


if __name__ == "__main__":
    exit_code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code)  # Ray's threads may abort an interpreter that ends after a signal, and hide the exit code
