"""Where models run and what time and memory that takes: the only module that speaks to torch.cuda."""

import gc
import resource
import sys
import time
from pathlib import Path

import torch

from decoder.errors import ConfigError, DeviceError

DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
NATIVE_BF16 = frozenset({"avx512_bf16", "amx_bf16", "bf16"})


def choose_device(name: str) -> torch.device:
    """The device that `auto`, `cpu`, `cuda` or `cuda:N` means here.

    Raises:
        ConfigError: The name is none of these.
        DeviceError: There is no such device.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kind, _, index = name.partition(":")
    if kind not in ("cpu", "cuda") or (index and not index.isdecimal()):
        raise ConfigError(f"device is {name!r}; give auto, cpu, cuda or cuda:N")
    if kind == "cuda":
        present = torch.cuda.device_count()
        if not present:
            raise DeviceError(f"device {name} was asked for, but torch sees no CUDA device; give --device cpu or auto")
        if int(index or 0) >= present:
            raise DeviceError(f"device {name} was asked for, but there are {present}; the last is cuda:{present - 1}")
    return torch.device(name)


def choose_dtype(name: str, device: torch.device, checkpoint: torch.dtype | None) -> torch.dtype:
    """The dtype that `name` means: `auto` is the checkpoint's on CUDA, bfloat16 on a CPU that computes in it.

    Raises:
        ConfigError: No dtype of this name.
    """
    if name != "auto":
        if name not in DTYPES:
            raise ConfigError(f"dtype is {name!r}; give auto, {', '.join(DTYPES)}")
        return DTYPES[name]
    if device.type == "cuda":
        return checkpoint or torch.float16
    return torch.bfloat16 if cpu_computes_bf16() else torch.float32


def cpu_computes_bf16() -> bool:
    """Whether this CPU multiplies bfloat16 in hardware; where that cannot be read, no."""
    cpuinfo = Path("/proc/cpuinfo")
    if not cpuinfo.exists():
        return False
    flags = next((line for line in cpuinfo.read_text().splitlines() if line.startswith(("flags", "Features"))), "")
    return not NATIVE_BF16.isdisjoint(flags.split())


class Stopwatch:
    """Reads the clock when the device has done all that was asked of it."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._left_out_s = 0.0

    def leave_out(self, seconds: float) -> None:
        """Takes no notice of the last `seconds`."""
        self._left_out_s += seconds

    def now(self) -> float:
        """Seconds, from an arbitrary start."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return time.perf_counter() - self._left_out_s


def device_name(device: torch.device) -> str | None:
    """What the accelerator is called; None on a CPU."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else None


def peak_bytes(device: torch.device) -> int:
    """Most memory in use so far: of the device's on CUDA, of the process on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def release_memory(device: torch.device) -> None:
    """Gives back what is no longer used and starts a new peak."""
    if device.type == "cuda":
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
