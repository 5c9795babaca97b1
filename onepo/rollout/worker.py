"""verl's agent-loop worker with one more decision: may the teacher's response take the place of a rollout?

The decision falls as soon as the group is scored, while other prompts are still generating, and before the group is
stored, so that the filter of dynamic sampling sees the group as it will be trained on (algorithms page, section 2).
"""

import asyncio
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import ray
from omegaconf import OmegaConf
from verl.experimental.agent_loop import AgentLoopOutput
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ, AgentLoopWorkerTQ

from onepo.compat import plain_class
from onepo.data.chat import end_of_turn_token_id, rollout_stop_ids
from onepo.errors import last_line
from onepo.rewards.course import GradingCourse
from onepo.rewards.manager import GRADING
from onepo.rollout.group import Group
from onepo.rollout.ledger import GroupReport, GroupSignal, ledger_name
from onepo.rollout.rows import TrainingRow, is_graded, mark_ungraded, reward_info, usable_rows
from onepo.rollout.seeds import PromptSeeds, session_seed
from onepo.rollout.teacher import teacher_name
from onepo.rollout.text_only import TextOnly
from onepo.settings import parse_settings
from onepo.teachers.cached import cached_response, response_token_ids
from onepo.teachers.online import TeacherAnswer
from onepo.teachers.retirement import draw_session, teacher_is_used

logger = logging.getLogger(__name__)

# The terminal redraws about once a second; telling the ledger more often would only cost calls.
_REPORT_SECONDS = 0.5


@dataclass(frozen=True)
class Decision:
    """What becomes of a group: the rollouts by session that are trained on, and which of them is the teacher's."""

    rows: dict[int, AgentLoopOutput]
    teacher_session: int | None


class OnePOAgentLoopWorker(TextOnly, plain_class(AgentLoopWorkerTQ)):
    """Hooks: ``_run_prompt`` opens a group, ``_run_agent_loop`` seeds a rollout and marks a failed one,
    ``_agent_loop_postprocess`` scores, waits for the group's decision and stores.

    A session without a row raises nothing: its group counts as finished and is filtered like the others, and a group
    without rows is replaced by the replay buffer.
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        section = OmegaConf.to_container(self.config.onepo, resolve=True)
        self._settings = parse_settings(section)
        self._signal_metric = self.config.algorithm.filter_groups.metric
        self._ledger = ray.get_actor(ledger_name(self._settings.run_dir))
        self._name = ray.get_runtime_context().get_actor_id()
        self._end_of_turn_id = end_of_turn_token_id(self.tokenizer)
        self._stop_ids, _ = rollout_stop_ids(self.tokenizer, self.model_config.generation_config)
        online = self._settings.teacher.enabled
        self._teacher = ray.get_actor(teacher_name(self._settings.run_dir)) if online else None
        self._questions: dict[str, asyncio.Task[TeacherAnswer]] = {}  # under way, by the prompt's uid
        self._groups: dict[str, Group[AgentLoopOutput, Decision]] = {}
        self._running = self._grading = self._scored = 0  # rollouts: under way, and in which state
        self._reported_at = 0.0
        self._seeds = PromptSeeds(self._settings.seed)

    async def _run_prompt(self, prompt, sampling_params, trajectory, trace=False):
        sampling_params = {**sampling_params, "stop_token_ids": self._stop_ids}
        if self._settings.per_request_seeds:
            sampling_params["seed"] = self._seeds.next(
                step=trajectory["step"], validate=trajectory["validate"], index=int(prompt["index"])
            )
        if trajectory["validate"]:
            return await super()._run_prompt(prompt, sampling_params, trajectory, trace)
        uid = prompt["uid"]
        size = prompt.get("__rollout_n__", self.rollout_config.n)
        group = self._groups[uid] = Group(size, lambda outcomes: self._decide(prompt, group, outcomes))
        if self._teacher and not prompt["teacher"]["responses"]:
            self._questions[uid] = asyncio.create_task(self._ask_teacher(prompt))  # while the student writes
        try:
            await super()._run_prompt(prompt, sampling_params, trajectory, trace)
        finally:
            del self._groups[uid]
            if question := self._questions.pop(uid, None):
                question.cancel()  # nobody waits for it when no rollout could be used; what comes is kept on disk
            self._report_rollouts(at_once=True)

    async def _run_agent_loop(self, sampling_params, trajectory, *, agent_name, trace=True, **kwargs):
        if "seed" in sampling_params:
            seed = session_seed(sampling_params["seed"], kwargs["session_id"])
            sampling_params = {**sampling_params, "seed": seed}
        self._running += 1
        self._report_rollouts()
        try:
            return await super()._run_agent_loop(
                sampling_params, trajectory, agent_name=agent_name, trace=trace, **kwargs
            )
        except BaseException as error:
            await self._ledger.report_failure.remote(f"{type(error).__name__}: {error}")
            if (group := self._groups.get(kwargs["uid"])) is not None:
                await group.fail(kwargs["session_id"])
            raise
        finally:
            self._running -= 1

    async def _agent_loop_postprocess(self, output, validate, **kwargs):
        columns = {name: value for name, value in kwargs.items() if name != "teacher"}  # big, and used up by now
        self._grading += 1
        self._report_rollouts()
        try:
            await self._score(output, columns, validate=validate)
        finally:
            self._grading -= 1
        if validate:
            return await super()._agent_loop_postprocess(output, validate, **columns)
        self._scored += 1
        try:
            session = kwargs["session_id"]
            decision = await self._groups[kwargs["uid"]].arrive(session, output)
            if session in decision.rows:
                row = TrainingRow.of(decision.rows[session], from_teacher=session == decision.teacher_session)
                await super()._agent_loop_postprocess(row, validate, **columns)
        finally:
            self._scored -= 1

    async def _score(self, output: AgentLoopOutput, columns: Mapping[str, Any], *, validate: bool) -> None:
        """Score a rollout in place, and tell the ledger how its grading went."""
        try:
            await self._compute_score([output], kwargs=columns)
            course = reward_info(output).pop(GRADING)
        except Exception as error:  # the reward worker died, or the reward has a defect: no score, and no 0 either
            logger.exception("the reward of a response to record %s raised", columns["index"])
            mark_ungraded(output, columns["reward_model"]["style"])
            explanation = f"the reward raised {type(error).__name__}: {last_line(error)}"
            course = GradingCourse.broken(rubrics=len(columns["reward_model"]["rubrics"]), explanation=explanation)
        if course is not None:
            await self._ledger.report_grading.remote(columns["global_steps"], course, validate=validate)

    async def _decide(self, prompt: Mapping[str, Any], group: Group, outputs: dict[int, AgentLoopOutput]) -> Decision:
        """All rollouts of a prompt are scored: offer the teacher's response, and report the group."""
        step = prompt["global_steps"]
        rows = usable_rows(outputs, size=group.size)
        candidate, teacher_failed = None, False
        if rows and await self._ledger.teacher_enabled.remote(step):
            candidate, teacher_failed = await self._offer(prompt, step, next(iter(rows.values())))
        student_acc = fmean(reward_info(output)["acc"] for output in rows.values()) if rows else None
        teacher_session = None
        if candidate is not None and teacher_is_used(candidate.reward_score, [o.reward_score for o in rows.values()]):
            sessions = sorted(rows)
            draw = draw_session(seed=self._settings.seed, step=step, index=prompt["index"], n=len(sessions))
            teacher_session = sessions[draw]
            rows = {**rows, teacher_session: candidate}
        await self._ledger.report_group.remote(
            GroupReport(
                step=step,
                signal=self._signal(list(rows.values()), failed=group.failed),
                student_acc=student_acc,
                teacher_candidate=candidate is not None,
                teacher_used=teacher_session is not None,
                teacher_failed=teacher_failed,
                teacher_acc=reward_info(candidate)["acc"] if candidate is not None else None,
            )
        )
        return Decision(rows, teacher_session)

    async def _offer(
        self, prompt: Mapping[str, Any], step: int, sibling: AgentLoopOutput
    ) -> tuple[AgentLoopOutput | None, bool]:
        """The prompt's candidate, if it has one, and whether a teacher failed it: no answer, or none with a score."""
        try:
            candidate = await self._teacher_candidate(prompt, step, sibling)
            if candidate is None:
                return None, prompt["uid"] in self._questions
        except Exception:  # a response that cannot be read is no candidate; the student's rollouts are as good
            logger.exception("the teacher response of record %s could not be used", prompt["index"])
            return None, True
        return (candidate, False) if is_graded(candidate) else (None, True)

    async def _ask_teacher(self, prompt: Mapping[str, Any]) -> TeacherAnswer:
        step = prompt["global_steps"]
        if not await self._ledger.teacher_enabled.remote(step):
            return TeacherAnswer(None, None, None, requests=0, seconds=0.0, from_disk=False)
        try:
            answer = await self._teacher.answer.remote([dict(message) for message in prompt["raw_prompt"]])
        except Exception as error:  # of the client: to be told like any other failure
            logger.exception("the question of record %s raised", prompt["index"])
            explanation = f"the client raised {type(error).__name__}: {last_line(error)}"
            answer = TeacherAnswer(None, "client_error", explanation, requests=0, seconds=0.0, from_disk=False)
        await self._ledger.report_teacher_answer.remote(step, answer)
        return answer

    async def _teacher_candidate(
        self, prompt: Mapping[str, Any], step: int, sibling: AgentLoopOutput
    ) -> AgentLoopOutput | None:
        """The prompt's teacher response as a scored rollout, or None. ``sibling`` is any rollout of the prompt."""
        text = cached_response(
            prompt["teacher"]["responses"], seed=self._settings.seed, step=step, index=prompt["index"]
        )
        if text is None and prompt["uid"] in self._questions:
            self._report_rollouts(at_once=True)  # the next change may be the teacher's answer, minutes from now
            text = (await self._questions[prompt["uid"]]).text
        if text is None:
            return None
        ids = response_token_ids(
            text,
            tokenizer=self.tokenizer,
            prompt_ids=sibling.prompt_ids,
            end_of_turn_id=self._end_of_turn_id,
            stop_ids=self._stop_ids,
            max_tokens=self.rollout_config.response_length,
        )
        output = AgentLoopOutput(
            prompt_ids=sibling.prompt_ids,
            response_ids=ids,
            response_mask=[1] * len(ids),
            # no rollout engine sampled these tokens: the trainer puts the policy's own figures here
            response_logprobs=[0.0] * len(ids),
            num_turns=sibling.num_turns,
            metrics=sibling.metrics.model_copy(),
            multi_modal_data=sibling.multi_modal_data,
            extra_fields={name: v for name, v in sibling.extra_fields.items() if name != "reward_extra_info"},
        )
        columns = {name: value for name, value in prompt.items() if name not in ("teacher", "agent_name")}
        await self._score(output, columns, validate=False)
        return output

    def _signal(self, outputs: list[AgentLoopOutput], *, failed: int) -> GroupSignal:
        if failed:
            return GroupSignal.FAILED
        if not outputs:
            return GroupSignal.UNGRADED
        values = {float(reward_info(output)[self._signal_metric]) for output in outputs}
        if len(values) > 1:
            return GroupSignal.MIXED
        return {1.0: GroupSignal.ALL_RIGHT, 0.0: GroupSignal.ALL_WRONG}.get(values.pop(), GroupSignal.EQUAL)

    def _report_rollouts(self, at_once: bool = False) -> None:
        now = time.monotonic()
        if at_once or now - self._reported_at > _REPORT_SECONDS:
            self._reported_at = now
            states = {
                "generating": self._running - self._grading - self._scored,
                "grading": self._grading,
                "asking": sum(not question.done() for question in self._questions.values()),
            }
            self._ledger.report_rollouts.remote(self._name, states)


class OnePOAgentLoopManager(AgentLoopManagerTQ):
    """verl's manager with the worker above; named in the configuration."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.agent_loop_workers_class = ray.remote(OnePOAgentLoopWorker)
