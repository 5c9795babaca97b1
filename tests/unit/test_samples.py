"""Rollouts that are kept for people, and the program that shows them."""

import subprocess
import sys

import pytest
from omegaconf import OmegaConf

from onepo.settings import parse_settings
from onepo.trainers.samples import Sample, chosen_groups, samples_bytes, samples_file, write_samples
from tests.configs import compose
from tests.conftest import ROOT


def row(group, *, teacher=False, score=0.0, met="", record=0):
    return Sample(
        group=group,
        record=record,
        data_source="clinic",
        prompt=[{"role": "user", "content": f"question of {group}"}],
        response=f"[bold]answer {score} of {group}",
        teacher=teacher,
        score=score,
        acc=score,
        met=met,
        rubrics=[{"criterion": "names rest", "points": 2.0}, {"criterion": "is rude", "points": -1.0}] if met else [],
    )


def show(*arguments):
    command = [sys.executable, "-m", "onepo.show", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT)


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    write_samples(samples_file(folder, 2), [row("old")])
    rows = [row("a", score=0.5), row("a", score=0.9, teacher=True), row("b", score=0.75, met="[true, false]", record=1)]
    write_samples(samples_file(folder, 10), [*rows, row("b", score=0.1, record=1)])
    return folder


def test_the_first_records_are_chosen_with_all_their_rollouts():
    uids, records = ["x", "y", "x", "z", "y"], [5, 1, 5, 3, 1]
    assert chosen_groups(uids, records, 2) == [1, 4, 3]
    assert chosen_groups(uids, records, 9) == [1, 4, 3, 0, 2]


def test_a_record_that_came_twice_is_two_groups():
    assert chosen_groups(["x", "y"], [1, 1], 1) == [0]


def test_the_size_of_all_dumps_is_bounded():
    def size(*overrides):
        config = compose("data.max_prompt_length=60", "data.max_response_length=40", *overrides)
        settings = parse_settings(OmegaConf.to_container(config.onepo, resolve=True))
        return samples_bytes(config, settings, final_step=25)

    assert size() == 0
    freq, few = "onepo.rollout_dump_freq=10", "onepo.rollout_dump_samples=3"
    assert size(freq, few, "actor_rollout_ref.rollout.n=8") == 2 * 3 * 8 * 100 * 6
    batch = size(freq, "onepo.rollout_dump_samples=9", "data.train_batch_size=3", "actor_rollout_ref.rollout.n=8")
    assert batch == size(freq, few, "actor_rollout_ref.rollout.n=8")  # a step has no more prompts than its batch


def test_the_last_step_is_shown_with_rewards_and_rubrics(run_dir):
    text = show(run_dir).stdout
    assert text.startswith("step 10: 2 of 2 prompts")
    assert "teacher  score 0.900  acc 0.900" in text and "student  score 0.500" in text
    assert "[bold]answer 0.5 of a" in text  # as it is, not as markup
    assert "[x] +2  names rest" in text and "[ ] -1  is rude" in text
    assert "user: question of a" in text and "record 1, clinic" in text


def test_a_step_can_be_named(run_dir):
    assert "question of old" in show(run_dir, "--step", 2).stdout


def test_only_prompts_with_a_teacher(run_dir):
    text = show(run_dir, "--teacher").stdout
    assert "1 of 2 prompts" in text and "question of b" not in text


def test_the_worst_come_first(run_dir):
    text = show(run_dir, "--worst").stdout
    assert text.index("answer 0.1 of b") < text.index("answer 0.75 of b") < text.index("answer 0.5 of a")


@pytest.mark.parametrize(("arguments", "told"), [(["--step", 3], "of 2, 10"), ([], "ROLLOUT_DUMP_FREQ=1")])
def test_what_is_not_there_is_said(run_dir, tmp_path, arguments, told):
    done = show(run_dir if arguments else tmp_path, *arguments)
    assert done.returncode == 2 and told in done.stderr and "Traceback" not in done.stderr


def test_a_response_gives_the_terminal_no_orders(tmp_path):
    rows = [row("a").model_copy(update={"response": "\x1b[2Jgone\x9b31m \u202e tab\tkept\u2028"})]
    write_samples(samples_file(tmp_path, 1), rows)
    (tmp_path / "samples" / "notes.jsonl").write_text("mine")
    text = show(tmp_path).stdout
    assert "\\x1b[2Jgone\\x9b31m \\u202e tab" in text and "kept" in text
    assert not any(order in text for order in "\x1b\x9b\u202e")


def test_a_damaged_file_is_named(tmp_path):
    write_samples(samples_file(tmp_path, 1), [row("a")])
    with samples_file(tmp_path, 1).open("a") as file:
        file.write('{"group": ')
    done = show(tmp_path)
    assert done.returncode == 2 and "1.jsonl, line 2" in done.stderr and "Traceback" not in done.stderr
