"""Between verl's learner, which holds ragged rows, and the pure K1 loss, which takes rectangles."""

import torch
from tensordict import TensorDict
from verl.utils.metric import AggregationType, Metric
from verl.workers.utils.padding import no_padding_2_padding

from onepo.algorithms.losses import k1_policy_loss
from onepo.distillation.field import TEACHER_FIELD, of_response
from onepo.trainers.rectangles import refuse_non_finite, response_window


def k1_loss(
    model_output: dict,
    data: TensorDict,
    dp_group=None,
    *,
    clip_ratio_low: float,
    clip_ratio_high: float,
    clip_ratio_c: float,
    loss_max_clamp: float | None,
) -> tuple[torch.Tensor, dict]:
    """The loss of one micro-batch, as ``set_loss_fn`` wants it: the token mean over the whole update.

    Raises:
        ControlledStop: a log-probability of a token that is learned from is not finite; the rows are named.
    """
    log_prob = no_padding_2_padding(model_output["log_probs"], data)  # [B, T]
    rows = data.select("response_mask", "old_log_probs").to_padded_tensor()
    response_mask = rows["response_mask"].bool()
    teacher_log_prob = response_window(_of_responses(data), log_prob)
    refuse_non_finite(data, response_mask, log_prob, rows["old_log_probs"], teacher_log_prob, dp_group=dp_group)
    loss, sums = k1_policy_loss(
        log_prob=log_prob,
        old_log_prob=rows["old_log_probs"],
        teacher_log_prob=teacher_log_prob,
        response_mask=response_mask,
        clip_ratio_low=clip_ratio_low,
        clip_ratio_high=clip_ratio_high,
        clip_ratio_c=clip_ratio_c,
        loss_max_clamp=loss_max_clamp,
        denominator=data["batch_num_tokens"] / data["dp_size"],
    )
    return loss, Metric.from_dict({"pg_loss": loss, **sums}, aggregation=AggregationType.SUM)


def _of_responses(data: TensorDict) -> list[torch.Tensor]:
    """Rows that verl adds to fill up a batch may have another row's scores, at the pinned commit: they never count."""
    lengths = zip(data["prompts"].offsets().diff().tolist(), data["responses"].offsets().diff().tolist(), strict=True)
    rows = zip(data[TEACHER_FIELD].unbind(), lengths, strict=True)
    return [of_response(scores, prompt=prompt, response=response) for scores, (prompt, response) in rows]
