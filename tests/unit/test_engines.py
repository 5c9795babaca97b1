"""The command lines of the two engines on the two devices."""

import dataclasses

import pytest

from onepo.servers.engines import EngineOptions, server_command

OPTIONS = EngineOptions(
    backend="sglang",
    python="/env/bin/python",
    model_path="/models/grader",
    name="grader",
    host="127.0.0.1",
    port=8001,
    dp=4,
    tp=2,
    mem_fraction=0.85,
    chat_template=None,
    gpus=None,
    device="gpu",
    extra_args="",
)


def command(**changes):
    return server_command(dataclasses.replace(OPTIONS, **changes))


def flags(argv):
    """The options behind the module: name -> value, None for a switch."""
    found, words = {}, iter(argv)
    name = None
    for word in words:
        if word.startswith("--"):
            name = word
            assert name not in found, f"{name} is given twice"
            found[name] = None
        elif name:
            found[name], name = word, None
    return found


COMMON = {"--served-model-name": "grader", "--host": "127.0.0.1", "--port": "8001"}


def test_sglang_on_gpus():
    argv, env = dataclasses.astuple(command())
    assert argv[:5] == ("/env/bin/python", "-m", "sglang.launch_server", "--model-path", "/models/grader")
    assert flags(argv) == {
        "--model-path": "/models/grader",
        **COMMON,
        "--dp-size": "4",
        "--tp-size": "2",
        "--mem-fraction-static": "0.85",
    }
    assert env == {}


def test_vllm_on_gpus():
    argv, env = dataclasses.astuple(command(backend="vllm"))
    assert argv[:5] == ("/env/bin/python", "-m", "vllm.entrypoints.cli.main", "serve", "/models/grader")
    assert flags(argv) == {
        **COMMON,
        "--data-parallel-size": "4",
        "--tensor-parallel-size": "2",
        "--gpu-memory-utilization": "0.85",
    }
    assert env == {"VLLM_NO_USAGE_STATS": "1"}


def test_sglang_on_the_cpu():
    argv, env = dataclasses.astuple(command(device="cpu"))
    assert argv[:5] == ("/env/bin/python", "-m", "sglang.launch_server", "--model-path", "/models/grader")
    assert flags(argv) == {
        "--model-path": "/models/grader",
        **COMMON,
        "--device": "cpu",
        "--grammar-backend": "llguidance",
        "--max-total-tokens": "16384",
        "--sleep-on-idle": None,
    }
    assert env == {
        "OMP_NUM_THREADS": "1",
        "SGLANG_USE_CPU_ENGINE": "1",
        "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "0",
        "TORCHDYNAMO_DISABLE": "1",
    }


def test_vllm_on_the_cpu():
    argv, env = dataclasses.astuple(command(backend="vllm", device="cpu"))
    assert argv[:5] == ("/env/bin/python", "-m", "vllm.entrypoints.cli.main", "serve", "/models/grader")
    assert flags(argv) == {**COMMON, "--enforce-eager": None, "--kv-cache-memory-bytes": str(2**30)}
    assert env == {"VLLM_NO_USAGE_STATS": "1", "OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}


@pytest.mark.parametrize("device", ["gpu", "cpu"])
@pytest.mark.parametrize("backend", ["sglang", "vllm"])
def test_what_every_engine_takes(backend, device):
    plain = command(backend=backend, device=device)
    full = command(
        backend=backend,
        device=device,
        chat_template="/a template.jinja",
        gpus="4,5",
        extra_args="--port 9000 --name 'two words'",
    )
    extra = ("--chat-template", "/a template.jinja", "--port", "9000", "--name", "two words")
    assert full.argv == (*plain.argv, *extra)  # the user's come last and win
    assert full.env == {**plain.env, "CUDA_VISIBLE_DEVICES": "4,5"}
    assert "--trust-remote-code" not in full.argv


def test_an_empty_list_of_gpus_hides_them():
    assert command(gpus="").env["CUDA_VISIBLE_DEVICES"] == ""


def test_an_unclosed_quote_is_refused():
    with pytest.raises(ValueError, match="quotation"):
        command(extra_args="--name 'two words")


def test_the_module_that_the_interpreter_needs():
    for backend in ("sglang", "vllm"):
        assert command(backend=backend).argv[2].split(".")[0] == backend  # whose module preflight looks for
