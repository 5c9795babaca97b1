"""What the actor learns from: the teacher's probability of each token that it sampled."""

import asyncio
from collections.abc import Iterator
from functools import partial

import torch
import transfer_queue as tq
from tensordict import TensorDict
from verl.experimental.teacher_loop.teacher_manager import AsyncTeacherLLMServerManager
from verl.trainer.ppo.v1.trainer_base import register_trainer

from camp.learning.trainer import CampTrainer, episode_keys
from camp.opd.ledger import OPDLedger
from camp.opd.loss import k1_loss
from camp.opd.metrics import domain_distances, loss_metrics
from camp.opd.trends import Trends, Update
from camp.opd.worker import SCORING
from onepo.distillation.field import TEACHER_FIELD, of_response
from onepo.distillation.metrics import k1_metrics, knows_nothing, teacher_metrics
from onepo.distillation.pool import PoolTeacher
from onepo.distillation.probe import longest_episode, probe_teacher
from onepo.distillation.rows import Scoring
from onepo.errors import ControlledStop


@register_trainer("camp_opd")
class CampOPDTrainer(CampTrainer):
    """K1 distillation: verl's order of things, our loss and metrics. Rewards are written down only."""

    ledger_class = OPDLedger
    told_fields = ("prompts", "response_mask", "old_log_probs", TEACHER_FIELD)

    def _setup(self):
        super()._setup()
        self._trends = Trends()
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

    def on_init_end(self):
        super().on_init_end()
        if self.use_teacher_policy:  # a server was asked before anything else was started
            settings = self.settings.teacher
            pool = AsyncTeacherLLMServerManager(self.config, self.get_teacher_client())
            teacher = PoolTeacher(pool, timeout=settings.timeout, max_concurrency=1)
            line = asyncio.run(probe_teacher(teacher, self.tokenizer, **longest_episode(self.config)))
            self.journal.event("note", text=line)

    def _update_actor(self, batch, metrics):
        """Not with a teacher that would wreck the student."""
        keys, fields = episode_keys(batch), list(self.told_fields)
        rows = tq.kv_batch_get(keys=keys, partition_id=batch.partition_id, select_fields=fields)
        teacher = torch.cat([of_teacher for _, of_teacher in self._scored(rows)])
        if knows_nothing(teacher, len(self.tokenizer)):
            raise ControlledStop(
                f"update {self.global_steps}: the teacher finds nearly every token as likely as any other of its "
                f"{len(self.tokenizer)}: its weights are broken, or were not loaded",
                exit_code=3,
            )
        batch = super()._update_actor(batch, metrics)
        metrics.update(loss_metrics(metrics))
        return batch

    def update_metrics(self, records, extra_fields, rows):
        found = super().update_metrics(records, extra_fields, rows)
        scorings = [Scoring(**extra[SCORING]) for extra in extra_fields]
        found["distillation/unscored"] = sum(scoring.missing is not None for scoring in scorings)
        k1 = [(student - teacher).double() for student, teacher in self._scored(rows)]
        domains = [record.schedule.domain for record in records]
        clamp = self.config.distillation.distillation_loss.loss_max_clamp
        found |= k1_metrics(torch.cat(k1), loss_max_clamp=clamp) | domain_distances(k1, domains)
        lengths = [record.prompt_tokens + record.response_tokens for record in records]
        found |= teacher_metrics([(each.began, each.ended, n) for each, n in zip(scorings, lengths, strict=True)])
        if "distillation/kl" in found:
            tokens = found["distillation/tokens"] / len(records)
            warning = self._trends.add(Update(found["distillation/kl"], found["episodes/limit_rate"], tokens))
            if warning:
                self.journal.event("note", text=warning)
        return found

    def _scored(self, rows: TensorDict) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Of each row the log-probabilities of the sampled tokens, under the student and under the teacher."""
        columns = (rows[name].unbind() for name in self.told_fields)
        for prompt, mask, student, scores in zip(*columns, strict=True):
            own = mask.bool()
            yield student[own], of_response(scores, prompt=len(prompt), response=len(mask))[own]
