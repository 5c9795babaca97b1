"""Makes the games: the rooms, the things and the quests are TextWorld's, from a seed, in memory."""

import warnings
from dataclasses import dataclass
from itertools import count
from random import Random
from threading import Lock

from textworld import GameOptions
from textworld.generator import (
    Game,
    GenerationWarning,
    KnowledgeBase,
    QuestGenerationError,
    World,
    make_grammar,
    make_map,
    make_quest,
    make_small_map,
)
from textworld.generator.game import GameProgression

# TextWorld runs short of names now and then, helps itself with an adjective and warns of it.
warnings.filterwarnings("ignore", category=GenerationWarning)

_RULES = KnowledgeBase.default().rules
_LAST = _RULES.get_matching("take.*", "put", "insert", "open/c", "eat")
_BEFORE = _RULES.get_matching("take.*", "go/.*", "open/.*", "unlock/.*")
_MORE = 4  # things that no quest needs

# The parser of the grammars has state of its own, and making a game is work for one core anyway.
_one_at_a_time = Lock()


@dataclass(frozen=True)
class Plan:
    """What kind of game to make.

    Attributes:
        rooms: of the house, 5 at most where there are doors.
        steps: of each quest, at most.
        doors: there are some, around a room in the middle.
        quests: that have to be done.
        needs: TextWorld's name of a rule that the shortest way it knows makes use of.
    """

    rooms: int
    steps: int
    doors: bool = False
    quests: int = 1
    needs: str | None = None


def make(plan: Plan, name: str) -> Game:
    """The game of a plan that a name stands for, always the same one."""
    for attempt in count():
        seed = Random(f"{name} {attempt}").getrandbits(32)
        try:
            with _one_at_a_time:
                game = _make(plan, seed)
        except QuestGenerationError:  # this map has no way for such a quest
            continue
        start = GameProgression(game)
        if start.score:  # what has to be taken is in the player's hands already
            continue
        if plan.needs is None or plan.needs in {step.name for step in start.winning_policy}:
            return game


def _make(plan: Plan, seed: int) -> Game:
    options = GameOptions()
    options.seeds = seed
    options.kb = KnowledgeBase.default()
    options.nb_parallel_quests = plan.quests
    options.quest_length = plan.steps
    options.grammar.theme = "house"
    options.grammar.allowed_variables_numbering = True  # two things never have one name
    rngs = options.rngs

    chaining = options.chaining  # from the last step back to the first, adding the things that a step needs
    chaining.backward = chaining.create_variables = True
    chaining.restricted_types = {"r", "d"}
    chaining.rules_per_depth = [_LAST] + [_BEFORE] * (plan.steps - 1)
    chaining.rng = rngs["quest"]

    # All doors are open in the end: on the way back from there, the steps that open one leave it closed or locked.
    house = make_small_map if plan.doors else make_map
    world = World.from_map(house(plan.rooms, rng=rngs["map"], possible_door_states=["open"] if plan.doors else None))
    world.set_player_room()
    quests = make_quest(world, options)
    world.populate(_MORE, rng=rngs["objects"])
    return Game(world, make_grammar(options.grammar, rng=rngs["grammar"]), quests)
