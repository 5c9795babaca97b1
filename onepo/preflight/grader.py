"""The grader of open-ended records: everything about it that can be known before it is started or asked."""

from collections.abc import Iterator

from omegaconf import DictConfig

from onepo.endpoints.address import plain_address_problem
from onepo.errors import UserError
from onepo.preflight.server import server_model_problems, server_problems
from onepo.rewards.template import load_template
from onepo.servers.grader import SERVER
from onepo.settings import Settings


def grader_problems(config: DictConfig, settings: Settings, open_ended: int) -> Iterator[str]:
    """Problems of the grader; only asked for when there are ``open_ended`` records."""
    try:
        load_template(settings.grader.prompt_file)
    except UserError as error:
        yield str(error)
    if settings.reward_server.start:
        yield from _managed(config, settings, open_ended)
    else:
        yield from _external(settings, open_ended)


def _external(settings: Settings, open_ended: int) -> Iterator[str]:
    given = {"REWARD_MODEL_URL": settings.grader.url, "REWARD_MODEL_NAME": settings.grader.name}
    if missing := [option for option, value in given.items() if not value]:
        yield (
            f"{open_ended} records are open-ended and need a grader: with START_REWARD_SERVER=0 set "
            f"{' and '.join(missing)}"
        )
    elif problem := plain_address_problem(settings.grader.url):
        yield f"REWARD_MODEL_URL: {problem}; a key goes into REWARD_MODEL_API_KEY"


def _managed(config: DictConfig, settings: Settings, open_ended: int) -> Iterator[str]:
    server = settings.reward_server
    if settings.grader.url:
        yield (
            f"REWARD_MODEL_URL={settings.grader.url} names a grader that runs already, and START_REWARD_SERVER=1 "
            "starts one: set START_REWARD_SERVER=0 to use it, or leave REWARD_MODEL_URL empty"
        )
        return
    if not server.path:
        yield (
            f"{open_ended} records are open-ended and need a grader: set REWARD_MODEL_PATH to its model, or "
            "START_REWARD_SERVER=0 with REWARD_MODEL_URL and REWARD_MODEL_NAME of one that runs already"
        )
        return
    yield from server_model_problems(server, SERVER)
    yield from server_problems(config, server, SERVER)
