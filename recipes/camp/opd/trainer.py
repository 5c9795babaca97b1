"""What the actor learns from: the teacher's probability of each token that it sampled."""

from functools import partial

import torch
import transfer_queue as tq
from verl.trainer.ppo.v1.trainer_base import register_trainer

from camp.learning.trainer import CampTrainer
from camp.opd.loss import TEACHER_FIELD, k1_loss, of_response
from camp.opd.metrics import distillation_metrics, knows_nothing
from onepo.errors import ControlledStop


@register_trainer("camp_opd")
class CampOPDTrainer(CampTrainer):
    """K1 distillation: verl's teachers and its order of things, our loss and metrics. Rewards are written down only."""

    def _setup(self):
        super()._setup()
        distillation = self.config.distillation.distillation_loss
        self.actor_rollout_wg.set_loss_fn(
            partial(
                k1_loss,
                clip_ratio_low=distillation.clip_ratio_low,
                clip_ratio_high=distillation.clip_ratio_high,
                clip_ratio_c=self.config.actor_rollout_ref.actor.clip_ratio_c,
                loss_max_clamp=distillation.loss_max_clamp,
            )
        )

    def update_metrics(self, records, *, keys, partition):
        fields = ["prompts", "response_mask", "old_log_probs", TEACHER_FIELD]
        rows = tq.kv_batch_get(keys=keys, partition_id=partition, select_fields=fields)
        k1, teacher = [], []
        for prompt, mask, student, scores in zip(*(rows[name].unbind() for name in fields), strict=True):
            own = mask.bool()
            of_teacher = of_response(scores, prompt=len(prompt), response=len(mask))[own]
            teacher.append(of_teacher)
            k1.append((student[own] - of_teacher).double())
        if knows_nothing(torch.cat(teacher), len(self.tokenizer)):
            raise ControlledStop(
                f"update {self.global_steps}: the teacher finds nearly every token as likely as any other of its "
                f"{len(self.tokenizer)}: its weights are broken, or were not loaded",
                exit_code=3,
            )
        domains = [record.schedule.domain for record in records]
        clamp = self.config.distillation.distillation_loss.loss_max_clamp
        found = super().update_metrics(records, keys=keys, partition=partition)
        return found | distillation_metrics(k1, domains, loss_max_clamp=clamp)
