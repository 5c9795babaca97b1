"""The rollout backend ``transformers``, by name: nothing heavy is imported until it is used."""

from verl.workers.rollout import base
from verl.workers.rollout.replica import RolloutReplicaRegistry

ROLLOUT_NAME = "transformers"


def _load_replica():
    from onepo.backends.cpu.rollout import TransformersReplica

    return TransformersReplica


def register_rollout() -> None:
    """Make ``actor_rollout_ref.rollout.name=transformers`` known to verl. Safe to call twice."""
    RolloutReplicaRegistry.register(ROLLOUT_NAME, _load_replica)
    # verl offers no function for this table
    base._ROLLOUT_REGISTRY[(ROLLOUT_NAME, "async")] = "onepo.backends.cpu.rollout.TransformersAdapter"
