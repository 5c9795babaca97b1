"""What is refused before anything is started, in the words of the launcher's options."""

import json
import os
import shutil
import socket
import sys

import pytest
import torch
from omegaconf import OmegaConf

from onepo.errors import UserError
from onepo.preflight import check
from onepo.preflight.server import gpu_problems
from onepo.servers.grader import SERVER
from onepo.settings import parse_settings
from onepo.train import compose_config, main
from tests.configs import compose
from tests.scripted_grader import ScriptedGrader

RECORD = {
    "type": "multiple_choice",
    "question": "fever tree",
    "options": {"A": "rest", "B": "water"},
    "answer_idx": "A",
    "prompt": [{"role": "user", "content": "fever tree"}],
}
OPEN = {
    "type": "open_ended",
    "prompt": [{"role": "user", "content": "fever tree"}],
    "rubrics": [{"criterion": "names rest", "points": 1}],
}
SMALL = (
    "device=cpu",
    "trainer.n_gpus_per_node=1",
    "data.train_batch_size=4",
    "data.max_prompt_length=16",
    "data.max_response_length=16",
    "actor_rollout_ref.actor.ppo_mini_batch_size=2",
    "onepo.overlong_buffer_len=8",
    "trainer.test_freq=0",
)


def write_jsonl(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


@pytest.fixture
def train_file(tmp_path):
    return write_jsonl(tmp_path / "train.jsonl", [RECORD] * 4)


@pytest.fixture
def broken_student(student, tmp_path):
    return shutil.copytree(student, tmp_path / "student")


def change(file, **values):
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))


def problems(*overrides, model, train_file):
    config = compose(
        *SMALL, f"data.train_files={train_file}", f"onepo.run_dir={train_file.parent}/run", *overrides, model=model
    )
    try:
        check(config)
    except UserError as error:
        return str(error).splitlines()
    return []


def test_a_good_set_of_inputs_passes(student, train_file):
    assert problems(model=student, train_file=train_file) == []


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("actor_rollout_ref.rollout.n=1", "ROLLOUT_N=1"),
        ("actor_rollout_ref.actor.ppo_mini_batch_size=3", "TRAIN_BATCH_SIZE=4 is not a multiple"),
        ("trainer.n_gpus_per_node=3", "cannot be shared equally by 3 learner"),
        (
            "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=3",
            "PPO_MICRO_BATCH_SIZE_PER_GPU=3 does not divide the 16",
        ),
        (
            "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=64",
            "LOG_PROB_MICRO_BATCH_SIZE_PER_GPU=64 does not divide the 32",
        ),
        ("onepo.overlong_buffer_len=16", "OVERLONG_BUFFER_LEN=16"),
        ("actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-mean", "loss_agg_mode"),
        ("algorithm.rollout_correction.bypass_mode=True", "bypass_mode=True: OnePO needs False"),
        ("actor_rollout_ref.rollout.calculate_log_probs=False", "calculate_log_probs"),
        ("trainer.resume_mode=auto", "resume_mode"),
        ("algorithm.adv_estimator=gae", "adv_estimator"),
        ("actor_rollout_ref.actor.checkpoint.save_contents=[model]", "hf_model"),
        ("algorithm.filter_groups.metric=accuracy", "FILTER_GROUPS_METRIC=accuracy"),
        ("actor_rollout_ref.rollout.tensor_model_parallel_size=3", "ROLLOUT_TP=3 does not divide 1"),
        ("trainer.total_training_steps=0", "TOTAL_TRAINING_STEPS=0"),
        ("trainer.total_epochs=0", "TOTAL_EPOCHS=0: must be a whole number, at least 1"),
        ("data.train_batch_size=abc", "TRAIN_BATCH_SIZE=abc: must be a whole number"),
        ("data.train_batch_size=null", "TRAIN_BATCH_SIZE=None"),
        ("actor_rollout_ref.actor.ppo_mini_batch_size=0", "PPO_MINI_BATCH_SIZE=0"),
        ("actor_rollout_ref.actor.ulysses_sequence_parallel_size=0", "SP_SIZE=0"),
        ("actor_rollout_ref.actor.optim.lr=-1", "ACTOR_LR=-1"),
        ("actor_rollout_ref.actor.optim.lr=inf", "ACTOR_LR=inf"),
        ("actor_rollout_ref.rollout.val_kwargs.temperature=-1", "VAL_TEMPERATURE=-1"),
        ("actor_rollout_ref.rollout.name=vllm", "INFER_BACKEND=vllm: on this device it is transformers"),
        ("data.max_response_length=200", "= 216, and the student has 128 positions"),
        ("data.val_files=[]", "VAL_FILE=[]"),
        ("trainer.default_local_dir='/tmp/a\\${b}'", "CHECKPOINT_DIR: /tmp/a${b} contains"),
        ("algorithm.rollout_correction.rollout_is=token", "rollout_is"),
        ("trainer.test_freq=1", "VAL_FILE is not set"),
        ("onepo.test_steps=[1]", "VAL_FILE is not set"),
        ("trainer.val_before_train=True", "VAL_FILE is not set"),
        pytest.param("device=gpu", "DEVICE=cpu", marks=pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU")),
        ("trainer.logger=[console,paper]", "LOGGER: 'paper' is not one of"),
        ("trainer.logger=[swanlab]", "pip install swanlab"),
        (
            "data.max_prompt_length=2",
            "0 usable prompts (4 are over MAX_PROMPT_LENGTH=2), fewer than TRAIN_BATCH_SIZE=4",
        ),
        ("data.train_batch_size=6", "fewer than TRAIN_BATCH_SIZE=6"),
    ],
)
def test_an_option_that_cannot_work_is_named(student, train_file, override, told):
    found = problems(override, model=student, train_file=train_file)
    assert len(found) == 1 and told in found[0]


def test_a_token_budget_must_hold_one_response(student, train_file):
    found = problems(
        "actor_rollout_ref.actor.use_dynamic_bsz=True",
        "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=31",
        model=student,
        train_file=train_file,
    )
    assert len(found) == 1 and "PPO_MAX_TOKEN_LEN_PER_GPU=31" in found[0]


@pytest.mark.parametrize(
    ("option", "key", "file"),
    [
        ("CHECKPOINT_DIR", "trainer.default_local_dir", "global_step_3/x"),
        ("OUTPUTS_DIR", "trainer.validation_data_dir", "3.jsonl"),
    ],
)
def test_the_results_of_another_run_are_not_overwritten(student, train_file, tmp_path, option, key, file):
    old = tmp_path / "old" / file
    old.parent.mkdir(parents=True)
    old.touch()
    (found,) = problems(f"{key}={tmp_path / 'old'}", model=student, train_file=train_file)
    assert found.startswith(option) and "of another run" in found


def test_a_place_that_cannot_be_written_is_named(student, train_file, tmp_path):
    (tmp_path / "file").touch()
    (found,) = problems(f"onepo.logs_dir={tmp_path / 'file' / 'logs'}", model=student, train_file=train_file)
    assert found.startswith("LOGS_DIR") and "is not a directory" in found


def test_a_disk_that_is_too_small_for_the_checkpoints_is_named(student, train_file):
    (found,) = problems("onepo.max_checkpoints=1000000000", model=student, train_file=train_file)
    assert "MAX_ACTOR_CHECKPOINTS=1000000000 checkpoints of this student need" in found


def test_rollout_dumps_that_no_disk_holds_are_refused(student, train_file):
    overrides = (
        "onepo.rollout_dump_freq=1",
        "trainer.total_epochs=1000000000000",
        "trainer.total_training_steps=1000000000000",
    )
    (found,) = problems(*overrides, model=student, train_file=train_file)
    assert "ROLLOUT_DUMP_FREQ=1 may write up to" in found


def test_a_sampling_without_end_is_refused(student, open_file):
    overrides = ("onepo.grader.max_failure_rate=1", "onepo.max_num_gen_batches=0", "onepo.reward_server.start=False")
    overrides += ("onepo.grader.url=http://127.0.0.1:1/v1", "onepo.grader.name=g")
    (found,) = problems(*overrides, model=student, train_file=open_file)
    assert found.startswith("REWARD_MAX_FAILURE_RATE=1 never stops")
    write_jsonl(open_file, [RECORD] * 5)
    assert problems(*overrides, model=student, train_file=open_file) == []


@pytest.mark.parametrize("steps", ["[0]", "[true]", "['3']", "[50,50]", "[1.5]", "7"])
def test_lists_of_steps_that_are_none_are_refused(student, train_file, steps):
    (found,) = problems(f"onepo.test_steps={steps}", model=student, train_file=train_file)
    assert "TEST_STEPS" in found or "test_steps" in found


def test_problems_are_told_together(student, train_file):
    found = problems(
        "actor_rollout_ref.rollout.tensor_model_parallel_size=3",
        "onepo.overlong_buffer_len=16",
        model=student,
        train_file=train_file,
    )
    assert len(found) == 2


@pytest.fixture
def open_file(tmp_path):
    return write_jsonl(tmp_path / "train.jsonl", [RECORD] * 4 + [OPEN])


@pytest.fixture
def grader_model(tmp_path):
    (tmp_path / "grader").mkdir()
    (tmp_path / "grader" / "config.json").write_text("{}")
    (tmp_path / "grader" / "pytorch_model.bin").touch()
    return tmp_path / "grader"


@pytest.fixture
def engine_python(tmp_path):
    """An interpreter that finds every module."""
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexit 0\n")
    python.chmod(0o755)
    return python


def test_open_ended_records_need_a_grader(student, open_file):
    (found,) = problems(model=student, train_file=open_file)
    assert found.startswith("1 records are open-ended and need a grader: set REWARD_MODEL_PATH")


def test_open_ended_validation_records_need_one_too(student, train_file, tmp_path):
    val_file = write_jsonl(tmp_path / "val.jsonl", [OPEN])
    (found,) = problems(f"data.val_files={val_file}", model=student, train_file=train_file)
    assert "REWARD_MODEL_PATH" in found


def test_without_open_ended_records_nothing_of_a_grader_is_looked_at(student, train_file):
    overrides = ("onepo.reward_server.path=/nonexistent", "onepo.grader.url=x", "onepo.grader.prompt_file=/nonexistent")
    assert problems(*overrides, model=student, train_file=train_file) == []


def test_a_local_grader_that_can_be_started_passes(student, open_file, grader_model, engine_python):
    overrides = (f"onepo.reward_server.path={grader_model}", f"onepo.reward_server.python={engine_python}")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    assert problems(*overrides, f"onepo.reward_server.port={port}", model=student, train_file=open_file) == []


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("onepo.reward_server.path=/nonexistent", "REWARD_MODEL_PATH=/nonexistent is not an existing directory"),
        ("onepo.grader.url=http://127.0.0.1:1/v1", "set START_REWARD_SERVER=0 to use it"),
        ("onepo.reward_server.chat_template=/nonexistent", "REWARD_MODEL_CHAT_TEMPLATE=/nonexistent"),
        ("onepo.reward_server.extra_args='--a \"b'", "REWARD_MODEL_EXTRA_ARGS"),
        ("onepo.reward_server.python=/nonexistent/python", "REWARD_SERVER_PYTHON=/nonexistent/python cannot be run ("),
        (f"onepo.reward_server.python={sys.executable}", "has no sglang"),
        ("onepo.grader.prompt_file=/nonexistent", "REWARD_PROMPT_FILE=/nonexistent"),
        ("onepo.reward_server.host=192.0.2.1", "REWARD_SERVER_HOST=192.0.2.1"),
        ("trainer.nnodes=2", "REWARD_SERVER_HOST=127.0.0.1 cannot be reached from other machines, and the run is on 2"),
    ],
)
def test_a_local_grader_that_cannot_be_started_is_named(
    student, open_file, grader_model, engine_python, override, told
):
    good = (f"onepo.reward_server.path={grader_model}", f"onepo.reward_server.python={engine_python}")
    found = problems(*good, override, model=student, train_file=open_file)
    assert len(found) == 1 and told in found[0]


def test_a_port_in_use_is_refused_with_its_holder(student, open_file, grader_model, engine_python):
    good = (f"onepo.reward_server.path={grader_model}", f"onepo.reward_server.python={engine_python}")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        (found,) = problems(*good, f"onepo.reward_server.port={port}", model=student, train_file=open_file)
    assert f"REWARD_MODEL_PORT={port} is in use by process {os.getpid()}" in found


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        ((), "set REWARD_MODEL_URL"),
        (("onepo.grader.url=http://127.0.0.1:1/v1",), "REWARD_MODEL_NAME"),
        (("onepo.grader.url=localhost:1", "onepo.grader.name=x"), "is no address of a chat endpoint"),
        (("onepo.grader.url=http://me:word@host/v1", "onepo.grader.name=x"), "give an API key instead"),
        (("onepo.grader.url='http://host/v1?key=word'", "onepo.grader.name=x"), "REWARD_MODEL_API_KEY"),
    ],
)
def test_an_external_grader_must_be_named(student, open_file, overrides, told):
    (found,) = problems("onepo.reward_server.start=False", *overrides, model=student, train_file=open_file)
    assert told in found


def test_a_grader_without_weights_is_refused(student, open_file, grader_model, engine_python):
    (grader_model / "pytorch_model.bin").unlink()
    good = (f"onepo.reward_server.path={grader_model}", f"onepo.reward_server.python={engine_python}")
    (found,) = problems(*good, model=student, train_file=open_file)
    assert found.startswith("REWARD_MODEL_PATH=") and "has no weights" in found


def test_gpus_of_its_own_leave_the_memory_of_the_others_alone(monkeypatch):
    config = compose("device=gpu", "onepo.reward_server.gpus='6,7'", "onepo.reward_server.mem_fraction=0.8")
    config.onepo.reward_server.dp = 1
    settings = parse_settings(OmegaConf.to_container(config.onepo, resolve=True))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2")
    assert list(gpu_problems(config, settings.reward_server, SERVER)) == []
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    (found,) = gpu_problems(config, settings.reward_server, SERVER)
    assert "give the run others with CUDA_VISIBLE_DEVICES" in found


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (
            ("onepo.reward_server.gpus='0,1'",),
            "REWARD_MODEL_DP=4 x REWARD_MODEL_TP=2 need 8 GPUs, and REWARD_MODEL_GPUS=0,1",
        ),
        (
            ("onepo.reward_server.gpus='0,1'", "onepo.reward_server.dp=1", "onepo.reward_server.mem_fraction=0.4"),
            "together leave nothing of the GPUs",
        ),
    ],
)
def test_the_gpus_of_the_grader_must_suffice(overrides, told):
    config = compose("device=gpu", *overrides)
    settings = parse_settings(OmegaConf.to_container(config.onepo, resolve=True))
    (found,) = gpu_problems(config, settings.reward_server, SERVER)
    assert told in found


def test_an_external_grader_is_asked_before_anything_is_written(student, open_file, capsys):
    run_dir = open_file.parent / "run"
    overrides = [
        *SMALL,
        f"onepo.run_dir={run_dir}",
        f"data.train_files={open_file}",
        f"actor_rollout_ref.model.path={student}",
        "onepo.reward_server.start=False",
        "onepo.grader.name=other",
    ]
    with ScriptedGrader() as grader:
        assert main([*overrides, f"onepo.grader.url={grader.url}"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and "REWARD_MODEL_NAME=other" in error and "Traceback" not in error
    assert not run_dir.exists()


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda path: (path / "config.json").unlink(), "no config.json"),
        (lambda path: (path / "model.safetensors").unlink(), "no weights"),
        (lambda path: (path / "chat_template.jinja").unlink(), "no chat template"),
        (lambda path: (path / "tokenizer.json").unlink(), "tokenizer"),
        (
            lambda path: (path / "model.safetensors.index.json").write_text(
                '{"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}'
            ),
            "names 2 weight files, 2 are missing",
        ),
        (
            lambda path: change(path / "config.json", auto_map={"AutoModel": "x.Y"}),
            "trust_remote_code",
        ),
        (lambda path: (path / "config.json").write_text("{"), "config.json is not valid JSON"),
        (lambda path: (path / "config.json").write_text("[]"), "config.json holds no JSON object"),
        (lambda path: (path / "tokenizer.json").write_text("[]"), "cannot be loaded"),
        (lambda path: change(path / "config.json", vocab_size=60), "the tokenizer has 256 tokens, the model only 60"),
        (
            lambda path: change(path / "config.json", intermediate_size=96),
            "has the shape [128, 64], and config.json says",
        ),
        (lambda path: (path / "model.safetensors.index.json").write_text("{}"), "no weight_map"),
        (lambda path: (path / "tokenizer_config.json").write_text("{"), "tokenizer_config.json is not valid JSON"),
        (lambda path: (path / "model.safetensors").write_bytes(b""), "is not a whole safetensors file"),
        (
            lambda path: (path / "chat_template.jinja").write_text("{{ raise_exception('users only') }}"),
            "users only",
        ),
        (shutil.rmtree, "is not a directory"),
    ],
)
def test_a_student_that_is_not_whole_is_refused(broken_student, train_file, damage, told):
    damage(broken_student)
    found = problems(model=broken_student, train_file=train_file)
    assert any(told in line for line in found), found


def test_a_bad_data_file_is_told_with_its_option(student, train_file):
    train_file.write_text('{"type": "multiple_choice"\n')
    found = problems(model=student, train_file=train_file)
    assert found[0].startswith("TRAIN_FILE: ")


CUSTOM = {"type": "custom", "prompt": [{"role": "user", "content": "fever tree"}], "remedy": "rest"}


def test_own_records_need_a_reward_function(student, train_file, tmp_path):
    write_jsonl(train_file, [CUSTOM] * 4)
    (found,) = problems(model=student, train_file=train_file)
    assert found.startswith("4 records are of the type custom and need a reward function: set REWARD_FUNCTION")
    (tmp_path / "reward.py").write_text("def score(messages, response, record):\n    return 0\n")
    good, bad = (f"onepo.reward_function.spec='{tmp_path}/reward.py:{name}'" for name in ("score", "scored"))
    assert problems(good, model=student, train_file=train_file) == []
    (found,) = problems(bad, model=student, train_file=train_file)
    assert "REWARD_FUNCTION" in found and "scored" in found


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        ((), ["TEACHER_API_URL is not set", "TEACHER_MODEL is not set"]),
        (
            ("onepo.teacher.url='http://h/v1?key=k'", "onepo.teacher.model=m"),
            ["TEACHER_API_URL: the address has a query"],
        ),
        (
            ("onepo.teacher.url=http://h/v1", "onepo.teacher.model=m", "onepo.teacher_enabled=False"),
            ["ONLINE_TEACHER_ENABLED=True asks a teacher, and TEACHER_ENABLED=False wants none"],
        ),
    ],
)
def test_an_online_teacher_must_be_named(student, train_file, overrides, told):
    enabled = ("onepo.teacher.enabled=True", "onepo.teacher.answers_dir=/nonexistent")
    found = problems(*enabled, *overrides, model=student, train_file=train_file)
    assert len(found) == len(told)
    for line, beginning in zip(found, told, strict=True):
        assert line.startswith(beginning)


def test_a_checkpoint_without_training_state_cannot_be_resumed(student, train_file, tmp_path):
    (tmp_path / "global_step_3").mkdir()
    (found,) = problems(f"onepo.resume={tmp_path}/global_step_3", model=student, train_file=train_file)
    assert "has weights only" in found and "SAVE_TRAINING_STATE=True" in found


def test_the_program_ends_with_2_and_one_line_per_problem(student, train_file, capsys):
    run_dir = train_file.parent / "run"
    overrides = [
        *SMALL,
        f"onepo.run_dir={run_dir}",
        f"data.train_files={train_file}",
        f"actor_rollout_ref.model.path={student}",
        "actor_rollout_ref.rollout.n=1",
    ]
    assert main(overrides) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ROLLOUT_N=1") and "Traceback" not in error
    assert not run_dir.exists()


@pytest.mark.parametrize("override", ["data.train_batch_siz=4", "trainer.logger=[console", "device=tpu"])
def test_an_override_that_does_not_exist_is_refused(override):
    with pytest.raises(UserError):
        compose_config([override])


def test_a_value_that_is_required_is_named():
    with pytest.raises(UserError, match=r"data\.train_files"):
        compose_config(["onepo.run_dir=/nonexistent"])
