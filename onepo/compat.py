"""What differs between, or is not public in, the two supported verl builds; each entry says why it is needed.

GPU production pins a commit of verl 0.10.0.dev, the CPU stack uses the release 0.9.1 that was cut after it.
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
