"""The reward of one response, as verl's reward worker asks for it (algorithms page, section 3)."""

from typing import Any

from omegaconf import OmegaConf
from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase

from onepo.data.chat import ends_with_open_think
from onepo.rewards.multiple_choice import multiple_choice_score
from onepo.rewards.shaping import answer_length_penalty, overlong_penalty
from onepo.rewards.visible_answer import has_closed_thinking, visible_answer
from onepo.settings import parse_settings

# what is told about every sample, and what dynamic sampling may therefore compare
SCORES = ("score", "acc", "overlong_penalty", "answer_length_penalty")


class OnePORewardManager(RewardManagerBase):
    """Scores a response by its task type and shapes the score.

    The keys of ``reward_extra_info`` are ``SCORES`` for every sample: ``acc`` (unshaped, which dynamic sampling filters
    on), ``score`` (shaped, which drives the advantage) and one entry per shaping term.
    """

    def __init__(self, config, tokenizer, compute_score=None, reward_router_address=None, reward_model_tokenizer=None):
        super().__init__(config, tokenizer, compute_score)
        self._settings = parse_settings(OmegaConf.to_container(config.onepo, resolve=True))
        self._max_response_length = config.data.max_response_length

    async def run_single(self, data) -> dict[str, Any]:
        """``data``: verl's DataProto of one session; its last row is the response to score."""
        item = data[-1]
        prompt_width = item.batch["prompts"].shape[-1]
        attention = item.batch["attention_mask"]
        response_ids = item.batch["responses"][: int(attention[prompt_width:].sum())]
        prompt_ids = item.batch["prompts"][attention[:prompt_width].bool()]
        task = item.non_tensor_batch["reward_model"]
        info = self._score(
            task=task,
            response=self.tokenizer.decode(response_ids, skip_special_tokens=True),
            response_tokens=len(response_ids),
            thinking_opened=ends_with_open_think(self.tokenizer, prompt_ids.tolist()),
        )
        return {"reward_score": info["score"], "reward_extra_info": info}

    def _score(
        self, *, task: dict[str, Any], response: str, response_tokens: int, thinking_opened: bool
    ) -> dict[str, float]:
        settings = self._settings
        if task["style"] != "multiple_choice":
            raise ValueError(f"no grader for a task of type {task['style']!r}: preflight should have refused it")
        thought = has_closed_thinking(response, opened_in_prompt=thinking_opened, marker=settings.answer_marker)
        # a think block that the prompt opened and the response never closed leaves no visible answer
        answer = "" if thinking_opened and not thought else visible_answer(response, marker=settings.answer_marker)
        acc = multiple_choice_score(answer, task["ground_truth"])
        if settings.require_thinking and not thought:
            acc = 0.0
        overlong = answer_length = 0.0
        if settings.enable_overlong_buffer:
            overlong = overlong_penalty(
                response_tokens=response_tokens,
                max_response_length=self._max_response_length,
                buffer_len=settings.overlong_buffer_len,
                penalty_factor=settings.overlong_penalty_factor,
            )
        if settings.answer_penalty_factor > 0:
            answer_length = answer_length_penalty(
                answer_tokens=len(self.tokenizer.encode(answer, add_special_tokens=False)),
                expected_tokens=settings.answer_expected_tokens,
                buffer_tokens=settings.answer_buffer_tokens,
                penalty_factor=settings.answer_penalty_factor,
            )
        return dict(zip(SCORES, (acc + overlong + answer_length, acc, overlong, answer_length), strict=True))
