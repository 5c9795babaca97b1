"""The process that drives the training: verl's task runner, which finds our trainer by its registered name."""

import ray
from verl.trainer.main_ppo import TaskRunnerV1

from onepo.compat import plain_class
from onepo.errors import UserError


class _OnePOTaskRunner(plain_class(TaskRunnerV1)):
    def run(self, config):
        _refuse_a_second_run()
        # imported here: only this process needs the trainer, and importing it is slow
        import onepo.trainers.onepo  # noqa: F401  registers the trainer

        super().run(config)


def _refuse_a_second_run() -> None:
    """TransferQueue has one fixed name on a cluster: two runs would take each other's samples.

    Raises:
        UserError: another run uses this cluster.
    """
    try:
        ray.get_actor("TransferQueueController", namespace="transfer_queue")
    except ValueError:
        return
    raise UserError("another verl run uses this Ray cluster: wait for its end, or unset RAY_ADDRESS for a private one")


OnePOTaskRunner = ray.remote(num_cpus=1)(_OnePOTaskRunner)
