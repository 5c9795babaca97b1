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
        self._number = 0

    def prepare(self):
        if not self._is_master:
            return {"place": None}
        if self._mailbox is None:
            self._mailbox = Mailbox.remote()
        self._number += 1
        return {"place": (self._mailbox, self._number)}

    @classmethod
    def build_topology(cls, actor_wg_world_size, rollout_world_size, metadata):
        (place,) = [found["place"] for found in metadata if found["place"] is not None]
        return {"place": [place] * actor_wg_world_size}, {"place": [place] * rollout_world_size}

    def init_process_group(self, place):
        self._mailbox, self._number = place

    async def send_weights(self, weights, global_steps=None):
        # every learner must go through them: the parts of a tensor are gathered on the way
        state = {name: tensor.detach().cpu() for name, tensor in weights}
        if self._is_master:
            await self._mailbox.put.remote(self._number, [ray.put(state)])
        return {}

    async def receive_weights(self, global_steps=None):
        (delivery,) = await self._mailbox.get.remote(self._number)
        for name, tensor in (await delivery).items():
            yield name, tensor

    def finalize(self):
        if self._is_master:
            self._mailbox.clear.remote(self._number)
        else:
            self._mailbox = None
