"""Runs that show the rest of the promises, each a few minutes or less."""

import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from omegaconf import OmegaConf
from transformers import AutoModelForCausalLM

from tests.conftest import ROOT
from tests.e2e.launch import KEPT, MARKER, start
from tests.students import make_qwen3_student

pytestmark = pytest.mark.slow
TWO_STEPS = {"TOTAL_TRAINING_STEPS": "2", "TEST_FREQ": "2", "ENABLE_FILTER_GROUPS": "False"}
LONG = {"TOTAL_TRAINING_STEPS": "400", "TEST_FREQ": "0", "VAL_FILE": "", "ENABLE_FILTER_GROUPS": "False"}


def wait_for_line(launch, beginning: str) -> None:
    for line in launch.process.stdout:
        if line.startswith(beginning):
            return
    pytest.fail(launch.finish().tell())


@pytest.fixture
def foreign_ray():
    """A cluster of somebody else on this machine, found by every ``ray.init()`` that does not look out."""
    command = [str(Path(sys.executable).parent / "ray"), "start", "--head", "--block", "--port=0", "--num-cpus=1"]
    cluster = subprocess.Popen(
        [*command, "--include-dashboard=false"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    for line in cluster.stdout:
        if "Ray runtime started" in line:
            break
    yield cluster
    cluster.terminate()
    cluster.communicate()


def test_two_runs_beside_a_foreign_ray_do_not_disturb_each_other(student, tmp_path, foreign_ray):
    launches = [start(tmp_path / name, MODEL_PATH=str(student), **TWO_STEPS) for name in ("one", "two")]
    for launch in launches:
        launch.finish()
        assert launch.code == 0, launch.tell()
        assert "Started a local Ray instance" in (launch.run_dir / "logs" / "train.log").read_text()
    assert foreign_ray.poll() is None
    one, two = (launch.metrics() for launch in launches)
    assert len(one) == len(two) == 2
    for name in ("actor/pg_loss", "actor/grad_norm", "response_length/mean", "actor/entropy"):  # same seed, same run
        assert [record[name] for record in one] == pytest.approx([record[name] for record in two], abs=1e-5), name


def test_two_learners_compute_the_loss_of_one(student, tmp_path):
    """The first step's generation and loss are the same however many ranks share the batch."""
    runs = []
    for ranks in ("1", "2"):
        run = start(tmp_path / ranks, MODEL_PATH=str(student), NGPUS_PER_NODE=ranks, **TWO_STEPS).finish()
        assert run.code == 0, run.tell()
        assert run.processes() == []
        runs.append(run.metrics())
    for name in ("actor/pg_loss", "onepo/teacher_tokens", "onepo/floored_tokens", "response_length/mean"):
        assert runs[0][0][name] == pytest.approx(runs[1][0][name], abs=1e-6), name
    for record in runs[0] + runs[1]:
        assert record["training/rollout_probs_diff_max"] < 1e-4


def test_a_rollout_that_fails_costs_its_row_and_not_its_group(student, tmp_path):
    loops = tmp_path / "loops.yaml"
    loops.write_text("- {name: flaky, _target_: tests.e2e.flaky.FlakyAgentLoop}\n")
    run = start(
        tmp_path / "runs",
        f"actor_rollout_ref.rollout.agent.agent_loop_config_path='{loops}'",
        "actor_rollout_ref.rollout.agent.default_agent_loop=flaky",
        MODEL_PATH=str(student),
        **TWO_STEPS,
    ).finish()
    assert run.code == 0, run.tell()
    for record in run.metrics():
        assert record["onepo/groups_failed"] == 4  # session 1 of every group fails
        assert record["onepo/teacher_replaced"] == 4  # and the teacher still takes the place of one of the others
        assert record["onepo/teacher_tokens"] == pytest.approx(40)


def test_a_qwen3_student_of_random_weights_trains(tmp_path):
    """The other model type: rollout and learner agree, and the checkpoint is a Qwen3 again."""
    make_qwen3_student(tmp_path / "student")
    lengths = {"MAX_PROMPT_LENGTH": "128", "MAX_RESPONSE_LENGTH": "80"}
    run = start(tmp_path / "runs", MODEL_PATH=str(tmp_path / "student"), **lengths, **TWO_STEPS).finish()
    assert run.code == 0, run.tell()
    for record in run.metrics():
        assert record["training/rollout_probs_diff_max"] < 1e-4
        assert record["rollout_corr/log_ppl_abs_diff"] < 1e-4
        assert record["onepo/teacher_replaced"] == 4
    (checkpoint,) = run.facts()["checkpoints"]
    assert AutoModelForCausalLM.from_pretrained(checkpoint["model_dir"]).config.model_type == "qwen3"


def test_form_and_length_of_the_answer_count_and_the_teacher_stays_for_one_step(student, tmp_path):
    run = start(
        tmp_path,
        MODEL_PATH=str(student),
        REQUIRE_THINKING="True",
        ANSWER_PENALTY_FACTOR="0.5",
        ANSWER_EXPECTED_TOKENS="0",
        ANSWER_BUFFER_TOKENS="100",
        TEACHER_MAX_STEPS="1",
        ROLLOUT_DUMP_FREQ="1",
        **TWO_STEPS,
    ).finish()
    assert run.code == 0, run.tell()
    first, second = run.metrics()
    assert (first["onepo/teacher_enabled"], second["onepo/teacher_enabled"]) == (1, 0)
    assert first["onepo/teacher_disabled_reason"] == second["onepo/teacher_disabled_reason"] == 1
    assert first["onepo/teacher_replaced"] == 4 and second["onepo/teacher_candidates"] == 0
    assert first["reward/answer_length_penalty"] < 0
    rows = [json.loads(line) for line in (run.run_dir / "samples" / "1.jsonl").read_text().splitlines()]
    assert len(rows) == 4 * 4 and sum(row["teacher"] for row in rows) == 4
    for row in rows:
        assert row["acc"] == (1.0 if row["teacher"] else 0.0), row  # an untrained student closes no thinking
        assert row["score"] < row["acc"]  # by what the answer has beyond no tokens
    shown = subprocess.run(
        [sys.executable, "-m", "onepo.show", str(run.run_dir), "--step", "1", "--teacher"],
        capture_output=True,
        text=True,
        cwd=ROOT,
    ).stdout
    assert shown.startswith("step 1: 4 of 4 prompts") and "teacher  score " in shown


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)])
def test_a_signal_ends_everything(student, tmp_path, sent, code):
    run = start(tmp_path, MODEL_PATH=str(student), **LONG)
    wait_for_line(run, "step   1/400")
    config = OmegaConf.load(run.run_dir / "config" / "config.yaml")
    assert stat.S_IMODE(Path(config.onepo.ray_dir).stat().st_mode) == 0o700  # Ray opens its own to everybody
    run.process.send_signal(sent)
    run.finish()
    assert run.code == code, run.tell()
    assert run.processes() == []
    assert run.facts()["exit_code"] == code
    assert "what was learned since the last checkpoint is not saved" in run.stdout
    assert "Aborted" not in run.stderr
    assert not list(Path(run.output_dir).rglob(".staging"))


def test_killing_the_launcher_ends_everything(student, tmp_path):
    run = start(tmp_path, MODEL_PATH=str(student), **LONG)
    wait_for_line(run, "step   1/400")
    run.process.kill()
    run.finish()  # returns when the trainer, which holds the other end of the pipes, has ended
    assert run.facts()["exit_code"] == 143
    assert run.processes(seconds=15) == []


def test_a_worker_that_dies_ends_the_run_with_a_message(student, tmp_path):
    """Killed while it has prompts under way, which then stay under way for ever."""
    run = start(
        tmp_path,
        MODEL_PATH=str(student),
        **{
            **LONG,
            "TRAIN_BATCH_SIZE": "256",
            "PPO_MINI_BATCH_SIZE": "256",
            "ROLLOUT_N": "16",
            "MAX_RESPONSE_LENGTH": "90",
        },
    )
    wait_for_line(run, "step 1: ")  # the progress line of the first 30 seconds
    (worker,) = (process for process in run.members() if "OnePOAgentLoopWorker" in " ".join(process.cmdline()))
    worker.kill()
    run.finish()
    assert run.code == 1, run.tell()
    assert "failed: " in run.stdout
    assert run.processes() == []


def test_a_crash_is_told_in_one_line_and_the_log_has_the_rest(student, tmp_path):
    run = start(
        tmp_path,
        "actor_rollout_ref.actor.optim.optimizer_impl=torch.no_such_module",
        MODEL_PATH=str(student),
        **TWO_STEPS,
    ).finish()
    assert run.code == 1
    assert "failed: " in run.stdout and "Traceback" not in run.stdout
    assert "Traceback" in (run.run_dir / "logs" / "train.log").read_text()
    assert run.processes() == []


def recipe(name: str, output_dir: Path, **options: str) -> subprocess.CompletedProcess:
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    environment = {**kept, MARKER: name, "PYTHON": sys.executable, "OUTPUT_DIR": str(output_dir), **options}
    command = ["bash", str(ROOT / "recipes" / name / "run.sh")]
    return subprocess.run(command, env=environment, capture_output=True, text=True)


def test_the_quickstart_learns(tmp_path):
    done = recipe("quickstart", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("held-out accuracy: ")]
    first, last = (float(part.split()[0]) for part in line.removeprefix("held-out accuracy: ").split(", "))
    assert first == 0.0 and last >= 0.8, done.stdout
    assert (tmp_path / "quickstart" / "latest" / "curve.png").stat().st_size > 10_000


def test_a_real_small_model_trains(tmp_path):
    done = recipe("smollm2", tmp_path, TOTAL_TRAINING_STEPS="2", TEST_FREQ="2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "step 2/2" in done.stdout and "checkpoint of step 2" in done.stdout
