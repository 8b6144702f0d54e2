"""Load, memory, bandwidth, power, energy and temperature of a GPU, from NVML; a value that NVML lacks is None.

Does not import torch; GPUs are numbered as torch numbers them. A reading takes about a millisecond.
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

_CUDA = re.compile("cuda(?::([0-9]{1,3}))?")
_TRANSFERS = 2
"""Double data rate: transfers in one cycle of the clock that NVML reports, whatever the memory's type."""


@dataclass(frozen=True)
class GpuLoad:
    load: float | None
    """Share of the last sampling period in which a kernel was running, from 0 to 1."""
    used_bytes: int | None
    """Memory in use by all processes."""
    total_bytes: int | None
    power_w: float | None
    temperature_c: int | None


@dataclass(frozen=True)
class Gpu:
    name: str
    total_bytes: int | None
    free_bytes: int | None
    capability: tuple[int, int] | None
    counts_energy: bool = False


def open_meters(devices: Iterable[str]) -> Callable[[], Mapping[int, GpuLoad]]:
    """Returns a function that reads the GPUs among these devices: number -> load, for the GPUs that NVML reports."""
    numbers, find = _numbers(devices), cache(_find)

    def read() -> Mapping[int, GpuLoad]:
        found = {number: find(number) for number in numbers}
        readings = {number: _reading(nvml, handle) for number, (nvml, handle) in found.items() if handle is not None}
        return {number: reading for number, reading in readings.items() if reading is not None}

    return read


def energy_counter(devices: Sequence[str]) -> Callable[[], float | None]:
    """Returns a function that reads the joules that all these torch devices have used since their driver was loaded.
    The sum is None if NVML does not count a device's joules, or if a name occurs twice (a device of another machine).
    """
    numbers, find = _numbers(devices), cache(_find)

    def read() -> float | None:
        found = [find(number) for number in numbers]
        counts = [_millijoules(nvml, handle) for nvml, handle in found if handle is not None]
        known = [count for count in counts if count is not None]
        return sum(known) / 1000 if 0 < len(known) == len(devices) else None

    return read


def gpus() -> list[Gpu]:
    nvml = _library()
    if nvml is None:
        return []
    return [_described(nvml, handle) for handle in _handles(nvml)]


def memory_bytes_per_s(device: str) -> float | None:
    """Peak memory bandwidth, from the highest memory clock and the bus width; None if NVML does not report both."""
    match = _CUDA.fullmatch(device)
    if match is None:
        return None
    nvml, handle = _find(int(match[1] or 0))
    if handle is None:
        return None
    megahertz = _called(nvml.nvmlDeviceGetMaxClockInfo, handle, nvml.NVML_CLOCK_MEM)
    bits = _called(nvml.nvmlDeviceGetMemoryBusWidth, handle)
    return megahertz * 1e6 * _TRANSFERS * bits / 8 if megahertz and bits else None


def _numbers(devices: Iterable[str]) -> Sequence[int]:
    """Numbers of the GPUs among the devices, without repetition."""
    matches = [_CUDA.fullmatch(device) for device in devices]
    return tuple(dict.fromkeys(int(each[1] or 0) for each in matches if each))


def _library() -> Any:
    try:
        import pynvml  # noqa: PLC0415 - most machines never need it

        pynvml.nvmlInit()
    except Exception:  # noqa: BLE001 - after any driver fault, figures are unknown
        return None
    return pynvml


def _find(number: int) -> tuple[Any, Any]:
    """The NVML library and its handle of GPU `cuda:number`; the handle is None if that GPU cannot be identified."""
    nvml = _library()
    if nvml is None:
        return None, None
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = [str(index) for index in range(len(_handles(nvml)))] if visible is None else visible.split(",")
    name = names[number].strip() if number < len(names) else ""
    if name.startswith(("GPU-", "MIG-")):
        return nvml, _called(nvml.nvmlDeviceGetHandleByUUID, name)
    if not name.isdecimal() or not _same_order(nvml):
        return nvml, None
    handle = _called(nvml.nvmlDeviceGetHandleByIndex, int(name))
    mig, _ = _called(nvml.nvmlDeviceGetMigMode, handle) or (0, 0)
    return nvml, None if mig else handle


def _same_order(nvml: Any) -> bool:
    """Whether CUDA numbers the GPUs as NVML does: all are of one model, or CUDA_DEVICE_ORDER is PCI_BUS_ID."""
    kinds = {_called(nvml.nvmlDeviceGetName, handle) for handle in _handles(nvml)}
    return len(kinds) <= 1 or os.environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"


def _handles(nvml: Any) -> list[Any]:
    count = _called(nvml.nvmlDeviceGetCount) or 0
    handles = [_called(nvml.nvmlDeviceGetHandleByIndex, index) for index in range(count)]
    return [handle for handle in handles if handle is not None]


def _reading(nvml: Any, handle: Any) -> GpuLoad | None:
    rates = _called(nvml.nvmlDeviceGetUtilizationRates, handle)
    memory = _called(nvml.nvmlDeviceGetMemoryInfo, handle)
    milliwatts = _called(nvml.nvmlDeviceGetPowerUsage, handle)
    celsius = _called(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU)
    if all(answer is None for answer in (rates, memory, milliwatts, celsius)):
        return None
    return GpuLoad(
        load=None if rates is None else rates.gpu / 100,
        used_bytes=None if memory is None else memory.used,
        total_bytes=None if memory is None else memory.total,
        power_w=None if milliwatts is None else milliwatts / 1000,
        temperature_c=celsius,
    )


def _described(nvml: Any, handle: Any) -> Gpu:
    memory = _called(nvml.nvmlDeviceGetMemoryInfo, handle)
    return Gpu(
        name=_called(nvml.nvmlDeviceGetName, handle) or "a GPU without a name",
        total_bytes=None if memory is None else memory.total,
        free_bytes=None if memory is None else memory.free,
        capability=_called(nvml.nvmlDeviceGetCudaComputeCapability, handle),
        counts_energy=_millijoules(nvml, handle) is not None,
    )


def _millijoules(nvml: Any, handle: Any) -> int | None:
    count: int | None = _called(nvml.nvmlDeviceGetTotalEnergyConsumption, handle)
    return count


def _called(question: Callable[..., Any], *about: Any) -> Any:
    with suppress(Exception):
        return question(*about)
    return None
