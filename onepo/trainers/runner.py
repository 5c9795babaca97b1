"""The process that drives the training: verl's task runner, which finds our trainer by its registered name."""

from importlib import import_module

import ray
from verl.trainer.main_ppo import TaskRunnerV1

from onepo.compat import plain_class
from onepo.errors import UserError


class _TaskRunner(plain_class(TaskRunnerV1)):
    """Args: trainer_module: registers the trainer when it is imported, in this process only, for it is slow."""

    def __init__(self, trainer_module: str):
        super().__init__()
        self._trainer_module = trainer_module

    def run(self, config):
        _refuse_a_second_run()
        import_module(self._trainer_module)
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


TaskRunner = ray.remote(num_cpus=1)(_TaskRunner)
