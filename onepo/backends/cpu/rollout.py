"""verl's rollout interface over a Hugging Face model: one Ray actor per replica, weights by the object store."""

import asyncio
import os
import threading
from typing import Any

import ray
import torch
from transformers import AutoConfig
from verl.utils.model import get_hf_auto_model_class
from verl.workers.rollout.base import BaseRollout
from verl.workers.rollout.replica import RolloutReplica, TokenOutput
from verl.workers.rollout.utils import ensure_async_iterator

from onepo.backends.cpu.generation import (
    SampledResponse,
    SamplingRequest,
    ScoringRequest,
    cache_error,
    sample_batch,
    score_batch,
)

# Requests of one prompt arrive within milliseconds of each other: waiting this long lets a batch gather.
_GATHER_SECONDS = 0.02
# Above what float32 loses, and below what the comparison of rollout and learner would show.
_CACHE_TOLERANCE = 1e-4


def _server_name(replica_rank: int, name_suffix: str = "") -> str:
    return f"transformers_server_{replica_rank}{name_suffix}"


class TransformersAdapter(BaseRollout):
    """Lives in a learner rank and hands the learner's weights to the replica's server."""

    def __init__(self, config, model_config, device_mesh, replica_rank: int = -1):
        super().__init__(config, model_config, device_mesh)
        # -1: hybrid, where each learner rank has a replica of its own
        self.replica_rank = device_mesh.get_rank() if replica_rank == -1 else replica_rank
        self.is_leader_rank = True

    async def resume(self, tags):
        pass

    async def release(self):
        pass

    async def update_weights(self, weights, wire_format="named_tensors", global_steps=None, **kwargs):
        if wire_format != "named_tensors":
            raise ValueError(f"the transformers rollout takes full tensors, not wire_format={wire_format!r}")
        # clone: on a CPU the tensors may share memory with the parameters that the learner goes on to change
        state = {name: tensor.detach().cpu().clone() async for name, tensor in ensure_async_iterator(weights)}
        server = ray.get_actor(_server_name(self.replica_rank))
        await server.load_weights.remote(state, global_steps or 0)


class TransformersServer:
    """Collects requests into batches and samples them; one forward pass or one weight load at a time."""

    def __init__(self, model_path: str, response_length: int, max_batch: int, seed: int, trust_remote_code: bool):
        torch.set_num_threads(os.cpu_count() or 1)
        config = AutoConfig.from_pretrained(model_path, trust_remote_code=trust_remote_code)
        self._model = (
            get_hf_auto_model_class(config)  # the learner's class, so that its weights have the same names
            .from_pretrained(
                model_path, dtype=torch.float32, attn_implementation="sdpa", trust_remote_code=trust_remote_code
            )
            .eval()
        )
        eos = self._model.generation_config.eos_token_id
        self._eos_ids = frozenset([eos] if isinstance(eos, int) else eos or [])
        self._pad_id = self._model.generation_config.pad_token_id or 0
        self._use_cache = self._cache_is_right()
        self._response_length = response_length
        self._max_batch = max_batch
        self._next_seed = seed  # for requests that bring none
        self._version = 0
        self._queue: list[tuple[SamplingRequest | ScoringRequest, asyncio.Future]] = []
        self._worker: asyncio.Task | None = None
        self._open = True  # else requests wait
        self._rejecting = False  # requests that would wait are sent away instead
        self._changed = asyncio.Condition()
        self._aborting = threading.Event()  # sampling runs in a thread
        self._model_lock = asyncio.Lock()

    def _cache_is_right(self) -> bool:
        error = cache_error(self._model, self._pad_id)
        if error <= _CACHE_TOLERANCE:  # not so for NaN either
            return True
        print(
            f"{type(self._model).__name__}: log-probabilities with a cache differ by {error:.1e} from those of plain "
            f"forward passes, more than {_CACHE_TOLERANCE:g}: responses are generated without it, which is slow"
        )
        return False

    async def generate(self, request_id, *, prompt_ids, sampling_params, **kwargs) -> TokenOutput:
        """Sample one response; ``sampling_params`` are verl's, and ``seed``, ``stop_token_ids``.

        A response that is cut by :meth:`abort_all_requests` has the stop reason "aborted", which verl's client for
        asynchronous training answers with another request for the rest.
        """
        async with self._changed:
            await self._changed.wait_for(lambda: self._open or self._rejecting)
        if not self._open:
            return self._output(SampledResponse(stop_reason="aborted"), log_probs=True)
        params = dict(sampling_params)
        if params.get("prompt_logprobs") is not None:
            return self._scored(list(prompt_ids), await self._answer(self._scoring_request(prompt_ids, params)))
        want_log_probs = bool(params.get("logprobs"))
        seed = params.get("seed")
        if seed is None:
            seed, self._next_seed = self._next_seed, self._next_seed + 1
        request = SamplingRequest(
            prompt_ids=list(prompt_ids),
            max_tokens=int(params.get("max_tokens") or self._response_length),
            temperature=float(params["temperature"]),
            top_k=int(params["top_k"]),
            top_p=float(params["top_p"]),
            seed=seed,
            stop_ids=self._eos_ids | frozenset(params.get("stop_token_ids") or ()),
        )
        return self._output(await self._answer(request), log_probs=want_log_probs)

    async def _answer(self, request: SamplingRequest | ScoringRequest) -> Any:
        done = asyncio.get_running_loop().create_future()
        self._queue.append((request, done))
        if self._worker is None:
            self._worker = asyncio.create_task(self._drain())
        return await done

    @staticmethod
    def _scoring_request(prompt_ids, params) -> ScoringRequest:
        if params["prompt_logprobs"] != 0:
            raise ValueError(f"prompt_logprobs={params['prompt_logprobs']}: only those of the tokens themselves (0)")
        return ScoringRequest(list(prompt_ids))

    def _scored(self, ids: list[int], log_probs: list[float]) -> TokenOutput:
        """verl's form for a teacher: row i is about token i + 1, and the last row about nothing."""
        return TokenOutput(
            token_ids=[],
            stop_reason="completed",
            extra_fields={
                "global_steps": self._version,
                "prompt_ids": [[token] for token in [*ids[1:], 0]],
                "prompt_logprobs": [[value] for value in [*log_probs, 0.0]],
            },
        )

    def _output(self, response: SampledResponse, *, log_probs: bool) -> TokenOutput:
        return TokenOutput(
            token_ids=response.token_ids,
            log_probs=response.log_probs if log_probs else None,
            stop_reason=response.stop_reason,
            # none where nothing was written: verl's client takes that of the first answer for the first token's
            extra_fields={"global_steps": self._version} if response.token_ids else {},
        )

    async def _drain(self) -> None:
        try:
            while self._queue:
                waiting = 0
                while waiting != len(self._queue):
                    waiting = len(self._queue)
                    await asyncio.sleep(_GATHER_SECONDS)
                batch, self._queue = self._queue[: self._max_batch], self._queue[self._max_batch :]
                async with self._model_lock:
                    await self._serve(batch)
        finally:
            self._worker = None

    async def _serve(self, batch: list[tuple[SamplingRequest | ScoringRequest, asyncio.Future]]) -> None:
        for kind, work in ((SamplingRequest, self._sample), (ScoringRequest, self._score)):
            part = [(request, done) for request, done in batch if isinstance(request, kind)]
            if not part:
                continue
            try:
                answers = await asyncio.to_thread(work, [request for request, _ in part])
            except Exception as error:  # every caller must learn of it, else it would wait for ever
                for _, done in part:
                    done.set_exception(error)
                continue
            for (_, done), answer in zip(part, answers, strict=True):
                done.set_result(answer)

    def _sample(self, requests: list[SamplingRequest]) -> list[SampledResponse]:
        return sample_batch(
            self._model, requests, self._pad_id, use_cache=self._use_cache, aborted=self._aborting.is_set
        )

    def _score(self, requests: list[ScoringRequest]) -> list[list[float]]:
        return score_batch(self._model, [request.token_ids for request in requests], self._pad_id)

    async def load_weights(self, state: dict[str, torch.Tensor], version: int) -> None:
        """Take the learner's weights; ``version`` is the training step that they come from."""
        async with self._model_lock:
            missing, unexpected = self._model.load_state_dict(state, strict=False)
            tied = set(self._model.all_tied_weights_keys)
            if unexpected or set(missing) - tied:
                raise RuntimeError(f"weights do not fit the model: missing {missing}, unexpected {unexpected}")
            self._model.tie_weights()
            self._version = version

    async def _nothing(self, **kwargs):
        pass

    wake_up = clear_kv_cache = release_kv_cache = resume_kv_cache = start_profile = stop_profile = _nothing

    async def sleep(self, **kwargs):
        """Nothing is freed here. Requests that wait are sent away: only the release says so when it aborts them."""
        await self._set(open_=self._open, rejecting=True)

    async def abort_all_requests(self, reject_request: bool = False):
        """End what is under way where it is, and take no new request until generation is resumed.

        Args:
            reject_request: Send new requests away instead of letting them wait (an argument of the release only).
        """
        await self._set(open_=False, rejecting=reject_request)
        self._aborting.set()
        if self._worker is not None:
            await asyncio.shield(self._worker)
        self._aborting.clear()

    async def resume_generation(self):
        await self._set(open_=True, rejecting=False)

    async def _set(self, *, open_: bool, rejecting: bool) -> None:
        async with self._changed:
            self._open, self._rejecting = open_, rejecting
            self._changed.notify_all()


class TransformersReplica(RolloutReplica):
    """One server per learner rank."""

    async def launch_servers(self):
        name = _server_name(self.replica_rank, self.name_suffix)
        server = (
            ray.remote(TransformersServer)
            .options(name=name, num_cpus=0, max_concurrency=self.max_concurrency)
            .remote(
                model_path=self.model_config.path,
                response_length=self.config.response_length,
                max_batch=self.config.max_num_seqs,
                seed=self.config.seed,
                trust_remote_code=self.model_config.get("trust_remote_code", False),  # a teacher has a path alone
            )
        )
        self.servers = [server]
        self._server_handle, self._server_address = server, name
