"""CAMP RL end to end: five services, a critic, a checkpoint, KILL in the middle, and the run that goes on."""

import json
import shutil
import subprocess
from contextlib import suppress
from itertools import chain

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from tests.e2e.camp import EPISODES, lineage, prepare, start
from tests.students import make_talking_student

DOMAINS = ("database", "games", "puzzles", "quests", "search")


def wait_for(launch, path):
    """Until a path is there, or the run has ended."""
    while not path.exists():
        with suppress(subprocess.TimeoutExpired):
            launch.process.wait(0.05)
        assert launch.process.returncode is None, launch.finish().tell()


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("camp inputs")
    make_talking_student(folder / "student")
    options = prepare(folder / "prepared", "--updates", 3, "--episodes", EPISODES, "--turns", 3, "--turn-tokens", 24)
    return {"STUDENT_PATH": str(folder / "student"), **options}


@pytest.fixture(scope="module")
def runs(inputs, tmp_path_factory):
    """A run that was KILLed behind its first checkpoint, what that checkpoint said, and the run that went on."""
    output = tmp_path_factory.mktemp("camp") / "with space"
    first = start(output, **inputs)
    checkpoint = output / "checkpoints" / "global_step_1"
    wait_for(first, checkpoint)
    members = first.members()
    (trainer,) = [process for process in members if process.cmdline()[1:3] == ["-m", "camp.train"]]
    trainer.kill()
    first.finish()
    (kept,) = (output / "checkpoints").glob("global_step_*")  # it may have come one further
    saved = lineage(kept)
    left = first.processes(seconds=15)
    again = start(output, **inputs, RESUME=str(kept)).finish()
    return first, saved, left, again


def test_a_killed_run_leaves_nothing_and_says_so(runs):
    first, _, left, _ = runs
    assert first.code == 137
    assert not left


def test_the_run_goes_on_and_ends(runs):
    *_, again = runs
    assert again.code == 0, again.tell()
    facts = again.facts()
    assert facts["exit_code"] == 0 and facts["resumed_from"].endswith(("global_step_1", "global_step_2"))
    assert "update 3/3" in again.stdout and "explained" in again.stdout


def test_no_episode_is_lost_or_trained_on_twice(runs):
    """Along the checkpoints, trained and unfinished rows together are the beginning of the schedule."""
    _, saved, _, again = runs
    (last,) = (again.output_dir / "checkpoints").iterdir()
    assert last.name == "global_step_3"
    found = lineage(last)
    assert saved["trained"].items() <= found["trained"].items()
    for state in (saved, found):
        rows = sorted(chain(*state["trained"].values(), state["unfinished"]))
        assert rows == list(range(state["submitted"]))
    assert found["submitted"] == 4 * EPISODES and all(len(rows) == EPISODES for rows in found["trained"].values())
    for update in (1, 2, 3):
        assert sorted(record.schedule.position for record in again.episodes(update)) == found["trained"][str(update)]


def test_records_of_episodes(runs):
    *_, again = runs
    schedule = [json.loads(line) for line in open(again_schedule(again), encoding="utf-8")]
    for update in (1, 2, 3):
        for record in again.episodes(update):
            assert record.schedule.model_dump() == schedule[record.schedule.position]
            assert record.submitted_at <= update and 0 <= record.versions[0] <= record.versions[1] < update
            assert update - 1 - record.versions[0] <= 4  # MAX_STALENESS
            assert record.turns and record.turns[-1]["end"] == record.response_tokens
            assert sum(turn["reward"] for turn in record.turns) == record.reward


def again_schedule(launch) -> str:
    return launch.facts()["schedule"]["file"]


def test_what_a_run_leaves(runs, inputs):
    *_, again = runs
    facts = again.facts()
    weights = load_file(again.output_dir / "final_student" / "model.safetensors")
    model = AutoModelForCausalLM.from_pretrained(again.output_dir / "final_student")
    assert model.dtype == torch.float32
    before = load_file(f"{inputs['STUDENT_PATH']}/model.safetensors")
    assert any(not torch.equal(weights[name], before[name]) for name in before)
    assert len(facts["code_sha256"]) == 64 and all(facts["model_files"].values())
    assert f"{inputs['STUDENT_PATH']}/model.safetensors" in facts["model_files"]
    assert "episodes per update" in [departure["name"] for departure in facts["departures"]]
    counters = json.loads((again.attempt / "counters.json").read_text())
    finished = sum(domain["finished"] for domain in counters["domains"].values())
    assert 0 < finished <= 3 * EPISODES  # of this invocation alone
    assert len(list((again.output_dir / "state").iterdir())) == 2
    critic = again.output_dir / "checkpoints" / "global_step_3" / "critic"
    optimizer = torch.load(critic / "optim_world_size_1_rank_0.pt", weights_only=False)
    assert {int(state["step"]) for state in optimizer["state"].values()} == {3}


def test_metrics(runs):
    *_, again = runs
    metrics = again.metrics()
    assert metrics[-1]["step"] == 3
    last = metrics[-1]
    assert last["episodes/trained"] == EPISODES and last["episodes/failed"] == 0
    assert sum(last.get(f"domain/{name}/episodes", 0) for name in DOMAINS) == EPISODES
    for name in ("critic/vf_loss", "critic/vf_explained_var", "critic/lr", "actor/lr", "staleness/mean"):
        assert last[name] is not None
    assert last["critic/lr"] == pytest.approx(1e-5) and last["actor/lr"] == pytest.approx(1e-4)


def test_a_fresh_command_does_not_go_on(runs, inputs):
    *_, again = runs
    fresh = start(again.output_dir, **inputs).finish()
    assert fresh.code == 2
    assert f"--resume '{again.output_dir}/checkpoints/global_step_3'" in fresh.stderr
    assert "Traceback" not in fresh.stderr
    shutil.rmtree(again.output_dir)
