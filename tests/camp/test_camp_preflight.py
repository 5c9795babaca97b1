"""What is refused before anything is started or written, in the words of the named options."""

import os
import shlex
import shutil
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf

from camp import preflight
from camp.configuration import Named, compose_config
from camp.learning.lineage import Lineage
from camp.learning.state import run_facts, write_state
from camp.preflight import check
from camp.routes import Managed, Route, Routes, read_routes
from camp.schedule import make_schedule, write_schedule
from camp.sizes import LAUNCHER_OPTIONS
from onepo.errors import UserError
from onepo.trainers.checkpoints import checkpoint_folder
from tests.students import make_talking_student

EPISODES, UPDATES = 4, 3
OVERRIDES = (
    "device=cpu",
    f"data.train_batch_size={EPISODES}",
    f"trainer.total_training_steps={UPDATES}",
    "data.max_prompt_length=512",
    "data.max_response_length=1024",
    "camp.ray_dir='/tmp/onepo-abcd'",
    "+trainer.wandb_api_key=s3cret",
)
ROUTE = Route(
    url="http://127.0.0.1:9",  # nobody: the preflight asks no service
    managed=None,
    tasks=["a", "b"],
    left_out=["c"],
    action_field="text",
    observation_field="text",
    timeout=1.0,
    connect_timeout=1.0,
    turns=4,
    turn_tokens=64,
    fingerprint="0" * 64,
)


def prepare(folder: Path, *, rows: int, seed: int = 0, **changes) -> dict[str, str]:
    """Routes and schedule as the command writes them; the options that name them."""
    folder.mkdir()
    domains = {name: ROUTE.model_copy(update=changes) for name in ("games", "quests")}
    schedule = make_schedule({name: route.share for name, route in domains.items()}, rows=rows, seed=seed)
    digest = write_schedule(folder / "train_schedule.jsonl", schedule)
    Routes.of(domains, schedule_sha256=digest, seed=42).write(folder / "routes.json")
    return {"routes": str(folder / "routes.json"), "schedule": str(folder / "train_schedule.jsonl")}


@pytest.fixture(scope="module")
def student(tmp_path_factory):
    folder = tmp_path_factory.mktemp("students") / "with space"
    make_talking_student(folder)
    return folder


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    return prepare(tmp_path_factory.mktemp("files") / "prepared", rows=EPISODES * (UPDATES + 2))


@pytest.fixture(scope="module")
def composed(student, prepared):
    named = Named(method="rl", student=str(student), teacher=None, output="/none", resume=None, **prepared)
    return compose_config(named, OVERRIDES)


@pytest.fixture
def checked(composed, student, prepared, tmp_path):
    """checked({key: value}, option=path): the check of a run that is right but for these."""

    def run(changes=None, **options):
        given = {"method": "rl", "student": str(student), "teacher": None, "output": str(tmp_path / "run"), **prepared}
        named = Named(**{**given, "resume": None, **options})
        config = composed.copy()
        own = {
            "actor_rollout_ref.model.path": named.student,
            "data.train_files": named.schedule,
            "camp.routes": named.routes,
            "camp.output": named.output,
            "camp.resume": named.resume,
        }
        for key, value in {**own, **(changes or {})}.items():
            OmegaConf.update(config, key, value, force_add=True)
        return check(config, named, OVERRIDES)

    return run


@pytest.fixture
def problems(checked):
    def run(changes=None, **options) -> list[str]:
        with pytest.raises(UserError) as caught:
            checked(changes, **options)
        return str(caught.value).splitlines()

    return run


def test_what_is_right_passes_and_nothing_is_written(checked, student, prepared, tmp_path):
    found = checked()
    assert found.settings.output == str(tmp_path / "run") and found.nothing_left is None
    assert found.routes == read_routes(Path(prepared["routes"]))
    assert {file.name for file in found.files} >= {"config.json", "model.safetensors", "tokenizer.json"}
    departed = {departure.key for departure in found.departures}
    assert {"data.train_batch_size", "trainer.total_training_steps", "data.max_response_length"} <= departed
    assert "algorithm.gamma" not in departed
    assert list(tmp_path.iterdir()) == []
    assert found.of_attempt("/runs/state/1").settings.attempt_dir == "/runs/state/1"


# ---- options


@pytest.mark.parametrize("option", ["student", "routes", "schedule", "output"])
def test_a_missing_option(option, problems):
    assert problems(**{option: None}) == [f"--{option} is missing"]


def test_all_missing_options_at_one_time(problems):
    lines = problems(student=None, routes=None, schedule=None, output=None, method="opd")
    assert lines == [f"--{option} is missing" for option in ("student", "routes", "schedule", "output", "teacher")]


def test_a_teacher_without_a_use(problems, student):
    assert problems(teacher=str(student)) == ["--teacher: --method rl has no teacher"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("actor_rollout_ref.actor.checkpoint.async_save", True),
        ("actor_rollout_ref.rollout.calculate_log_probs", False),
        ("actor_rollout_ref.rollout.n", 2),
        ("algorithm.filter_groups.enable", True),
        ("trainer.v1.separate_async.parameter_sync_step", 2),
        ("trainer.test_freq", 5),
        ("trainer.val_before_train", True),
        ("trainer.total_epochs", 2),
    ],
)
def test_a_key_that_has_one_value_only(key, value, problems):
    (line,) = problems({key: value})
    assert line.startswith(f"{key}={value}: CAMP needs ")


@pytest.mark.parametrize(
    ("network", "contents", "lacking"),
    [
        ("actor_rollout_ref.actor", ["model", "optimizer", "extra"], "hf_model"),
        ("actor_rollout_ref.actor", ["hf_model"], "extra, model, optimizer"),
        ("critic", ["model"], "extra, optimizer"),
    ],
)
def test_a_checkpoint_that_could_not_be_gone_on_from(network, contents, lacking, problems):
    line, *_ = problems({f"{network}.checkpoint.save_contents": contents})
    assert line == f"{network}.checkpoint.save_contents: must contain {lacking}"


@pytest.mark.parametrize(
    "key", ["data.train_batch_size", "trainer.total_training_steps", "trainer.save_freq", "trainer.n_gpus_per_node"]
)
@pytest.mark.parametrize("value", [0, -1, 2.5, None, True])
def test_a_count_that_is_none(key, value, problems):
    told = f"{key}={value} ({LAUNCHER_OPTIONS[key]}): must be a whole number of at least 1"
    assert told in problems({key: value})


@pytest.mark.parametrize("value", [-0.5, "abc", None, float("nan"), float("inf"), True])
def test_a_warm_up_that_is_none(value, problems):
    key = "trainer.v1.separate_async.num_warmup_batches"
    assert problems({key: value}) == [f"{key}={value} (WARMUP_BATCHES): must be a number of at least 0"]


@pytest.mark.parametrize(
    "key", ["data.max_response_length", "actor_rollout_ref.rollout.n_gpus_per_node", "trainer.nnodes"]
)
def test_what_is_no_number(key, problems):
    assert problems({key: "many"})[0].startswith(f"{key}=many")


def test_engines_that_do_not_fill_their_gpus(problems):
    key = "actor_rollout_ref.rollout.tensor_model_parallel_size"
    lines = problems({key: 2, "trainer.n_gpus_per_node": 4, "actor_rollout_ref.rollout.n_gpus_per_node": 3})
    assert lines == [f"{key}=2 (ROLLOUT_TP) does not divide the 3 samplers"]


@pytest.mark.parametrize(
    "changes",
    [
        {"actor_rollout_ref.model.lora_rank": 8},
        {"actor_rollout_ref.actor.checkpoint.load_contents": ["model"]},
        {"critic.checkpoint.load_contents": ["model", "extra"]},
        {"actor_rollout_ref.actor.checkpoint.save_contents": None},
    ],
)
def test_what_would_lose_weights_or_optimizers_without_a_word(changes, problems):
    ((key, _),) = changes.items()
    assert any(line.startswith(key) for line in problems(changes))


def test_a_bad_value_of_our_own_section(problems):
    (line,) = problems({"camp.max_staleness": 0})
    assert line.startswith("camp.max_staleness=0: ") and "greater than or equal to 1" in line


def test_what_verl_refuses(problems):
    (line,) = problems({"critic.use_dynamic_bsz": False, "critic.ppo_micro_batch_size_per_gpu": None})
    assert line.startswith("verl refuses the configuration: ") and "micro_batch_size" in line


def test_an_unknown_logger(problems):
    (line,) = problems({"trainer.logger": ["consol"]})
    assert "'consol' is not one of " in line


# ---- student, routes and schedule


def test_a_student_that_is_not_there(problems, tmp_path):
    (line,) = problems(student=str(tmp_path / "none"))
    assert line == f"--student={tmp_path}/none is not a directory"


def test_a_student_with_a_broken_shard(problems, student, tmp_path):
    broken = shutil.copytree(student, tmp_path / "broken")
    with (broken / "model.safetensors").open("r+b") as weights:
        weights.truncate(1000)
    (line,) = problems(student=str(broken))
    assert line.startswith(f"--student={broken}: model.safetensors is not a whole safetensors file")


@pytest.mark.parametrize("option", ["routes", "schedule"])
def test_a_file_that_is_not_there(option, problems, tmp_path):
    (line,) = problems(**{option: str(tmp_path / "none")})
    assert line == f"{option} {tmp_path}/none: cannot be read (No such file or directory)"


def test_routes_and_a_schedule_of_another_preparation(problems, prepared, tmp_path):
    other = prepare(tmp_path / "other", rows=EPISODES * UPDATES, seed=1)
    (line,) = problems(schedule=other["schedule"])
    assert line.startswith("routes and schedule do not belong together: ")
    assert problems(routes=other["routes"]) != []


def test_a_schedule_with_a_domain_that_the_routes_do_not_have(problems, tmp_path):
    other = prepare(tmp_path / "other", rows=EPISODES * UPDATES)
    routes = read_routes(Path(other["routes"]))
    fewer = {"games": routes.domains["games"]}
    Routes.of(fewer, schedule_sha256=routes.schedule_sha256, seed=42).write(Path(other["routes"]))
    (line,) = problems(**other)
    assert line == "the schedule has episodes of quests, and the routes have only games"


def test_routes_that_were_altered(problems, prepared, tmp_path):
    altered = tmp_path / "routes.json"
    altered.write_text(Path(prepared["routes"]).read_text().replace('"turns": 4', '"turns": 5', 1))
    (line,) = problems(routes=str(altered))
    assert line.startswith(f"routes {altered}: was changed after it was made")


def test_the_template_routes(problems, tmp_path):
    Routes.of({"games": ROUTE, "quests": ROUTE}, schedule_sha256=None, seed=42).write(tmp_path / "routes.json")
    (line,) = problems(routes=str(tmp_path / "routes.json"))
    assert line.startswith("the routes are the template, which is for inspection: ")


def test_a_schedule_of_less_than_one_update(problems, checked, tmp_path):
    (line,) = problems(**prepare(tmp_path / "short", rows=EPISODES - 1))
    assert (
        line
        == "--schedule: has 3 episodes, fewer than the 4 of one update: data.train_batch_size (EPISODES_PER_UPDATE)"
    )
    checked(**prepare(tmp_path / "just enough", rows=EPISODES))


@pytest.mark.parametrize(("key", "option"), LAUNCHER_OPTIONS.items())
def test_a_setting_is_named_as_the_launcher_names_it(key, option):
    launcher = "".join(Path(name).read_text() for name in ("CAMP_RL.sh", "CAMP_OPD.sh", "scripts/launch_camp.sh"))
    assert f'{key}="${{{option}}}"' in launcher and f"option {option} " in launcher


def test_problems_of_student_and_routes_are_told_together(problems, tmp_path):
    lines = problems(student="/none", routes=str(tmp_path / "none.json"))
    assert [line.split()[0] for line in lines] == ["--student=/none", "routes"]


# ---- sizes


@pytest.mark.parametrize(("staleness", "warmup"), [(1, 1.5), (1, 2), (4, 5)])
def test_a_staleness_that_what_is_under_way_cannot_keep(staleness, warmup, problems):
    (line,) = problems({"camp.max_staleness": staleness, "trainer.v1.separate_async.num_warmup_batches": warmup})
    assert line.startswith(
        f"camp.max_staleness={staleness} (MAX_STALENESS) is below the {warmup} batch(es) that are under way beside"
    )


@pytest.mark.parametrize(("staleness", "warmup"), [(1, 1), (2, 1.5), (1, 0)])
def test_a_staleness_that_it_can_keep(staleness, warmup, checked):
    checked({"camp.max_staleness": staleness, "trainer.v1.separate_async.num_warmup_batches": warmup})


def test_a_turn_that_may_be_longer_than_an_episode(problems, checked, tmp_path):
    (line,) = problems(**prepare(tmp_path / "long", rows=EPISODES, turn_tokens=1025))
    assert line.startswith("a turn may have 1025 tokens by the schedule, and a whole episode only data.max_resp")
    checked(**prepare(tmp_path / "just right", rows=EPISODES, turn_tokens=1024))


def test_an_episode_that_is_longer_than_the_students_context(problems, checked):
    (line,) = problems({"data.max_response_length": 4096 - 512 + 1})
    assert line.startswith(
        "data.max_prompt_length (MAX_PROMPT_LENGTH) + data.max_response_length (MAX_RESPONSE_LENGTH) = 4097, and the "
        "student has 4096 position"
    )
    checked({"data.max_response_length": 4096 - 512})


def test_a_micro_batch_that_is_smaller_than_an_episode(problems, checked):
    actor, critic = "actor_rollout_ref.actor.ppo_max_token_len_per_gpu", "critic.ppo_infer_max_token_len_per_gpu"
    told = (
        " is below data.max_prompt_length (MAX_PROMPT_LENGTH) + data.max_response_length (MAX_RESPONSE_LENGTH) = 1536"
    )
    lines = problems({actor: 1535})  # the critic's follows it
    assert [line.split(told)[0] for line in lines] == [
        f"{actor}=1535 (PPO_MAX_TOKEN_LEN_PER_GPU)",
        f"{critic}=1535",
    ]
    (line,) = problems({critic: 1535})
    assert line.startswith(f"{critic}=1535{told}")
    checked({actor: 1536})


# ---- GPUs


@pytest.mark.parametrize(
    ("visible", "told"),
    [(0, "no GPU is visible: add device=cpu"), (7, "6 learners, 2 samplers: that needs 8 GPUs, and 7 are visible")],
)
def test_too_few_gpus(visible, told, problems, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: visible)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    gpus = {"trainer.n_gpus_per_node": 6, "actor_rollout_ref.rollout.n_gpus_per_node": 2}
    line, *_ = problems({"trainer.device": "cuda", **gpus})
    assert line.startswith(told)


def test_a_critic_without_its_attention(problems, checked, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(preflight, "find_spec", lambda name: None)
    (line,) = problems({"trainer.device": "cuda"})
    assert line.startswith("flash-attn is not installed")
    monkeypatch.setattr(preflight, "find_spec", lambda name: name)
    checked({"trainer.device": "cuda"})


def test_the_gpus_of_a_cluster_are_not_counted_here(checked, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    checked({"trainer.device": "cuda"})


# ---- the output


@contextmanager
def as_nobody():
    """Root may write everywhere: whether a user may is asked for the real user, who is another one in here."""
    if os.getuid():
        yield
        return
    os.setresuid(65534, 0, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)


@pytest.mark.parametrize("below", ["", "/run"])
def test_an_output_that_is_a_file(below, problems, tmp_path):
    (tmp_path / "file").touch()
    (line,) = problems(output=f"{tmp_path}/file{below}")
    assert line.endswith(f"cannot be made: {tmp_path}/file is not a directory that you may write to")


def test_an_output_that_cannot_be_written(problems, tmp_path):
    (tmp_path / "locked").mkdir(mode=0o500)
    with as_nobody():
        (line,) = problems(output=str(tmp_path / "locked" / "run"))
    assert line.endswith(f"cannot be made: {tmp_path}/locked is not a directory that you may write to")


def test_an_output_without_checkpoints_may_be_there(checked, tmp_path):
    (tmp_path / "run" / "state").mkdir(parents=True)
    (tmp_path / "run" / "checkpoints" / ".staging" / "global_step_1").mkdir(parents=True)  # of a run that was killed
    checked()


def test_an_output_with_checkpoints_names_the_command_that_goes_on(problems, student, prepared, tmp_path):
    output = tmp_path / "it's my run"
    for step in (9, 10):
        checkpoint_folder(output / "checkpoints", step).mkdir(parents=True)
    line, launcher, other = problems(output=str(output))
    newest = f"{output}/checkpoints/global_step_10"
    assert line.startswith(f"--output {output} holds checkpoints of a run, and a fresh one never goes on from them: ")
    assert shlex.split(launcher.partition("RESUME=")[2]) == [newest]
    command = other.partition("else: ")[2]
    options = {
        "--method": "rl",
        "--student": str(student),
        "--routes": prepared["routes"],
        "--schedule": prepared["schedule"],
        "--output": str(output),
        "--resume": newest,
    }
    program, *arguments = shlex.split(command)
    behind = arguments.index("--")
    assert (program, *arguments[:2]) == ("python", "-m", "camp.train")
    assert dict(zip(arguments[2:behind:2], arguments[3:behind:2], strict=True)) == options
    # what counts for the run, without the directory that went with the first one, and without what nobody may read
    assert arguments[behind + 1 :] == [*OVERRIDES[:-2], "+trainer.wandb_api_key=***"]


# ---- going on


@pytest.fixture
def checkpoint(composed, student, prepared, tmp_path):
    """A whole one, of update 2, as the trainer leaves it."""
    folder = checkpoint_folder(tmp_path / "run" / "checkpoints", 2)
    for network in ("actor", "critic"):
        (folder / network).mkdir(parents=True)
        for part in ("model", "optim", "extra_state"):
            torch.save({}, folder / network / f"{part}_world_size_1_rank_0.pt")
    torch.save({}, folder / "data.pt")
    (folder / "transfer_queue").mkdir()
    (folder / "transfer_queue" / "metadata.json").write_text("{}")
    Lineage(12, {1: [0, 1, 2, 4], 2: [3, 5, 6, 7]}).write(folder, [8, 9, 10, 11])
    write_state(folder, update=2, facts=run_facts(composed, read_routes(Path(prepared["routes"]))))
    return folder


def test_a_run_that_goes_on(checked, checkpoint):
    assert checked(resume=str(checkpoint)).nothing_left is None


def test_a_run_that_goes_on_elsewhere_and_for_longer(checked, checkpoint, tmp_path):
    """What makes no other experiment may change."""
    changes = {"trainer.total_training_steps": 9, "data.max_prompt_length": 300, "camp.keep_checkpoints": 5}
    assert checked(changes, resume=str(checkpoint), output=str(tmp_path / "other")).nothing_left is None


def test_a_run_that_has_nothing_left_to_do(checked, checkpoint):
    found = checked({"trainer.total_training_steps": 2}, resume=str(checkpoint))
    assert found.nothing_left.startswith("nothing is left to train: global_step_2 ")


def test_a_checkpoint_that_is_not_there(problems, tmp_path):
    resume = tmp_path / "run" / "checkpoints" / "global_step_2"
    (line,) = problems(resume=str(resume))
    assert line.startswith(f"--resume {resume} is not the directory of a checkpoint, such as ")


def test_a_folder_that_is_no_checkpoint(problems, checkpoint):
    (line,) = problems(resume=str(checkpoint / "actor"))
    assert "is not the directory of a checkpoint" in line


@pytest.mark.parametrize("content", [None, "", "{}", "[1]"])
def test_a_checkpoint_of_somebody_else(content, problems, checkpoint):
    state = checkpoint / "camp_state.json"
    state.unlink() if content is None else state.write_text(content)
    (line,) = problems(resume=str(checkpoint))
    assert line.startswith(f"--resume {checkpoint} has no readable camp_state.json: it was not saved by CAMP, or")


def test_a_checkpoint_under_another_name(problems, checkpoint):
    renamed = checkpoint.rename(checkpoint.with_name("global_step_3"))
    (line,) = problems(resume=str(renamed))
    assert line == f"--resume {renamed} was saved after update 2: give it its name back"


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("trainer.n_gpus_per_node", 2, "learners (trainer.n_gpus_per_node x trainer.nnodes) (1 then, 2 now)"),
        ("actor_rollout_ref.actor.strategy", "fsdp", "actor_rollout_ref.actor.strategy (fsdp2 then, fsdp now)"),
        ("actor_rollout_ref.actor.optim.lr", 2e-6, "actor_rollout_ref.actor.optim.lr (1e-06 then, 2e-06 now)"),
        ("critic.optim.lr", 1e-4, "critic.optim.lr (1e-05 then, 0.0001 now)"),
        ("critic.optim.weight_decay", 0.5, "critic.optim.weight_decay (0.01 then, 0.5 now)"),
        ("data.max_response_length", 1000, "data.max_response_length (1024 then, 1000 now)"),
    ],
)
def test_a_checkpoint_of_a_run_with_another_setting(key, value, told, problems, checkpoint):
    assert problems({key: value}, resume=str(checkpoint)) == [
        f"--resume {checkpoint} was saved by a run with another {told}"
    ]


def test_a_checkpoint_of_a_run_with_another_size_of_updates(problems, checkpoint):
    lines = problems({"data.train_batch_size": 2}, resume=str(checkpoint))
    assert lines == [f"--resume {checkpoint} was saved by a run with another data.train_batch_size (4 then, 2 now)"]


def test_a_checkpoint_of_another_student(problems, checkpoint, student, tmp_path):
    other = shutil.copytree(student, tmp_path / "other student")
    template = other / "chat_template.jinja"
    template.write_text(template.read_text() + "{# another one #}")
    assert problems(resume=str(checkpoint), student=str(other)) == [
        f"--resume {checkpoint} was saved by a run with another --student"
    ]


def test_the_same_student_elsewhere_is_no_other_one(checked, checkpoint, student, tmp_path):
    checked(resume=str(checkpoint), student=str(shutil.copytree(student, tmp_path / "copy")))


def test_a_checkpoint_of_other_routes_and_another_schedule(problems, checkpoint, tmp_path):
    other = prepare(tmp_path / "other", rows=EPISODES * 5, seed=1)
    assert problems(resume=str(checkpoint), **other) == [
        f"--resume {checkpoint} was saved by a run with another {option}" for option in ("--routes", "--schedule")
    ]


def test_a_checkpoint_of_the_other_method(problems, checkpoint, composed, prepared):
    facts = run_facts(composed, read_routes(Path(prepared["routes"])))
    write_state(checkpoint, update=2, facts={**facts, "--method": "opd"})
    assert problems(resume=str(checkpoint)) == [
        f"--resume {checkpoint} was saved by a run with another --method (opd then, rl now)"
    ]


@pytest.mark.parametrize(
    "part",
    [
        "data.pt",
        "actor/model_world_size_1_rank_0.pt",
        "actor/extra_state_world_size_1_rank_0.pt",
        "critic/model_world_size_1_rank_0.pt",
        "critic/optim_world_size_1_rank_0.pt",
        "episodes.json",
    ],
)
def test_a_checkpoint_without_a_part(part, problems, checkpoint):
    whole = (checkpoint / part).read_bytes()
    for damage in (lambda file: file.unlink(), lambda file: file.write_bytes(whole[: len(whole) // 2])):
        damage(checkpoint / part)
        (line,) = problems(resume=str(checkpoint))
        assert line == f"--resume {checkpoint} cannot be gone on from: {part} missing or damaged"


def test_a_checkpoint_without_what_was_under_way(problems, checkpoint):
    shutil.rmtree(checkpoint / "transfer_queue")
    (checkpoint / "data.pt").unlink()
    (line,) = problems(resume=str(checkpoint))
    assert line.endswith("cannot be gone on from: data.pt, transfer_queue missing or damaged")


def test_later_checkpoints_in_the_output(problems, checkpoint, tmp_path):
    """They would be taken for those of the run that goes on, and the newest ones are kept."""
    for step in (1, 3, 10):
        checkpoint_folder(checkpoint.parent, step).mkdir()
    (line,) = problems(resume=str(checkpoint))
    assert line.startswith(f"--output {tmp_path}/run holds checkpoints of later updates than the one to go on from ")
    assert "(global_step_3, global_step_10)" in line


def test_several_problems_at_one_time(problems, checkpoint, tmp_path):
    lines = problems({"camp.max_staleness": 1, "trainer.v1.separate_async.num_warmup_batches": 2}, student="/none")
    assert [line.split()[0] for line in lines[:3]] == ["--student=/none", "camp.max_staleness=1", "--output"]


@pytest.mark.parametrize("key", ["actor_rollout_ref.actor.ppo_mini_batch_size", "critic.ppo_mini_batch_size"])
def test_an_update_is_one_optimizer_step(key, problems):
    line = problems({key: 1})[0]  # the critic's follows the actor's
    assert line.startswith(f"{key}=1: an update is one optimizer step")


def test_verl_is_not_to_take_rows_by_itself(problems):
    key = "trainer.v1.separate_async.hybrid_rollout.enable_switch"
    (line,) = problems({key: True})
    assert line == f"{key}=True: CAMP needs False"


def test_services_with_fewer_sessions_than_episodes_are_refused(problems, tmp_path):
    managed = Managed(service="games", sessions=2 * EPISODES - 1)
    other = prepare(tmp_path / "other", rows=EPISODES * (UPDATES + 2), managed=managed)
    lines = problems(**other)
    assert [line.split(":")[0] for line in lines] == ["domain games", "domain quests"]
    assert f"{2 * EPISODES} episodes may be under way" in lines[0] and f"--episodes {EPISODES}" in lines[0]


def test_a_checkpoint_of_another_run_does_not_mix_with_those_of_the_output(problems, checkpoint, tmp_path):
    (tmp_path / "other" / "checkpoints" / "global_step_1").mkdir(parents=True)
    (line,) = problems(resume=str(checkpoint), output=str(tmp_path / "other"))
    assert "holds checkpoints of a run" in line and "is none of them" in line


def test_what_was_prepared_otherwise_is_a_departure(checked):
    found = checked({"actor_rollout_ref.actor.grad_clip": 0.5}).departures
    told = {departure.name: departure.value for departure in found}
    assert told["domains"] == ["games", "quests"] and told["turns of an episode of games"] == 4
    assert told["tasks left out of games"] == ["c"]
    assert "seed of the schedule" not in told  # as in the recipe
    assert told["actor_rollout_ref.actor.grad_clip"] == 0.5
    assert not any("path" in name or "micro_batch" in name for name in told)
