"""What this package relies on in verl: an upstream change shows here as one readable failure."""

import inspect

import pytest
import transfer_queue
from verl.checkpoint_engine import CheckpointEngineManager
from verl.experimental.agent_loop import AgentLoopOutput
from verl.experimental.agent_loop.agent_loop import AgentLoopWorker
from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase
from verl.single_controller.ray import base as ray_base
from verl.single_controller.ray.base import RayWorkerGroup
from verl.trainer.main_ppo import TaskRunnerV1, run_ppo
from verl.trainer.ppo import core_algos
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ, AgentLoopWorkerTQ
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer
from verl.trainer.ppo.v1.trainer_base import PPOTrainer, get_trainer_cls
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils import distributed
from verl.workers import engine_workers
from verl.workers.rollout import base
from verl.workers.rollout.replica import RolloutReplica, RolloutReplicaRegistry, TokenOutput

from onepo.compat import plain_class


def parameters(function) -> list[str]:
    names = list(inspect.signature(function).parameters)
    return [name for name in names if name != "_ray_trace_ctx"]  # Ray adds it to the methods of actor classes


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (plain_class(AgentLoopWorkerTQ)._run_prompt, ["self", "prompt", "sampling_params", "trajectory", "trace"]),
        (
            AgentLoopWorker._run_agent_loop,
            ["self", "sampling_params", "trajectory", "agent_name", "trace", "kwargs"],
        ),
        (plain_class(AgentLoopWorkerTQ)._agent_loop_postprocess, ["self", "output", "validate", "kwargs"]),
        (AgentLoopWorker._compute_score, ["self", "outputs", "kwargs"]),
        (AgentLoopWorker._compute_multi_modal_inputs, ["self", "output", "input_ids"]),
        (
            AgentLoopWorker._compute_position_ids,
            ["self", "input_ids", "attention_mask", "multi_modal_inputs", "mm_processor_kwargs"],
        ),
        (AgentLoopOutput.as_dict, ["self"]),
        (RewardManagerBase.run_single, ["self", "data"]),
        (run_ppo, ["config", "task_runner_class"]),
        (plain_class(TaskRunnerV1).run, ["self", "config"]),
        (PPOTrainer._build_replay_buffer, ["self"]),
        (PPOTrainer._init_dataloader, ["self"]),
        (PPOTrainer._setup, ["self"]),
        (PPOTrainer.fit, ["self", "agent_loop_manager"]),
        (PPOTrainer._submit_batch_to_rollout, ["self", "batch"]),
        (PPOTrainer._add_prompts_to_generate, ["self", "num_prompts"]),
        (PPOTrainer._compute_old_log_prob, ["self", "batch", "metrics"]),
        (PPOTrainer._update_actor, ["self", "batch", "metrics"]),
        (PPOTrainer._compute_metrics, ["self", "batch", "metrics", "timing_raw", "global_steps", "epoch"]),
        (PPOTrainer._save_checkpoint, ["self"]),
        (PPOTrainer._validate, ["self"]),
        (
            PPOTrainer._dump_generations,
            ["self", "inputs", "outputs", "gts", "scores", "reward_extra_infos_dict", "dump_path"],
        ),
        (PPOTrainerSync.on_step_begin, ["self"]),
        (PPOTrainerSync.on_step_end, ["self"]),
        (PPOTrainerSync.on_sample_end, ["self"]),
        (ReplayBuffer._wait_for_next_poll, ["self", "partition_id", "last_debug_time"]),
        (ReplayBuffer._terminal_eviction_reasons, ["self", "global_steps", "partition_id"]),
        (engine_workers.ActorRolloutRefWorker.set_loss_fn, ["self", "loss_fn"]),
        (engine_workers.ppo_loss, ["config", "model_output", "data", "dp_group"]),
        (RolloutReplica.launch_servers, ["self"]),
        (base.BaseRollout.update_weights, ["self", "weights", "wire_format", "kwargs"]),
    ],
    ids=lambda value: getattr(value, "__qualname__", ""),
)
def test_signature(function, expected):
    assert parameters(function) == expected


def test_validation_metrics_take_four_arguments_and_perhaps_more():
    assert parameters(PPOTrainer._val_metrics_update)[:5] == [
        "self",
        "data_sources",
        "sample_uids",
        "reward_extra_infos_dict",
        "sample_turns",
    ]


def test_the_sync_trainer_is_chosen_by_its_mode():
    """The reason why our trainer answers to the name "sync": upstream compares the mode with it."""
    assert 'self.trainer_mode == "sync"' in inspect.getsource(PPOTrainer._build_replay_buffer)
    assert get_trainer_cls("sync") is PPOTrainerSync


def test_the_manager_creates_the_workers_of_its_attribute():
    assert "self.agent_loop_workers_class" in inspect.getsource(AgentLoopManagerTQ.__init__)


def test_the_replay_buffer_keeps_what_the_bounded_one_reads():
    source = inspect.getsource(ReplayBuffer)
    for name in ("pending_keys", "running_keys", "finished_keys", "failure_keys", "partitions", "poll_interval"):
        assert f"self.{name}" in source


def test_an_update_with_a_bad_norm_is_skipped_without_a_word():
    """The reason for the trainer's own check; if upstream begins to raise, ours can go."""
    from verl.workers.engine.fsdp import transformer_impl

    assert "grad_norm is not finite" in inspect.getsource(transformer_impl)


def test_the_estimator_registers_under_its_name():
    import onepo.trainers.group_advantage  # noqa: F401

    assert core_algos.get_adv_estimator_fn("onepo_group").__name__ == "onepo_group_advantage"


def test_the_trainer_registers_under_its_name():
    from onepo.trainers.onepo import OnePOTrainer

    assert get_trainer_cls("onepo_sync") is OnePOTrainer


def test_the_cpu_backend_is_active_in_this_process():
    from verl.plugin.platform import get_platform

    from onepo.backends.cpu.platform import CpuPlatform
    from onepo.backends.cpu.rollout import TransformersAdapter, TransformersReplica

    assert isinstance(get_platform(), CpuPlatform)
    assert RolloutReplicaRegistry.get("transformers") is TransformersReplica
    assert base.get_rollout_class("transformers", "async") is TransformersAdapter
    assert distributed.initialize_global_process_group_ray.__wrapped__ is not None
    assert RayWorkerGroup._get_master_addr_port.__wrapped__ is not None


def test_learners_meet_at_a_port_below_those_of_connections():
    group = object.__new__(RayWorkerGroup)
    group._master_addr = group._master_port = None
    asked = []

    class Remote:
        def options(self, **_):
            return self

        def remote(self, master_port_range):
            asked.append(master_port_range)
            raise InterruptedError  # before Ray would be asked

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ray_base, "get_master_addr_port", Remote())
        with pytest.raises(InterruptedError):
            group._get_master_addr_port(pg=None)
    ((first, last),) = asked
    assert 1024 < first < last < 32768


def test_what_is_under_way_can_be_aborted_and_rollout_put_to_sleep():
    for name in ("abort_replicas", "sleep_replicas", "resume_generation_replicas"):
        assert inspect.signature(getattr(CheckpointEngineManager, name)).bind("self")


def test_token_output_carries_what_the_server_returns():
    assert {"token_ids", "log_probs", "stop_reason", "extra_fields"} <= set(TokenOutput.model_fields)


def test_the_queue_can_be_saved():
    assert callable(transfer_queue.save_checkpoint)
