"""What CAMP relies on in verl and in its queue: an upstream change shows here as one readable failure."""

import inspect
from copy import deepcopy

import pytest
import torch
import transfer_queue as tq
from omegaconf import OmegaConf
from transfer_queue import KVBatchMeta
from verl.checkpoint_engine import CheckpointEngine, CheckpointEngineManager, CheckpointEngineRegistry
from verl.experimental.agent_loop import AgentLoopOutput
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopManager, AgentLoopMetrics, AgentLoopWorker
from verl.trainer.ppo.padding_utils import upsample_batch_to_divisible_size
from verl.trainer.ppo.v1.replay_buffer import ReplayBufferAsync
from verl.trainer.ppo.v1.trainer_base import PPOTrainer, get_trainer_cls
from verl.trainer.ppo.v1.trainer_separate_async import HybridEngineMode, PPOTrainerSeparateAsync
from verl.utils import tensordict_utils as tu
from verl.workers.engine_workers import ActorRolloutRefWorker
from verl.workers.rollout.llm_server import FullyAsyncLLMServerClient

from camp.learning.feeding import FeedsSchedule, drop_orphans, reissue_failed, unfinished_positions
from camp.learning.lineage import Lineage
from camp.rl.trainer import CampRLTrainer
from camp.sampling.loop import EnvironmentLoop
from camp.sampling.replay import EpisodeBuffer
from camp.schedule import ScheduledEpisode, write_schedule
from onepo.backends.cpu.weights import WEIGHTS_NAME, ObjectStoreCheckpointEngine
from tests.contract.camp_config import camp_config
from tests.contract.camp_update_rank import make_episodes
from tests.contract.test_verl import parameters

CONFIG = camp_config("data.train_batch_size=2", "trainer.v1.separate_async.num_warmup_batches=2")


# ---- the trainer


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (PPOTrainerSeparateAsync.__init__, ["self", "config"]),
        (PPOTrainerSeparateAsync._build_replay_buffer, ["self"]),
        (PPOTrainerSeparateAsync._init_tokenizer, ["self"]),
        (PPOTrainerSeparateAsync._init_dataloader, ["self"]),
        (PPOTrainerSeparateAsync._load_checkpoint, ["self"]),
        (PPOTrainerSeparateAsync._save_checkpoint, ["self"]),
        (PPOTrainerSeparateAsync._fetch_one_gen_batch, ["self"]),
        (PPOTrainerSeparateAsync._add_batch_to_generate, ["self"]),
        (PPOTrainerSeparateAsync._add_prompts_to_generate, ["self", "num_prompts"]),
        (PPOTrainerSeparateAsync._reissue_inflight_prompts, ["self", "partition_id"]),
        (PPOTrainerSeparateAsync._get_required_batch_multiple, ["self", "dp_size"]),
        (PPOTrainerSeparateAsync._update_actor, ["self", "batch", "metrics"]),
        (PPOTrainerSeparateAsync._update_critic, ["self", "batch", "metrics"]),
        (
            PPOTrainerSeparateAsync._compute_metrics,
            ["self", "batch", "metrics", "timing_raw", "global_steps", "epoch"],
        ),
        (PPOTrainerSeparateAsync._shutdown_dump_executor, ["self"]),
        (PPOTrainerSeparateAsync.get_teacher_client, ["self"]),
        (
            AgentLoopWorker._compute_teacher_logprobs,
            ["self", "output", "prompt_ids", "response_ids", "validate", "sample_kwargs"],
        ),
        (PPOTrainerSeparateAsync.fit, ["self", "agent_loop_manager"]),
        (PPOTrainerSeparateAsync.step, ["self", "metrics", "timing_raw"]),
        (PPOTrainerSeparateAsync.on_train_begin, ["self"]),
        (PPOTrainerSeparateAsync.on_step_begin, ["self"]),
        (PPOTrainerSeparateAsync.on_step_end, ["self"]),
        (PPOTrainerSeparateAsync.on_sample_begin, ["self"]),
        (PPOTrainerSeparateAsync.on_sample_end, ["self"]),
        (PPOTrainerSeparateAsync.switch_to_trainer, ["self"]),
        (ReplayBufferAsync._sync_metadata_from_transfer_queue, ["self"]),
        (
            ReplayBufferAsync._materialize_batch,
            ["self", "partition_id", "selected_prompt_uids", "partition_snapshot"],
        ),
        (ReplayBufferAsync._wait_for_next_poll, ["self", "partition_id", "last_debug_time"]),
        (upsample_batch_to_divisible_size, ["batch", "batch_multiple", "eos_token_id"]),
        (AgentLoopBase.run, ["self", "sampling_params", "kwargs"]),
        (CheckpointEngine.prepare, ["self"]),
        (CheckpointEngine.build_topology, ["actor_wg_world_size", "rollout_world_size", "metadata"]),
        (CheckpointEngine.init_process_group, ["self", "kwargs"]),
        (CheckpointEngine.send_weights, ["self", "weights", "global_steps"]),
        (CheckpointEngine.receive_weights, ["self", "global_steps"]),
        (CheckpointEngine.finalize, ["self"]),
        (CheckpointEngineManager.update_weights, ["self", "global_steps"]),
        (ActorRolloutRefWorker.update_weights, ["self", "global_steps", "mode"]),
    ],
    ids=lambda value: getattr(value, "__qualname__", ""),
)
def test_signature(function, expected):
    assert parameters(function) == expected


def in_order(source, *parts):
    """Whether the parts are there, one behind the other."""
    place = 0
    for part in parts:
        if (place := source.find(part, place)) < 0:
            return False
    return True


def test_the_method_is_found_by_its_name_and_takes_the_place_of_verls():
    assert get_trainer_cls("camp_rl") is CampRLTrainer
    assert get_trainer_cls("separate_async") is PPOTrainerSeparateAsync


def test_an_update_goes_as_our_hooks_expect():
    """The rows of an update are known before its checkpoint, which still holds them: verl clears them behind it."""
    fit = inspect.getsource(PPOTrainer.fit)
    assert in_order(fit, "self._reissue_inflight_prompts()", "self.on_train_begin()", "self.on_step_begin()")
    assert in_order(
        fit,
        "self.on_step_begin()",
        "self.step(",
        "self._save_checkpoint()",
        "self.on_step_end()",
        "self._compute_metrics(",
        "tq.kv_clear(",
        "self.logger.log(",
    )
    step = inspect.getsource(PPOTrainer._step_once)
    assert in_order(
        step,
        "self.on_sample_begin()",
        "self.replay_buffer.sample(",
        "self.on_sample_end()",
        "self._balance_batch(",
        "self._compute_old_log_prob(",
        "self._compute_values(",
        "self._compute_advantage(",
        "self._update_critic(",
        "self._update_actor(",
    )


def test_an_update_begins_with_one_call_for_further_prompts():
    begin = [getattr(PPOTrainer, "prepare_step", None), PPOTrainer.step]
    source = "".join(inspect.getsource(function) for function in begin if function)
    assert source.count("self._add_batch_to_generate()") == 1


def test_a_checkpoint_holds_the_queue_and_the_data_loader():
    source = inspect.getsource(PPOTrainer._save_checkpoint) + inspect.getsource(PPOTrainer._load_checkpoint)
    for part in ("data.pt", '"transfer_queue"', "tq.save_checkpoint(", "tq.load_checkpoint("):
        assert part in source


def test_what_a_stop_takes_hold_of_is_there():
    setup = inspect.getsource(PPOTrainerSeparateAsync._setup)
    for name in ("standalone_checkpoint_manager", "standalone_server_manager", "current_mode"):
        assert f"self.{name}" in setup
    assert {mode.name for mode in HybridEngineMode} == {"TRAINER", "ROLLOUT"}
    assert "self.agent_loop_workers" in inspect.getsource(AgentLoopManager._init_agent_loop_workers)


def test_prompts_are_fetched_one_by_one_and_named_by_us():
    """Their positions are their names in the queue."""
    assert "self._fetch_one_gen_batch()" in inspect.getsource(PPOTrainer._next_train_batch)
    assert 'batch["uid"]' in inspect.getsource(PPOTrainer._submit_batch_to_rollout)


def test_verl_takes_the_recipe_and_our_buffer_takes_the_place_of_its_own():
    trainer = object.__new__(CampRLTrainer)
    config = deepcopy(CONFIG)
    config.trainer.v1.trainer_mode = "separate_async"
    trainer.settings = OmegaConf.create({"max_staleness": 4, "poll_interval": 0.25})
    PPOTrainerSeparateAsync.__init__(trainer, config)
    assert trainer.use_critic and not trainer.use_reference_policy
    buffer = trainer.replay_buffer
    assert type(buffer) is EpisodeBuffer and isinstance(buffer, ReplayBufferAsync)
    for name in ("partitions", "finished_keys", "failure_keys", "prompt_global_steps"):
        assert vars(buffer)[name]["train"] is not None
    assert buffer.poll_interval == 0.25
    inspect.signature(buffer.sample).bind(global_steps=1, partition_id="train", batch_size=64)


# ---- episodes


def test_an_agent_loop_is_made_as_ours_expects():
    assert parameters(AgentLoopBase.__init__)[:8] == [
        "self",
        "trainer_config",
        "server_manager",
        "tokenizer",
        "processor",
        "dataset_cls",
        "data_config",
        "hf_model_type",
    ]
    source = inspect.getsource(AgentLoopBase.__init__)
    for name in ("config", "rollout_config", "server_manager", "tokenizer", "continuous_token_builder"):
        assert f"self.{name} = " in source
    assert issubclass(EnvironmentLoop, AgentLoopBase)
    assert "hydra.utils.instantiate" in inspect.getsource(AgentLoopWorker._run_agent_loop)


def test_the_reward_stands_at_the_last_token_whatever_it_is():
    output = AgentLoopOutput(
        prompt_ids=[1, 2],
        response_ids=[3, 4, 5],
        response_mask=[1, 0, 1],
        response_logprobs=[-1.0, 0.0, -2.0],
        reward_score=-0.5,
        num_turns=4,
        metrics=AgentLoopMetrics(generate_sequences=1.0, tool_calls=2.0),
        extra_fields={"min_global_steps": 1},
    )
    row = output.as_dict()
    assert row["rm_scores"].tolist() == [0.0, 0.0, -0.5]
    assert row["response_mask"].tolist() == [1, 0, 1] and row["rollout_log_probs"].tolist() == [-1.0, 0.0, -2.0]
    assert row["extra_fields"] == {"min_global_steps": 1}


def test_an_interrupted_response_tells_the_weights_of_its_begin_and_end():
    source = inspect.getsource(FullyAsyncLLMServerClient.generate)
    assert 'extra_fields["min_global_steps"]' in source and 'extra_fields["max_global_steps"]' in source
    assert '("aborted", "abort")' in source


# ---- weights


def test_a_weight_engine_must_do_what_ours_does():
    assert CheckpointEngine.__abstractmethods__ == {
        "prepare",
        "build_topology",
        "init_process_group",
        "send_weights",
        "receive_weights",
        "finalize",
    }
    assert CheckpointEngine.wire_format == "named_tensors"


def test_the_weight_engine_of_the_cpu_is_found_by_its_name():
    config = CONFIG.actor_rollout_ref.rollout.checkpoint_engine
    assert config.backend == WEIGHTS_NAME
    assert config.custom_backend_module == ObjectStoreCheckpointEngine.__module__
    engine = CheckpointEngineRegistry.new(WEIGHTS_NAME, is_master=True, bucket_size=1)  # as the learners make it
    assert type(engine) is ObjectStoreCheckpointEngine


def test_samplers_stop_while_their_weights_change():
    source = inspect.getsource(CheckpointEngineManager.update_weights)
    assert in_order(
        source,
        "self.abort_replicas()",
        "self.build_process_group(",
        "actor_wg.update_weights(",
        '"finalize"',
        "self.resume_generation_replicas()",
    )


# ---- the queue

UNDER_WAY = 6  # a batch of 2, and two more


@pytest.fixture(scope="module")
def open_queue(local_ray):
    tq.init(CONFIG.transfer_queue)
    yield
    tq.close()


@pytest.fixture
def queue(open_queue):
    """verl's queue, empty."""
    yield
    if left := list(tags()):
        tq.kv_clear(keys=left, partition_id="train")


@pytest.fixture
def schedule(tmp_path):
    file = tmp_path / "schedule.jsonl"
    rows = [
        ScheduledEpisode(position=i, domain="games", task=None, seed=100 + i, turns=2, turn_tokens=8) for i in range(9)
    ]
    write_schedule(file, iter(rows))
    return file


class Feeding(FeedsSchedule, PPOTrainerSeparateAsync):
    """A trainer without learners and samplers: what would be played is only taken down."""

    def __init__(self, schedule, *, update):
        self.config = deepcopy(CONFIG)
        self.config.data.train_files = str(schedule)
        self.config.data.val_batch_size = 1
        self.trainer_mode = "separate_async"
        self.parameter_sync_step = 1
        self.tokenizer = self.processor = None
        self.lineage = Lineage()
        self.global_steps = update
        self.agent_loop_manager = self
        self.played = []
        self._init_dataloader()

    def generate_sequences(self, batch):
        self.played += [(episode["position"], episode["seed"]) for episode in list(batch["episode"])]
        assert list(batch["uid"]) == [str(int(index)) for index in batch["index"]]

    def sample(self, batch_size):
        """As the replay buffer of an update."""
        buffer = EpisodeBuffer(
            self._build_replay_buffer(), max_staleness=4, poll_interval=0.01, check_progress=lambda: None
        )
        return buffer.sample(global_steps=self.global_steps, partition_id="train", batch_size=batch_size)[0]


def finish(*positions):
    """What the worker of verl's agent loop does at an episode's end."""
    rows = make_episodes(vocabulary=256)[: len(positions)]
    keys = [f"{position}_0_0" for position in positions]
    fields = [
        {
            **row,
            "uid": str(position),
            "session_id": 0,
            "num_turns": 2,
            "rm_scores": row["response_mask"] * 0.5,
            "extra_fields": {"position": position},
        }
        for position, row in zip(positions, rows, strict=True)
    ]
    tags = [{"status": "success", "seq_len": len(row["input_ids"]), "global_steps": 1} for row in rows]
    tq.kv_batch_put(keys=keys, partition_id="train", fields=tu.list_of_dict_to_tensordict(fields), tags=tags)
    set_status("finished", *positions)


def set_status(status, *positions):
    for position in positions:
        tq.kv_put(key=str(position), partition_id="train", tag={"status": status})


def tags():
    return (tq.kv_list("train") or {}).get("train", {})


def test_nothing_is_there_before_the_first_episode(queue):
    assert tags() == {} and unfinished_positions() == []
    drop_orphans()
    reissue_failed()


def test_no_episode_is_lost_or_played_twice_when_a_run_goes_on(queue, schedule, tmp_path):
    first = Feeding(schedule, update=1)
    first._add_batch_to_generate()
    assert first.played == [(i, 100 + i) for i in range(UNDER_WAY)]
    assert sorted(unfinished_positions()) == list(range(UNDER_WAY))
    set_status("running", 0, 1, 2, 3, 4)
    finish(0, 1, 2)
    batch = first.sample(2)
    assert batch.keys == ["0_0_0", "1_0_0"] and sorted(unfinished_positions()) == [2, 3, 4, 5]
    batch = upsample_batch_to_divisible_size(batch, 3, eos_token_id=2)
    assert [tag.get("is_padding", False) for tag in batch.tags] == [False, False, True]
    padding = tq.kv_batch_get(keys=batch.keys[2:], partition_id="train", select_fields=["response_mask", "rm_scores"])
    assert not padding["response_mask"].values().any() and not padding["rm_scores"].values().any()

    first.lineage.trained_on(1, [0, 1])
    set_status("failure", 4)
    assert tags()["4"] == {"is_prompt": True, "status": "failure", "global_steps": 1}  # a status changes nothing else
    first.lineage.check(unfinished_positions())
    tq.save_checkpoint(tmp_path / "transfer_queue", metadata={"global_steps": 1})
    loader = first.train_dataloader.state_dict()
    first.lineage.write(tmp_path, unfinished_positions())

    tq.close()
    tq.init(CONFIG.transfer_queue)  # as a new run does
    assert tags() == {}
    tq.load_checkpoint(tmp_path / "transfer_queue")
    assert batch.keys[2] in tags() and "0_0_0" in tags()  # verl saved them before it cleared them
    drop_orphans()
    reissue_failed()  # an episode may fail while the checkpoint is written
    assert set(tags()) == {"2", "2_0_0", "3", "4", "5"}
    second = Feeding(schedule, update=2)
    second.lineage = Lineage.read(tmp_path)
    second.lineage.check(unfinished_positions())
    second.train_dataloader.load_state_dict(loader)
    second._reissue_inflight_prompts()
    assert sorted(second.played) == [(i, 100 + i) for i in (3, 4, 5)]
    second._add_batch_to_generate()
    assert second.played[3:] == [(6, 106), (7, 107)]

    kept = tq.kv_batch_get(keys=["2_0_0"], partition_id="train")
    episode = make_episodes(vocabulary=256)[2]
    assert list(kept["extra_fields"]) == [{"position": 2}]
    for name in ("input_ids", "response_mask", "old_log_probs"):
        torch.testing.assert_close(kept[name][0], episode[name])

    finish(3, 4, 5, 6, 7)
    batch = second.sample(2)
    assert {key[0] for key in batch.keys} <= set("234567") and len(batch) == 2
    second._add_batch_to_generate()
    second._add_batch_to_generate()
    assert second.played[5:] == [(8, 108)]  # the end of the schedule, and no second round
    assert second.lineage.submitted == 9


def test_a_data_loader_that_stands_elsewhere_is_noticed(queue, schedule):
    trainer = Feeding(schedule, update=2)
    trainer.lineage.submitted = 5
    with pytest.raises(RuntimeError, match="gave row 0 of the schedule, expected 5"):
        trainer._add_batch_to_generate()


def test_a_failed_episode_keeps_what_it_needs_to_be_played_anew(queue, schedule):
    trainer = Feeding(schedule, update=1)
    trainer._add_prompts_to_generate(2)
    set_status("failure", 0)
    trainer.played.clear()
    reissue_failed()
    assert tags()["0"] == {"is_prompt": True, "status": "pending", "global_steps": 1}
    trainer._reissue_inflight_prompts()
    assert sorted(trainer.played) == [(0, 100), (1, 101)]


def test_a_batch_is_cut_for_the_learners_with_all_that_it_is_told():
    batch = KVBatchMeta(keys=list("abcd"), tags=[{}] * 4, partition_id="train", extra_info={"epochs": 1})
    assert [(part.keys, part.extra_info) for part in batch.chunk(2)] == [
        (["a", "b"], {"epochs": 1}),
        (["c", "d"], {"epochs": 1}),
    ]
