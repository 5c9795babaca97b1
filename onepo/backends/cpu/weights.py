"""verl's checkpoint engine for machines without a GPU: weights go from learners to samplers by Ray's object store.

verl's own engines need CUDA libraries, except ``naive``, which knows no samplers of their own.
"""

import ray
from verl.checkpoint_engine.base import CheckpointEngine, CheckpointEngineRegistry

from onepo.backends.cpu.mailbox import Mailbox

WEIGHTS_NAME = "object_store"


@CheckpointEngineRegistry.register(WEIGHTS_NAME)
class ObjectStoreCheckpointEngine(CheckpointEngine):
    """The first learner leaves whole tensors in a mailbox, every sampler takes them out."""

    def __init__(self, bucket_size: int, is_master: bool = False):
        self._is_master = is_master
        self._mailbox = None

    def prepare(self):
        if self._is_master and self._mailbox is None:
            self._mailbox = Mailbox.remote()
        return {"mailbox": self._mailbox}

    @classmethod
    def build_topology(cls, actor_wg_world_size, rollout_world_size, metadata):
        (mailbox,) = [found["mailbox"] for found in metadata if found["mailbox"] is not None]
        return {"mailbox": [mailbox] * actor_wg_world_size}, {"mailbox": [mailbox] * rollout_world_size}

    def init_process_group(self, mailbox):
        if not self._is_master:
            self._mailbox = mailbox

    async def send_weights(self, weights, global_steps=None):
        # every learner must go through them: the parts of a tensor are gathered on the way
        state = {name: tensor.detach().cpu() for name, tensor in weights}
        if self._is_master:
            await self._mailbox.put.remote([ray.put(state)])
        return {}

    async def receive_weights(self, global_steps=None):
        (delivery,) = await self._mailbox.get.remote()
        for name, tensor in (await delivery).items():
            yield name, tensor

    def finalize(self):
        if self._is_master:
            self._mailbox.clear.remote()  # Ray keeps the order of calls from one place
        else:
            self._mailbox = None
