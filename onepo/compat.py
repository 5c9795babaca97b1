"""The two supported builds of verl, and what this package needs from both that neither offers.

What the builds do differently and an override meets (an argument more, a method less) is taken care of where it is met;
a difference that would need a branch belongs here.
"""

import json
from importlib import metadata
from pathlib import Path
from typing import Any

PINNED_COMMIT = "bf48903d93e4618531d3bbae96551a889007dd8b"
RELEASE = "0.9.1"


def plain_class(actor_class: Any) -> type:
    """The class that ``@ray.remote`` wrapped.

    verl decorates ``AgentLoopWorkerTQ`` and ``TaskRunnerV1`` where they are defined, and Ray refuses to subclass an
    actor class. Both builds.

    Raises:
        RuntimeError: Ray no longer keeps the class where it was.
    """
    try:
        return actor_class.__ray_actor_class__
    except AttributeError as error:
        raise RuntimeError(
            f"cannot find the class behind the Ray actor {actor_class!r}: this Ray version stores it elsewhere. "
            "Use the versions in requirements.txt or requirements-cpu.txt."
        ) from error


async def merge_context(loop: Any, *arguments: Any) -> Any:
    """An agent loop's merge of a message that is not the student's; the release gave the method another name."""
    merge = getattr(loop, "ct_merge_context_msg", None) or loop.ct_merge_non_assistant_msg
    return await merge(*arguments)


def verl_commit() -> str | None:
    """The commit that the installed verl was built from, as far as it is recorded."""
    import verl

    direct_url = metadata.distribution("verl").read_text("direct_url.json")
    if direct_url:
        commit = json.loads(direct_url).get("vcs_info", {}).get("commit_id")
        if commit:
            return commit
    head = Path(verl.__file__).parents[1] / ".git" / "HEAD"  # a source tree on PYTHONPATH
    return head.read_text().strip() if head.exists() else None
