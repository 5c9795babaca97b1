"""What an update may take: pictures by hand, then thousands of short schedules with episodes that end at random."""

import math
import random
from dataclasses import dataclass, field
from fractions import Fraction

import pytest

from camp.sampling.staleness import choose_batch


def picture(text: str, *, update: int, max_staleness: int, size: int = 2) -> str | None:
    """The batch of a queue such as ``"a1 b1- c2"``: each name with its update, ``-`` behind one under way."""
    episodes = text.split()
    finished = {episode[0] for episode in episodes if not episode.endswith("-")}
    submitted_at = {episode[0]: int(episode[1:].rstrip("-")) for episode in episodes}
    batch = choose_batch(finished, submitted_at, update=update, size=size, max_staleness=max_staleness)
    return None if batch is None else "".join(batch)


@pytest.mark.parametrize(
    ("queue", "batch"),
    [
        ("", None),
        ("a1 b1- c1-", None),  # too few
        ("a1 b1 c1 d1", "ab"),  # the oldest ones
        ("a1- b1- c1 d1", "cd"),  # submitted at the same time: what is finished first
        ("a1- b1 c1- d1 e1", "bd"),
        ("c2 d2 a1 b1", "ab"),  # by their updates, not by their place
    ],
)
def test_the_oldest_finished_ones_go_first(queue, batch):
    assert picture(queue, update=1, max_staleness=4) == batch


@pytest.mark.parametrize(
    ("update", "max_staleness", "batch"),
    [
        (1, 1, "cd"),  # a and b can still go at update 2 = 1 + 1
        (2, 1, None),  # this is update 2
        (2, 2, "cd"),
        (3, 2, None),
    ],
)
def test_an_update_waits_for_episodes_that_would_be_too_old_at_the_next_one(update, max_staleness, batch):
    assert picture("a1- b1- c1 d1", update=update, max_staleness=max_staleness) == batch


def test_those_that_are_left_need_as_many_updates_as_they_fill():
    """Five are left: the last of them gets its turn at the third update from here, whoever ends first."""
    queue = "a1- b1- c1- d1- e1- f1 g1"
    assert picture(queue, update=1, max_staleness=2) is None
    assert picture(queue, update=1, max_staleness=3) == "fg"


def test_younger_ones_that_are_left_have_more_time():
    assert picture("a1- b2- c2 d2", update=2, max_staleness=2) == "cd"
    assert picture("a1- b2- c2 d2 e3- f3-", update=2, max_staleness=2) == "cd"


def test_finished_ones_that_are_left_must_not_get_too_old_either():
    assert picture("a1- b1 c1 d1 e1", update=2, max_staleness=2) is None  # d and e would be trained on at update 4
    assert picture("a1 b1 c1 d1", update=2, max_staleness=2) == "ab"


def test_when_all_older_ones_are_there_nothing_can_be_gained_by_waiting():
    """Such a queue comes from a checkpoint of a run that allowed more."""
    assert picture("a1 b1 c1- d1-", update=9, max_staleness=1) == "ab"
    assert picture("a1- b1 c1 d1", update=9, max_staleness=1) is None


# ---- the same with time


@dataclass
class Queue:
    """The samplers and the learner as the trainer drives them, with a clock that counts polls."""

    rows: int
    size: int
    warmup: Fraction
    max_staleness: int
    draw: random.Random
    longest: int  # of an episode, in polls
    submitted: int = 0
    submitted_at: dict[str, int] = field(default_factory=dict)
    ends_at: dict[str, int] = field(default_factory=dict)
    trained: list[str] = field(default_factory=list)
    ages: list[int] = field(default_factory=list)
    clock: int = 0

    def fill_up(self, update: int) -> None:
        most = math.ceil((1 + self.warmup) * self.size)
        for _ in range(min(most - len(self.submitted_at), self.rows - self.submitted)):
            self.begin(str(self.submitted), update)
            self.submitted += 1

    def begin(self, name: str, update: int) -> None:
        self.submitted_at[name] = update
        # most end soon and some late
        self.ends_at[name] = self.clock + int(self.longest * self.draw.random() ** 4)

    @property
    def finished(self) -> set[str]:
        return {name for name, end in self.ends_at.items() if end <= self.clock}

    def train(self, update: int) -> None:
        """Wait for the batch; a wait that no episode's end can help would be one for ever."""
        while True:
            batch = choose_batch(
                self.finished, self.submitted_at, update=update, size=self.size, max_staleness=self.max_staleness
            )
            if batch is not None:
                break
            assert self.finished != self.submitted_at.keys(), f"update {update} waits for ever: {self}"
            self.clock = min(end for end in self.ends_at.values() if end > self.clock)
        assert len(batch) == self.size and set(batch) <= self.finished
        for name in batch:
            self.trained.append(name)
            self.ages.append(update - self.submitted_at.pop(name))
            del self.ends_at[name]
        self.clock += self.draw.randrange(3)  # the update takes its time

    def stop_and_go_on(self, update: int) -> None:
        """Finished episodes are kept with their age; the others are played anew, with the weights that are there."""
        kept = self.finished
        for name in list(self.submitted_at):
            if name not in kept:
                self.begin(name, update)


def schedules(seed: int, count: int):
    draw = random.Random(seed)
    for _ in range(count):
        size = draw.randrange(1, 6)
        max_staleness = draw.randrange(1, 5)
        yield Queue(
            rows=size * draw.randrange(1, 12) + draw.randrange(size),
            size=size,
            warmup=draw.choice([Fraction(0), Fraction(max_staleness), Fraction(draw.randrange(4 * max_staleness), 4)]),
            max_staleness=max_staleness,
            draw=draw,
            longest=draw.choice([0, 3, 30, 300]),
        )


def finish(queue: Queue, *, stops: float) -> None:
    updates = queue.rows // queue.size
    for update in range(1, updates + 1):
        if update > 1 and queue.draw.random() < stops:
            queue.stop_and_go_on(update)
        queue.fill_up(update)
        queue.train(update)
    under_way = set(queue.submitted_at)
    assert len(queue.trained) == len(set(queue.trained)) == updates * queue.size
    assert {*queue.trained, *under_way} == {str(row) for row in range(queue.submitted)}
    assert not under_way & set(queue.trained)


@pytest.mark.parametrize("stops", [0.0, 0.3], ids=["in one run", "with stops"])
def test_no_episode_is_too_old_none_is_lost_and_nothing_waits_for_ever(stops):
    oldest = {}
    for queue in schedules(seed=int(stops * 10), count=2000):
        finish(queue, stops=stops)
        assert max(queue.ages) <= queue.max_staleness, queue
        oldest[queue.max_staleness] = max(oldest.get(queue.max_staleness, 0), *queue.ages)
    assert oldest == {1: 1, 2: 2, 3: 3, 4: 4}  # else the simulation would show nothing


def test_a_run_that_goes_on_with_a_smaller_bound_ends_all_the_same():
    """What it finds may be too old already; from then on nothing becomes older than the first run allowed."""
    for queue in schedules(seed=5, count=500):
        before, queue.max_staleness = queue.max_staleness, queue.max_staleness + 3
        updates = queue.rows // queue.size
        for update in range(1, updates + 1):
            if update == 3:
                queue.stop_and_go_on(update)
                queue.max_staleness = before
            queue.fill_up(update)
            queue.train(update)
        assert len(set(queue.trained)) == updates * queue.size


def test_more_under_way_than_the_bound_allows_would_be_too_old():
    """Why the preflight refuses a warm-up above max_staleness."""
    too_old = 0
    for queue in schedules(seed=6, count=300):
        queue.warmup = Fraction(queue.max_staleness + 1)
        finish(queue, stops=0)
        too_old += max(queue.ages) > queue.max_staleness
    assert too_old > 0
