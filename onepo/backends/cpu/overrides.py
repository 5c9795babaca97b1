"""Functions of verl that are replaced at run time on the CPU, because no hook exists. Nothing here runs on a GPU.

Each entry checks that upstream still looks as it did when it was written and stops otherwise.
"""

import inspect
from functools import wraps

import verl.utils.distributed as distributed


def use_plain_gloo() -> None:
    """Let workers start their process group with backend "gloo".

    verl builds the backend string "cpu:gloo,<device>:<backend>"; for the device "cpu" torch refuses the result,
    because it names the device twice.

    Raises:
        RuntimeError: the function's parameters changed upstream.
    """
    upstream = distributed.initialize_global_process_group_ray
    parameters = list(inspect.signature(upstream).parameters)
    if parameters != ["timeout_second", "backend"]:
        raise RuntimeError(
            f"verl.utils.distributed.initialize_global_process_group_ray takes {parameters} now: "
            "onepo.backends.cpu.overrides must be checked against this verl version"
        )

    @wraps(upstream)
    def with_gloo(timeout_second=None, backend=None):
        return upstream(timeout_second, backend or "gloo")

    distributed.initialize_global_process_group_ray = with_gloo
