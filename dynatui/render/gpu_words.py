"""Texts for GPU readings: for one GPU, all values that the driver reports; for several GPUs, only load and memory.

Pure functions. Wordings are in order from the longest to the shortest.
"""

from collections.abc import Mapping, Sequence

from dynatui.gpu import GpuLoad
from dynatui.number_format import percent


def gpu_wordings(gpus: Mapping[int, GpuLoad]) -> tuple[str, ...]:
    """For several GPUs, only the longest wording lists every GPU."""
    if len(gpus) == 1:
        (gpu,) = gpus.values()
        return _shortened(" ".join(["GPU", *_load(gpu)]), *_memory(gpu), *_power(gpu))
    readings = (" ".join([f"{number}:", *([*_load(gpu), *_memory(gpu)] or "-")]) for number, gpu in gpus.items())
    loads = [100 * gpu.load for gpu in gpus.values() if gpu.load is not None]
    used_gb = [gpu.used_bytes / 1e9 for gpu in gpus.values() if gpu.used_bytes is not None]
    head = " ".join([f"{len(gpus)} GPUs", *_range(loads, "%", digits=0)])
    return (f"GPU {', '.join(readings)}", *_shortened(head, *_range(used_gb, " GB", digits=1)))


def _shortened(*parts: str) -> tuple[str, ...]:
    """Wordings of decreasing length: all parts, all parts except the last, and so on down to the first part alone."""
    return tuple(" ".join(parts[:count]) for count in range(len(parts), 0, -1))


def _load(gpu: GpuLoad) -> list[str]:
    return [] if gpu.load is None else [percent(gpu.load)]


def _memory(gpu: GpuLoad) -> list[str]:
    if gpu.used_bytes is None:
        return []
    total = "" if gpu.total_bytes is None else f"/{gpu.total_bytes / 1e9:.0f}"
    return [f"{gpu.used_bytes / 1e9:.1f}{total} GB"]


def _power(gpu: GpuLoad) -> list[str]:
    watts = [] if gpu.power_w is None else [f"{gpu.power_w:.0f} W"]
    return watts if gpu.temperature_c is None else [*watts, f"{gpu.temperature_c} C"]


def _range(values: Sequence[float], unit: str, *, digits: int) -> list[str]:
    if not values:
        return []
    low, high = (f"{value:.{digits}f}" for value in (min(values), max(values)))
    return [f"{high}{unit}" if low == high else f"{low}-{high}{unit}"]
