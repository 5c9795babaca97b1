"""The user's own reward function."""

from collections.abc import Iterator

from onepo.errors import UserError
from onepo.rewards.custom import check_reward_function
from onepo.settings import Settings


def reward_function_problems(settings: Settings, custom: int) -> Iterator[str]:
    """Problems of the function; only asked for when there are ``custom`` records of that type."""
    if settings.reward_function.spec is None:
        yield (
            f"{custom} records are of the type custom and need a reward function: set REWARD_FUNCTION to "
            "/path/file.py:function"
        )
        return
    try:
        check_reward_function(settings.reward_function.spec)
    except UserError as error:
        yield str(error)
