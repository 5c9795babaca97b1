"""verl's view of a machine without an accelerator. Chosen by ``VERL_PLATFORM=cpu`` only, never detected."""

from contextlib import contextmanager

import torch
from verl.plugin.platform import PlatformBase, PlatformRegistry


class _CpuModule:
    """``torch.cpu`` with the calls of an accelerator module that verl makes; memory figures are 0, caches are none."""

    def __getattr__(self, name):
        return getattr(torch.cpu, name)

    @staticmethod
    def _nothing(*args, **kwargs):
        return None

    @staticmethod
    def _zero(*args, **kwargs):
        return 0

    max_memory_allocated = max_memory_reserved = memory_allocated = memory_reserved = _zero
    empty_cache = ipc_collect = reset_peak_memory_stats = _nothing

    @staticmethod
    def mem_get_info(*args):
        return (0, 0)

    @staticmethod
    def get_device_name(*args):
        return "cpu"

    @staticmethod
    def manual_seed(seed):
        torch.manual_seed(seed)

    manual_seed_all = manual_seed

    @staticmethod
    def get_rng_state(*args):
        return torch.get_rng_state()

    @staticmethod
    def set_rng_state(state, *args):
        torch.set_rng_state(state)


@PlatformRegistry.register(platform="cpu")
class CpuPlatform(PlatformBase):
    """gloo for communication, logical Ray "GPU"s for placement, no IPC."""

    device_name = "cpu"
    vendor_name = "cpu"
    device_module = _CpuModule()

    def is_available(self):
        return True

    def is_platform_available(self, use_smi_check=False):
        return False  # never chosen by detection

    def current_device(self):
        return torch.device("cpu")

    def device_count(self):
        return 1

    def set_device(self, device_index):
        pass

    def synchronize(self, device_index=None):
        pass

    def manual_seed(self, seed):
        torch.manual_seed(seed)

    manual_seed_all = manual_seed

    def set_allocator_settings(self, settings):
        pass

    def empty_cache(self):
        pass

    def get_device_capability(self, device_index=0):
        return (None, None)

    def communication_backend_name(self):
        return "gloo"

    def visible_devices_envvar(self):
        return "ONEPO_CPU_VISIBLE_DEVICES"

    @contextmanager
    def nvtx_range(self, msg):
        yield

    def profiler_start(self):
        pass

    def profiler_stop(self):
        pass

    def ray_resource_name(self):
        return "GPU"

    def ray_noset_envvars(self):
        return []

    def is_ipc_supported(self):
        return False

    def cudart(self):
        return None
