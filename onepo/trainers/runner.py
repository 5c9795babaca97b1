"""The process that drives the training: verl's task runner, which finds our trainer by its registered name."""

import ray
from verl.trainer.main_ppo import TaskRunnerV1

from onepo.compat import plain_class


class _OnePOTaskRunner(plain_class(TaskRunnerV1)):
    def run(self, config):
        # imported here: only this process needs the trainer, and importing it is slow
        import onepo.trainers.onepo  # noqa: F401  registers the trainer

        super().run(config)


OnePOTaskRunner = ray.remote(num_cpus=1)(_OnePOTaskRunner)
