"""CAMP-II OPD end to end: a learner, a sampler and a teacher, a checkpoint, and the run that goes on from it."""

import math
from itertools import chain

import pytest

from tests.e2e.camp import EPISODES, lineage, prepare, start
from tests.e2e.test_camp import wait_for
from tests.scoring_server import ScoringServer
from tests.students import make_talking_student

SHARPNESS = 100.0  # the teacher is to be of an opinion


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """Student and teacher of one tokenizer, and the other inputs of a run."""
    folder = tmp_path_factory.mktemp("opd inputs")
    make_talking_student(folder / "student", sharpness=SHARPNESS)
    make_talking_student(folder / "teacher", seed=1, sharpness=SHARPNESS)
    limits = ("--updates", 3, "--episodes", EPISODES, "--turns", 2, "--turn-tokens", 16)
    options = prepare(folder / "prepared", "--domain", "games", "--domain", "puzzles", *limits)
    return {"STUDENT_PATH": str(folder / "student"), "TEACHER_PATH": str(folder / "teacher"), **options}


def run(output, **options):
    return start(output, launcher="CAMP_OPD.sh", **options).finish()


@pytest.fixture(scope="module")
def runs(inputs, tmp_path_factory):
    """A run of two updates, and one that goes on from it for a third."""
    output = tmp_path_factory.mktemp("opd") / "out"
    first = run(output, **inputs, TOTAL_UPDATES="2")
    assert first.code == 0, first.tell()
    again = run(output, **inputs, TOTAL_UPDATES="3", RESUME=str(output / "checkpoints" / "global_step_2"))
    return first, again


def test_the_run_goes_on_and_no_episode_is_lost(runs, inputs):
    first, again = runs
    assert again.code == 0, again.tell()
    assert "topk=32 is inactive" in first.stdout and "explained" not in again.stdout
    assert "the teacher scores a conversation of" in first.stdout and "  distance " in first.stdout
    (last,) = (again.output_dir / "checkpoints").iterdir()
    found = lineage(last)
    assert sorted(chain(*found["trained"].values(), found["unfinished"])) == list(range(found["submitted"]))
    assert [len(rows) for rows in found["trained"].values()] == [EPISODES] * 3
    assert not (last / "critic").exists()
    facts = again.facts()
    assert facts["teacher"] == inputs["TEACHER_PATH"] and facts["method"] == "opd"
    assert f"{inputs['TEACHER_PATH']}/model.safetensors" in facts["model_files"]


def test_every_sampled_token_is_scored(runs):
    _, again = runs
    for record in again.metrics():
        episodes = again.episodes(record["step"])
        assert record["distillation/tokens"] == sum(
            turn["end"] - turn["start"] for one in episodes for turn in one.turns
        )
        assert record["distillation/unscored"] == 0 and record["teacher/tokens_per_second"] > 0
        assert record["distillation/kl"] > 0.01 and record["actor/grad_norm"] > 0
        assert record["distillation/k1_p05"] < record["distillation/k1_p50"] < record["distillation/k1_p95"]
        assert 0 <= record["actor/pg_clipfrac"] <= 1 and record["distillation/k1_abs"] >= record["distillation/kl"]
        domains = {one.schedule.domain for one in episodes}
        assert {f"domain/{name}/kl" for name in domains} <= record.keys()
        assert all(f"domain/{name}/reward" in record for name in domains)  # still written down


@pytest.mark.slow
def test_a_teacher_that_is_the_student_teaches_nothing(inputs, tmp_path):
    same = {**inputs, "TEACHER_PATH": inputs["STUDENT_PATH"]}
    done = run(tmp_path / "out", **same, TOTAL_UPDATES="1")
    assert done.code == 0, done.tell()
    assert "warning: the teacher is the student itself" in done.stdout
    (record,) = done.metrics()
    assert max(abs(record[f"distillation/{name}"]) for name in ("kl", "k1_p05", "k1_p95")) < 1e-5
    assert record["actor/grad_norm"] < 1e-5


@pytest.mark.slow
def test_a_teacher_by_http_teaches_the_same(inputs, runs, tmp_path):
    served = {name: value for name, value in inputs.items() if name != "TEACHER_PATH"}
    with ScoringServer(inputs["TEACHER_PATH"]) as teacher:
        teacher.fail = 1
        done = run(tmp_path / "out", **served, TEACHER_URL=f"{teacher.url}/v1", TOTAL_UPDATES="2")
        assert done.code == 0, done.tell()
        assert teacher.answered >= 2 * EPISODES
    assert "the tokenizer of the teacher" in done.stdout
    assert done.facts()["teacher"] == f"{teacher.url}/v1"
    for record in done.metrics():
        assert record["distillation/unscored"] == 0 and record["distillation/kl"] > 0.01


@pytest.mark.slow
def test_a_teacher_that_goes_away_stops_the_run_and_no_episode_is_lost(inputs, tmp_path):
    served = {name: value for name, value in inputs.items() if name != "TEACHER_PATH"}
    output = tmp_path / "out"
    with ScoringServer(inputs["TEACHER_PATH"]) as teacher:
        teacher.last = EPISODES + 3  # one of them is the question before the start
        options = {**served, "TEACHER_URL": teacher.url, "TOTAL_UPDATES": "3", "TEACHER_OUTAGE_LIMIT": "1"}
        stopped = run(output, **options)
        assert stopped.code == 3, stopped.tell()
        assert "gave no answer within the outage limit of 1 s" in stopped.stdout
        checkpoint = max((output / "checkpoints").iterdir())
        saved = lineage(checkpoint)
        assert sorted(chain(*saved["trained"].values(), saved["unfinished"])) == list(range(saved["submitted"]))
        teacher.last = math.inf
        again = run(output, **options, RESUME=str(checkpoint))
    assert again.code == 0, again.tell()
    found = lineage(output / "checkpoints" / "global_step_3")
    assert sorted(chain(*found["trained"].values(), found["unfinished"])) == list(range(found["submitted"]))
    assert all(record["distillation/unscored"] == 0 for record in again.metrics())


@pytest.mark.slow
def test_a_teacher_that_is_not_there_is_told_before_anything_is_started(inputs, tmp_path):
    served = {name: value for name, value in inputs.items() if name != "TEACHER_PATH"}
    with ScoringServer(inputs["TEACHER_PATH"]) as teacher:
        url = teacher.url
    done = run(tmp_path / "out", **served, TEACHER_URL=url)
    assert done.code == 2 and "error: --teacher: cannot score a short conversation: " in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_learners_that_do_not_divide_the_episodes(inputs, tmp_path):
    """verl fills the batch up with rows that have another row's scores, at the pinned commit."""
    done = run(tmp_path / "out", **inputs, LEARNER_GPUS="2", TOTAL_UPDATES="2")
    assert done.code == 0, done.tell()
    for record in done.metrics():
        episodes = done.episodes(record["step"])
        assert len(episodes) == EPISODES
        tokens = sum(turn["end"] - turn["start"] for one in episodes for turn in one.turns)
        assert record["distillation/tokens"] == tokens and record["actor/grad_norm"] > 0
        assert record["distillation/k1_abs"] >= abs(record["distillation/kl"])


@pytest.mark.slow
def test_an_engine_that_dies_leaves_a_checkpoint_with_every_episode(inputs, tmp_path):
    output = tmp_path / "out"
    under_way = start(output, launcher="CAMP_OPD.sh", **inputs, TOTAL_UPDATES="12", SAVE_FREQ="12")
    wait_for(under_way, output / "rollout_data" / "1.jsonl")
    engines = [one for one in under_way.members() if one.cmdline()[0].startswith("ray::TransformersServer")]
    assert len(engines) >= 2  # the sampler's and the teacher's
    for process in engines:
        process.kill()
    under_way.finish()
    assert under_way.code == 3, under_way.tell()
    assert "has died" in under_way.stdout
    saved = lineage(max((output / "checkpoints").glob("global_step_*")))
    assert sorted(chain(*saved["trained"].values(), saved["unfinished"])) == list(range(saved["submitted"]))
