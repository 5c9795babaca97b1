"""What CAMP's quickstart begins with: the random player in real services, the tokenizer, the student."""

import random
import re

import pytest
import torch

from camp.prepare import LIMITS, Plan, template
from onepo.errors import UserError
from recipes.camp_quickstart import cloning
from recipes.camp_quickstart.cloning import Stage, clone, cloning_loss
from recipes.camp_quickstart.keen_player import KeenPlayer
from recipes.camp_quickstart.make_model import LAYERS, Kind, make_model
from recipes.camp_quickstart.playing import watch
from recipes.camp_quickstart.random_player import RandomPlayer, names_in, tasks_in
from recipes.camp_quickstart.vocabulary import encode, make_tokenizer, read_names
from tests.camp.commands import SERVICES_PYTHON
from tests.e2e.camp import free_ports

LAKE_ACTIONS = {"left", "down", "right", "up"}
EPISODES = 12  # of each task
TASKS = {"games": ["lake_4", "blackjack"], "quests": ["room"]}
VIEW = "You are in: attic\nYou see: oak chest (open) [hat, red key], shelf\nExits: nothing\nYou carry: nothing"


def routes(*domains: str):
    limits = dict.fromkeys(domains, LIMITS)
    plan = Plan(domains, {}, {}, limits, 1, EPISODES, 0.5, "127.0.0.1", free_ports(len(domains)), 1)
    return {name: route.model_copy(update={"tasks": TASKS[name]}) for name, route in template(plan).domains.items()}


@pytest.fixture(scope="module")
def episodes():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CAMP_SERVICES_PYTHON", SERVICES_PYTHON)
        return watch(routes(*TASKS), episodes=EPISODES, seed=1, say=print)


@pytest.fixture(scope="module")
def own_tokenizer(episodes):
    return make_tokenizer(episodes)


def said(told: list[str], seed: int = 0) -> list[str]:
    player = RandomPlayer(told[0], random.Random(seed))
    return [player.act(text) for text in told]


def test_every_task_was_played_and_no_two_episodes_are_the_same(episodes):
    assert len({told[0] for told in episodes if "frozen lake" in told[0]}) == EPISODES
    assert len({told[0] for told in episodes if "blackjack" in told[0]}) > 1
    assert len({told[0] for told in episodes if "house" in told[0]}) == EPISODES
    assert max(map(len, episodes)) > 4


def test_in_a_game_the_player_keeps_to_two_of_its_actions(episodes):
    lakes = [told for told in episodes if "frozen lake" in told[0]]
    assert all(len(set(said(told * 20))) == 2 for told in lakes)
    assert {action for told in lakes for seed in range(9) for action in said(told, seed)} == LAKE_ACTIONS
    hands = [told for told in episodes if "blackjack" in told[0]]
    assert {action for told in hands for action in said(told)} == {"stick", "hit"}


def test_in_a_quest_the_player_says_the_task_or_a_verb_with_a_name_that_it_reads(episodes):
    for told in episodes:
        if tasks := tasks_in(told[0]):
            for text, action in zip(told, said(told), strict=True):
                verb, _, name = action.partition(" ")
                assert action in tasks or (
                    verb in {"take", "open", "eat"} and re.search(rf"\b{name}\b", told[0] + text)
                )
            actions = set(said(told[:1] * 200))
            assert actions > set(tasks) and len({action.split()[0] for action in actions}) >= 3


@pytest.mark.parametrize(
    ("task", "actions"),
    [
        ("take hat", {"take hat"}),
        ("open oak chest", {"take oak chest", "open oak chest"}),
        ("put hat on shelf", {"take hat", "put hat on shelf"}),
        ("take salad, then eat salad", {"take salad", "eat salad"}),
    ],
)
def test_the_keen_player_goes_about_its_task(task, actions):
    first = f"You are in a house and have a task: {task}. Find what you need.\n\n{VIEW}"
    player = KeenPlayer(first, random.Random(1))
    assert {player.act(VIEW) for _ in range(50)} == actions


def test_the_keen_player_walks_towards_the_goal(episodes):
    lakes = [told for told in episodes if "frozen lake" in told[0]]
    assert {KeenPlayer(told[0], random.Random(n)).act(told[0]) for n in range(9) for told in lakes} == {"down", "right"}


def test_names_are_read_from_the_task_and_the_view():
    assert names_in(["put hat on shelf"], VIEW) == ["hat", "shelf", "oak chest", "hat", "red key", "shelf"]
    assert names_in(["eat salad"], "You see: nothing\nYou carry: nothing") == ["salad"]


def test_tasks_are_read_from_the_instructions():
    assert tasks_in("You have a task: eat pie, then open box. Find what you need.") == ["eat pie", "open box"]
    assert tasks_in("You walk over a frozen lake.") == []


def test_a_domain_that_the_player_does_not_know_is_refused():
    with pytest.raises(UserError, match=r"knows games, quests, and not puzzles"):
        watch({"puzzles": None}, episodes=1, seed=1, say=print)


def test_what_the_student_says_comes_back_from_its_tokens(episodes, own_tokenizer):
    for told in episodes:
        actions = said(told)
        tokens, own = encode(own_tokenizer, told, actions)
        assert own_tokenizer.unk_token_id not in tokens
        own_tokens = [token for token, is_own in zip(tokens, own, strict=True) if is_own]
        text = own_tokenizer.decode(own_tokens)
        assert [part.strip() for part in text.split(own_tokenizer.eos_token)] == [*actions, ""]


def test_names_and_rules_are_one_token_each(episodes, own_tokenizer):
    names = read_names(episodes)
    assert any(" " in name for name in names)
    assert all(len(own_tokenizer(name)["input_ids"]) == 1 for name in names)
    first = next(told[0] for told in episodes if "frozen lake" in told[0])
    rules, _, view = first.partition("\n\n")
    assert len(own_tokenizer(rules)["input_ids"]) == 5  # sentences
    assert len(own_tokenizer(view)["input_ids"]) == 16  # fields


def test_the_student_is_the_same_for_a_seed_and_learns(episodes, own_tokenizer, monkeypatch):
    monkeypatch.setattr(cloning, "VIEWS", Stage(20, 6, 5e-3))
    monkeypatch.setattr(cloning, "EPISODES", Stage(2, 4, 3e-3))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)

    def losses(seed: int) -> tuple[float, float]:
        torch.manual_seed(seed)
        model = make_model(own_tokenizer, layers=LAYERS[Kind.STUDENT])
        rows, none = [encode(own_tokenizer, told, said(told)) for told in episodes], torch.tensor([], dtype=torch.long)
        before = cloning_loss(model, rows, none).item()
        clone(model, own_tokenizer, episodes, random.Random(seed), player=RandomPlayer, say=print)
        return before, cloning_loss(model, rows, none).item()

    try:
        first, again, other = losses(1), losses(1), losses(2)
    finally:
        torch.set_num_threads(threads)
    assert first == again != other
    assert first[1] < 0.8 * first[0]
