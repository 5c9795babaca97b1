"""A Ray of its own for the tests that need one."""

import os
import shutil
import sys
import tempfile

import pytest


@pytest.fixture(scope="package")
def local_ray():
    """Its processes find the same modules as this one. The resources are logical, as in a run on the CPU."""
    import ray

    folder = tempfile.mkdtemp(prefix="ray-")  # short: the names of sockets have a limit
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        ray.init(
            address="local",
            num_cpus=32,
            num_gpus=4,
            include_dashboard=False,
            log_to_driver=False,
            object_store_memory=200 * 2**20,
            _temp_dir=folder,
        )
        try:
            yield ray
        finally:
            ray.shutdown()
            shutil.rmtree(folder, ignore_errors=True)
