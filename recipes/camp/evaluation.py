"""Playing a set of tasks with a student that learns nothing, and what came of it."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from omegaconf import DictConfig
from transformers import PreTrainedTokenizerBase
from verl.experimental.agent_loop.agent_loop import DictConfigWrap
from verl.utils.config import omega_conf_to_dataclass
from verl.workers.rollout.llm_server import LLMServerManager

from camp.routes import Route
from camp.sampling.loop import EnvironmentLoop, PromptTooLong
from camp.sampling.record import EpisodeRecord, record_of, success_rate
from camp.sampling.retrying import retrying
from camp.sampling.session import SessionFault
from camp.schedule import ScheduledEpisode
from onepo.data.chat import rollout_stop_ids


@dataclass(frozen=True)
class Result:
    """Of a domain.

    Attributes:
        episodes: that were played to their end.
        failed: those that could not be, because of their service; they are in no mean.
        reward, limit_rate: means; None when nothing was played.
        success: the share of solved tasks, None where the service does not say.
    """

    episodes: int
    failed: int
    reward: float | None
    success: float | None
    limit_rate: float | None


class _EvaluationLoop(EnvironmentLoop):
    async def run(self, sampling_params: dict[str, Any], **columns: Any):
        raise NotImplementedError("an evaluation puts nothing into verl's queue")


class Evaluation:
    """A student behind verl's inference engine. Ray is there already.

    Args:
        config: composed, with the student; it samples as in training unless its sampling options say otherwise.
    """

    def __init__(self, config: DictConfig):
        self._config = config
        self._model = omega_conf_to_dataclass(config.actor_rollout_ref.model)
        self._tokenizer: PreTrainedTokenizerBase = self._model.tokenizer
        self._stop_ids = frozenset(rollout_stop_ids(self._tokenizer, self._model.generation_config)[0])
        rollout = config.actor_rollout_ref.rollout
        self._sampling = {
            "temperature": rollout.temperature,
            "top_p": rollout.top_p,
            "top_k": rollout.top_k,
            "repetition_penalty": 1.0,
            "logprobs": True,
            "stop_token_ids": sorted(self._stop_ids),
        }
        self._servers = LLMServerManager.create(config=config)

    def play(
        self,
        episodes: Sequence[ScheduledEpisode],
        routes: Mapping[str, Route],
        *,
        at_once: int,
        retries: int,
        outage_limit: float,
        lost: Mapping[str, str],
        done: Callable[[], None],
    ) -> list[EpisodeRecord | str]:
        """Play all episodes; a record for each, or why there is none.

        Args:
            at_once: episodes under way at one time.
            retries, outage_limit: when a service fails, as in training.
            lost: why, by the domains whose service will not come back; it may grow in the meantime.
            done: called when an episode is over.
        """

        async def main() -> list[EpisodeRecord | str]:
            slots = asyncio.Semaphore(at_once)

            async def one(row: ScheduledEpisode) -> EpisodeRecord | str:
                async with slots:
                    found = await self._play(row, routes[row.domain], retries, outage_limit, lost)
                done()
                return found

            return await asyncio.gather(*map(one, episodes))

        return asyncio.run(main())

    async def _play(
        self, row: ScheduledEpisode, route: Route, retries: int, outage_limit: float, lost: Mapping[str, str]
    ) -> EpisodeRecord | str:
        loop = _EvaluationLoop(
            trainer_config=DictConfigWrap(self._config),
            server_manager=self._servers.get_client(),
            tokenizer=self._tokenizer,
            processor=None,
            dataset_cls=None,
            data_config=DictConfigWrap(self._config.data),
            hf_model_type=self._model.hf_config.model_type,
        )
        try:
            async for attempt in retrying(retries=retries, outage_limit=outage_limit):
                if row.domain in lost:
                    return lost[row.domain]
                with attempt:
                    transcript, ending = await loop.play(row, route, self._sampling, stop_ids=self._stop_ids)
        except (SessionFault, PromptTooLong) as error:
            return str(error)
        except Exception as error:  # the results of the others are not to be lost for it
            return f"{type(error).__name__}: {error}"
        seconds = sum(turn.generating + turn.waiting for turn in transcript.turns)
        return record_of(row, transcript, ending, seconds=seconds, submitted_at=0)


def results_by_domain(episodes: Sequence[ScheduledEpisode], found: Sequence[EpisodeRecord | str]) -> dict[str, Result]:
    """Means over the episodes of each domain, by name. Pure."""
    by_domain: dict[str, list[EpisodeRecord | str]] = defaultdict(list)
    for row, one in zip(episodes, found, strict=True):
        by_domain[row.domain].append(one)
    return {name: _result(by_domain[name]) for name in sorted(by_domain)}


def _result(found: Sequence[EpisodeRecord | str]) -> Result:
    played = [one for one in found if isinstance(one, EpisodeRecord)]
    return Result(
        episodes=len(played),
        failed=len(found) - len(played),
        reward=fmean(one.reward for one in played) if played else None,
        success=success_rate(played) if played else None,
        limit_rate=fmean(one.limit is not None for one in played) if played else None,
    )
