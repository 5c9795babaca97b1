"""The command line that serves a model with SGLang or vLLM, on GPUs or on the CPU.

Both speak the OpenAI API under ``/v1`` and answer ``HEALTH_PATH`` with 200 once they can take requests.
"""

import shlex
from dataclasses import dataclass

HEALTH_PATH = "/health"

_CPU_ENV = {
    # the engines' OpenMP threads spin while they wait: on cores shared with a trainer two are far slower than one
    "OMP_NUM_THREADS": "1",
}
# room for about 16 requests of a small model; without a bound both engines claim most of the machine's memory
_CPU_CACHE_TOKENS = 16384
_CPU_CACHE_BYTES = 2**30


@dataclass(frozen=True)
class EngineOptions:
    """What the user chose for one server."""

    backend: str  # "sglang" or "vllm"
    python: str  # the interpreter of the environment that holds the engine
    model_path: str
    name: str  # what requests call the model
    host: str
    port: int
    dp: int  # copies of the model
    tp: int  # GPUs of one copy
    mem_fraction: float  # share of a GPU's memory for weights and cache
    chat_template: str | None  # file; None: the tokenizer's own
    gpus: str | None  # value of CUDA_VISIBLE_DEVICES; None: as it is
    device: str  # "gpu" or "cpu"; dp, tp and mem_fraction count on a GPU only
    extra_args: str  # words as a shell splits them


@dataclass(frozen=True)
class Command:
    """A program, its arguments, and what is added to the environment it inherits."""

    argv: tuple[str, ...]
    env: dict[str, str]


def server_command(options: EngineOptions) -> Command:
    """The command of one server. The user's extra arguments come last, where they win over ours.

    Raises:
        ValueError: ``extra_args`` has an unclosed quote.
    """
    start, placement, env = {"sglang": _sglang, "vllm": _vllm}[options.backend](options)
    argv = [options.python, "-m", *start]
    argv += ["--served-model-name", options.name, "--host", options.host, "--port", str(options.port), *placement]
    if options.chat_template is not None:
        argv += ["--chat-template", options.chat_template]
    if options.gpus is not None:
        env = {**env, "CUDA_VISIBLE_DEVICES": options.gpus}
    return Command((*argv, *shlex.split(options.extra_args)), env)


def _sglang(options: EngineOptions) -> tuple[list[str], list[str], dict[str, str]]:
    start = ["sglang.launch_server", "--model-path", options.model_path]
    if options.device == "gpu":
        placement = ["--dp-size", str(options.dp), "--tp-size", str(options.tp)]
        return start, [*placement, "--mem-fraction-static", str(options.mem_fraction)], {}
    placement = ["--device", "cpu"]
    placement += ["--grammar-backend", "llguidance"]  # the default one ends the server at the first JSON schema
    placement += ["--max-total-tokens", str(_CPU_CACHE_TOKENS)]
    placement += ["--sleep-on-idle"]  # an idle scheduler would keep a core busy
    env = {
        "SGLANG_USE_CPU_ENGINE": "1",  # its CPU code is off without it
        "TORCHDYNAMO_DISABLE": "1",  # compiling needs a C++ compiler
        "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "0",  # a health check would generate a token, and may hang
    }
    return start, placement, {**_CPU_ENV, **env}


def _vllm(options: EngineOptions) -> tuple[list[str], list[str], dict[str, str]]:
    start = ["vllm.entrypoints.cli.main", "serve", options.model_path]
    env = {"VLLM_NO_USAGE_STATS": "1"}  # it would report to its makers
    if options.device == "gpu":
        placement = ["--data-parallel-size", str(options.dp), "--tensor-parallel-size", str(options.tp)]
        return start, [*placement, "--gpu-memory-utilization", str(options.mem_fraction)], env
    placement = ["--enforce-eager"]  # compiling triples the start and needs a C++ compiler
    # the variable VLLM_CPU_KVCACHE_SPACE does the same, but would win over the user's extra arguments
    placement += ["--kv-cache-memory-bytes", str(_CPU_CACHE_BYTES)]
    # bound to cores, all servers of a machine would sit on the first one
    return start, placement, {**env, **_CPU_ENV, "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
