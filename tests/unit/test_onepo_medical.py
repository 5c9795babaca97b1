"""The medical recipe: conversion of the data set, the synthetic stand-in for it, and the launcher's settings."""

import json
import os
import shlex
import subprocess
import sys
from collections import Counter

import pyarrow as pa
import pytest
import typer
from hydra import compose, initialize_config_module

from onepo.data.table import load_tasks
from onepo.errors import UserError
from recipes.onepo_medical.convert import PUBLISHED, convert, differences, held_out_rows, prompt_digests
from recipes.onepo_medical.make_synthetic import TOTAL, WRITERS, make_synthetic, records
from tests.conftest import ROOT

CHOICE = {"type": "mc", "question": "Which?", "options": ["one", "two"], "answer_idx": "B", "source": "exam"}
OPEN = {"type": "openend", "prompt": "Why?", "rubrics": [{"criterion": "says so", "points": 2}]}


@pytest.fixture
def convert_here(capsys, monkeypatch):
    """The conversion without a process of its own: its exit code, what it printed, and its errors."""
    monkeypatch.setenv("COLUMNS", "200")

    def run(*sources, out, val=0, allow_difference=True):
        code = 0
        try:
            convert(list(sources), out=out, val=val, seed=42, allow_difference=allow_difference)
        except typer.Exit as end:
            code = end.exit_code
        return code, *capsys.readouterr()

    return run


def command(module, *arguments):
    return subprocess.run(
        [sys.executable, "-m", module, *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=120,
    )


def write(path, items):
    WRITERS[path.suffix](items, path)
    return path


def written(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def numbered(count, record=OPEN):
    return [{**record, "prompt": f"{record['type']} {number}"} for number in range(count)]


# ---- conversion


def test_all_formats_give_the_same_files_and_nothing_is_lost(tmp_path, convert_here):
    outputs = []
    for suffix in WRITERS:
        source, out = write(tmp_path / f"source{suffix}", records(60, seed=1)), tmp_path / suffix[1:]
        code, printed, errors = convert_here(source, out=out, val=10)
        assert (code, errors) == (0, "")
        assert f"wrote {out}/train.jsonl: 50 records" in printed
        assert f"wrote {out}/val.jsonl: 10 records" in printed
        assert sorted(path.name for path in out.iterdir()) == ["train.jsonl", "val.jsonl"]
        outputs.append([(out / name).read_bytes() for name in ("train.jsonl", "val.jsonl")])
    assert outputs[0] == outputs[1] == outputs[2]

    before = load_tasks(str(source)).drop(["index"]).to_pylist()
    after = load_tasks([str(out / "train.jsonl"), str(out / "val.jsonl")]).drop(["index"]).to_pylist()
    assert sorted(map(str, after)) == sorted(map(str, before))


def test_other_names_become_those_of_the_format_and_unused_fields_go(tmp_path, convert_here):
    surplus = {"id": 7, "model_response": "<answer>B</answer>", "extra_info": {"page": 3}, "rubrics": None}
    own = {**CHOICE, "prompt": "Pick: <answer>A</answer>?", "question": None, "model_response": ["a", "b"]}
    broken_half = {**own, "question": "\ud83d"}  # not looked at, as the record has a prompt of its own
    source = tmp_path / "d.json"
    source.write_text(json.dumps([{**CHOICE, **surplus}, own, broken_half, {**OPEN, "question": "no"}]))
    code, printed, errors = convert_here(source, out=tmp_path)
    assert (code, errors) == (0, "")
    assert "1 of 5" in next(line for line in printed.splitlines() if "teacher is right" in line)
    shared = {"type": "multiple_choice", "data_source": "exam", "options": ["one", "two"], "answer_idx": "B"}
    choice, prompted, half, opened = written(tmp_path / "train.jsonl")
    assert choice == {
        **shared,
        "question": "Which?",
        "teacher_response": "<answer>B</answer>",
        "extra_info": {"page": 3},
    }
    assert prompted == {**shared, "prompt": own["prompt"], "teacher_response": ["a", "b"], "extra_info": {}}
    assert half == {**prompted, "question": "\ud83d"}
    assert opened == {
        "type": "open_ended",
        "data_source": "open_ended",
        "prompt": [{"role": "user", "content": "Why?"}],
        "rubrics": OPEN["rubrics"],
        "teacher_response": None,
        "extra_info": {},
    }


def test_a_size_that_is_not_the_published_one_is_said_and_stops(tmp_path):
    source = write(tmp_path / "d.jsonl", [CHOICE, OPEN, {**OPEN, "prompt": "How?"}])
    arguments = ["recipes.onepo_medical.convert", source, "--out", tmp_path / "out"]
    result = command(*arguments)
    assert result.returncode == 2
    assert "found 1 multiple_choice records, the published data set has 10191" in result.stderr
    assert "found 2 open_ended records, the published data set has 10147" in result.stderr
    assert "--allow-difference" in result.stderr and "Traceback" not in result.stderr
    assert not (tmp_path / "out").exists()
    counts = [line.replace("│", " ").split() for line in result.stdout.splitlines()]
    assert ["published", "10191", "10147"] in counts and ["records", "1", "2"] in counts
    assert ["exam", "multiple_choice", "1"] in counts and ["open_ended", "open_ended", "2"] in counts

    result = command(*arguments, "--allow-difference")
    assert (result.returncode, result.stderr) == (0, "")
    assert "allowed: found 1 multiple_choice records" in result.stdout
    assert len(written(tmp_path / "out/train.jsonl")) == 3


def test_the_published_size_is_no_difference():
    types = [kind for kind, count in PUBLISHED.items() for _ in range(count)]
    assert differences(pa.table({"type": types})) == []
    (text,) = differences(pa.table({"type": types[1:]}))
    assert text == "found 10190 multiple_choice records, the published data set has 10191"


def test_several_files_are_one_data_set_and_repeated_prompts_are_counted(tmp_path, convert_here):
    first = write(tmp_path / "a.json", [OPEN, CHOICE])
    second = write(tmp_path / "b.jsonl", [OPEN, CHOICE, {**OPEN, "prompt": "Why not?"}])
    code, printed, errors = convert_here(first, second, out=tmp_path)
    assert (code, errors) == (0, "")
    assert "records whose prompt came before: 2" in printed
    assert len(written(tmp_path / "train.jsonl")) == 5


@pytest.mark.parametrize(
    ("items", "text"),
    [
        ([{**CHOICE, "answer_idx": "F"}], 'answer_idx: found "F"'),
        ([], "the file is empty"),
        ([OPEN, {**OPEN, "type": "custom"}], "found records of type custom"),
    ],
)
def test_a_file_that_is_no_data_set_is_explained(items, text, tmp_path, convert_here):
    code, _, errors = convert_here(write(tmp_path / "d.json", items), out=tmp_path / "out")
    assert code == 2
    assert text in errors
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["train.jsonl", "val.jsonl"])
def test_files_that_exist_are_not_touched(name, tmp_path, convert_here):
    source = write(tmp_path / name, [OPEN])
    code, _, errors = convert_here(source, out=tmp_path)
    assert code == 2
    assert f"{source} exists" in errors
    assert written(source) == [OPEN]


def test_a_directory_that_cannot_be_made_is_explained(tmp_path, convert_here):
    source = write(tmp_path / "d.json", [OPEN])
    code, _, errors = convert_here(source, out=source)
    assert code == 2
    assert f"--out {source}: cannot be written (File exists)" in errors


# ---- held-out records


def split(folder, items, *, count, seed=0):
    """The prompts that are held out."""
    tasks = load_tasks(str(write(folder / "split.json", items)))
    rows = held_out_rows(tasks, prompt_digests(tasks), count=count, seed=seed)
    assert len(rows) == count
    return {tasks["prompt"][row].as_py()[0]["content"] for row in rows}


def test_the_split_depends_on_seed_and_prompts_alone(tmp_path):
    items = numbered(50)
    held_out = split(tmp_path, items, count=10)
    assert split(tmp_path, items[::-1], count=10) == held_out
    assert split(tmp_path, items, count=10, seed=1) != held_out
    assert split(tmp_path, items, count=0) == set()


def test_types_and_sources_keep_their_shares(tmp_path):
    choices = numbered(40, CHOICE)
    others = [{**item, "prompt": f"other {number}", "source": "other"} for number, item in enumerate(numbered(20))]
    drawn = split(tmp_path, choices + numbered(40) + others, count=10)
    assert Counter(prompt.split()[0] for prompt in drawn) == {"mc": 4, "openend": 4, "other": 2}


def test_a_prompt_that_occurs_twice_is_never_held_out(tmp_path):
    assert split(tmp_path, [OPEN, *numbered(3), OPEN], count=3) == {"openend 0", "openend 1", "openend 2"}


@pytest.mark.parametrize(("items", "largest"), [(numbered(3), 2), ([OPEN, OPEN, *numbered(1)], 1)])
def test_more_than_can_be_held_out_is_refused(items, largest, tmp_path):
    with pytest.raises(UserError, match=rf"--val 3: at most {largest} of these 3 records"):
        split(tmp_path, items, count=3)


# ---- the synthetic data set


def test_the_synthetic_data_has_the_published_shape():
    kinds = Counter()
    for record in records(seed=3):
        kinds[record["type"]] += 1
        assert record["teacher_response"].startswith("<think>\n") and "</think>" in record["teacher_response"]
        kinds["long thoughts"] += len(record["teacher_response"]) > 3_000
        if record["type"] == "open_ended":
            roles = [message["role"] for message in record["prompt"]]
            assert roles == ["user", *["assistant", "user"] * (len(roles) // 2)]
            kinds[f"{len(roles)} messages"] += 1
            points = [rubric["points"] for rubric in record["rubrics"]]
            assert 5 <= len(points) <= 20 and max(points) > 0 and 0 not in points
            kinds["negative points"] += min(points) < 0
    assert {kind: kinds[kind] for kind in PUBLISHED} == PUBLISHED
    assert all(kinds[f"{count} messages"] for count in (1, 3, 5, 7))
    assert kinds["negative points"] > 9_000 and kinds["long thoughts"] > 16_000
    assert TOTAL == 20_338


def test_the_synthetic_data_is_that_of_its_seed():
    assert list(records(20, seed=4)) == list(records(20, seed=4))
    assert list(records(20, seed=4)) != list(records(20, seed=5))


def test_the_check_command_accepts_the_synthetic_files(tmp_path):
    files = [tmp_path / f"small{suffix}" for suffix in WRITERS]
    for file in files:
        make_synthetic(file, count=80, seed=0)
    result = command("onepo.data.check", *files)
    assert (result.returncode, result.stderr) == (0, "")
    assert " ".join(result.stdout.split()).count("no problems") == 3 and "Warning" not in result.stdout
    tables = [load_tasks(str(file)) for file in files]
    assert tables[0] == tables[1] == tables[2]
    assert Counter(tables[0]["type"].to_pylist()) == {"multiple_choice": 40, "open_ended": 40}
    assert len(set(prompt_digests(tables[0]))) == 80


def test_the_command_writes_a_new_file_of_a_known_format_only(tmp_path):
    target = tmp_path / "d.jsonl"
    make = ("recipes.onepo_medical.make_synthetic", target, "--records", 3, "--seed", 4)
    assert command(*make).returncode == 0
    assert written(target) == list(records(3, seed=4))
    again = command(*make)
    assert again.returncode == 2 and "exists" in again.stderr
    with pytest.raises(typer.BadParameter, match=r"suffix '.csv'"):
        make_synthetic(tmp_path / "d.csv", count=1, seed=0)
    assert list(tmp_path.iterdir()) == [target]


# ---- run.sh


def dry_run(*arguments, cwd, **variables):
    """What OnePO.sh says, and the configuration that it would run with."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(cwd), "LANG": "C.UTF-8", "DRY_RUN": "1", **variables}
    script = ["bash", str(ROOT / "recipes/onepo_medical/run.sh"), *arguments]
    result = subprocess.run(script, cwd=cwd, env=environment, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    words = shlex.split(result.stdout)
    with initialize_config_module("onepo.config", version_base=None):
        return result.stderr, compose("onepo", overrides=words[words.index("onepo.train") + 1 :])


def test_the_launcher_runs_the_recipe_on_its_defaults(tmp_path):
    said, config = dry_run(cwd=tmp_path, MODEL_PATH="/models/student", REWARD_MODEL_PATH="/models/grader")
    home = f"{ROOT}/runs/onepo_medical"
    assert config.data.train_files == f"{home}/data/train.jsonl"
    assert config.data.val_files == f"{home}/data/val.jsonl"
    assert config.onepo.run_dir.startswith(f"{home}/qwen3-8b-base-")
    assert config.actor_rollout_ref.model.path == "/models/student"
    assert config.onepo.reward_server.path == "/models/grader"
    changed = {line.split()[1].partition("=")[0] for line in said.splitlines() if "(default: " in line}
    paths = {"OUTPUT_DIR", "EXPERIMENT_NAME", "TRAIN_FILE", "VAL_FILE", "MODEL_PATH", "REWARD_MODEL_PATH"}
    assert changed - {"DRY_RUN"} == paths


def test_every_option_can_still_be_set(tmp_path):
    variables = {"OUTPUT_DIR": "out", "EXPERIMENT_NAME": "mine", "TRAIN_FILE": "t.json", "TRAIN_BATCH_SIZE": "64"}
    _, config = dry_run("actor_rollout_ref.rollout.n=4", cwd=tmp_path, **variables)
    assert config.onepo.run_dir.startswith(f"{tmp_path}/out/onepo_medical/mine-")
    assert config.data.train_files == f"{tmp_path}/t.json"
    assert config.data.val_files == f"{tmp_path}/out/onepo_medical/data/val.jsonl"
    assert (config.data.train_batch_size, config.actor_rollout_ref.rollout.n) == (64, 4)


def test_data_that_was_not_converted_is_named(tmp_path):
    script = ["bash", str(ROOT / "recipes/onepo_medical/run.sh")]
    environment = {"PATH": os.environ["PATH"], "DEVICE": "cpu", "OUTPUT_DIR": str(tmp_path)}
    result = subprocess.run(script, env=environment, capture_output=True, text=True, timeout=60)
    assert result.returncode == 2
    for name in ("train", "val"):
        assert (
            f"{name.upper()}_FILE={tmp_path}/onepo_medical/data/{name}.jsonl is not an existing file" in result.stderr
        )
    assert "MODEL_PATH is not set" in result.stderr
    assert not list(tmp_path.iterdir())
