"""What loading the plugin does, each time in a fresh process."""

import os
import subprocess
import sys

import pytest


def run(code: str, **environment: str) -> subprocess.CompletedProcess:
    env = {name: value for name, value in os.environ.items() if not name.startswith("VERL_")}
    return subprocess.run([sys.executable, "-c", code], env={**env, **environment}, capture_output=True, text=True)


def test_nothing_of_the_cpu_backend_is_active_without_its_variable():
    code = (
        "import verl, sys\n"
        "from verl.plugin.platform.platform_manager import PlatformRegistry\n"
        "from verl.utils import distributed\n"
        "assert 'onepo.plugin' in sys.modules\n"
        "assert not any(name.startswith('onepo.backends.cpu') for name in sys.modules)\n"
        "assert PlatformRegistry.get('cpu') is None\n"
        "assert not hasattr(distributed.initialize_global_process_group_ray, '__wrapped__')\n"
    )
    done = run(code, VERL_USE_EXTERNAL_MODULES="onepo.plugin")
    assert done.returncode == 0, done.stderr


def test_the_plugin_imports_neither_the_trainer_nor_the_model_library():
    code = (
        "import verl, sys\n"
        "plain = set(sys.modules)\n"
        "import onepo.plugin\n"
        "heavy = {'verl.trainer.ppo.v1.trainer_base', 'onepo.trainers.onepo', 'onepo.backends.cpu.rollout'}\n"
        "assert not heavy & (set(sys.modules) - plain)\n"
    )
    done = run(code, VERL_PLATFORM="cpu")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("platform", ["", "cpu"])
def test_a_broken_plugin_stops_the_process(tmp_path, platform):
    broken = tmp_path / "onepo_broken.py"
    broken.write_text("from onepo.plugin import nothing_of_this_name\n")
    done = run(
        "import verl",
        VERL_PLATFORM=platform,
        VERL_USE_EXTERNAL_MODULES="onepo_broken",
        PYTHONPATH=f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
    )
    assert done.returncode != 0
    assert "nothing_of_this_name" in done.stderr


def test_an_upstream_change_under_an_override_is_refused():
    code = (
        "import verl.utils.distributed as d\n"
        "d.initialize_global_process_group_ray = lambda timeout_second=None: None\n"
        "from onepo.backends.cpu.overrides import use_plain_gloo\n"
        "use_plain_gloo()\n"
    )
    done = run(code)
    assert done.returncode != 0
    assert "must be checked against this verl version" in done.stderr
