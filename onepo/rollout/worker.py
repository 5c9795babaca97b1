"""verl's agent-loop worker with one more decision: may the teacher's response take the place of a rollout?

The decision falls as soon as the group is scored, while other prompts are still generating, and before the group is
stored, so that the filter of dynamic sampling sees the group as it will be trained on (algorithms page, section 2).
"""

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import ray
import torch
from omegaconf import OmegaConf
from verl.experimental.agent_loop import AgentLoopOutput
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ, AgentLoopWorkerTQ

from onepo.compat import plain_class
from onepo.data.chat import end_of_turn_token_id, rollout_stop_ids
from onepo.rollout.group import Group
from onepo.rollout.ledger import GroupReport, GroupSignal, ledger_name
from onepo.rollout.seeds import PromptSeeds, session_seed
from onepo.settings import parse_settings
from onepo.teachers.cached import cached_response, response_token_ids
from onepo.teachers.retirement import draw_session, teacher_is_used

logger = logging.getLogger(__name__)

TEACHER_MASK = "teacher_mask"

# The terminal redraws about once a second; telling the ledger more often would only cost calls.
_REPORT_SECONDS = 0.5


class TrainingRow(AgentLoopOutput):
    """A rollout as it is stored for training, with the per-token teacher mask [T] beside the response mask."""

    teacher_mask: list[int]

    @classmethod
    def of(cls, output: AgentLoopOutput, *, from_teacher: bool) -> "TrainingRow":
        fields = {name: getattr(output, name) for name in output.model_fields_set}
        return cls(**fields, teacher_mask=[int(from_teacher)] * len(output.response_ids))

    def as_dict(self) -> dict[str, Any]:
        fields = super().as_dict()
        fields[TEACHER_MASK] = torch.tensor(fields.pop("teacher_mask"), dtype=torch.bool)
        return fields


@dataclass(frozen=True)
class Replacement:
    """The session whose rollout makes room, and the teacher's response, already scored."""

    session: int
    output: AgentLoopOutput


class OnePOAgentLoopWorker(plain_class(AgentLoopWorkerTQ)):
    """Hooks: ``_run_prompt`` opens a group, ``_run_agent_loop`` seeds a rollout and marks a failed one,
    ``_agent_loop_postprocess`` scores, waits for the group's decision and stores."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        section = OmegaConf.to_container(self.config.onepo, resolve=True)
        self._settings = parse_settings(section)
        self._signal_metric = self.config.algorithm.filter_groups.metric
        self._ledger = ray.get_actor(ledger_name(self._settings.run_dir))
        self._name = ray.get_runtime_context().get_actor_id()
        self._end_of_turn_id = end_of_turn_token_id(self.tokenizer)
        self._stop_ids, _ = rollout_stop_ids(self.tokenizer, self.model_config.generation_config)
        self._groups: dict[str, Group[AgentLoopOutput, Replacement | None]] = {}
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
        try:
            await super()._run_prompt(prompt, sampling_params, trajectory, trace)
        finally:
            del self._groups[uid]
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
            await self._compute_score([output], kwargs=columns)
        finally:
            self._grading -= 1
        if validate:
            return await super()._agent_loop_postprocess(output, validate, **columns)
        self._scored += 1
        try:
            replacement = await self._groups[kwargs["uid"]].arrive(kwargs["session_id"], output)
            replaced = replacement is not None and replacement.session == kwargs["session_id"]
            row = TrainingRow.of(replacement.output if replaced else output, from_teacher=replaced)
            return await super()._agent_loop_postprocess(row, validate, **columns)
        finally:
            self._scored -= 1

    async def _decide(
        self, prompt: Mapping[str, Any], group: Group, outputs: dict[int, AgentLoopOutput]
    ) -> Replacement | None:
        """All rollouts of a prompt are scored: offer the teacher's response, and report the group."""
        step = prompt["global_steps"]
        candidate, teacher_failed = None, False
        if outputs and await self._ledger.teacher_enabled.remote(step):
            try:
                candidate = await self._teacher_candidate(prompt, step, next(iter(outputs.values())))
            except Exception:  # a teacher that cannot be scored is no candidate; the student's rollouts are as good
                logger.exception("the teacher response of record %s could not be scored", prompt["index"])
                teacher_failed = True
        replacement = None
        rewards = [output.reward_score for output in outputs.values()]
        if candidate is not None and teacher_is_used(candidate.reward_score, rewards):
            sessions = sorted(outputs)
            draw = draw_session(seed=self._settings.seed, step=step, index=prompt["index"], n=len(sessions))
            replacement = Replacement(sessions[draw], candidate)
        final = {**outputs, **({replacement.session: replacement.output} if replacement else {})}
        await self._ledger.report_group.remote(
            GroupReport(
                step=step,
                signal=self._signal(list(final.values()), failed=group.failed),
                student_acc=fmean(_reward_info(output)["acc"] for output in outputs.values()) if outputs else None,
                teacher_candidate=candidate is not None,
                teacher_used=replacement is not None,
                teacher_failed=teacher_failed,
                teacher_acc=_reward_info(candidate)["acc"] if candidate is not None else None,
            )
        )
        return replacement

    async def _teacher_candidate(
        self, prompt: Mapping[str, Any], step: int, sibling: AgentLoopOutput
    ) -> AgentLoopOutput | None:
        """The prompt's teacher response as a scored rollout, or None. ``sibling`` is any rollout of the prompt."""
        text = cached_response(
            prompt["teacher"]["responses"], seed=self._settings.seed, step=step, index=prompt["index"]
        )
        if text is None:
            return None
        ids = response_token_ids(
            text,
            tokenizer=self.tokenizer,
            prompt_ids=sibling.prompt_ids,
            end_of_turn_id=self._end_of_turn_id,
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
        await self._compute_score([output], kwargs=columns)
        return output

    def _signal(self, outputs: list[AgentLoopOutput], *, failed: int) -> GroupSignal:
        if failed:
            return GroupSignal.FAILED
        values = {float(_reward_info(output)[self._signal_metric]) for output in outputs}
        if len(values) > 1:
            return GroupSignal.MIXED
        return {1.0: GroupSignal.ALL_RIGHT, 0.0: GroupSignal.ALL_WRONG}.get(values.pop(), GroupSignal.EQUAL)

    def _report_rollouts(self, at_once: bool = False) -> None:
        now = time.monotonic()
        if at_once or now - self._reported_at > _REPORT_SECONDS:
            self._reported_at = now
            generating = self._running - self._grading - self._scored
            self._ledger.report_rollouts.remote(self._name, generating=generating, grading=self._grading)


def _reward_info(output: AgentLoopOutput) -> dict[str, float]:
    return output.extra_fields["reward_extra_info"]


class OnePOAgentLoopManager(AgentLoopManagerTQ):
    """verl's manager with the worker above; named in the configuration."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.agent_loop_workers_class = ray.remote(OnePOAgentLoopWorker)
