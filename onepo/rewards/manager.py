"""The reward of one response, as verl's reward worker asks for it (algorithms page, section 3)."""

import json
import math
from typing import Any

from omegaconf import OmegaConf
from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase

from onepo.data.chat import ends_with_open_think
from onepo.data.schema import MULTIPLE_CHOICE, OPEN_ENDED
from onepo.endpoints.configured import configured_endpoint
from onepo.rewards.course import GradingCourse
from onepo.rewards.custom import CustomReward
from onepo.rewards.grader import RubricGrader
from onepo.rewards.multiple_choice import multiple_choice_score
from onepo.rewards.rubric import rubric_score
from onepo.rewards.shaping import answer_length_penalty, overlong_penalty
from onepo.rewards.template import load_template
from onepo.rewards.visible_answer import has_closed_thinking, thinking_is_open, visible_answer, whole_turn
from onepo.settings import GraderSettings, parse_settings

# what is told about every sample, and what dynamic sampling may therefore compare
SCORES = ("score", "acc", "overlong_penalty", "answer_length_penalty")
# beside the scores: which criteria were met, as JSON text ("" without a grading), and how the grading went
MET, GRADING = "met", "grading"
TYPE = "type"  # of the task


class OnePORewardManager(RewardManagerBase):
    """Scores a response by its task type and shapes the score.

    The keys of ``reward_extra_info`` are the same for every sample: ``SCORES`` (``acc``, unshaped, which dynamic
    sampling filters on; ``score``, shaped, which drives the advantage; one entry per shaping term), ``TYPE``, ``MET``
    and ``GRADING``. A response whose grading failed has NaN for ``acc`` and ``score``: it is unusable, and no zero.
    """

    def __init__(self, config, tokenizer, compute_score=None, reward_router_address=None, reward_model_tokenizer=None):
        super().__init__(config, tokenizer, compute_score)
        self._settings = parse_settings(OmegaConf.to_container(config.onepo, resolve=True))
        self._max_response_length = config.data.max_response_length
        grader = self._settings.grader
        self._grader = make_grader(grader) if grader.form is not None else None
        function = self._settings.reward_function
        self._function = (
            CustomReward(function.spec, timeout=function.timeout, workers=function.workers) if function.spec else None
        )

    async def run_single(self, data) -> dict[str, Any]:
        """``data``: verl's DataProto of one session; its last row is the response to score."""
        item = data[-1]
        prompt_width = item.batch["prompts"].shape[-1]
        attention = item.batch["attention_mask"]
        response_ids = item.batch["responses"][: int(attention[prompt_width:].sum())]
        prompt_ids = item.batch["prompts"][attention[:prompt_width].bool()]
        info = await self._score(
            task=item.non_tensor_batch["reward_model"],
            messages=list(item.non_tensor_batch["raw_prompt"]),
            response=self.tokenizer.decode(response_ids, skip_special_tokens=True),
            response_tokens=len(response_ids),
            opened_in_prompt=ends_with_open_think(self.tokenizer, prompt_ids.tolist()),
        )
        return {"reward_score": info["score"], "reward_extra_info": info}

    async def _score(
        self,
        *,
        task: dict[str, Any],
        messages: list[dict[str, str]],
        response: str,
        response_tokens: int,
        opened_in_prompt: bool,
    ) -> dict[str, Any]:
        marker = self._settings.answer_marker
        turn = whole_turn(response, opened_in_prompt=opened_in_prompt)
        answer = visible_answer(turn, marker=marker)
        # a form that scores 0 whatever the answer says
        lacks_form = self._settings.require_thinking and not has_closed_thinking(turn, marker=marker)
        met, course = "", None
        hidden = lacks_form or thinking_is_open(turn, marker=marker) or not answer
        if task["style"] == MULTIPLE_CHOICE:
            acc = multiple_choice_score(answer, task["ground_truth"])
        elif hidden:
            acc, course = 0.0, GradingCourse.not_asked(rubrics=len(task["rubrics"]))
        elif task["style"] == OPEN_ENDED:
            acc, met, course = await self._grade(task, messages, answer)
        else:
            acc, course = await self._call(task, messages, answer)
        if lacks_form:
            acc = 0.0
        overlong, answer_length = self._penalties(response_tokens, answer)
        scores = dict(zip(SCORES, (acc + overlong + answer_length, acc, overlong, answer_length), strict=True))
        return {**scores, TYPE: task["style"], MET: met, GRADING: course}

    async def _grade(
        self, task: dict[str, Any], messages: list[dict[str, str]], answer: str
    ) -> tuple[float, str, GradingCourse]:
        """The unshaped score of an open-ended answer, the criteria that it meets, and how the grading went."""
        rubrics = list(task["rubrics"])
        grading = await self._grader.grade([*messages, {"role": "assistant", "content": answer}], rubrics)
        course = GradingCourse(
            rubrics=len(rubrics),
            asked=True,
            failure=grading.failure,
            explanation=grading.explanation,
            requests=grading.requests,
            malformed=len(grading.malformed),
            cut=grading.cut,
            seconds=grading.seconds,
        )
        if grading.met is None:
            return math.nan, "", course
        return rubric_score(rubrics, grading.met), json.dumps(grading.met), course

    async def _call(
        self, task: dict[str, Any], messages: list[dict[str, str]], answer: str
    ) -> tuple[float, GradingCourse]:
        """The unshaped score that the user's function gives, and how the call went."""
        score = await self._function.score(messages=messages, response=answer, record=json.loads(task["record"]))
        course = GradingCourse(
            rubrics=0,
            asked=True,
            failure=score.failure,
            explanation=score.explanation,
            requests=1,
            malformed=0,
            cut=False,
            seconds=score.seconds,
        )
        return math.nan if score.value is None else score.value, course

    def _penalties(self, response_tokens: int, answer: str) -> tuple[float, float]:
        settings = self._settings
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
        return overlong, answer_length


def make_grader(settings: GraderSettings) -> RubricGrader:
    """The run's grader, by the form that the probe settled on."""
    return RubricGrader(
        configured_endpoint(settings, model=settings.name),
        template=load_template(settings.prompt_file),
        max_tokens=settings.max_tokens,
        max_retries=settings.max_retries,
    )
