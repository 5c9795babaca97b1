"""The schedule as verl loads it: its rows, in its order, from where a checkpoint was."""

import pytest
from omegaconf import OmegaConf
from torchdata.stateful_dataloader import StatefulDataLoader
from verl.trainer.ppo.utils import create_rl_dataset, create_rl_sampler
from verl.utils.dataset.rl_dataset import collate_fn

from camp.configuration import recipe_config
from camp.sampling.dataset import ScheduleDataset
from camp.schedule import DomainShare, make_schedule, read_schedule, write_schedule
from onepo.errors import UserError

ROWS = 12


@pytest.fixture(scope="module")
def schedule(tmp_path_factory):
    file = tmp_path_factory.mktemp("schedule") / "train_schedule.jsonl"
    shares = {name: DomainShare(tasks=["a", "b"], turns=3, turn_tokens=8) for name in ("games", "quests")}
    write_schedule(file, make_schedule(shares, rows=ROWS, seed=3))
    return file


@pytest.fixture(scope="module")
def data(schedule):
    """The recipe's data section with this schedule."""
    data = recipe_config("rl").data
    data.train_files = str(schedule)
    return data


def loader(data):
    """As verl's trainer makes it: one row at a time."""
    dataset = create_rl_dataset(data.train_files, data, None, None, is_train=True, max_samples=-1)
    return StatefulDataLoader(
        dataset=dataset,
        batch_size=1,
        num_workers=data.dataloader_num_workers,
        drop_last=True,
        collate_fn=collate_fn,
        sampler=create_rl_sampler(data, dataset),
    )


def positions(batches):
    return [int(batch["index"][0]) for batch in batches]


def test_verl_finds_it_by_the_recipe(data):
    assert type(loader(data).dataset).__name__ == ScheduleDataset.__name__


def test_a_row_is_the_scheduled_episode(data, schedule):
    episodes, _ = read_schedule(schedule)
    batches = list(loader(data))
    assert [batch["episode"][0] for batch in batches] == [episode.model_dump() for episode in episodes]
    assert [batch["data_source"][0] for batch in batches] == [episode.domain for episode in episodes]


def test_the_order_is_the_schedules(data):
    assert positions(loader(data)) == list(range(ROWS))


def test_the_end_of_the_schedule_is_an_end(data):
    rows = iter(loader(data))
    for _ in range(ROWS):
        next(rows)
    with pytest.raises(StopIteration):
        next(rows)


def test_a_loader_goes_on_where_another_one_was(data):
    first = loader(data)
    rows = iter(first)
    assert positions([next(rows) for _ in range(5)]) == [0, 1, 2, 3, 4]
    second = loader(data)
    second.load_state_dict(first.state_dict())
    assert positions(second) == list(range(5, ROWS))


def test_without_a_file_it_is_empty():
    """As verl asks for a validation set."""
    assert len(ScheduleDataset(None, None, OmegaConf.create())) == 0


def test_a_schedule_that_was_altered_is_refused(schedule, tmp_path):
    lines = schedule.read_text().splitlines(keepends=True)
    altered = tmp_path / "altered.jsonl"
    altered.write_text("".join(lines[1:]))
    with pytest.raises(UserError, match="line 1: its position is 1, expected 0"):
        ScheduleDataset(str(altered), None, OmegaConf.create())
