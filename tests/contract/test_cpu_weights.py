"""How weights come from learners to samplers on the CPU, and what becomes of a response that they interrupt."""

import asyncio
import threading
import time
from itertools import count

import pytest
import torch
from omegaconf import OmegaConf
from transformers import AutoModelForCausalLM
from verl.checkpoint_engine import CheckpointEngineManager
from verl.single_controller.base.decorator import Dispatch, register
from verl.single_controller.ray import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup
from verl.utils.config import omega_conf_to_dataclass
from verl.workers.engine_workers import ActorRolloutRefWorker
from verl.workers.rollout.llm_server import FullyAsyncLLMServerClient, GlobalRequestLoadBalancer, LLMServerManager

from onepo.backends.cpu.rollout import TransformersServer
from onepo.backends.cpu.weights import ObjectStoreCheckpointEngine
from tests.contract.camp_config import camp_config

PROMPT = [5, 6, 7]
SAMPLING = {"temperature": 1.0, "top_k": -1, "top_p": 1.0, "logprobs": True}


def weights_of(student, seed):
    """The student's, a bit elsewhere for each seed."""
    generator = torch.Generator().manual_seed(seed)
    model = AutoModelForCausalLM.from_pretrained(student, dtype=torch.float32)
    for parameter in model.parameters():
        parameter.data.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return model.eval()


def log_probs(model, ids, start):
    """Of the tokens from ``start`` on, by one forward pass."""
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0, start - 1 : -1]
    return torch.log_softmax(logits, -1).gather(1, torch.tensor(ids[start:])[:, None])[:, 0]


def assert_written_by(model, response):
    expected = log_probs(model, [*PROMPT, *response.token_ids], len(PROMPT))
    torch.testing.assert_close(torch.tensor(response.log_probs), expected, atol=1e-4, rtol=0)


# ---- the engine


class Sync:
    """Two learners and two samplers, and verl's order of what they do when weights change."""

    def __init__(self):
        self.learners = [ObjectStoreCheckpointEngine(bucket_size=1, is_master=rank == 0) for rank in range(2)]
        self.samplers = [ObjectStoreCheckpointEngine(bucket_size=1) for _ in range(2)]

    def connect(self):
        """Returns the place where the weights are left: the mailbox and the number of the delivery."""
        both = [*self.learners, *self.samplers]
        told = ObjectStoreCheckpointEngine.build_topology(2, 2, [engine.prepare() for engine in both])
        for engines, arguments in zip((self.learners, self.samplers), told, strict=True):
            assert {name: len(values) for name, values in arguments.items()} == {"place": 2}
            for rank, engine in enumerate(engines):
                engine.init_process_group(**{name: values[rank] for name, values in arguments.items()})
        return told[0]["place"][0]

    def receive(self, sampler):
        async def take():
            return {name: tensor async for name, tensor in sampler.receive_weights(global_steps=1)}

        return asyncio.create_task(take())

    async def send(self, weights):
        """All learners go through all weights; returns what each sampler got."""
        received = [self.receive(sampler) for sampler in self.samplers]
        gone = await asyncio.gather(*[learner.send_weights(iter(weights.items())) for learner in self.learners])
        assert gone == [{}, {}]  # no metrics
        return await asyncio.gather(*received)

    def finalize(self):
        for engine in [*self.learners, *self.samplers]:
            engine.finalize()


def made_weights(value):
    return {"a": torch.full((3, 2), value), "b.c": torch.arange(4.0) + value, "half": torch.ones(2).bfloat16() * value}


def wait_until(true, seconds=30):
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_every_sampler_gets_the_weights_of_each_update(local_ray):
    async def main():
        sync, mailboxes = Sync(), set()
        for update in (1.0, 2.0):
            mailboxes.add(sync.connect()[0])
            for received in await sync.send(made_weights(update)):
                torch.testing.assert_close(received, made_weights(update), rtol=0, atol=0)
            sync.finalize()
        assert len(mailboxes) == 1  # the first learner keeps it

    asyncio.run(main())


def test_a_delivery_that_nobody_cleared_is_not_taken_for_the_next_one(local_ray):
    """As when a sampler asks sooner than the learner's last word arrives, or when a transfer failed on the way."""

    async def main():
        sync = Sync()
        sync.connect()
        for learner in sync.learners:
            await learner.send_weights(iter(made_weights(1.0).items()))
        sync.connect()
        for received in await sync.send(made_weights(2.0)):
            torch.testing.assert_close(received, made_weights(2.0), rtol=0, atol=0)
        sync.finalize()

    asyncio.run(main())


def test_weights_that_change_behind_the_sending_change_nothing(local_ray):
    """A learner goes on with its own tensors, and with the same memory."""

    async def main():
        sync, weights = Sync(), made_weights(1.0)
        sync.connect()
        for learner in sync.learners:
            await learner.send_weights(iter(weights.items()))
        weights["a"].zero_()
        torch.testing.assert_close(await sync.receive(sync.samplers[0]), made_weights(1.0))
        sync.finalize()

    asyncio.run(main())


def test_every_learner_goes_through_all_tensors(local_ray):
    """Those of the others are parts, which are put together on the way."""
    sync, seen = Sync(), []
    sync.connect()
    asyncio.run(sync.learners[1].send_weights((seen.append(name) or (name, torch.ones(1))) for name in "abc"))
    assert seen == ["a", "b", "c"]
    sync.finalize()


def test_nothing_of_an_old_delivery_stays(local_ray):
    """Its memory is free, and whoever asks for the next one waits for that."""
    from ray._private.worker import global_worker  # no public call tells whether an object is there

    async def main():
        sync = Sync()
        mailbox, number = sync.connect()
        received = await sync.send({"large": torch.ones(2**20)})  # small ones need no place in the object store
        (reference,) = local_ray.get(mailbox.get.remote(number))
        name = reference.binary()
        del reference, received
        assert is_there(name)
        sync.finalize()
        wait_until(lambda: not is_there(name))
        late = mailbox.get.remote(number + 1)
        assert local_ray.wait([late], timeout=0.5)[0] == []
        sync.connect()
        await sync.send(made_weights(2.0))
        (reference,) = local_ray.get(late)
        torch.testing.assert_close(local_ray.get(reference), made_weights(2.0))
        sync.finalize()

    def is_there(name):
        return global_worker.core_worker.object_exists(local_ray.ObjectRef(name, skip_adding_local_ref=True))

    asyncio.run(main())


# ---- a response that is interrupted


class HeldServer(TransformersServer):
    """Stands still before a certain token until it is told to abort."""

    def __init__(self, *args, held_before, **kwargs):
        super().__init__(*args, **kwargs)
        self._held = threading.Event()
        passes = count(1)  # the n-th one is for the n-th token

        def hold(*_):
            if next(passes) == held_before:
                self._held.set()
                assert self._aborting.wait(60)

        self._model.register_forward_pre_hook(hold)

    async def wait_until_held(self):
        assert await asyncio.to_thread(self._held.wait, 60)


def test_an_interrupted_response_is_whole_and_every_token_has_its_own_weights(local_ray, student):
    first, second = weights_of(student, 1), weights_of(student, 2)
    server = (
        local_ray.remote(HeldServer)
        .options(num_cpus=0, max_concurrency=10)
        .remote(str(student), response_length=99, max_batch=4, seed=0, trust_remote_code=False, held_before=6)
    )
    balancer = local_ray.remote(GlobalRequestLoadBalancer).options(num_cpus=0).remote(servers={"server": server})
    client = FullyAsyncLLMServerClient(camp_config(student=student), load_balancer_handle=balancer)

    async def main():
        await server.load_weights.remote(first.state_dict(), 7)
        asked = client.generate("id", prompt_ids=PROMPT, sampling_params={**SAMPLING, "max_tokens": 20})
        response = asyncio.create_task(asked)
        await server.wait_until_held.remote()
        await server.abort_all_requests.remote()
        await server.load_weights.remote(second.state_dict(), 8)
        await server.resume_generation.remote()
        return await response

    response = asyncio.run(main())
    fields = response.extra_fields
    assert (fields["min_global_steps"], fields["max_global_steps"]) == (7, 8)
    assert len(response.token_ids) == len(response.log_probs) == 20 and response.stop_reason == "length"
    ids, before, behind = [*PROMPT, *response.token_ids], slice(6), slice(6, None)
    found, old, new = (
        torch.tensor(response.log_probs),
        log_probs(first, ids, len(PROMPT)),
        log_probs(second, ids, len(PROMPT)),
    )
    torch.testing.assert_close(found[before], old[before], atol=1e-4, rtol=0)
    torch.testing.assert_close(found[behind], new[behind], atol=1e-4, rtol=0)
    assert (found[before] - new[before]).abs().min() > 1e-3 and (found[behind] - old[behind]).abs().min() > 1e-3
    local_ray.kill(server)
    local_ray.kill(balancer)


# ---- learners, engine and samplers together


class Learner(ActorRolloutRefWorker):
    """verl's own, with a way to other weights that needs no training."""

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def grow(self, factor):
        for parameter in self.actor.engine.module.parameters():
            parameter.data.mul_(factor)


@pytest.mark.slow
def test_samplers_write_with_the_weights_of_the_learners(local_ray, student):
    config = camp_config("actor_rollout_ref.rollout.n_gpus_per_node=2", student=student)
    OmegaConf.resolve(config)
    learners = RayWorkerGroup(
        resource_pool=RayResourcePool([2], max_colocate_count=1),
        ray_cls_with_init=RayClassWithInitArgs(
            cls=local_ray.remote(Learner), config=config.actor_rollout_ref, role="actor"
        ),
        device_name="cpu",
    )
    learners.init_model()
    samplers = LLMServerManager.create(config=config)
    manager = CheckpointEngineManager(
        config=omega_conf_to_dataclass(config.actor_rollout_ref.rollout.checkpoint_engine),
        actor_wg=learners,
        replicas=samplers.get_replicas(),
    )
    model = AutoModelForCausalLM.from_pretrained(student, dtype=torch.float32)
    assert len(samplers.server_handles) == 2
    for version in (3, 4):
        assert manager.update_weights(version) == {}
        responses = local_ray.get(
            [
                server.generate.remote("id", prompt_ids=PROMPT, sampling_params={**SAMPLING, "max_tokens": 12})
                for server in samplers.server_handles
            ]
        )
        for response in responses:
            assert response.extra_fields["global_steps"] == version
            assert_written_by(model, response)
        learners.grow(1.5)
        for parameter in model.parameters():
            parameter.data.mul_(1.5)
