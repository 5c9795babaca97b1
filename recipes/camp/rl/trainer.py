"""What the actor and the critic learn from: the rewards of the episodes."""

import ray
from verl.trainer.ppo.utils import Role
from verl.trainer.ppo.v1.trainer_base import register_trainer

from camp.learning.one_update import one_update
from camp.learning.trainer import CampTrainer, require_finite
from camp.rl.critic import CriticWorker


@register_trainer("camp_rl")
class CampRLTrainer(CampTrainer):
    """GAE over the student's tokens, a clipped value loss, one update of each network."""

    def _init_resource_pool_mgr(self):
        super()._init_resource_pool_mgr()
        self.role_worker_mapping[Role.Critic] = ray.remote(CriticWorker)

    def _update_critic(self, batch, metrics):
        with one_update(batch):
            batch = super()._update_critic(batch, metrics)
        require_finite(metrics, "critic/grad_norm", self.global_steps)
        return batch
