"""The group advantage as an estimator that verl finds by name (imported by the task runner only)."""

import torch
from verl.trainer.ppo.core_algos import register_adv_est

from onepo.algorithms.advantages import group_advantages


@register_adv_est("onepo_group")
def onepo_group_advantage(*, token_level_rewards, response_mask, index, config, **_):
    """verl's estimator interface over :func:`group_advantages`.

    verl's own estimator divides by a float32 standard deviation and gives up to 0.06 to a group of equal rewards.

    Returns:
        advantages and returns, both [B, T], the row's advantage on every response token.
    """
    scores = token_level_rewards.sum(dim=-1)  # [B]
    advantages = group_advantages(scores=scores, group_ids=list(index), normalize_by_std=config.norm_adv_by_std_in_grpo)
    per_token = advantages.to(torch.float32).unsqueeze(-1) * response_mask  # [B, T]
    return per_token, per_token
