"""One episode after the other: the student and a task service in turn, whatever the service is about."""

import time
from dataclasses import asdict, dataclass
from typing import Any
from uuid import uuid4

import aiohttp
from verl.experimental.agent_loop import AgentLoopOutput
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics

from camp.routes import Route
from camp.sampling.session import Session, SessionFault
from camp.sampling.transcript import Transcript, Turn
from camp.schedule import ScheduledEpisode
from onepo.compat import merge_context


class PromptTooLong(Exception):
    """The service's first text does not fit: verl would cut its beginning off, and with it the task."""


@dataclass(frozen=True)
class Ending:
    """How an episode came to its end.

    Attributes:
        limit: ``turns``, ``turn_tokens`` or ``response_tokens`` when one of these ended it; None: the service did.
        success: what the service said of it, if it did.
    """

    limit: str | None
    success: bool | None


class EnvironmentLoop(AgentLoopBase):
    """verl's agent loop for one episode. It retries nothing: any fault of the service goes to the caller."""

    async def play(
        self,
        episode: ScheduledEpisode,
        route: Route,
        sampling_params: dict[str, Any],
        *,
        stop_ids: frozenset[int],
    ) -> tuple[Transcript, Ending]:
        """Play an episode from its seed to its end.

        The last token is always one of the student's: an observation behind which nothing can be said is left out,
        because a value that is estimated for it would have nothing to do with what follows.

        Raises:
            SessionFault: the service did not do its part.
            PromptTooLong: of its first text.
        """
        request_id = uuid4().hex  # the same for all turns: they find their own prefix cached
        async with aiohttp.ClientSession() as http, Session(http, route.address) as session:
            first = await session.reset(task=episode.task, seed=episode.seed)
            if first.done:
                raise SessionFault("malformed", f"{route.url}: the episode is over before it has begun")
            messages = [{"role": "user", "content": first.text}]
            transcript = Transcript(first.text, await self._first_prompt(messages), self.rollout_config.response_length)
            while True:
                said = await self._say(transcript, episode.turn_tokens, sampling_params, request_id, stop_ids)
                if said.limited:
                    transcript.turns.append(said)
                    whose = "turn_tokens" if said.end - said.start == episode.turn_tokens else "response_tokens"
                    return transcript, Ending(whose, None)
                heard = await session.step(said.said)
                turn = {**asdict(said), "heard": heard.text, "reward": heard.reward, "waiting": heard.seconds}
                transcript.turns.append(Turn(**turn))
                if heard.done:
                    return transcript, Ending(None, heard.success)
                if len(transcript.turns) == episode.turns:
                    return transcript, Ending("turns", None)
                before = [*messages, {"role": "assistant", "content": said.said}]
                messages = [*before, {"role": "user", "content": heard.text}]
                if not await self._hear(transcript, before, messages):
                    return transcript, Ending("response_tokens", None)

    async def _first_prompt(self, messages: list[dict[str, str]]) -> list[int]:
        ids = self.continuous_token_builder.build_initial_tokens(messages)
        longest = self.rollout_config.prompt_length
        if len(ids) > longest:
            raise PromptTooLong(f"the first text of the task has {len(ids)} tokens, and a prompt may have {longest}")
        return ids

    async def _say(
        self,
        transcript: Transcript,
        turn_tokens: int,
        sampling_params: dict[str, Any],
        request_id: str,
        stop_ids: frozenset[int],
    ) -> Turn:
        """Let the student write one turn; what the service makes of it is not known yet."""
        most = min(turn_tokens, transcript.room)
        began = time.monotonic()
        output = await self.server_manager.generate(
            request_id=request_id,
            prompt_ids=transcript.ids,
            sampling_params={**sampling_params, "max_tokens": most},
        )
        generating = time.monotonic() - began
        start = len(transcript.response_ids)
        merged, mask, log_probs = await self.ct_merge_assistant_token(
            transcript.ids, output.token_ids, transcript.mask, transcript.log_probs, assistant_logprobs=output.log_probs
        )
        transcript.take(merged.token_ids, mask, log_probs)
        ended = bool(output.token_ids) and output.token_ids[-1] in stop_ids
        return Turn(
            start=start,
            end=len(transcript.response_ids),
            said=self.tokenizer.decode(output.token_ids, skip_special_tokens=True),
            heard=None,
            reward=0.0,
            limited=len(output.token_ids) >= most and not ended,
            versions=(output.extra_fields.get("min_global_steps"), output.extra_fields.get("max_global_steps")),
            generating=generating,
            waiting=0.0,
        )

    async def _hear(self, transcript: Transcript, before: list[dict[str, str]], messages: list[dict[str, str]]) -> bool:
        """Add the last message to the transcript, unless that would leave no room for an answer."""
        merged, mask, log_probs = await merge_context(
            self, before, messages, transcript.ids, transcript.mask, transcript.log_probs
        )
        if len(mask) >= transcript.limit:
            return False
        transcript.take(merged.token_ids, mask, log_probs, removed=merged.removed_prefix_token_count)
        return True

    def output_of(self, transcript: Transcript, extra_fields: dict[str, Any]) -> AgentLoopOutput:
        """The episode as a row: its reward stands at its last token."""
        first, last = transcript.versions
        return AgentLoopOutput(
            prompt_ids=transcript.prompt_ids,
            response_ids=transcript.response_ids,
            response_mask=transcript.mask,
            response_logprobs=transcript.log_probs,
            reward_score=transcript.reward,
            num_turns=2 * len(transcript.turns),
            metrics=AgentLoopMetrics(
                generate_sequences=sum(turn.generating for turn in transcript.turns),
                tool_calls=sum(turn.waiting for turn in transcript.turns),
            ),
            extra_fields={"min_global_steps": first, "max_global_steps": last, **extra_fields},
        )
