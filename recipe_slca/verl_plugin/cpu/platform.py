"""verl platform `cpu`."""

import contextlib
import types

import torch
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry


class _CpuDeviceModule(types.ModuleType):
    """What verl expects of `torch.cuda`: torch.cpu, with memory figures that are always 0."""

    def __getattr__(self, name: str):
        return getattr(torch.cpu, name)


def _nothing(*_args, **_kwargs) -> None:
    return None


def _zero(*_args, **_kwargs) -> int:
    return 0


_device_module = _CpuDeviceModule("torch_cpu")
for _name in ("set_device", "empty_cache", "synchronize", "reset_peak_memory_stats", "ipc_collect"):
    setattr(_device_module, _name, _nothing)
for _name in ("memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved"):
    setattr(_device_module, _name, _zero)
_device_module.current_device = lambda: "cpu"
_device_module.device_count = lambda: 1
_device_module.get_device_name = lambda *_: "cpu"
_device_module.is_available = lambda: True
_device_module.mem_get_info = lambda *_: (0, 0)
_device_module.manual_seed = torch.manual_seed
_device_module.manual_seed_all = torch.manual_seed
_device_module.get_rng_state = lambda *_: torch.get_rng_state()
_device_module.set_rng_state = lambda state, *_: torch.set_rng_state(state)


@PlatformRegistry.register(platform="cpu")
class CpuPlatform(PlatformBase):
    """The CPU as verl's device. Ray counts workers as `GPU`, a plain number given at `ray.init`."""

    device_name = "cpu"
    vendor_name = "cpu"
    device_module = _device_module

    def is_available(self) -> bool:
        return True

    def is_platform_available(self, use_smi_check: bool = False) -> bool:
        return False  # never found by probing: only VERL_PLATFORM=cpu asks for it

    def current_device(self) -> str:
        return "cpu"

    def device_count(self) -> int:
        return 1

    set_device = synchronize = set_allocator_settings = empty_cache = _nothing
    profiler_start = profiler_stop = cudart = _nothing

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    manual_seed_all = manual_seed

    def get_device_capability(self, device_index: int = 0) -> tuple[None, None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    def nvtx_range(self, msg: str):
        return contextlib.nullcontext()

    def ray_resource_name(self) -> str:
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        return []

    def is_ipc_supported(self) -> bool:
        return False
