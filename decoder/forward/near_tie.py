"""Decides by float32 scores whether a text's first difference from plain decoding is a near tie of two tokens. In
bfloat16 and float16 a row's logits depend slightly on the number of rows in its pass, so that two tokens whose scores
differ by less than the rounding error may swap ranks; a larger difference is a bug. A float32 copy may not fit in
memory beside the model, so one layer at a time is converted; if even this needs too much, the CPU computes the scores.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from decoder.errors import DeviceError
from decoder.forward.language_model import LanguageModel
from decoder.forward.layer_kinds import keeps_states
from decoder.sampling.noise import GumbelNoise
from decoder.sampling.settings import Sampling
from decoder.sampling.truncation import truncation_mask
from decoder.system.device import free_bytes, has_room, memory_is_full
from decoder.system.libraries import imported

CHUNK = 512
"""Tokens per pass; a model with states reads a whole text in one pass, since caches may lose states between passes."""
CPU = torch.device("cpu")
MARGIN = 1.25
"""Free memory required to load a module, as a multiple of the size of its weights."""


@dataclass(frozen=True)
class Verdict:
    near_tie: bool
    """True if `gap` is at most twice the largest rounding error of a logit in the model's dtype, or if rounding errors
    decide whether top-k or top-p keeps one of the two tokens.
    """
    gap: float
    """Absolute difference of the two scores; in sampling, a score is the token's logit plus the position's noise."""


@dataclass
class Scorer:
    """State that all `Judge`s of one model share, so that the module is not loaded again for each text."""

    module: Any = None
    """Copy of the model's Hugging Face module that a `Judge` has loaded; None without a copy."""
    full: set[torch.device] = field(default_factory=set)
    """Devices with too little memory for the float32 passes."""

    def give_way(self) -> None:
        """Drops the copy to free memory for the caches of the next text, unless the device has room for both."""
        if self.module is None:
            return
        needed = sum(weight.nbytes for weight in self.module.parameters())
        free = free_bytes(next(self.module.parameters()).device)
        if free is not None and free < MARGIN * needed:
            self.module = None


class Judge:
    def __init__(self, model: LanguageModel, noise: GumbelNoise | None = None, scorer: Scorer | None = None) -> None:
        """`noise` is None for greedy decoding."""
        self._model = model
        self._noise = noise
        self._scorer = scorer or Scorer()

    @torch.inference_mode()
    def __call__(self, prefix: Sequence[int], rivals: tuple[int, int], *, by_module: bool = False) -> Verdict:
        """Compares two tokens after `prefix`. If `by_module`, the Hugging Face module chose one token, so the module's
        rounding error counts too. Raises DeviceError if both the model's device and the CPU have too little memory.
        """
        for place in dict.fromkeys((self._model.device, CPU)):
            if place in self._scorer.full:
                continue
            try:
                return self._verdict(prefix, rivals, place, by_module=by_module)
            except (RuntimeError, MemoryError, DeviceError) as error:
                if not (isinstance(error, DeviceError) or memory_is_full(error)):
                    raise
                self._scorer.module = None
                self._scorer.full.add(place)
        raise DeviceError(
            f"the memory does not suffice to score tokens of {self._model.name} in float32, as the check for near ties "
            "requires; choose a smaller model or fewer --max-new-tokens"
        )

    def _verdict(
        self, prefix: Sequence[int], rivals: tuple[int, int], place: torch.device, *, by_module: bool
    ) -> Verdict:
        if self._model.computed_by or self._model.hf.quantised:
            # There are no weights for a float32 pass, so plain decoding, token by token, is the reference.
            plain, *own = (_logits(self._model, _parts(prefix, size)) for size in (1, CHUNK))
            if by_module:
                own.append(_by_module(self._model.hf.loaded, [prefix], self._model.device))
            return self._compared(prefix, rivals, _joined(plain), [_joined(logits) for logits in own])
        module = self._module(place)
        parts = _parts(prefix, len(prefix) if self._model.hf.by_paths or keeps_states(module.config) else CHUNK)
        own = [_logits(self._model, parts)]
        if by_module:
            own.append(_by_module(module, parts, next(module.parameters()).device))
        in_float32 = _by_module(module, parts, place, partial(in_float32_by_layer, module, place))
        return self._compared(prefix, rivals, in_float32, own)

    def _compared(
        self,
        prefix: Sequence[int],
        rivals: tuple[int, int],
        reference: Iterator[Float[Tensor, "P V"]],
        own: Sequence[Iterator[Float[Tensor, "P V"]]],
    ) -> Verdict:
        """The largest difference between logits of `reference` and logits of `own` counts as the rounding error."""
        error, scores = 0.0, torch.empty(0)
        for exact, *rounded in zip(reference, *own, strict=True):
            error = max(error, *(float((logits.to(exact.device) - exact).abs().max()) for logits in rounded))
            scores = exact[-1]
        return near_tie_verdict(scores, rivals, error, len(prefix), self._noise)

    def _module(self, place: torch.device) -> Any:
        """The model's module if it is loaded; else a copy, loaded on `place` if its memory suffices, or on the CPU."""
        if self._model.hf.loaded is not None:
            return self._model.hf.loaded
        if self._scorer.module is None:
            needed = sum(weight.nbytes for weight in self._model.hf.skeleton.parameters())
            fits = has_room(place, int(MARGIN * needed))
            self._scorer.module = self._model.hf.load(place if fits else CPU)
        return self._scorer.module


def near_tie_verdict(
    logits: Float[Tensor, "V"], rivals: tuple[int, int], error: float, position: int, noise: GumbelNoise | None = None
) -> Verdict:
    """Compares two tokens by the logits that predict `position`; `error` is the largest rounding error of a logit."""
    scores, at_edge = logits, False
    if noise and not noise.greedy_from(position):
        here = logits.to(noise.device)
        at_edge = any(_at_edge(here, token, noise.sampling(position), error) for token in rivals)
        scores = noise.scores(here[None], [position])[0]
    first, second = rivals
    gap = float((scores[first] - scores[second]).abs())
    return Verdict(near_tie=at_edge or gap <= 2 * error, gap=gap)


def _at_edge(logits: Float[Tensor, "V"], token: int, sampling: Sampling, error: float) -> bool:
    """Whether rounding errors of at most `error` decide if top-k or top-p keeps a token."""
    if not sampling.truncates:
        return False
    ways = []
    for shift in (2 * error, -2 * error):
        moved = logits.clone()
        moved[token] += shift
        top_p = min(1.0, sampling.top_p * math.exp(shift / sampling.temperature))
        ways.append(bool(truncation_mask(moved[None], replace(sampling, top_p=top_p))[0, token]))
    return ways[0] != ways[1]


def _parts(prefix: Sequence[int], size: int) -> list[Sequence[int]]:
    return [prefix[start : start + size] for start in range(0, len(prefix), size)]


def _joined(logits: Iterator[Float[Tensor, "P V"]]) -> Iterator[Float[Tensor, "P V"]]:
    """The logits of all parts as one part."""
    yield torch.cat(list(logits))


def _logits(model: LanguageModel, parts: Sequence[Sequence[int]]) -> Iterator[Float[Tensor, "P V"]]:
    """Logits after each token of a text, part by part, by the model's own forward form."""
    cache = model.new_cache(sum(map(len, parts)))
    for part in parts:
        positions = range(cache.length, cache.length + len(part))
        yield model.forward(cache, part, positions, np.tri(len(part), dtype=np.bool_)).float()
        cache.keep(positions)


def _by_module(
    module: Any,
    parts: Sequence[Sequence[int]],
    device: torch.device,
    each: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Iterator[Float[Tensor, "P V"]]:
    """Logits as from `_logits`, but by the module, from inputs on `device`; `each` makes a context for every pass."""
    cache, name = None, imported("decoder.forward.hf").cache_argument(module)
    for part in parts:
        ids = torch.tensor([list(part)], device=device)
        with each():
            output = module(input_ids=ids, use_cache=len(parts) > 1, **{name: cache})
        cache = getattr(output, name)
        yield output.logits[0].float()


@contextmanager
def in_float32_by_layer(module: nn.Module, device: torch.device) -> Iterator[None]:
    """Within the context, each layer computes in float32 on `device`; weights are converted layer by layer."""
    handles = [hook for called, members in _layers(module) for hook in _in_float32(called, members, device)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _layers(module: nn.Module) -> Iterator[tuple[nn.Module, list[nn.Module]]]:
    """Pairs (submodule, modules whose weights a call of the submodule needs); each weight is in exactly one pair."""
    yield module, [module]
    for child in module.children():
        if isinstance(child, nn.ModuleList):
            yield from ((layer, list(layer.modules())) for layer in child)
        elif any(isinstance(inner, nn.ModuleList) for inner in child.modules()):
            yield from _layers(child)
        else:
            yield child, list(child.modules())


def _in_float32(called: nn.Module, members: Sequence[nn.Module], device: torch.device) -> list[Any]:
    """Hooks that convert the weights of `members` to float32 before a call of a module, and restore them after it."""
    was: list[tuple[dict[str, Any], str, Tensor]] = []

    def begin(*_: object) -> None:
        for part in members:
            tables: tuple[dict[str, Any], ...] = (part._parameters, part._buffers)  # noqa: SLF001 - the only way to them
            for table in tables:
                was.extend((table, name, tensor) for name, tensor in table.items() if tensor is not None)
        for table, name, tensor in was:
            table[name] = tensor.to(device, torch.float32 if tensor.is_floating_point() else tensor.dtype)

    def end(*_: object) -> None:
        for table, name, tensor in was:
            table[name] = tensor
        was.clear()

    return [called.register_forward_pre_hook(begin), called.register_forward_hook(end, always_call=True)]
