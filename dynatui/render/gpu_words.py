"""Texts for GPU readings: for one GPU, all values that the driver reports; for several GPUs, only load and memory.

Pure functions. Wordings are in order from the longest to the shortest.
"""

from collections.abc import Mapping

from dynatui.gpu import GpuLoad
from dynatui.number_format import percent


def gpu_wordings(gpus: Mapping[int, GpuLoad]) -> tuple[str, str]:
    """All values of one GPU, or load and memory of each of several; then the load alone, of several as a range."""
    loads = sorted(gpu.load for gpu in gpus.values() if gpu.load is not None)
    ends = [percent(load) for load in dict.fromkeys((*loads[:1], *loads[-1:]))]
    span = f" {ends[0].removesuffix('%')}-{ends[-1]}" if len(set(ends)) > 1 else "".join(f" {end}" for end in ends[:1])
    if len(gpus) == 1:
        (gpu,) = gpus.values()
        power = [] if gpu.power_w is None else [f"{gpu.power_w:.0f} W"]
        heat = [] if gpu.temperature_c is None else [f"{gpu.temperature_c} C"]
        return " ".join(["GPU", *_load_and_memory(gpu), *power, *heat]), f"GPU{span}"
    each = (" ".join([f"{number}:", *(_load_and_memory(gpu) or "-")]) for number, gpu in gpus.items())
    return f"GPU {', '.join(each)}", f"{len(gpus)} GPUs{span}"


def _load_and_memory(gpu: GpuLoad) -> list[str]:
    load = [] if gpu.load is None else [percent(gpu.load)]
    total = "" if gpu.total_bytes is None else f"/{gpu.total_bytes / 1e9:.0f}"
    return load if gpu.used_bytes is None else [*load, f"{gpu.used_bytes / 1e9:.1f}{total} GB"]
