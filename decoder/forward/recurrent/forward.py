"""A Hugging Face module with states as a `Forward`: its parts with states compute whole paths, all other parts compute
one row per node.

In a pass, each path begins with the states after the committed text. The module gets copies of these states through
transformers' cache interface, because modules update some states in place when they compute a single token.
"""

import copy
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers.cache_utils import Cache

from decoder.forward.hf import Layers, ModuleForward
from decoder.forward.kv_cache import KvCache
from decoder.forward.layer_kinds import FULL, MASKED, attention_types
from decoder.forward.protocol import Ints, Mask
from decoder.forward.recurrent.owners import (
    TRIED,
    Chunks,
    Owner,
    at_most,
    by_paths,
    chunks_of,
    computed_again,
    find_owners,
)
from decoder.forward.recurrent.states import Drafted, State, StateCache, States, path_batch, with_parents
from decoder.forward.taps import LayerStates

CONVOLUTION, RECURRENCE, LINEAR = "convolution", "recurrence", "linear attention"
INDEXED_AXES = 3
"""Number of position axes of an indexer: time, height and width; in text, all three positions are equal."""


@dataclass(frozen=True)
class _Lookup:
    """A sequence that computes each item on access."""

    item: Callable[[int], Any]
    count: int = 0

    def __getitem__(self, index: int) -> Any:
        return self.item(index)

    def __iter__(self) -> Iterator[Any]:
        return map(self.item, range(self.count))

    def __len__(self) -> int:
        return self.count


class StateLayers(Cache):
    """Cache of one pass: keys and values go to `rows`, and the states of all paths start from the states `before`."""

    def __init__(self, rows: Layers, before: States, paths: int, stored: Callable[[], None] | None = None) -> None:
        """`stored` is called whenever a state is stored."""
        Cache.__init__(self, layers=[])
        self._rows, self._before, self._paths = rows, before, paths
        self._stored = stored or (lambda: None)
        self._current: dict[State, Tensor] = {}
        # Modules of transformers 5.17 read states as attributes of the cache's layers. The layers have a weak reference
        # to this cache, since a cycle would keep the states of a pass in memory.
        layers: Any = _Lookup(partial(_layer, weakref.proxy(self)), len(rows.starts))
        self.layers = layers

    @property
    def after(self) -> States:
        return self._current

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        if len(key_states) > 1:
            raise ValueError(
                f"the keys of layer {layer_idx} cannot be read here: the module that owns the layer's state caches "
                "them itself"
            )
        return self._rows.update(key_states, value_states, layer_idx)

    def update_indexer(self, indexer_key_states: Tensor, layer_idx: int) -> Tensor:
        return self._rows.update_indexer(indexer_key_states, layer_idx)

    def get_seq_length(self, layer_idx: int | None = None) -> Any:
        return self._rows.get_seq_length(layer_idx)

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, Any]:
        """Number of rows that a layer's attention reads, and an offset: each row's position minus its index among the
        rows read (layers that bias scores by distance, as in Inkling, add the index). If positions are unknown, the
        offset is the first row read.
        """
        start = self._rows.starts.get(layer_idx, 0)
        end = self._rows.get_seq_length() + query_length
        keys = self._rows.positions(start, end)
        return end - start, start if keys is None else keys - torch.arange(end - start, device=keys.device)

    def is_narrowed(self, layer: int) -> bool:
        return self._rows.starts.get(layer, 0) > 0

    @property
    def indexer_position_ids(self) -> Int[Tensor, "A 1 R"] | None:
        """Positions of cached rows on each axis of an indexer; None without cached rows or known positions."""
        known = self._rows.positions(0, self._rows.get_seq_length())
        return known.expand(INDEXED_AXES, 1, -1) if known is not None and len(known) else None

    def has_previous_state(self, layer_idx: int | None = None, state_idx: int | None = None) -> bool:  # noqa: ARG002 - all states of a layer begin together
        return any(layer_idx in (None, layer) for _, layer, _ in self._before)

    def is_recording_past(self, layer_idx: int) -> bool:  # noqa: ARG002 - the same in all layers
        """True, since otherwise modules would update states in place for single tokens, without `update_conv_state`."""
        return True

    def get_conv_state(self, layer_idx: int, state_idx: int = 0) -> Float[Tensor, "B ..."] | None:
        return self._state((CONVOLUTION, layer_idx, state_idx))

    def update_conv_state(
        self,
        conv_states: Float[Tensor, "B C T"],
        layer_idx: int,
        state_idx: int = 0,
        conv_kernel_size: int | None = None,
        **_: Any,
    ) -> Float[Tensor, "B C W"]:
        """Returns the inputs stored before, followed by the new inputs."""
        key = CONVOLUTION, layer_idx, state_idx
        before = self._state(key)
        known = conv_states if before is None else torch.cat([before.to(conv_states.dtype), conv_states], -1)
        size = conv_kernel_size or (known if before is None else before).shape[-1]
        if known.shape[-1] < size:
            known = torch.nn.functional.pad(known, (size - known.shape[-1], 0))
        self._store(key, known[..., -size:])
        return known

    def get_recurrent_state(self, layer_idx: int, state_idx: int = 0) -> Float[Tensor, "B ..."] | None:
        return self._state((RECURRENCE, layer_idx, state_idx))

    def update_recurrent_state(
        self, recurrent_states: Float[Tensor, "B ..."], layer_idx: int, state_idx: int = 0, **_: Any
    ) -> Float[Tensor, "B ..."]:
        self._store((RECURRENCE, layer_idx, state_idx), recurrent_states)
        return recurrent_states

    def get_linear_cache(self, layer_idx: int) -> Float[Tensor, "B ..."] | None:
        return self._state((LINEAR, layer_idx, 0))

    def set_linear_cache(self, layer_idx: int, linear_cache: Float[Tensor, "B ..."]) -> None:
        self._store((LINEAR, layer_idx, 0), linear_cache)

    def _store(self, key: State, state: Tensor) -> None:
        self._current[key] = state
        self._stored()

    def _state(self, key: State) -> Tensor | None:
        if key not in self._current and key in self._before:
            before = self._before[key]
            self._current[key] = before.repeat(self._paths, *[1] * (before.dim() - 1))
        return self._current.get(key)


def _layer(cache: StateLayers, number: int) -> SimpleNamespace:
    return SimpleNamespace(
        record_past=True,
        is_sliding=cache.is_narrowed(number),
        indexer_position_ids=cache.indexer_position_ids,
        conv_states=_Lookup(partial(cache.get_conv_state, number)),
        recurrent_states=_Lookup(partial(cache.get_recurrent_state, number)),
    )


def layers_of(module: Any) -> type[StateLayers]:
    """`StateLayers`, or a subclass that also derives from the family's own cache classes, which its modules require."""
    home = sys.modules[type(module).__module__]
    own = [each for each in vars(home).values() if isinstance(each, type) and each.__module__ == home.__name__]
    caches = [each for each in own if issubclass(each, Cache)]
    return type(StateLayers.__name__, (StateLayers, *caches), {}) if caches else StateLayers


class RecurrentForward(ModuleForward):
    """A module with states; its text can be continued, but not shortened."""

    def __init__(self, module: Any) -> None:
        super().__init__(module)
        self._state_layers = layers_of(module)
        kinds = MASKED.intersection(attention_types(module.config.get_text_config()))
        self._masked = {FULL, *kinds} if kinds else kinds
        """Layer types that get a mask; if there are any, also `FULL`, which is the key of a mask for all layers."""

    def new_cache(self, capacity: int) -> StateCache:
        cache = StateCache(super().new_cache(capacity).store, self._replayed)
        cache.positions = torch.arange(capacity)
        return cache

    def forward(self, cache: KvCache, tokens: Ints, positions: Ints, visible: Mask) -> Float[Tensor, "N V"]:
        held = cast("StateCache", cache)
        drafted, first = held.drafted, held.used - held.length
        drafted.parents = with_parents(drafted.parents[:first], visible)
        batch = path_batch(drafted.parents, first)

        def call(tokens: Tensor, positions: Tensor, biases: Any, rows: Layers, **options: Any) -> Any:
            states = self._state_layers(rows, held.states, len(batch.paths))
            with (
                by_paths(self.owners, batch, drafted, states, stepwise=self.stepwise),
                at_most(batch.padded.shape[1], self.chunks),
            ):
                output = self.output(tokens, positions, biases, states, **options)
            drafted.ends, drafted.after = batch.unpadded, states.after
            return output

        logits: Tensor = self.through(cache, tokens, positions, visible, call).logits[0]
        return logits

    def read(self, cache: KvCache, tokens: Sequence[int]) -> Float[Tensor, "V"]:
        held = cast("StateCache", cache)
        if held.states and self.stepwise:
            return super().read(cache, tokens)
        with at_most(len(tokens), self.chunks):
            return self._read(held, tokens)

    def _read(
        self, cache: StateCache, tokens: Sequence[int], stored: Callable[[], None] | None = None
    ) -> Float[Tensor, "V"]:
        """Reads tokens in one pass without hooks; calls `stored` whenever the module stores a state."""
        positions = range(cache.length, cache.length + len(tokens))

        def call(tokens: Tensor, positions: Tensor, biases: Any, rows: Layers, **options: Any) -> Any:
            states = self._state_layers(rows, cache.states, 1, stored)
            output = self.output(tokens, positions, biases, states, **options)
            cache.drafted = Drafted(ends={tuple(range(len(tokens))): 0}, after=states.after)
            return output

        logits: Tensor = self.through(cache, tokens, positions, np.tri(len(tokens), dtype=np.bool_), call).logits
        cache.keep(positions)
        return logits[0, -1]

    def tapped(self, states: LayerStates) -> "RecurrentForward":
        twin = copy.copy(self)
        # Trial passes find `owners`, `chunks` and `stepwise`. The twin takes them from this object, since trial passes
        # of its own would write to `states`.
        twin.owners, twin.chunks, twin.stepwise = self.owners, self.chunks, self.stepwise
        twin._states = states  # noqa: SLF001 - of the same class
        return twin

    def output(
        self,
        tokens: Int[Tensor, "N"],
        positions: Int[Tensor, "N"],
        biases: Mapping[str, Float[Tensor, "N S"] | None],
        layers: Cache,
        **options: Any,
    ) -> Any:
        masks = {kind: bias if kind in self._masked else None for kind, bias in biases.items()}
        if len(masks) > 1:
            # Hybrid models pass this entry to layers with states as their padding mask; None means no padding.
            masks["linear_attention"] = None
        return super().output(tokens, positions, masks, layers, **options)

    @cached_property
    def owners(self) -> Sequence[Owner]:
        return find_owners(self._module, partial(self._read, self.new_cache(len(TRIED)), TRIED))

    @cached_property
    def chunks(self) -> Sequence[Chunks]:
        """Chunks of the owners; empty on a GPU, where kernels may support only a few chunk sizes."""
        if next(self._module.parameters()).device.type != "cpu":
            return ()
        return [chunks for owner in self.owners if (chunks := chunks_of(owner.module))]

    @cached_property
    def stepwise(self) -> bool:
        """Whether the module ignores earlier states in a pass over several tokens, so that it must get one token at a
        time. The trial writes NaNs to the states: if the module ignores them, the logits have no NaN.
        """
        cache, half = self.new_cache(len(TRIED)), len(TRIED) // 2
        self._read(cache, TRIED[:half])
        recurrent = [key for key in cache.states if key[0] != CONVOLUTION]
        cache.states |= {key: torch.full_like(cache.states[key], torch.nan) for key in recurrent}
        return not self._read(cache, TRIED[half:]).isnan().any() if recurrent else False

    @torch.inference_mode()
    def _replayed(self, cache: StateCache, path: Sequence[int]) -> States:
        states = self._state_layers(Layers(cache.length), cache.states, 1)
        with at_most(len(path), self.chunks):
            for call in cache.drafted.calls:
                computed_again(self.owners[call.owner], call, path, states, stepwise=self.stepwise)
        return states.after
