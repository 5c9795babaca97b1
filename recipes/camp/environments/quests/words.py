"""Tells in words what a player sees of a world."""

from collections import defaultdict
from collections.abc import Mapping

from textworld.logic import State

_DIRECTIONS = ("north", "south", "east", "west")


def view(state: State, names: Mapping[str, str]) -> str:
    """The room, what is in it and where it leads, and what the player carries.

    Args:
        state: of the world, as facts.
        names: of the rooms and things, by their identifiers.
    """
    held = defaultdict(list)  # what is in, on or at a room or a thing
    condition = {}  # of what can be opened
    doors = {}  # between two rooms
    ways = {}  # from each room: the direction and the room that it leads to
    for fact in sorted(state.facts):
        first, *others = (argument.name for argument in fact.arguments)
        if fact.name in ("in", "on", "at"):
            held[others[0]].append(first)
        elif fact.name in ("open", "closed", "locked"):
            condition[first] = fact.name
        elif fact.name == "link":
            doors[first, others[1]] = others[0]
        elif fact.name.removesuffix("_of") in _DIRECTIONS:
            ways.setdefault(others[0], {})[fact.name.removesuffix("_of")] = first

    def told(thing: str) -> str:
        text = names[thing]
        if thing in condition:
            text += f" ({condition[thing]})"
        if held[thing] and condition.get(thing, "open") == "open":
            text += f" [{_listed(names[inside] for inside in held[thing])}]"
        return text

    room = next(place for place, things in held.items() if "P" in things)
    exits = []
    for direction, behind in ways.get(room, {}).items():
        door = doors.get((room, behind))
        exits.append(f"{direction} through {told(door)}" if door else direction)
    return (
        f"You are in: {names[room]}\n"
        f"You see: {_listed(told(thing) for thing in held[room] if thing != 'P')}\n"
        f"Exits: {_listed(exits)}\n"
        f"You carry: {_listed(names[thing] for thing in held['I'])}"
    )


def _listed(things) -> str:
    return ", ".join(things) or "nothing"
