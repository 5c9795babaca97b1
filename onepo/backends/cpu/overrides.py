"""Functions of verl that are replaced at run time on the CPU, because no hook exists. Nothing here runs on a GPU.

Each entry checks that upstream still looks as it did when it was written and stops otherwise.
"""

import inspect
import random
from functools import wraps

import verl.utils.distributed as distributed
from transformers import AutoModelForTokenClassification
from verl.single_controller.ray.base import RayWorkerGroup

# below the ports that Linux gives to outgoing connections
_FIRST_PORT, _LAST_PORT = 20000, 32000


def use_plain_gloo() -> None:
    """Let workers start their process group with backend "gloo".

    verl builds the backend string "cpu:gloo,<device>:<backend>"; for the device "cpu" torch refuses the result,
    because it names the device twice.

    Raises:
        RuntimeError: the function's parameters changed upstream.
    """
    upstream = distributed.initialize_global_process_group_ray
    _check_parameters(upstream, ["timeout_second", "backend"])

    @wraps(upstream)
    def with_gloo(timeout_second=None, backend=None):
        return upstream(timeout_second, backend or "gloo")

    distributed.initialize_global_process_group_ray = with_gloo


def use_quiet_ports() -> None:
    """Let the learners meet at a port that no outgoing connection can take.

    verl asks the system for a free port and uses it seconds later. On a machine that runs everything, Ray, a grader and
    their many connections, somebody else has taken it by then now and again.

    Raises:
        RuntimeError: the method's parameters changed upstream.
    """
    upstream = RayWorkerGroup._get_master_addr_port
    _check_parameters(upstream, ["self", "pg", "bundle_index", "master_port_range"])

    @wraps(upstream)
    def in_range(self, pg, bundle_index=0, master_port_range=None):
        # from a random one on, or two runs that start together would find the same port free
        master_port_range = master_port_range or [random.randrange(_FIRST_PORT, _LAST_PORT), _LAST_PORT + 500]
        return upstream(self, pg, bundle_index, master_port_range)

    RayWorkerGroup._get_master_addr_port = in_range


def use_plain_attention_in_critic() -> None:
    """Let a critic be made with PyTorch's own attention.

    verl asks for flash attention whatever the configuration says, and that needs CUDA.

    Raises:
        RuntimeError: the function's parameters changed upstream.
    """
    import verl.utils.model as model  # slow, and only a learner with a critic needs it

    upstream = model.load_valuehead_model
    if hasattr(upstream, "__wrapped__"):
        return
    _check_parameters(upstream, ["local_path", "torch_dtype", "model_config", "trust_remote_code"])

    @wraps(upstream)
    def with_sdpa(local_path, torch_dtype, model_config, trust_remote_code):
        return AutoModelForTokenClassification.from_pretrained(
            local_path,
            dtype=torch_dtype,
            config=model_config,
            attn_implementation="sdpa",
            trust_remote_code=trust_remote_code,
        )

    model.load_valuehead_model = with_sdpa


def _check_parameters(function, expected: list[str]) -> None:
    parameters = list(inspect.signature(function).parameters)
    if parameters != expected:
        raise RuntimeError(
            f"{function.__module__}.{function.__qualname__} takes {parameters} now: "
            "onepo.backends.cpu.overrides must be checked against this verl version"
        )
