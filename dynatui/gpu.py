"""Load, memory, power and temperature of a GPU, as NVML tells them: figures that torch does not know.

What NVML does not answer is None; nothing raises, and nothing is loaded before the first reading. One takes a
millisecond or so; once a second is often enough. Knows nothing of torch, which numbers GPUs in a way of its own.
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

_CUDA = re.compile("cuda(?::([0-9]{1,3}))?")


@dataclass(frozen=True)
class GpuLoad:
    """One reading."""

    load: float | None
    """Share of the last moments in which the GPU computed anything, 0 to 1."""
    used_bytes: int | None
    """Memory in use, by all processes."""
    total_bytes: int | None
    power_w: float | None
    temperature_c: int | None


@dataclass(frozen=True)
class Gpu:
    """A GPU that the driver knows."""

    name: str
    total_bytes: int | None
    free_bytes: int | None
    capability: tuple[int, int] | None


def open_meters(devices: Iterable[str]) -> Callable[[], Mapping[int, GpuLoad]]:
    """Meters for devices of torch: `cuda`, `cuda:N`; any other has none.

    A reading has the number of each GPU of this machine that answers, in the order given.
    """
    found = [_CUDA.fullmatch(device) for device in devices]
    meters = {number: _meter(number) for number in (int(each[1] or 0) for each in found if each)}

    def read() -> Mapping[int, GpuLoad]:
        readings = {number: meter() for number, meter in meters.items()}
        return {number: reading for number, reading in readings.items() if reading is not None}

    return read


def gpus() -> list[Gpu]:
    """All GPUs of this machine; none where NVML does not answer."""
    nvml = _library()
    if nvml is None:
        return []
    return [_described(nvml, handle) for handle in _handles(nvml)]


def _meter(number: int) -> Callable[[], GpuLoad | None]:
    """What `cuda:number` says; the library is opened at the first question."""
    find = cache(lambda: _find(number))

    def meter() -> GpuLoad | None:
        nvml, handle = find()
        return None if handle is None else _reading(nvml, handle)

    return meter


def _library() -> Any:
    """NVML, ready to be asked, or None."""
    try:
        import pynvml  # noqa: PLC0415 - most machines never need it

        pynvml.nvmlInit()
    except Exception:  # noqa: BLE001 - whatever is wrong with a driver, the figures are just not there
        return None
    return pynvml


def _find(number: int) -> tuple[Any, Any]:
    """NVML and its handle of `cuda:number`; None for the handle where it is not certain which GPU that is."""
    nvml = _library()
    if nvml is None:
        return None, None
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = [str(index) for index in range(len(_handles(nvml)))] if visible is None else visible.split(",")
    name = names[number].strip() if number < len(names) else ""
    if name.startswith(("GPU-", "MIG-")):
        return nvml, _asked(nvml.nvmlDeviceGetHandleByUUID, name)
    if not name.isdecimal() or not _same_order(nvml):
        return nvml, None
    handle = _asked(nvml.nvmlDeviceGetHandleByIndex, int(name))
    mig, _ = _asked(nvml.nvmlDeviceGetMigMode, handle) or (0, 0)
    return nvml, None if mig else handle


def _same_order(nvml: Any) -> bool:
    """Whether CUDA and NVML number the GPUs alike: CUDA puts the fastest first, unless it is told not to."""
    kinds = {_asked(nvml.nvmlDeviceGetName, handle) for handle in _handles(nvml)}
    return len(kinds) <= 1 or os.environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"


def _handles(nvml: Any) -> list[Any]:
    count = _asked(nvml.nvmlDeviceGetCount) or 0
    found = [_asked(nvml.nvmlDeviceGetHandleByIndex, index) for index in range(count)]
    return [handle for handle in found if handle is not None]


def _reading(nvml: Any, handle: Any) -> GpuLoad | None:
    rates = _asked(nvml.nvmlDeviceGetUtilizationRates, handle)
    memory = _asked(nvml.nvmlDeviceGetMemoryInfo, handle)
    milliwatts = _asked(nvml.nvmlDeviceGetPowerUsage, handle)
    celsius = _asked(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU)
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
    memory = _asked(nvml.nvmlDeviceGetMemoryInfo, handle)
    return Gpu(
        name=_asked(nvml.nvmlDeviceGetName, handle) or "a GPU without a name",
        total_bytes=None if memory is None else memory.total,
        free_bytes=None if memory is None else memory.free,
        capability=_asked(nvml.nvmlDeviceGetCudaComputeCapability, handle),
    )


def _asked(question: Callable[..., Any], *about: Any) -> Any:
    """The answer, or None."""
    with suppress(Exception):
        return question(*about)
    return None
