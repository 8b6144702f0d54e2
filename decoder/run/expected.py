"""Expected times of the models' passes on this machine, for `decoder.analysis.roofline`. What is unknown is None, and
never guessed.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from decoder.analysis.roofline import DeviceSpeed, PassWork, expected_times
from decoder.events import Expected
from decoder.forward.families.architecture import Architecture
from decoder.forward.language_model import LanguageModel
from decoder.models.gguf.file import GgufFile
from decoder.models.pair import Pair
from decoder.models.quantisation import Quantisation
from decoder.run.pass_work import work_of_architecture, work_of_gguf, work_of_module
from decoder.system.computing_clock import ComputingClock
from decoder.system.cpu_speed import flops_per_s, read_bytes_per_s
from decoder.system.deferred import imported


def work_of_config(config: Any, dtype: torch.dtype, quantised: Quantisation | None = None) -> PassWork | None:
    """Of a model that is not loaded. None if the number of experts per token or the bits of a quantised weight are
    unknown.
    """
    if isinstance(config, GgufFile):
        return work_of_gguf(config)
    packed = quantised if quantised and quantised.packed else None
    if packed and packed.bits is None:
        return None
    hf = None if isinstance(config, Architecture) else imported("decoder.forward.hf")
    known = hf.architecture_of(config) if hf and not packed else config
    if isinstance(known, Architecture):
        return work_of_architecture(known, dtype)
    assert hf is not None, "an unknown model needs a configuration of transformers"  # noqa: S101 - for mypy
    return work_of_module(hf.skeleton(config, dtype), dtype, packed.bits if packed else None)


def work_of_model(model: LanguageModel) -> PassWork | None:
    """Also None if llama.cpp computes the model, or if it runs with quantised weights."""
    if model.architecture:
        work = work_of_architecture(model.architecture, model.dtype)
        return replace(work, weights_bytes=work.weights_bytes - model.saved_bytes)
    module = None if model.hf.quantised else model.hf.loaded
    return None if module is None else work_of_module(module, model.dtype)


def speed_of(
    device: torch.device, dtype: torch.dtype | None, work: PassWork, gpu_bytes_per_s: float | None
) -> DeviceSpeed | None:
    """A CPU is measured in about 0.2 s, for `work`, since what fits in its caches is read faster; the rate of
    arithmetic only with a `dtype`. None if the bandwidth of a GPU is unknown.
    """
    if device.type == "cpu":
        clock = ComputingClock(device).now
        return DeviceSpeed(read_bytes_per_s(work.weights_bytes, clock), flops_per_s(dtype, clock) if dtype else None)
    return DeviceSpeed(gpu_bytes_per_s) if gpu_bytes_per_s else None


def expectation(pair: Pair, gpu_bytes_per_s: float | None) -> Callable[[int], Expected] | None:
    """Length of a text -> least times of a loaded pair's passes. None if the target's work or bandwidth is unknown or
    several processes share it; a draft of unknown work counts as taking no time.
    """
    if pair.target.ranks:
        return None
    works = {role: work for role, model in pair.models.items() if (work := work_of_model(model))}
    speeds = {
        role: speed_of(pair.models[role].device, pair.models[role].dtype, work, gpu_bytes_per_s)
        for role, work in works.items()
    }
    if (on := speeds.get("target")) is None:
        return None
    return lambda text: expected_times(works["target"], on, works.get("draft"), speeds.get("draft"), text=text)
