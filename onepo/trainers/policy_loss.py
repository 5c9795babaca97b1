"""Between verl's learner, which holds ragged rows, and the pure OnePO loss, which takes rectangles."""

import torch
from tensordict import TensorDict
from verl.trainer.ppo.core_algos import agg_loss, kl_penalty
from verl.utils.metric import AggregationType, Metric
from verl.workers.config import ActorConfig
from verl.workers.utils.padding import no_padding_2_padding

from onepo.algorithms.losses import onepo_policy_loss
from onepo.rollout.rows import TEACHER_MASK
from onepo.trainers.rectangles import refuse_non_finite, response_window


def onepo_loss(
    config: ActorConfig, model_output: dict, data: TensorDict, dp_group=None, *, probability_floor: float
) -> tuple[torch.Tensor, dict]:
    """The loss of one micro-batch, as ``set_loss_fn`` wants it.

    verl averages gradients over the data-parallel ranks and sums them over micro-batches, so dividing by the token
    count of the whole mini-batch over the number of ranks gives the token mean over that mini-batch.

    Raises:
        ControlledStop: a log-probability or an advantage of a trained token is not finite; the rows are named.
    """
    log_prob = no_padding_2_padding(model_output["log_probs"], data)  # [B, T]
    rows = data.select("response_mask", "old_log_probs", "advantages").to_padded_tensor()
    response_mask = rows["response_mask"].bool()
    refuse_non_finite(data, response_mask, log_prob, rows["old_log_probs"], rows["advantages"], dp_group=dp_group)
    loss, sums = onepo_policy_loss(
        log_prob=log_prob,
        old_log_prob=rows["old_log_probs"],
        advantages=rows["advantages"],
        response_mask=response_mask,
        teacher_mask=response_window(data[TEACHER_MASK].unbind(), response_mask),
        probability_floor=probability_floor,
        clip_ratio_low=config.clip_ratio_low,
        clip_ratio_high=config.clip_ratio_high,
        clip_ratio_c=config.clip_ratio_c,
        denominator=data["batch_num_tokens"] / data["dp_size"],
    )
    metrics = {"pg_loss": loss, **sums}
    shares = {
        "dp_size": data["dp_size"],
        "batch_num_tokens": data["batch_num_tokens"],
        "global_batch_size": data["global_batch_size"],
    }
    if config.entropy_coeff:
        entropy = agg_loss(
            loss_mat=no_padding_2_padding(model_output["entropy"], data),
            loss_mask=response_mask,
            loss_agg_mode="token-mean",
            **shares,
        )
        loss = loss - config.entropy_coeff * entropy
        metrics["entropy_loss"] = entropy
    if config.use_kl_loss:
        reference = data.select("ref_log_prob").to_padded_tensor()["ref_log_prob"]
        divergence = kl_penalty(logprob=log_prob, ref_logprob=reference, kl_penalty=config.kl_loss_type)
        kl = agg_loss(loss_mat=divergence, loss_mask=response_mask, loss_agg_mode="token-mean", **shares)
        loss = loss + config.kl_loss_coef * kl
        metrics["kl_loss"] = kl
    return loss, Metric.from_dict(metrics, aggregation=AggregationType.SUM)
