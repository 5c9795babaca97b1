"""What the actor learns from: the teacher's probability of each token that it sampled."""

from functools import partial

import torch
from verl.trainer.ppo.v1.trainer_base import register_trainer

from camp.learning.trainer import CampTrainer
from camp.opd.loss import TEACHER_FIELD, k1_loss, of_response
from camp.opd.metrics import distillation_metrics, knows_nothing
from camp.opd.scored_episode import UNSCORED
from onepo.errors import ControlledStop


@register_trainer("camp_opd")
class CampOPDTrainer(CampTrainer):
    """K1 distillation: verl's order of things, our loss and metrics. Rewards are written down only."""

    told_fields = ("prompts", "response_mask", "old_log_probs", TEACHER_FIELD)

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

    def update_metrics(self, records, extra_fields, rows):
        found = super().update_metrics(records, extra_fields, rows)
        found["distillation/unscored"] = self._count_unscored(extra_fields)
        k1, of_teacher = [], []
        for prompt, mask, student, scores in zip(*(rows[name].unbind() for name in self.told_fields), strict=True):
            own = mask.bool()
            teacher = of_response(scores, prompt=len(prompt), response=len(mask))[own]
            of_teacher.append(teacher)
            k1.append((student[own] - teacher).double())
        if knows_nothing(torch.cat(of_teacher), len(self.tokenizer)):
            raise ControlledStop(
                f"update {self.global_steps}: the teacher finds nearly every token as likely as any other of its "
                f"{len(self.tokenizer)}: its weights are broken, or were not loaded",
                exit_code=3,
            )
        domains = [record.schedule.domain for record in records]
        clamp = self.config.distillation.distillation_loss.loss_max_clamp
        return found | distillation_metrics(k1, domains, loss_max_clamp=clamp)

    def _count_unscored(self, extra_fields) -> int:
        """How many episodes taught nothing.

        Raises:
            ControlledStop: they are too many.
        """
        reasons = [extra[UNSCORED] for extra in extra_fields if extra.get(UNSCORED)]
        share = len(reasons) / len(extra_fields)
        if share > self.settings.teacher.max_unscored_share:
            raise ControlledStop(
                f"update {self.global_steps}: {len(reasons)} of {len(extra_fields)} episodes have no scores of the "
                f"teacher, more than a share of {self.settings.teacher.max_unscored_share:g}: {reasons[0]}",
                exit_code=3,
            )
        return len(reasons)
