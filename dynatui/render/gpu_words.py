"""Texts for GPU readings: for one GPU, all values that the driver reports; for several GPUs, only load and memory.

Pure functions. Wordings are in order from the longest to the shortest.
"""

from collections.abc import Mapping, Sequence

from dynatui.gpu import GpuLoad
from dynatui.number_format import percent


def gpu_wordings(gpus: Mapping[int, GpuLoad]) -> tuple[str, str]:
    """Of one GPU: all values, then load and memory. Of several: load and memory of each, then the ranges of both."""
    if len(gpus) == 1:
        (gpu,) = gpus.values()
        brief = " ".join(["GPU", *_load_and_memory(gpu)])
        power = "" if gpu.power_w is None else f" {gpu.power_w:.0f} W"
        return f"{brief}{power}{'' if gpu.temperature_c is None else f' {gpu.temperature_c} C'}", brief
    each = (" ".join([f"{number}:", *(_load_and_memory(gpu) or "-")]) for number, gpu in gpus.items())
    loads = _range([100 * gpu.load for gpu in gpus.values() if gpu.load is not None], "%", digits=0)
    memory = _range([gpu.used_bytes / 1e9 for gpu in gpus.values() if gpu.used_bytes is not None], " GB", digits=1)
    return f"GPU {', '.join(each)}", f"{len(gpus)} GPUs{loads}{memory}"


def _load_and_memory(gpu: GpuLoad) -> list[str]:
    load = [] if gpu.load is None else [percent(gpu.load)]
    total = "" if gpu.total_bytes is None else f"/{gpu.total_bytes / 1e9:.0f}"
    return load if gpu.used_bytes is None else [*load, f"{gpu.used_bytes / 1e9:.1f}{total} GB"]


def _range(values: Sequence[float], unit: str, *, digits: int) -> str:
    if not values:
        return ""
    low, high = (f"{value:.{digits}f}" for value in (min(values), max(values)))
    return f" {high}{unit}" if low == high else f" {low}-{high}{unit}"
