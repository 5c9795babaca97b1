"""A row of the schedule as verl's agent loop: played, played anew when a service fails, and reported."""

import time
from functools import lru_cache
from pathlib import Path
from typing import Any

import ray
from omegaconf import OmegaConf
from transformers import GenerationConfig
from verl.experimental.agent_loop import AgentLoopOutput

from camp.routes import Routes, read_routes
from camp.sampling.ledger import EpisodeReport, ledger_name
from camp.sampling.loop import Ending, EnvironmentLoop, PromptTooLong
from camp.sampling.record import record_of
from camp.sampling.retrying import retrying
from camp.sampling.session import SessionFault
from camp.sampling.transcript import Transcript
from camp.schedule import ScheduledEpisode
from camp.settings import parse_settings
from onepo.data.chat import rollout_stop_ids
from onepo.errors import last_line

RECORD = "episode_record"  # in a row's extra fields


class EpisodeFailed(Exception):
    """It cannot be played; the ledger has the reason, and the run stops."""


class EpisodeLoop(EnvironmentLoop):
    """What verl calls for each row. It makes one for each episode."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._settings = parse_settings(OmegaConf.to_container(self.config.camp, resolve=True))
        self._ledger = ray.get_actor(ledger_name(self._settings.attempt_dir))
        self._stop_ids = _stop_ids(self.config.actor_rollout_ref.model.path, self.tokenizer)

    async def run(
        self, sampling_params: dict[str, Any], *, episode: dict[str, Any], global_steps: int, **columns: Any
    ) -> AgentLoopOutput:
        """Play the episode.

        Whatever fails is in the ledger before it is raised: the trainer stops for it and keeps the episode.

        Raises:
            EpisodeFailed: its service failed too often, or its first text does not fit.
        """
        row = ScheduledEpisode.model_validate(episode)
        try:
            transcript, ending, seconds = await self._attempts(row, sampling_params)
            latencies = [turn.waiting for turn in transcript.turns if turn.heard is not None]
            record = record_of(row, transcript, ending, seconds=seconds, submitted_at=int(global_steps))
            extra_fields = {RECORD: record.model_dump(), "reward_extra_info": {"score": transcript.reward}}
            output = self.output_of(transcript, extra_fields)
        except (SessionFault, PromptTooLong) as error:
            await self._ledger.give_up.remote(row.position, row.domain, str(error))
            raise EpisodeFailed(str(error)) from None
        except Exception as error:
            await self._ledger.give_up.remote(row.position, row.domain, f"{type(error).__name__}: {last_line(error)}")
            raise
        report = EpisodeReport(row.domain, transcript.reward, ending.limit, seconds, latencies)
        await self._ledger.finish.remote(row.position, report)
        return output

    async def _attempts(
        self, row: ScheduledEpisode, sampling_params: dict[str, Any]
    ) -> tuple[Transcript, Ending, float]:
        route = _routes(self._settings.routes).domains[row.domain]
        params = {**sampling_params, "stop_token_ids": sorted(self._stop_ids)}
        policy = retrying(retries=self._settings.episode_retries, outage_limit=self._settings.outage_limit)
        async for attempt in policy:
            with attempt:
                again = attempt.retry_state.attempt_number > 1
                await self._ledger.begin.remote(row.position, row.domain, again=again)
                began = time.monotonic()
                try:
                    transcript, ending = await self.play(row, route, params, stop_ids=self._stop_ids)
                except SessionFault as fault:
                    await self._ledger.fault.remote(row.domain, fault.kind, str(fault))
                    raise
        return transcript, ending, time.monotonic() - began


@lru_cache
def _routes(file: str) -> Routes:
    return read_routes(Path(file))


@lru_cache
def _stop_ids(model: str, tokenizer: Any) -> frozenset[int]:
    try:
        generation_config = GenerationConfig.from_pretrained(model)
    except OSError:  # a model without one
        generation_config = None
    return frozenset(rollout_stop_ids(tokenizer, generation_config)[0])
