"""Expected times of the models' passes on this machine, computed from the work of a pass and the speed of the device.
Weights are not read; a function returns None if its result is unknown.

The speed of a CPU with torch's current number of threads is measured in less than 0.1 s: the bandwidth of reading
memory and the rate of arithmetic, each by the shortest of several repetitions, since other processes can only lengthen
one.
"""

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from decoder.analysis.roofline import DeviceSpeed, PassWork, expected_times
from decoder.events import Expected
from decoder.forward.families.architecture import Architecture
from decoder.forward.families.registry import shapes
from decoder.forward.language_model import LanguageModel
from decoder.forward.layer_kinds import cache_bytes
from decoder.models.gguf_file import GgufFile, row_bytes
from decoder.models.pair import Pair
from decoder.models.quantisation import Quantisation, bits_per_number, without_weights
from decoder.system.device import ComputingClock

_EXPERTS = re.compile(r"(^|\.)experts\.|_exps\.")
"""Names of the weights of experts, in modules and in GGUF files; each row uses only some experts."""
_PER_TOKEN = ("num_experts_per_tok", "moe_topk", "moe_k", "moe_top_k", "top_k_experts")
_EXPERT_COUNTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
"""Configuration fields with the number of experts per token, and of all experts; families use different fields."""


def work_of_architecture(arch: Architecture, dtype: torch.dtype) -> PassWork:
    count = sum(map(math.prod, shapes(arch).values()))
    if not arch.tie_word_embeddings:
        count -= arch.vocab_size * arch.hidden_size
    return PassWork(count * dtype.itemsize, count, _cached(arch, dtype))


def work_of_module(module: Any, dtype: torch.dtype, bits: int | None = None) -> PassWork | None:
    """Work of a pass; None if the number of experts per token is unknown. A quantised module must be a skeleton without
    weights; `bits` is the size of one of its quantised weights.
    """
    config, width = module.config.get_text_config(), bits_per_number(module, dtype, bits)
    weights = list(read_weights(module))
    chosen = _chosen_experts(config, has_experts=any(_EXPERTS.search(name) for name, _ in weights))
    if chosen is None:
        return None
    used = [(chosen if _EXPERTS.search(name) else 1.0, weight) for name, weight in weights]
    return PassWork(
        weights_bytes=int(sum(share * weight.numel() * width(weight) / 8 for share, weight in used)),
        weights=int(sum(share * weight.numel() for share, weight in used)),
        cached_bytes=_cached(config, dtype),
        sparse=chosen < 1,
    )


def work_of_gguf(file: GgufFile) -> PassWork | None:
    """Work of a pass; weights are read as they are stored. None if the number of experts per token is unknown."""
    head, embedding = "output.weight", "token_embd.weight"
    sizes = {name: size for name, size in file.tensors.items() if name != embedding or head not in file.tensors}
    experts = sum(size for name, size in sizes.items() if _EXPERTS.search(name))
    total, chosen = file.size("expert_count") or 0, file.size("expert_used_count") or 0
    if experts and not 0 < chosen <= total:
        return None
    idle = int(experts * (1 - chosen / total)) if experts else 0
    row = row_bytes(file) or 0
    return PassWork(sum(sizes.values()) - idle, cached_bytes=lambda text: row * text, sparse=bool(idle))


def read_weights(module: Any) -> Iterator[tuple[str, Tensor]]:
    """Weights, by name, that a pass reads: all except embedding tables, unless a table is also the output head."""
    head = module.get_output_embeddings()
    tables = {id(part.weight) for part in module.modules() if isinstance(part, nn.Embedding)}
    tables -= {id(head.weight)} if head is not None else set()
    yield from ((name, weight) for name, weight in module.named_parameters() if id(weight) not in tables)


def _chosen_experts(config: Any, *, has_experts: bool) -> float | None:
    """Share of the experts that a token uses: 1 without experts, None if unknown."""
    total, chosen = (
        next((value for name in names if isinstance(value := getattr(config, name, None), int) and value > 0), None)
        for names in (_EXPERT_COUNTS, _PER_TOKEN)
    )
    if not has_experts:
        return 1.0 if total in (None, 1) else None
    return chosen / total if total and chosen and chosen <= total else None


def _cached(config: Any, dtype: torch.dtype) -> Callable[[int], int]:
    """Returns (text length) -> bytes of keys and values that a pass reads; with windows, only rows within windows."""
    return lambda text: cache_bytes(config, text, dtype.itemsize)[1]


def work_of_config(config: Any, dtype: torch.dtype, quantised: Quantisation | None = None) -> PassWork | None:
    """Work of a pass of a model that is not loaded; None if the number of experts per token or the bits of a quantised
    weight are unknown.
    """
    if isinstance(config, GgufFile):
        return work_of_gguf(config)
    packed = quantised if quantised and quantised.packed else None
    if packed and packed.bits is None:
        return None
    form = without_weights(config, dtype, quantised)
    if isinstance(form, Architecture):
        return work_of_architecture(form, dtype)
    return work_of_module(form, dtype, packed.bits if packed else None)


def work_of_model(model: LanguageModel) -> PassWork | None:
    """Work of a pass of a loaded model; None if it is unknown, or for llama.cpp or quantised weights."""
    if model.architecture:
        work = work_of_architecture(model.architecture, model.dtype)
        return replace(work, weights_bytes=work.weights_bytes - model.saved_bytes)
    module = None if model.hf.quantised else model.hf.loaded
    return None if module is None else work_of_module(module, model.dtype)


def speed_of(
    device: torch.device, dtype: torch.dtype | None, work: PassWork, gpu_bytes_per_s: float | None
) -> DeviceSpeed | None:
    """Speed of a device; None if a GPU's bandwidth is unknown. A CPU is measured in about 0.2 s, by reading as much as
    `work`, since its caches are faster than its memory; its rate of arithmetic is measured only if `dtype` is given.
    """
    if device.type == "cpu":
        clock = ComputingClock(device).now
        return DeviceSpeed(read_bytes_per_s(work.weights_bytes, clock), flops_per_s(dtype, clock) if dtype else None)
    return DeviceSpeed(gpu_bytes_per_s) if gpu_bytes_per_s else None


def expectation(pair: Pair, gpu_bytes_per_s: float | None) -> Callable[[int], Expected] | None:
    """Returns (length of a text) -> expected times of a loaded pair's passes; None if the target's work or bandwidth is
    unknown, or if several processes share the target. A draft of unknown work counts as taking no time.
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


LARGEST_READ = 1 << 28
"""Largest number of bytes that are read; a processor's caches are smaller."""
REPEATS_LIMIT_S = 0.04
"""Total time after which no further repetition starts."""
FEWEST_REPEATS = 3
"""Smallest number of repetitions after the warm-up."""
PRODUCT_ROWS, PRODUCT_WIDTH = 64, 1024
"""Shape of the measured product: as many rows as in a wide verification, and a square matrix of this width."""


def read_bytes_per_s(size: int, clock: Callable[[], float]) -> float:
    """Bandwidth of reading `size` bytes repeatedly; data that fits in the caches is read faster. A sum is timed, since
    torch has no faster way to read memory. `clock` returns seconds.
    """
    numbers = torch.zeros(max(1, min(size, LARGEST_READ) // torch.float32.itemsize))
    return numbers.nbytes / _shortest_s(numbers.sum, clock)


@torch.inference_mode()
def flops_per_s(dtype: torch.dtype, clock: Callable[[], float]) -> float:
    """Rate of arithmetic in matrix products with weights in `dtype`; `clock` returns seconds."""
    weight, rows = (
        torch.full((PRODUCT_WIDTH, PRODUCT_WIDTH), 0.01, dtype=dtype),
        torch.ones(PRODUCT_ROWS, PRODUCT_WIDTH),
    )
    return 2 * PRODUCT_ROWS * PRODUCT_WIDTH**2 / _shortest_s(lambda: functional.linear(rows.to(dtype), weight), clock)


def _shortest_s(work: Callable[[], object], clock: Callable[[], float]) -> float:
    """Shortest time of `work`, after a warm-up."""
    work()
    times = list[float]()
    while len(times) < FEWEST_REPEATS or sum(times) < REPEATS_LIMIT_S:
        start = clock()
        work()
        times.append(clock() - start)
    return min(times)
