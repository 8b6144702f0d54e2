"""Attention that is summed in float64 and rounded once, for Hugging Face modules.

In a draft tree, the keys of a path have other indices in the KV cache than the keys of the same tokens in plain
decoding, so attention sums them in another order. In float64, the order changes only about the sixteenth digit; after
rounding to half precision, the bits are equal except with negligible probability.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn
from transformers import AttentionInterface

from decoder.errors import PairError
from decoder.forward.families.model import attend
from decoder.forward.hf import ModuleForward
from decoder.forward.kv_cache import KvCache
from decoder.forward.protocol import Ints, Mask, Wrapped
from decoder.forward.taps import LayerStates

NAME = "dynatui_float64"
"""Name of this module's attention function in transformers' registry."""
EXTRAS = ("softcap", "s_aux", "position_bias")
"""Arguments that some families pass to their attention function; exact attention does not support them."""


class ExactModule(Wrapped):
    """A Hugging Face module with attention in float64; its original attention function is restored after each pass."""

    def __init__(self, module: Any, states: LayerStates | None = None) -> None:
        """Raises PairError if the module's attention cannot be replaced."""
        self._module = module
        self.inner = ModuleForward(module, states)
        AttentionInterface.register(NAME, _of_module)
        with self._attending():
            if _attention(module) != NAME:
                raise PairError(
                    f"{type(module).__name__} has its own attention function, which cannot be replaced; "
                    "leave out --exact, or choose models of another family"
                )

    def forward(self, cache: KvCache, tokens: Ints, positions: Ints, visible: Mask) -> Float[Tensor, "N V"]:
        with self._attending():
            return super().forward(cache, tokens, positions, visible)

    def tapped(self, states: LayerStates) -> "ExactModule":
        return ExactModule(self._module, states)

    @contextmanager
    def _attending(self) -> Iterator[None]:
        before = _attention(self._module)
        self._module.set_attn_implementation(NAME)
        try:
            yield
        finally:
            self._module.set_attn_implementation(before)


def _attention(module: Any) -> str:
    name: str = module.config._attn_implementation  # noqa: SLF001 - no public attribute has it
    return name


def _of_module(
    module: nn.Module,
    query: Float[Tensor, "1 GH N D"],
    key: Float[Tensor, "1 H S D"],
    value: Float[Tensor, "1 H S D"],
    attention_mask: Float[Tensor, "1 1 N S"],
    scaling: float | None = None,
    **others: Any,
) -> tuple[Float[Tensor, "1 N GH D"], None]:
    """Attention in float64, with the signature of transformers' attention functions."""
    if strange := [name for name in EXTRAS if others.get(name) is not None]:
        raise PairError(
            f"{type(module).__name__} asks for {', '.join(strange)}, which exact attention does not support; "
            "leave out --exact, or choose models of another family",
            "exact",
        )
    heads, rows = query.shape[1:3]
    kept = key.shape[1]
    scaled = query[0].double() * (query.shape[3] ** -0.5 if scaling is None else scaling)
    attended = attend(
        scaled.unflatten(0, (kept, heads // kept)), key[0].double(), value[0].double(), attention_mask[0, 0].double()
    )
    return attended.to(query.dtype).reshape(heads, rows, -1).transpose(0, 1)[None].contiguous(), None
