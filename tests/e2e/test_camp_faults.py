"""CAMP RL when something goes wrong, and with learners that do not divide the episodes."""

import json
import subprocess
from itertools import chain
from signal import SIGTERM

import psutil
import pytest
import torch

from onepo.trainers.checkpoints import step_of
from tests.camp.commands import SERVICES_PYTHON, begin, run
from tests.conftest import ROOT
from tests.e2e.camp import lineage, prepare, start
from tests.e2e.test_camp import wait_for
from tests.students import make_talking_student

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def student(tmp_path_factory):
    folder = tmp_path_factory.mktemp("student") / "student"
    make_talking_student(folder)
    return {"STUDENT_PATH": str(folder)}


@pytest.fixture(scope="module")
def games(tmp_path_factory):
    """A single domain whose service the run starts."""
    limits = ("--turns", 2, "--turn-tokens", 16)
    return prepare(tmp_path_factory.mktemp("games"), "--domain", "games", "--updates", 12, "--episodes", 5, *limits)


@pytest.fixture
def moody(tmp_path):
    """A service that fails from its eighth turn on, and the inputs of a run with it."""
    allowed = tmp_path / "allowed"
    allowed.write_text("7")
    command = [SERVICES_PYTHON, str(ROOT / "tests/camp/moody_service.py"), str(allowed)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as service:
        url = service.stdout.readline().strip()
        inputs = prepare(
            tmp_path / "prepared", "--domain", "shop", "--url", f"shop={url}", "--updates", 3, "--episodes", 3
        )
        yield allowed, inputs
        service.kill()


def test_a_service_that_keeps_failing_stops_the_run_and_no_episode_is_lost(moody, student, tmp_path):
    allowed, inputs = moody
    options = {**student, **inputs, "EPISODES_PER_UPDATE": "3", "SAVE_FREQ": "10", "EPISODE_RETRIES": "1"}
    output = tmp_path / "out"
    stopped = start(output, **options).finish()
    assert stopped.code == 3, stopped.tell()
    assert "stopped: episode" in stopped.stdout and "no more today" in stopped.stdout
    (checkpoint,) = (output / "checkpoints").iterdir()
    saved = lineage(checkpoint)
    assert sorted(chain(*saved["trained"].values(), saved["unfinished"])) == list(range(saved["submitted"]))
    assert len(saved["unfinished"]) == 6  # two batches were under way
    counters = json.loads((stopped.attempt / "counters.json").read_text())["domains"]["shop"]
    assert counters["failed"] >= 1 and counters["faults"]["failed"] >= 2
    allowed.write_text("100000")
    again = start(output, **options, RESUME=str(checkpoint)).finish()
    assert again.code == 0, again.tell()
    found = lineage(output / "checkpoints" / "global_step_3")
    assert sorted(chain(*found["trained"].values(), found["unfinished"])) == list(range(found["submitted"]))
    rewards = [record.reward for update in (1, 2, 3) for record in again.episodes(update) if record.limit is None]
    assert set(rewards) <= {1.0}  # a fault was never a reward


def test_a_service_that_is_killed_is_started_again(games, student, tmp_path):
    output = tmp_path / "out"
    under_way = start(output, **student, **games, TOTAL_UPDATES="10", SAVE_FREQ="10")
    wait_for(under_way, output / "rollout_data" / "1.jsonl")
    (service,) = [process for process in under_way.members() if "camp.environments.run" in process.cmdline()]
    service.kill()
    under_way.finish()
    assert under_way.code == 0, under_way.tell()
    assert "the service of games ended (exit code -9): it is started again" in under_way.stdout
    assert under_way.metrics()[-1]["step"] == 10


def test_learners_that_do_not_divide_the_episodes(games, student, tmp_path):
    output = tmp_path / "out"
    done = start(output, **student, **games, LEARNER_GPUS="2", TOTAL_UPDATES="2").finish()
    assert done.code == 0, done.tell()
    checkpoint = output / "checkpoints" / "global_step_2"
    for network in ("actor", "critic"):
        for rank in (0, 1):
            file = checkpoint / network / f"optim_world_size_2_rank_{rank}.pt"
            state = torch.load(file, weights_only=False)["state"]
            assert {int(entry["step"]) for entry in state.values()} == {2}  # one step for each update
    assert [record["episodes/trained"] for record in done.metrics()] == [5, 5]
    other = start(output, **student, **games, TOTAL_UPDATES="3", RESUME=str(checkpoint)).finish()
    assert other.code == 2 and "learners" in other.stderr and "(2 then, 1 now)" in other.stderr
    evaluated = run(
        "camp.evaluate",
        *("--student", output / "final_student", "--routes", games["ROUTES"], "--tasks", games["SCHEDULE"]),
        *("--records", tmp_path / "records.jsonl"),
        *("--", "device=cpu", "data.max_prompt_length=2600", "data.max_response_length=1200"),
        OMP_NUM_THREADS="1",
    )
    assert evaluated.returncode == 0, evaluated.stderr
    assert "games" in evaluated.stdout and "│ 70 " in evaluated.stdout
    assert len((tmp_path / "records.jsonl").read_text().splitlines()) == 70


def test_an_evaluation_that_is_interrupted_leaves_nothing(games, student, tmp_path):
    (own := tmp_path / "tmp").mkdir()
    under_way = begin(
        "camp.evaluate",
        *("--student", student["STUDENT_PATH"], "--routes", games["ROUTES"], "--tasks", games["SCHEDULE"]),
        *("--", "device=cpu", "data.max_prompt_length=2600", "data.max_response_length=1200"),
        TMPDIR=str(own),
    )
    said = []
    while "loading the student\n" not in said:  # Ray is there then, and has put its own handlers in the place of ours
        said.append(under_way.stderr.readline())
        assert said[-1], said
    under_way.send_signal(SIGTERM)
    out, errors = under_way.communicate(timeout=120)
    assert (under_way.returncode, out, errors) == (143, "", "")
    assert list(own.iterdir()) == []


@pytest.mark.parametrize("role", ["TransformersServer", "AgentLoopWorkerTQ"])
def test_a_process_that_dies_leaves_a_checkpoint_with_every_episode(role, games, student, tmp_path):
    output = tmp_path / "out"
    under_way = start(output, **student, **games, TOTAL_UPDATES="12", SAVE_FREQ="12")
    wait_for(under_way, output / "rollout_data" / "1.jsonl")
    victims = [process for process in under_way.members() if process.cmdline()[0].startswith(f"ray::{role}")]
    assert victims
    for process in victims:
        process.kill()
    under_way.finish()
    assert under_way.code == 3, under_way.tell()
    assert "has died" in under_way.stdout
    (checkpoint,) = (output / "checkpoints").glob("global_step_*")
    saved = lineage(checkpoint)
    assert sorted(chain(*saved["trained"].values(), saved["unfinished"])) == list(range(saved["submitted"]))
    last = len(saved["trained"]) + 1
    again = start(output, **student, **games, TOTAL_UPDATES=str(last), RESUME=str(checkpoint)).finish()
    assert again.code == 0, again.tell()


def test_a_kill_while_a_checkpoint_is_written_leaves_the_one_before(games, student, tmp_path):
    output = tmp_path / "out"
    under_way = start(output, **student, **games, TOTAL_UPDATES="12", SAVE_FREQ="1")
    wait_for(under_way, output / "checkpoints" / "global_step_1")
    wait_for(under_way, output / "checkpoints" / ".staging" / "global_step_2")
    (trainer,) = [process for process in under_way.members() if process.cmdline()[1:3] == ["-m", "camp.train"]]
    trainer.kill()
    under_way.finish()
    kept = max((output / "checkpoints").glob("global_step_*"), key=step_of)
    last = step_of(kept) + 1
    again = start(output, **student, **games, TOTAL_UPDATES=str(last), RESUME=str(kept)).finish()
    assert again.code == 0, again.tell()
    found = lineage(output / "checkpoints" / f"global_step_{last}")
    assert sorted(chain(*found["trained"].values(), found["unfinished"])) == list(range(found["submitted"]))
    assert all(len(rows) == 5 for rows in found["trained"].values()) and len(found["trained"]) == last


@pytest.mark.parametrize("signal", ["TERM", "KILL"])
def test_a_signal_leaves_nothing_behind(signal, games, student, tmp_path):
    output = tmp_path / "out"
    under_way = start(output, **student, **games, TOTAL_UPDATES="10")
    wait_for(under_way, output / "rollout_data" / "1.jsonl")
    launcher = psutil.Process(under_way.process.pid)
    launcher.terminate() if signal == "TERM" else launcher.kill()
    under_way.finish()
    assert under_way.code == (143 if signal == "TERM" else -9)
    assert not under_way.processes(seconds=20)
