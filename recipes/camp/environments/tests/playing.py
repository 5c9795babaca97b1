"""An episode played without a server, for the tests of the services."""

from camp.environments.service import Domain


def play(domain: Domain, task: str, seed: int, actions: list[str]) -> list:
    """The first text, and then for each action the text, the reward and the success; ends with the episode."""
    episode = domain.open(task, seed)
    turns: list = [episode.begin()]
    for action in actions:
        turn = episode.act(action)
        turns.append((turn.text, turn.reward, turn.success))
        if turn.success is not None:
            break
    episode.close()
    return turns
