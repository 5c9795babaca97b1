"""Checks the installed SGLang for CAMP, from its files: nothing is imported, no GPU is needed.

    python scripts/patch_sglang.py

The supported version needs no change. What the recipe relies on is looked up in the installed files, which must be
those of the published wheel, and printed. Ends with 2 when a fact does not hold, or with another version.
"""

import base64
import hashlib
import platform
import re
import sys
from dataclasses import dataclass
from importlib.metadata import Distribution, distributions

SUPPORTED = "0.5.13.post1"
INSTALL = "python -m pip install -r requirements-training.txt"


class Unusable(Exception):
    """What was found, why it is wrong, and what to do."""


@dataclass(frozen=True)
class Fact:
    """What the recipe relies on: code in a file of the package, compared without regard to white space."""

    what: str
    file: str
    code: tuple[str, ...]


FACTS = (
    Fact(
        "a pause aborts what runs, and goes on when nothing does; later requests wait",
        "sglang/srt/managers/tokenizer_manager.py",
        (
            "self.is_pause = True",
            "self.abort_request(abort_all=True) is_locked = await self.model_update_lock.is_locked()",
            "await self.is_pause_cond.wait_for(lambda: not self.is_pause)",
            "self.is_pause = False",
        ),
    ),
    Fact(
        "an aborted request returns the tokens that it has, with their log-probabilities",
        "sglang/srt/managers/tokenizer_manager.py",
        (
            'finish_reason = { "type": "abort",',
            'if getattr(state.obj, "return_logprob", False): self.add_logprob_to_meta_info(',
            'meta_info["output_token_logprobs"] = state.output_token_logprobs',
            'out = { "text": state.get_text(), "output_ids": output_ids, "meta_info": meta_info, }',
        ),
    ),
    Fact(
        "a running request ends at its next token, a waiting one gives its linear-attention state back",
        "sglang/srt/managers/scheduler.py",
        ("req.to_finish = FINISH_ABORT()", "release_kv_cache(req, self.tree_cache, is_insert=False)"),
    ),
    Fact(
        "weights are taken while paused",
        "sglang/srt/managers/tokenizer_control_mixin.py",
        ("if is_paused: results = await self.update_weights_from_tensor_communicator(obj)",),
    ),
    Fact(
        "weights come over the interface that verl calls",
        "sglang/srt/weight_sync/utils.py",
        (
            "async def update_weights( engine: Engine, params_batch: list[tuple[str, torch.Tensor]],"
            " device_mesh_key: str, device_mesh: DeviceMesh,",
            "return await engine.update_weights_from_tensor(update_weights_request)",
        ),
    ),
    Fact(
        "new weights go through the model's own loader",
        "sglang/srt/model_executor/model_runner.py",
        ("class LocalSerializedTensor", "elif load_format is None: self.model.load_weights(named_tensors)"),
    ),
    Fact(
        "memory of weights and of the cache is given back and taken again by tags",
        "sglang/srt/managers/scheduler_components/weight_updater.py",
        (
            "self.memory_saver_adapter.pause(GPU_MEMORY_TYPE_KV_CACHE) self.flush_cache()",
            "self.memory_saver_adapter.pause(GPU_MEMORY_TYPE_WEIGHTS)",
            "self.memory_saver_adapter.resume(GPU_MEMORY_TYPE_KV_CACHE)",
            "self.memory_saver_adapter.resume(GPU_MEMORY_TYPE_WEIGHTS)",
        ),
    ),
    Fact(
        "the linear-attention states are part of that cache, the list of free ones is not",
        "sglang/srt/mem_cache/memory_pool.py",
        (
            "class MambaPool:",
            "self.memory_saver_adapter.region(GPU_MEMORY_TYPE_KV_CACHE)",
            "self.mamba_allocator = MambaSlotAllocator(",
            "self.mamba_allocator.clear()",
        ),
    ),
    Fact(
        "the server has the options that verl and the recipe set, and no piecewise CUDA graphs for multimodal models",
        "sglang/srt/server_args.py",
        (
            "disable_piecewise_cuda_graph: bool",
            "enable_memory_saver: bool",
            "enable_weights_cpu_backup: bool",
            "custom_weight_loader:",
            "mm_attention_backend:",
            "if self.get_model_config().is_multimodal: self.disable_piecewise_cuda_graph = True",
        ),
    ),
    Fact(
        "Qwen3.5 is served",
        "sglang/srt/models/qwen3_5.py",
        ("EntryClass = [Qwen3_5MoeForConditionalGeneration, Qwen3_5ForConditionalGeneration]",),
    ),
    Fact(
        "Qwen3.5 has piecewise CUDA graphs off, as a multimodal model",
        "sglang/srt/configs/model_config.py",
        ("multimodal_model_archs = [", '"Qwen3_5ForConditionalGeneration", "Qwen3_5MoeForConditionalGeneration",'),
    ),
    Fact(
        "its normalisations follow new weights",
        "sglang/srt/layers/layernorm.py",
        ("param.data.copy_(loaded_weight)", "torch.add(param.data, 1.0, out=self.gemma_weight)"),
    ),
    Fact(
        "it runs with the attention kernels of the hardware table on Blackwell",
        "sglang/srt/layers/attention/attention_registry.py",
        (
            'runner.server_args.attention_backend == "triton"',
            'runner.server_args.attention_backend == "flashinfer"',
        ),
    ),
    Fact(
        "verl can start the engine's processes by itself",
        "sglang/srt/entrypoints/engine.py",
        (
            "def _launch_subprocesses( cls, server_args: ServerArgs, init_tokenizer_manager_func: Callable,"
            " run_scheduler_process_func: Callable, run_detokenizer_process_func: Callable,",
            "def init_tokenizer_manager(",
        ),
    ),
    Fact(
        "verl can serve them over its own HTTP server",
        "sglang/srt/entrypoints/http_server.py",
        ("class _GlobalState:", "def set_global_state(global_state: _GlobalState):", "app = FastAPI("),
    ),
)


def check_machine(system: str, machine: str, python: tuple[int, int]) -> None:
    if (system, machine) != ("Linux", "x86_64"):
        raise Unusable(f"this is {system} on {machine}; the training environment is for Linux on x86_64")
    if python != (3, 12):
        raise Unusable(
            "this is Python {}.{}; requirements.lock is for Python 3.12: make the environment with that".format(*python)
        )


def installed(name: str, path: list[str]) -> Distribution | None:
    return next(iter(distributions(name=name, path=path)), None)


def supported_sglang(path: list[str]) -> Distribution:
    sglang = installed("sglang", path)
    if sglang is None:
        raise Unusable(f"SGLang is not installed for {sys.executable}: {INSTALL}")
    if sglang.version != SUPPORTED:
        raise Unusable(f"SGLang {sglang.version} is installed, and {SUPPORTED} is supported: {INSTALL}")
    return sglang


def check_pins(sglang: Distribution, path: list[str]) -> list[str]:
    """Torch and transformers are those that this SGLang was built for."""
    found = []
    for name in ("torch", "transformers"):
        pin = next(filter(None, (re.fullmatch(rf"{name}==([\w.]+)", line) for line in sglang.requires or ())), None)
        if pin is None:
            raise Unusable(f"SGLang's metadata pins no {name}: it is not the published wheel. Reinstall it: {INSTALL}")
        package = installed(name, path)
        version = package.version.partition("+")[0] if package else "none"
        if version != pin[1]:
            raise Unusable(f"{name} {version} is installed, and SGLang {SUPPORTED} needs {pin[1]}: {INSTALL}")
        found.append(f"{name} {version}")
    return found


def check_facts(sglang: Distribution) -> list[str]:
    return [check_fact(fact, sglang) for fact in FACTS]


def check_fact(fact: Fact, sglang: Distribution) -> str:
    again = f'python -m pip install --force-reinstall --no-deps "sglang=={SUPPORTED}"'
    entry = next((entry for entry in sglang.files or () if str(entry) == fact.file), None)
    if entry is None or not entry.locate().is_file():
        raise Unusable(f"{fact.file} is missing in the installed SGLang. Reinstall it: {again}")
    content = entry.locate().read_bytes()
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    if entry.hash is None or entry.hash.value != digest:
        raise Unusable(f"{fact.file} was changed after it had been installed. Reinstall it: {again}")

    source = " ".join(content.decode().split())
    for code in fact.code:
        if code not in source:
            raise Unusable(f"{fact.file} does not have what the recipe relies on ({fact.what}):\n  {code}")
    return f"{fact.what} ({fact.file})"


def main(path: list[str]) -> int:
    try:
        check_machine(platform.system(), platform.machine(), sys.version_info[:2])
        sglang = supported_sglang(path)
        for line in (*check_pins(sglang, path), *check_facts(sglang)):
            print(f"ok: {line}")
    except Unusable as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"SGLang {SUPPORTED} needs no change for this recipe; nothing was edited.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.path))
