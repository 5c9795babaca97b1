"""What the actor learns from: the teacher's probability of each token that it sampled."""

from verl.trainer.ppo.v1.trainer_base import register_trainer

from camp.learning.trainer import CampTrainer


@register_trainer("camp_opd")
class CampOPDTrainer(CampTrainer):
    """verl's K1 distillation, asked for by the recipe's ``distillation`` section: nothing is to be overridden."""
