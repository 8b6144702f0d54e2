"""A Hugging Face module with states as a `Forward`: its parts with states compute whole paths, all other parts compute
one row per node.
"""

import copy
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from decoder.forward.hf import Call, Layers, ModuleForward
from decoder.forward.kv_cache import KvCache
from decoder.forward.layer_states import LayerStates
from decoder.forward.recurrent.chunks import Chunks, at_most, chunks_of
from decoder.forward.recurrent.layer_kinds import MASKED
from decoder.forward.recurrent.layers import CONVOLUTION, StateLayers, layers_of
from decoder.forward.recurrent.owners import TRIED, Owner, find_owners
from decoder.forward.recurrent.path_hooks import by_paths, computed_again
from decoder.forward.recurrent.paths import path_batch, with_parents
from decoder.forward.recurrent.states import Drafted, StateCache, States
from decoder.forward.windows import FULL, attention_types


def _ignore() -> None:
    """Does nothing when a state is stored."""


def _no_rows(layer: int, *_: Tensor) -> tuple[Tensor, Tensor]:
    raise ValueError(
        f"the keys of layer {layer} cannot be read here: the module that owns the layer's state caches them itself"
    )


class RecurrentForward:
    """A module with states as a `Forward`; its text can be continued, but not shortened."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self._rows = ModuleForward(module)
        self._layers = layers_of(module)
        kinds = MASKED.intersection(attention_types(module.config.get_text_config()))
        self._masked = {FULL, *kinds} if kinds else kinds
        """Layer types that get a mask. If there are any, `FULL` is among them, since it is also the key of a mask for
        all layers.
        """

    def new_cache(self, capacity: int) -> StateCache:
        """See `Forward`."""
        rows = self._rows.new_cache(capacity)
        cache = StateCache(rows.store, self._replayed)
        cache.positions = torch.arange(capacity)
        return cache

    def forward(
        self, cache: KvCache, tokens: Sequence[int], positions: Sequence[int], visible: NDArray[np.bool_]
    ) -> Float[Tensor, "N V"]:
        """See `Forward`."""
        held = cast("StateCache", cache)
        drafted, first = held.drafted, held.used - held.length
        drafted.parents = with_parents(drafted.parents[:first], visible)
        batch = path_batch(drafted.parents, first)

        def call(*rows: Any, **options: Any) -> Any:
            states = self._layers(rows[-1], held.states, len(batch.paths))
            with (
                by_paths(self.owners, batch, drafted, states, stepwise=self.stepwise),
                at_most(batch.padded.shape[1], self.chunks),
            ):
                output = self._output(*rows[:-1], states, **options)
            drafted.ends, drafted.after = batch.unpadded, states.after
            return output

        logits: Tensor = self._rows.through(cache, tokens, positions, visible, call).logits[0]
        return logits

    def read(self, cache: KvCache, tokens: Sequence[int]) -> Float[Tensor, "V"]:
        """See `Forward`."""
        held = cast("StateCache", cache)
        if not (held.states and self.stepwise):
            with at_most(len(tokens), self.chunks):
                return self._read(held, tokens)
        positions = range(held.length, held.length + len(tokens))
        logits = self.forward(held, tokens, positions, np.tri(len(tokens), dtype=np.bool_))[-1]
        held.keep(positions)
        return logits

    def _read(
        self, cache: StateCache, tokens: Sequence[int], stored: Callable[[], None] = _ignore
    ) -> Float[Tensor, "V"]:
        """`read` without hooks; calls `stored` whenever the module stores a state."""
        positions = range(cache.length, cache.length + len(tokens))

        def call(*rows: Any, **options: Any) -> Any:
            states = self._layers(rows[-1], cache.states, 1, stored)
            output = self._output(*rows[:-1], states, **options)
            cache.drafted = Drafted(ends={tuple(range(len(tokens))): 0}, after=states.after)
            return output

        logits: Tensor = self._rows.through(cache, tokens, positions, np.tri(len(tokens), dtype=np.bool_), call).logits
        cache.keep(positions)
        return logits[0, -1]

    def tapped(self, states: LayerStates) -> "RecurrentForward":
        """See `Tappable`."""
        twin = copy.copy(self)
        # Trial passes find `owners`, `chunks` and `stepwise`. The twin takes them from this object, since trial passes
        # of its own would write to `states`.
        twin.owners, twin.chunks, twin.stepwise = self.owners, self.chunks, self.stepwise
        twin._rows = self._rows.tapped(states)  # noqa: SLF001 - of the same class
        return twin

    @property
    def _output(self) -> Call:
        def output(tokens: Tensor, positions: Tensor, biases: Any, states: StateLayers, **options: Any) -> Any:
            masks = {kind: bias if kind in self._masked else None for kind, bias in biases.items()}
            if len(masks) > 1:
                # Hybrid models give this mask to layers with states, as a mask of padding; None means no padding.
                masks["linear_attention"] = None
            return self._rows.output(tokens, positions, masks, states, **options)

        return output

    @cached_property
    def owners(self) -> Sequence[Owner]:
        """The modules that own states."""
        return find_owners(self._module, partial(self._read, self.new_cache(len(TRIED)), TRIED))

    @cached_property
    def chunks(self) -> Sequence[Chunks]:
        """The chunks of the modules that own states; none on a GPU, where kernels may support only a few sizes."""
        if next(self._module.parameters()).device.type != "cpu":
            return ()
        return [chunks for owner in self.owners if (chunks := chunks_of(owner.module))]

    @cached_property
    def stepwise(self) -> bool:
        """Whether the module, in a pass over several tokens, ignores the state before these tokens; if so, it gets one
        token at a time. Found by a trial: the module ignores the state if NaNs in the state do not reach the logits.
        """
        cache, half = self.new_cache(len(TRIED)), len(TRIED) // 2
        self._read(cache, TRIED[:half])
        recurrent = [key for key in cache.states if key[0] != CONVOLUTION]
        cache.states |= {key: torch.full_like(cache.states[key], torch.nan) for key in recurrent}
        return not self._read(cache, TRIED[half:]).isnan().any() if recurrent else False

    @torch.inference_mode()
    def _replayed(self, cache: StateCache, path: Sequence[int]) -> States:
        """See `Replay`."""
        states = self._layers(Layers(_no_rows, cache.length), cache.states, 1)
        with at_most(len(path), self.chunks):
            for call in cache.drafted.calls:
                computed_again(self.owners[call.owner], call, path, states, stepwise=self.stepwise)
        return states.after
