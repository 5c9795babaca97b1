"""The two supported builds of verl, and what this package needs from both that neither offers.

What the builds do differently and an override meets (an argument more, a method less) is taken care of where it is met;
a difference that would need a branch belongs here. So far there is none.
"""

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
